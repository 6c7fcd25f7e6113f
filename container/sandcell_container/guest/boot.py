"""What a guest is told at its birth, by whichever engine bears it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from dataclasses import fields as fields_of
from pathlib import PurePosixPath
from typing import Any

from sandcell_container.spec import Network, OnRelease

__all__ = ["GuestBoot"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestBoot:
    """The facts of its sandbox, as data. Durations in seconds, paths as user code sees them.

    `python` is the interpreter of the user's environment, `base_env` the whole environment that user code
    starts with, `secrets` what of it is masked in all that is shown, `starts` how many starts of the sandbox this is, `memo_fd` the guest's descriptor of a file for `Memo`, `way_fd` that of the pair by which the
    proxy of a filtered `network` tells what it refused, `refusals_fd` a packet log of what the filter of an open one refused,
    `group_files` descriptors of the files of its control group by controller and name, see `Meter`, `runtime_dir` the folder of `sandcell_runtime`. `user_uid` is None where the guest itself has
    the user's identity. `isolation` and `warnings` are what the engine reports in `info()`. `settings` are
    the SANDCELL_ fields of Config that the host program overrode, as text. `trusted_python` is the interpreter
    below the user's environment and `trusted_site` its folders of packages, where user code can write none of them.
    """

    sandbox_id: str
    name: str
    engine: str
    token: str
    epoch: str
    created_at: float
    on_release: OnRelease
    grace: float
    idle_timeout: float | None
    default_timeout: float | None
    python: str
    runtime_dir: str
    workdir: str = "/workspace"
    home: str = "/home/user"
    user: str = "user"
    user_uid: int | None = None
    hostname: str = "sandbox"
    image: str | None = None
    network: Network = "none"
    way_fd: int | None = None
    refusals_fd: int | None = None
    starts: int = 1
    memo_fd: int | None = None
    group_version: int = 0
    group_files: dict[str, int] = field(default_factory=dict[str, int])
    base_env: dict[str, str] = field(default_factory=dict[str, str])
    secrets: dict[str, str] = field(default_factory=dict[str, str], repr=False)
    isolation: dict[str, Any] = field(default_factory=dict[str, Any])
    limits: dict[str, Any] = field(default_factory=dict[str, Any])
    warnings: tuple[str, ...] = ()
    settings: dict[str, str] = field(default_factory=dict[str, str])
    trusted_python: str | None = None
    trusted_site: tuple[str, ...] = ()

    @property
    def scratch_dir(self) -> str:
        """Where what serves the sandbox keeps files as the user; nothing makes it before it is needed."""
        return f"{self.home}/.cache/sandcell"

    def folder_of(self, cwd: str | None) -> str:
        """Return the absolute folder that a request names by `cwd`, however it writes it; "" and None are the workdir."""
        return str(PurePosixPath(self.workdir, cwd or ""))

    def to_json(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_json(cls, text: bytes) -> GuestBoot:
        known = {each.name for each in fields_of(cls)}
        fields = {
            name: value for name, value in json.loads(text).items() if name in known
        }  # of another version
        for name in ("warnings", "trusted_site"):
            fields[name] = tuple(fields.get(name, ()))
        if isinstance(fields.get("network"), list):
            fields["network"] = tuple(fields["network"])
        return cls(**fields)

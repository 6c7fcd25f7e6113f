"""The one place for configuration: every default with its unit, overridable as SANDCELL_<FIELD>."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

from sandcell_container.errors import ErrorCode, error
from sandcell_container.spec import parse_size

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["PRELOAD_NONE", "Config", "settings_of"]

PRELOAD_NONE = "none"  # an empty variable is none that is set


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Settings of a host program and of the guests that it makes. Durations in seconds, sizes in bytes.

    Source of the defaults: CONTRACT section 5.
    """

    # which sandbox
    engine: str = "auto"
    image: str | None = None
    url: str | None = None
    token: str | None = None
    sandbox: str | None = None
    context: str | None = None
    kernel_options: str | None = None  # JSON, for the sandbox behind a notebook: docs/kernel.md
    # the host program
    state_dir: str | None = None  # where sandboxes of this machine are recorded; default below XDG_STATE_HOME
    first_uid: int = 61200  # a root host program gives each sandbox a uid of its own from here
    uid_count: int = 1000
    log_level: str = "WARNING"
    log_format: str = "text"
    start_timeout: float = 60.0
    connect_timeout: float = 10.0  # reaching a guest
    reply_timeout: float = 30.0  # a guest that answers nothing at all to a request that does not wait
    detach_keys: str = (
        "ctrl-p,ctrl-q"  # leave a terminal of `sandcell shell` without ending it; "none": nothing does
    )
    # how guests of containers are reached: by a socket in a shared folder, "auto" or through the daemon where that
    # cannot work, "always" through the daemon
    relay: str = "auto"
    public_host: str | None = (
        None  # exposed ports are named PORT-TOKEN.<this>, which leads here; None: by an address
    )
    pull: str = "missing"  # images of other people's are fetched: missing, always, never
    keep_unused: float = 30 * 86400.0  # environments and images that nothing uses are pruned after it
    build_network: str | None = None  # of image builds, as the daemon calls it; None: its default
    build_ca_bundle: str | None = None  # a file of certificates that pip trusts in image builds
    build_index_url: str | None = None  # where pip looks in image builds
    # the guest
    default_timeout: float = 300.0
    idle_timeout: float = 600.0
    lease_grace: float = 0.0  # a gateway sets 60
    cull_warning: float = 30.0  # everyone hears of a cull so long ahead
    journal_memory: int = 2**20
    journal_disk: int = 64 * 2**20
    journal_terminal: int = 256 * 2**10  # of a terminal's output, for each new viewer
    max_output: int = 2**20  # each stream of an exec, in the answer
    max_output_limit: int = 64 * 2**20
    max_body: int = 8 * 2**20  # a request body that is not a file
    max_connections: int = 1000
    max_port_connections: int = 256  # to what listens in the sandbox, of all its ports
    request_timeout: float = 20.0  # for the rest of a request that has begun: its head, or a body that stalls
    max_text_result: int = 2**20
    max_image_result: int = 10 * 2**20
    max_queue: int = 64  # of a context, of a session
    max_records: int = 200  # finished records kept of each kind
    max_message: int = 64 * 2**20  # one message of a kernel, 200 MB floods are cut here
    max_tool_calls: int = 100  # of one run, to the tools of its client
    max_tool_size: int = 2**20  # of a call's arguments, of its result
    tool_timeout: float = 60.0  # of one call; a Tool may have its own
    kill_grace: float = 2.0
    interrupt_grace: float = 5.0
    spawn_timeout: float = 10.0  # one start of a process by the spawner
    input_timeout: float = (
        20.0  # what is typed into a terminal that reads nothing is dropped after it, and that told
    )
    watch_linger: float = 60.0  # a watch of files that nobody follows ends after it
    kernel_start_timeout: float = 60.0
    inspect_timeout: float = 1.0  # complete and inspect, empty after
    fork_linger: float = 300.0  # after the last start of a kernel; 0: each kernel is a start of its own
    fork_start: str = "asked"  # when the fork server is: with the first kernel, or "ahead", with the sandbox
    # What a fork server imports in advance: names separated by blanks, or "none". The inline backend itself needs a kernel.
    preload: str = (
        "stack_data pygments.formatters.terminal256 "
        "numpy pandas matplotlib.pyplot matplotlib.backends.backend_agg IPython.core.pylabtools"
    )

    @classmethod
    def from_environ(cls, environ: Mapping[str, str] | None = None) -> Config:
        """Read SANDCELL_<FIELD> of every field from `environ` (default: the process's own).

        Raises:
            InvalidRequest (INVALID_ARGUMENT): a value does not fit its field.
        """
        return cls.from_settings(settings_of(os.environ if environ is None else environ))

    @classmethod
    def from_settings(cls, settings: Mapping[str, str]) -> Config:
        """Read fields from text by their own names, as `GuestBoot.settings` carries them."""
        hints = get_type_hints(cls)
        known = {field.name for field in fields(cls)}
        return cls(
            **{name: _value(name, text, hints[name]) for name, text in settings.items() if name in known}
        )

    @property
    def preloaded(self) -> tuple[str, ...]:
        """The modules that a fork server imports in advance. No text is no setting, so there is a word for none."""
        return () if self.preload == PRELOAD_NONE else tuple(self.preload.split())

    @property
    def state_path(self) -> Path:
        """The folder of the registry on this machine."""
        if self.state_dir:
            return Path(self.state_dir).absolute()
        base = os.environ.get("XDG_STATE_HOME", "")
        if not os.path.isabs(base):  # is to be ignored. Source: XDG Base Directory Specification
            base = os.path.join(os.path.expanduser("~"), ".local", "state")
        return Path(base) / "sandcell"


def settings_of(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the SANDCELL_<FIELD> variables of `environ` by field name, empty ones left out."""
    names = (field.name for field in fields(Config))
    found = ((name, environ.get(f"SANDCELL_{name.upper()}")) for name in names)
    return {name: text for name, text in found if text}


def _value(name: str, text: str, hint: Any) -> Any:
    try:
        if hint is int:
            return parse_size(text, what=name)
        if hint is float:
            return _seconds(text)
    except ValueError:
        raise error(
            ErrorCode.INVALID_ARGUMENT, f"SANDCELL_{name.upper()}={text[:40]!r} is no number of seconds"
        ) from None
    return _level(text) if name == "log_level" else text


def _seconds(text: str) -> float:
    seconds = float(text)
    if not seconds >= 0:  # NaN neither
        raise ValueError(text)
    return seconds


def _level(text: str) -> str:
    """Return a level as `logging` calls it."""
    name = text.strip().upper()
    if name not in logging.getLevelNamesMapping():
        raise error(
            ErrorCode.INVALID_ARGUMENT,
            f"SANDCELL_LOG_LEVEL={text[:40]!r} is no level",
            hint="DEBUG, INFO, WARNING or ERROR",
        )
    return name

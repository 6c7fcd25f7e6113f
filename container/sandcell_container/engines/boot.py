"""The boot facts of a guest, as the engines of this machine fill them in."""

from __future__ import annotations

import json
import marshal
import secrets
from dataclasses import asdict
from importlib.machinery import SourceFileLoader
from importlib.util import MAGIC_NUMBER
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from sandcell_container.guest.boot import GuestBoot

if TYPE_CHECKING:
    from typing import Any

    from sandcell_container.engine import Record
    from sandcell_container.engines.environment import PythonEnvironment
    from sandcell_container.spec import SandboxSpec

__all__ = ["Place", "new_boot", "spawner_bytecode", "spawner_command", "spawner_path"]

_TOOLKIT = "toolkit"  # of sandcell_runtime
_REST_OF_HEADER = 12  # bytes


class Place(NamedTuple):
    """Where things are, as user code sees it. `python` is the interpreter of its environment."""

    python: str
    runtime_dir: str
    workdir: str
    home: str
    user: str
    hostname: str


def new_boot(
    spec: SandboxSpec,
    record: Record,
    place: Place,
    *,
    base_env: dict[str, str],
    isolation: dict[str, Any],
    warnings: tuple[str, ...],
    settings: dict[str, str],
    trusted: PythonEnvironment | None = None,
) -> GuestBoot:
    """Return what the guest of `record` is told. `base_env` is the whole environment of user code but what `spec` adds;
    `trusted` is what user code's Python stands on, where user code cannot write it."""
    return GuestBoot(
        sandbox_id=record.id,
        name=record.name,
        engine=record.engine,
        token=record.token,
        epoch=secrets.token_hex(8),
        created_at=record.created_at,
        on_release=record.on_release,
        grace=spec.grace,
        idle_timeout=spec.idle_timeout,
        default_timeout=spec.default_timeout,
        python=place.python,
        runtime_dir=place.runtime_dir,
        workdir=place.workdir,
        home=place.home,
        user=place.user,
        hostname=place.hostname,
        image=record.image,
        network=spec.network,
        starts=record.starts + 1,
        base_env=_with_toolkit(base_env, place.runtime_dir) | spec.env | spec.secrets,
        secrets=spec.secrets,
        isolation=isolation,
        limits=asdict(spec.limits),
        warnings=warnings,
        settings=settings,
        trusted_python=trusted.executable if trusted else None,
        trusted_site=trusted.site_dirs if trusted else (),
    )


def _with_toolkit(base_env: dict[str, str], runtime_dir: str) -> dict[str, str]:
    """Return the environment with the commands that user code is given on its PATH, last: `sandcell-tool`."""
    return {**base_env, "PATH": f"{base_env['PATH']}:{runtime_dir}/{_TOOLKIT}"}


def spawner_path() -> Path:
    """Return the program that is the spawner: one file, standard library only."""
    return Path(__file__).parents[1] / "guest" / "spawner.py"


def spawner_bytecode() -> bytes:
    """Return the spawner compiled for the interpreter that runs this, as a program file: as source it would be compiled at each
    start of a sandbox, while that waits. Source: PEP 552, of which the main program's header is not looked at but for the first word.
    """
    path = str(spawner_path())
    code = SourceFileLoader("spawner", path).get_code("spawner")
    return MAGIC_NUMBER + bytes(_REST_OF_HEADER) + marshal.dumps(code)


def spawner_command(
    python: str, path: str, mode: Literal["marks", "keepers"], limits: dict[str, int]
) -> tuple[str, ...]:
    """Return the command of a spawner at `path` that finds its socket at descriptor 3.

    "marks" tells process trees apart by namespaces, which needs CAP_SYS_ADMIN; "keepers" by processes of its own.
    """
    return (python, "-I", "-S", path, "3", mode, json.dumps({"limits": limits}))

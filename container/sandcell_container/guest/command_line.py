"""A command as its caller gives it: words, a line for a shell, or nothing but the shell."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sandcell_container.errors import SandcellError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sandcell_container.guest.job import Job
    from sandcell_container.guest.spawn import Spawner
    from sandcell_container.guest.start import Start

__all__ = ["argv_of", "start_command"]

_SHELLS = ("bash", "sh")


def argv_of(command: str | Sequence[str] | None) -> tuple[str, ...]:
    """Return the words of a command; a text is a line for bash, None is bash itself, which reads ~/.bashrc."""
    if command is None:
        return (_SHELLS[0], "-i")
    return (_SHELLS[0], "-c", command) if isinstance(command, str) else tuple(command)


async def start_command(spawner: Spawner, command: str | Sequence[str] | None, start: Start) -> Job:
    """Start `command` as `start` says, whatever its own `argv` is: by `sh` what is for a shell, where there is no bash.

    Raises as `Spawner.start`.
    """
    argv = argv_of(command)
    try:
        return await spawner.start(replace(start, argv=argv))
    except SandcellError as problem:
        lacks_bash = problem.details.get("errno") == "ENOENT" and problem.details.get("step") == "exec"
        if not (command is None or isinstance(command, str)) or not lacks_bash:
            raise
        return await spawner.start(replace(start, argv=(_SHELLS[1], *argv[1:])))

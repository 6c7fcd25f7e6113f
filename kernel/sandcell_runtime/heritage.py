"""What a run starts goes on in its name: threads, child processes and forks, also when another run is on by then.

Tasks and callbacks of a loop need nothing: asyncio copies the context of whoever makes them. For the others Python has
no public hook but for forks, so two methods of the standard library are wrapped.
"""

from __future__ import annotations

import functools
import os
import subprocess
import threading
from typing import TYPE_CHECKING, Any

from sandcell_runtime.pipes import STDERR, STDOUT

if TYPE_CHECKING:
    from collections.abc import Callable

    from sandcell_runtime.outlet import Outlet

__all__ = ["bequeath_to_children", "bequeath_to_threads"]


def bequeath_to_threads(bequest: Callable[[], Callable[[], None]]) -> None:
    """Call `bequest` in whoever starts a thread, and what it returns in that thread, before anything else."""
    start = threading.Thread.start

    @functools.wraps(start)
    def start_with_bequest(self: threading.Thread) -> None:
        take_on, run = bequest(), self.run

        def run_with_bequest() -> None:
            del self.run  # what shadows it: a thread that refers to itself lives on
            take_on()
            run()

        self.run = run_with_bequest  # type: ignore[method-assign]
        try:
            start(self)
        except BaseException:
            self.__dict__.pop("run", None)
            raise

    threading.Thread.start = start_with_bequest  # type: ignore[method-assign]


def bequeath_to_children(outlet: Outlet) -> None:
    """Give children that inherit stdout and stderr those of the run that starts them."""
    os.register_at_fork(after_in_child=outlet.settle_in_child)
    find: Any = getattr(subprocess.Popen, "_get_handles", None)
    if find is None:  # another Python may have another way: then children belong to the newest run
        return

    @functools.wraps(find)
    def find_with_bequest(self: Any, stdin: Any, stdout: Any, stderr: Any) -> tuple[Any, ...]:
        handles = find(self, stdin, stdout, stderr)
        pipes = outlet.foreign_pipes
        if pipes is None:
            return tuple(handles)
        *stdin_handles, stdout_read, stdout_write, stderr_read, stderr_write = handles
        if stdout is None:
            stdout_write = pipes.descriptor(STDOUT)
        if stderr is None:
            stderr_write = pipes.descriptor(STDERR)
        elif stderr == subprocess.STDOUT and stdout is None:
            stderr_write = stdout_write
        return (*stdin_handles, stdout_read, stdout_write, stderr_read, stderr_write)

    setattr(subprocess.Popen, "_get_handles", find_with_bequest)  # noqa: B010 -- a name that no type knows

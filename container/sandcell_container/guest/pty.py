"""A pseudo-terminal as the guest has it: the master's bytes in both ways, its size, its end. No process is known here."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import stat
import struct
import termios
from typing import TYPE_CHECKING, NamedTuple

from sandcell_container.errors import ErrorCode, error

if TYPE_CHECKING:
    from collections.abc import Callable

    from sandcell_container.errors import SandcellError
    from sandcell_container.guest.user_worker import UserWorker

__all__ = ["LARGEST", "Pty", "PtyEnds", "Size", "open_pty"]

LARGEST = 10_000
"""Columns and rows that a terminal can have: the kernel takes more, the programs on it take memory for each."""

_CHUNK = 2**16
_CHUNKS_AT_ONCE = 4  # a read of a master returns 4 KiB at most; and one entry of a journal is not to fill it
_MOST_LEFT = (
    2**21
)  # more than a PTY holds: what comes after that is written by somebody who is none of its tree
_IUTF8 = 0o40000  # the line editor of the kernel erases characters, not bytes; termios.h of Linux


class Size(NamedTuple):
    """In characters."""

    cols: int
    rows: int


class PtyEnds(NamedTuple):
    """Both ends, open; whoever has them closes them."""

    master: int
    slave: int

    def close(self) -> None:
        os.close(self.master)
        os.close(self.slave)


async def open_pty(size: Size, worker: UserWorker | None) -> PtyEnds:
    """Return a new PTY that belongs to the user, so that what runs on it can open it by its name.

    It belongs to whoever opens it: to the `worker`, or to this process, where that has the user's identity itself.

    Raises:
        Unavailable (START_FAILED): the sandbox has none left, or no /dev/ptmx. Else as `UserWorker.ask`.
    """
    try:
        pty = PtyEnds(*os.openpty()) if worker is None else await _ask_for_pty(worker)
    except OSError as problem:
        raise _no_pty(problem.strerror or str(problem)) from problem
    try:
        _prepare(pty.master, size)
    except (OSError, termios.error) as problem:
        pty.close()
        raise _no_pty(str(problem)) from problem
    return pty


async def _ask_for_pty(worker: UserWorker) -> PtyEnds:
    answer = await worker.ask("terminal", "a new terminal")
    try:
        if answer.number:
            raise _no_pty(os.strerror(answer.number))
        ends = answer.take_fds()
    finally:
        answer.close()
    if len(ends) == 2 and all(map(_is_terminal, ends)):
        return PtyEnds(*ends)
    for end in ends:
        os.close(end)
    raise _no_pty("the worker gave none")


def _no_pty(reason: str) -> SandcellError:
    return error(
        ErrorCode.START_FAILED,
        f"there is no terminal to be had: {reason}",
        hint="delete some of the sandbox's",
    )


def _is_terminal(fd: int) -> bool:
    """Look again at what the worker has opened."""
    return stat.S_ISCHR(os.fstat(fd).st_mode) and os.isatty(fd)


def _prepare(master: int, size: Size) -> None:
    os.set_blocking(master, False)
    modes = termios.tcgetattr(master)
    modes[0] |= _IUTF8
    termios.tcsetattr(master, termios.TCSANOW, modes)
    _set_size(master, size)


def _set_size(fd: int, size: Size) -> None:
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", size.rows, size.cols, 0, 0))


class Pty:
    """One PTY at work: what comes out goes to `take` from the loop, until `close`.

    It keeps a slave end of its own: else the master would say that all is over whenever no process happens to have
    the terminal open, as a shell that redirects itself for a moment.
    """

    def __init__(self, ends: PtyEnds, take: Callable[[bytes], None]) -> None:
        self._ends = ends
        self._take = take
        self._loop = asyncio.get_running_loop()
        self._turn = asyncio.Lock()
        self._waiting: asyncio.Future[None] | None = None
        self._is_open = True
        self._is_hung_up = False
        self._is_taking = False
        self.resume()

    @property
    def is_over(self) -> bool:
        """Whether it was closed, or its programs are gone."""
        return not self._is_open or self._is_hung_up

    async def write(self, data: bytes, *, patience_s: float) -> int:
        """Type `data`, behind what others are typing, and return how many bytes of it were taken.

        The terminal takes some kilobytes that no program has read yet; then this waits. Fewer are taken where that takes
        longer than `patience_s`, or the terminal is over. Cancelled, it has typed the beginning.
        """
        taken = 0
        try:
            async with asyncio.timeout(patience_s), self._turn:
                while taken < len(data) and not self.is_over:
                    taken += await self._write_some(memoryview(data)[taken:])
        except TimeoutError:
            pass  # told by what was taken
        return taken

    def resize(self, size: Size) -> None:
        """Change the size; the programs in the foreground get SIGWINCH."""
        if self._is_open:
            _set_size(self._ends.master, size)

    def pause(self) -> None:
        """Take nothing until `resume`: the kernel holds it, and then the programs wait. Twice is fine, for both."""
        if self._is_taking:
            self._is_taking = False
            self._loop.remove_reader(self._ends.master)

    def resume(self) -> None:
        if not (self._is_taking or self.is_over):
            self._is_taking = True
            self._loop.add_reader(self._ends.master, self._on_readable)

    def close(self) -> None:
        """Take what is there, and no more after it. Who writes, returns. Twice is fine."""
        if not self._is_open:
            return
        self._is_open = False
        self.pause()
        left = _MOST_LEFT
        while left > 0 and (data := self._read()):
            left -= len(data)
            self._take(data)
        self._loop.remove_writer(self._ends.master)
        self._wake()
        self._ends.close()

    async def _write_some(self, data: memoryview) -> int:
        try:
            return os.write(self._ends.master, data)
        except BlockingIOError:
            await self._writable()
        except OSError as problem:
            if problem.errno != errno.EIO:
                raise
            self._is_hung_up = True
        return 0

    def _on_readable(self) -> None:
        data = self._read()
        if data:
            self._take(data)
        elif data is not None:
            self.pause()

    def _read(self) -> bytes | None:
        """Return what is there, some reads at once; empty when it was hung up, None where there is nothing yet."""
        found = list[bytes]()
        while len(found) < _CHUNKS_AT_ONCE:
            try:
                data = os.read(self._ends.master, _CHUNK)
            except BlockingIOError:
                return b"".join(found) or None
            except OSError as problem:
                if problem.errno != errno.EIO:
                    raise
                self._is_hung_up = True
                break
            found.append(data)
        return b"".join(found)

    async def _writable(self) -> None:
        waiting = self._waiting = self._loop.create_future()
        self._loop.add_writer(self._ends.master, self._wake)
        try:
            await waiting
        finally:
            self._waiting = None
            if self._is_open:
                self._loop.remove_writer(self._ends.master)

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

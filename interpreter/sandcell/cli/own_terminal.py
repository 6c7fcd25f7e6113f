"""The terminal that this program itself runs on: raw while a program of the sandbox has it, and put back in every ending."""

from __future__ import annotations

import asyncio
import errno
import os
import sys
import termios
import tty
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from sandcell.cli.screen_modes import ScreenModes
from sandcell_container.errors import ErrorCode, error

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = ["OwnTerminal", "WindowSize", "open_terminal"]

_CHUNK = 2**16
_DEVICE = "/dev/tty"


class WindowSize(NamedTuple):
    """In characters."""

    cols: int
    rows: int


@contextmanager
def open_terminal() -> Generator[OwnTerminal]:
    """Yield the terminal that controls this program.

    It is opened anew: it must not block here, and what the program was started with belongs to others as well.

    Raises:
        InvalidRequest (INVALID_ARGUMENT): standard input or output is none, or there is none.
    """
    try:
        if not (os.isatty(sys.stdin.fileno()) and os.isatty(sys.stdout.fileno())):
            raise OSError(errno.ENOTTY, "standard input or output is something else")
        fd = os.open(_DEVICE, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as problem:
        raise error(
            ErrorCode.INVALID_ARGUMENT,
            f"there is no terminal here: {problem.strerror}",
            hint="sandcell exec runs a command without one",
        ) from problem
    try:
        yield OwnTerminal(fd)
    finally:
        os.close(fd)


class OwnTerminal:
    """See `open_terminal`."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._modes = ScreenModes()
        self._saved: list[Any] | None = None

    @property
    def size(self) -> WindowSize:
        """What it is now; where it does not say, as a screen of old."""
        cols, rows = os.get_terminal_size(self.fd)
        return WindowSize(cols or 80, rows or 24)

    @contextmanager
    def raw(self) -> Generator[None]:
        """Let every key through as it is inside the block. Behind it the terminal is as it was before, and what a program
        has switched on in it is off."""
        self._saved = termios.tcgetattr(self.fd)
        try:
            self.make_raw()
            yield
        finally:
            # Neither waits: the terminal may be stopped, or gone.
            with suppress(OSError):
                os.write(self.fd, self._modes.undo())
            with suppress(termios.error):
                termios.tcsetattr(self.fd, termios.TCSANOW, self._saved)

    def make_raw(self) -> None:
        """Make it raw again: a shell that stopped this program has made it its own. Nothing where it is gone."""
        with suppress(termios.error):
            tty.setraw(self.fd, termios.TCSANOW)

    def read(self) -> bytes | None:
        """Return what was typed, empty when the terminal is gone, None where there is nothing yet."""
        try:
            return os.read(self.fd, _CHUNK)
        except BlockingIOError:
            return None
        except OSError:
            return b""

    def tell(self, text: str) -> None:
        """Show a line of ours, where the terminal takes it now."""
        with suppress(OSError):
            os.write(self.fd, f"\r\nsandcell: {text}\r\n".encode())

    async def write(self, data: bytes) -> None:
        """Show `data`, as fast as the terminal takes it; where it is gone nothing happens."""
        self._modes.feed(data)
        left = memoryview(data)
        while left:
            try:
                left = left[os.write(self.fd, left) :]
            except BlockingIOError:
                await self._writable()
            except OSError:
                return  # SIGHUP follows

    async def _writable(self) -> None:
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[None] = loop.create_future()
        loop.add_writer(self.fd, _wake, ready)
        try:
            await ready
        finally:
            loop.remove_writer(self.fd)


def _wake(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)

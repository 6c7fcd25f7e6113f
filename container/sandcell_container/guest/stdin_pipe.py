"""Standard input on its way into a process: bytes go into its pipe as fast as it reads them, and no faster."""

from __future__ import annotations

import asyncio
import fcntl
import os

__all__ = ["StdinPipe"]

_LARGE = 2**20  # bytes of a pipe, where more is to come than a plain one takes


class StdinPipe:
    """One writer. `read_end` is for the process, closed by `close_read_end` once that has it.

    `data` is written first. With `more` what `send` gives follows, until `end`. Give it back with `close`.
    """

    def __init__(self, data: bytes = b"", *, more: bool = False) -> None:
        self.read_end, self._fd = os.pipe()
        os.set_blocking(self._fd, False)
        self._rest = memoryview(data)
        self._is_ended = not more
        self._is_refused = False
        self._is_given_up = False
        self._is_waiting = False
        self._taken: asyncio.Future[None] | None = None
        if more:
            self._enlarge()
        self._write()

    @property
    def is_whole(self) -> bool:
        """Whether all was given that the process is to read, or it has closed its end and reads no more."""
        return self._is_ended or self._is_refused

    async def send(self, data: bytes) -> None:
        """Write `data` and return when the pipe has taken it. One sender at a time.

        Where the process reads no more this waits until `close`: nobody is to send what nobody reads.
        """
        if self._is_given_up:
            return
        if not self._is_refused:
            self._rest = memoryview(data)
            self._write()
        if self._rest or self._is_refused:
            self._taken = asyncio.get_running_loop().create_future()
            await self._taken

    def end(self) -> None:
        """Say that no more comes: behind what was sent the process reads the end of file."""
        self._is_ended = True
        if not self._rest:
            self._hang_up()

    def close_read_end(self) -> None:
        """The process has it now, or there is none. Twice is fine."""
        if self.read_end >= 0:
            os.close(self.read_end)
            self.read_end = -1

    def give_up(self) -> None:
        """The rest will never come: wait for no sender any more. The process does not see an end of file, which would be
        a lie, but nothing, until `close`."""
        self._is_given_up = True
        self._rest = memoryview(b"")
        self._wake()

    def close(self) -> None:
        """Write no more. What the process has not read by now is dropped. Twice is fine."""
        self.close_read_end()
        self.give_up()
        self._hang_up()

    def _write(self) -> None:
        try:
            while self._rest:
                self._rest = self._rest[os.write(self._fd, self._rest) :]
        except BlockingIOError:
            self._wait()
            return
        except BrokenPipeError:
            self._is_refused = True
            self._rest = memoryview(b"")
            self._hang_up()
            return
        if self._is_ended:
            self._hang_up()
        else:
            self._stop_waiting()
        self._wake()

    def _wait(self) -> None:
        if not self._is_waiting:
            self._is_waiting = True
            asyncio.get_running_loop().add_writer(self._fd, self._write)

    def _stop_waiting(self) -> None:
        if self._is_waiting:
            self._is_waiting = False
            asyncio.get_running_loop().remove_writer(self._fd)

    def _hang_up(self) -> None:
        if self._fd >= 0:
            self._stop_waiting()
            os.close(self._fd)
            self._fd = -1

    def _wake(self) -> None:
        if self._taken is not None and not self._taken.done():
            self._taken.set_result(None)

    def _enlarge(self) -> None:
        try:
            fcntl.fcntl(self._fd, fcntl.F_SETPIPE_SZ, _LARGE)
        except OSError:
            pass  # the user's pipes have used up what all of them may have: a plain one does it too, slower

"""A page in a browser that looks at a terminal of the sandbox, and types into it. What the page sends is not believed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from sandcell.cli.replayed import Replayed
from sandcell.errands.screen import TerminalScreen
from sandcell.terminal_link import TerminalLink
from sandcell_container.errors import SandcellError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sandcell.guest_address import GuestAddress

__all__ = ["Viewer"]

_COLS, _ROWS = 80, 24
_SLICE = 1024  # bytes that are shown at once, some milliseconds


class _Said(msgspec.Struct):
    """A frame of the page."""

    keys: str = ""
    size: tuple[int, int] | None = None


class Viewer:
    """See the module. `tell` is awaited with each patch; the terminal waits meanwhile."""

    def __init__(
        self, guest: GuestAddress, terminal_id: str, *, tell: Callable[[dict[str, Any]], Awaitable[None]]
    ) -> None:
        self._tell = tell
        self._screen = TerminalScreen(_COLS, _ROWS)
        self._replayed = Replayed()
        self._notes = list[str]()
        self._sized = asyncio.Event()
        self._link = TerminalLink(guest, terminal_id, show=self._show, tell=self._notes.append)

    async def run(self) -> str:
        """Show the terminal until its end, and return how that was, in words. Cancelling leaves it as it is."""
        await self._sized.wait()  # a page that is not laid out yet would make it 80 columns wide for a moment
        try:
            ended = await self._link.run()
        except SandcellError as problem:
            return problem.message
        code = ended.exit_code
        return f"it has ended: {ended.end.cause}" + (f" with {code}" if code is not None else "")

    async def take(self, message: str | bytes) -> None:
        """Take a frame of the page; one that cannot be read is nothing."""
        try:
            said = msgspec.json.decode(message, type=_Said)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return
        if said.size is not None:
            self._screen.resize(*said.size)
            self._link.resize(*self._screen.size)
            self._sized.set()
            await self._tell(self._screen.patch())
        if said.keys:
            await self._link.type(said.keys.encode("utf-8", "replace"))

    async def _show(self, data: bytes, is_replayed: bool) -> None:  # noqa: FBT001 -- as the link calls it
        text = self._replayed.feed(data) if is_replayed else self._replayed.rest() + data
        answer = ""
        for at in range(0, len(text), _SLICE):
            answer += self._screen.feed(text[at : at + _SLICE])
            await asyncio.sleep(0)  # the notebook's cells have turns between
        if answer and not is_replayed:
            await self._link.type(answer.encode())
        notes, self._notes[:] = list(self._notes), []
        await self._tell({**self._screen.patch(), **({"notes": notes} if notes else {})})

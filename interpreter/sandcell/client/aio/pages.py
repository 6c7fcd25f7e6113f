"""Pages of a journal as they come: bytes, and where the next one begins."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sandcell_container.frames import FrameDecoder

if TYPE_CHECKING:
    from sandcell.client.aio.transport import AsyncTransport
    from sandcell.client.protocol import Request
    from sandcell_container.frames import Entry

__all__ = ["EntryPage", "fetch_page"]


class EntryPage(NamedTuple):
    """One page: `cursor` is that of the next one; nothing comes after one that `is_done`; something in front of one that
    `is_truncated`, or in it, is missing."""

    entries: list[Entry]
    epoch: str
    cursor: str
    is_done: bool
    is_truncated: bool


async def fetch_page(transport: AsyncTransport, request: Request) -> EntryPage:
    """Ask for one page of the events of a process."""
    answer = await transport.open(request)
    try:
        body = await answer.read_all()
    finally:
        answer.close()
    named = answer.head.headers
    return EntryPage(
        entries=list(FrameDecoder().feed(body)),
        epoch=named["sandcell-epoch"],
        cursor=named["sandcell-cursor"],
        is_done=named["sandcell-ended"] == "true",
        is_truncated=named["sandcell-truncated"] == "true",
    )

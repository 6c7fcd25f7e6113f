# Made from ../aio/news.py by `python -m sandcell.client.generate`: change that file, not this one.
"""News of a sandbox, followed from a place on to the end of its start."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandcell.client.blocking.follow import read_entries
from sandcell.client.protocol import Cut
from sandcell.events import status_of

if TYPE_CHECKING:
    from collections.abc import Generator

    from sandcell.client.blocking.transport import Transport
    from sandcell.client.protocol import Request
    from sandcell.events import StatusChanged

__all__ = ["follow_status"]


def follow_status(transport: Transport, request: Request) -> Generator[StatusChanged]:
    """Yield what `request` is answered with. Ends behind the last "stopping".

    Raises:
        Gone (SANDBOX_GONE): the sandbox ended without that. More: see `AsyncTransport.open`.
    """
    answer = transport.open(request)
    is_ending = False
    try:
        for followed in read_entries(transport, answer):
            event = status_of(followed.entry, followed.cursor.epoch)
            if event is not None:
                is_ending = event.status == "stopping" or (is_ending and event.status == "refused")
                yield event
    except Cut as cut:
        if not is_ending:
            raise transport.missed(str(cut), admitted=True) from cut
    finally:
        answer.close()

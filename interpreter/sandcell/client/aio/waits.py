"""What processes and terminals are waited for by."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from sandcell.client.protocol import Request
from sandcell.client.turns import is_past, turn_of
from sandcell_container.errors import WaitTimeout

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sandcell.client.aio.transport import AsyncTransport

__all__ = ["wait_in_turns"]

T = TypeVar("T")


async def wait_in_turns(
    transport: AsyncTransport, path: str, query: Mapping[str, str], kind: type[T], deadline: float | None
) -> T:
    """Ask for it again and again, each time for a while: the guest answers as soon as it has come.

    Raises:
        WaitTimeout (WAIT_TIMEOUT): it had not come by `deadline`.
    """
    while True:
        turn = turn_of(deadline)
        request = Request(
            method="GET",
            path=path,
            query={**query, "timeout": f"{turn:.3f}"},
            patience=turn + transport.reply_timeout,
        )
        try:
            return await transport.call(request, kind)
        except WaitTimeout:
            if is_past(deadline):
                raise

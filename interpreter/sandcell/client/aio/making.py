"""What is made in a sandbox for one caller: given up on the way, it is not left to nobody."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from sandcell.client.protocol import Request, path_of
from sandcell_container.errors import SandcellError

if TYPE_CHECKING:
    from sandcell.client.aio.transport import AsyncTransport

__all__ = ["make", "own_place"]

T = TypeVar("T")

_PATIENCE_S = 5.0


async def make(
    transport: AsyncTransport, request: Request, answer: type[T], *, own: tuple[str, str] | None
) -> T:
    """Send `request`, which makes something, and return its answer.

    Given up (^C, cancelled), what it made is taken back where nobody else knows of it: `own` is then its place and id. The
    guest does so too, as long as it is at it; this is for an answer that was on its way.
    """
    try:
        return await transport.call(request, answer)
    except SandcellError:
        raise
    except BaseException:
        if own is not None:
            await _take_back(transport, own)
        raise


def own_place(noun: str, given: str | None, made: str | None) -> tuple[str, str] | None:
    """Return where that is which is made with the id `made`, None where the caller has given the id and so knows it."""
    return None if given is not None or made is None else (noun, made)


async def _take_back(transport: AsyncTransport, own: tuple[str, str]) -> None:
    try:
        await transport.fetch(Request(method="DELETE", path=path_of(*own), patience=_PATIENCE_S, wakes=False))
    except SandcellError:
        pass  # it was never made, or its sandbox has ended

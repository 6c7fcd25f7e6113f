"""The lease: a connection that is held open for as long as a handle is, and says so to the guest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandcell.client.protocol import Request, path_of

if TYPE_CHECKING:
    from typing import Literal

    from sandcell.client.aio.answer import AsyncAnswer
    from sandcell.client.aio.transport import AsyncTransport

__all__ = ["AsyncLease"]


class AsyncLease:
    """While it is held the sandbox is in use. Nothing is read from it: the guest's news are a few bytes."""

    def __init__(self, answer: AsyncAnswer) -> None:
        self._answer = answer

    @classmethod
    async def take(cls, transport: AsyncTransport, kind: Literal["owner", "attached"]) -> AsyncLease:
        """Return the lease when the guest has it."""
        request = Request(
            method="GET",
            path=path_of("events"),
            query={"lease": kind, "client": transport.client_id},
            wakes=False,
        )
        return cls(await transport.open(request))

    def release(self) -> None:
        """Let go. Twice is fine."""
        self._answer.close()

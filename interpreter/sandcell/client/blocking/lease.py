# Made from ../aio/lease.py by `python -m sandcell.client.generate`: change that file, not this one.
"""The lease: a connection that is held open for as long as a handle is, and says so to the guest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandcell.client.protocol import Request, path_of

if TYPE_CHECKING:
    from typing import Literal

    from sandcell.client.blocking.answer import Answer
    from sandcell.client.blocking.transport import Transport

__all__ = ["Lease"]


class Lease:
    """While it is held the sandbox is in use. Nothing is read from it: the guest's news are a few bytes."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer

    @classmethod
    def take(cls, transport: Transport, kind: Literal["owner", "attached"]) -> Lease:
        """Return the lease when the guest has it."""
        request = Request(
            method="GET",
            path=path_of("events"),
            query={"lease": kind, "client": transport.client_id},
            wakes=False,
        )
        return cls(transport.open(request))

    def release(self) -> None:
        """Let go. Twice is fine."""
        self._answer.close()

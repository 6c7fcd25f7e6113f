"""One connection to a guest, and what goes over it from and to files of this machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sandcell.client.protocol import Conversation, Cut, Head, Mark

if TYPE_CHECKING:
    from sandcell.client.aio.channel import Channel
    from sandcell_container.pour import Pour

__all__ = ["Connection", "OutgoingFile"]


@dataclass(frozen=True, slots=True)
class OutgoingFile:
    """A regular file of this machine as the body of a request, whose `length` it has."""

    fd: int
    size: int
    on_progress: Callable[[int, int | None], object] | None = None


class Connection:
    """One connection and what was said on it. What breaks it is Cut, but for a deadline: TimeoutError."""

    def __init__(self, channel: Channel, conversation: Conversation) -> None:
        self.channel = channel
        self.conversation = conversation

    async def send(self, data: bytes, deadline: float | None) -> None:
        try:
            await self.channel.send(data, deadline)
        except TimeoutError:
            raise
        except OSError as problem:
            raise Cut(str(problem)) from problem

    async def send_file(self, fd: int, at: int, count: int, deadline: float) -> int:
        """Send a piece of a file, and return how many bytes. OSError where that cannot be read."""
        try:
            return await self.channel.send_file(fd, at, count, deadline)
        except (BrokenPipeError, ConnectionResetError) as problem:
            raise Cut(str(problem)) from problem

    async def pour(self, pour: Pour, deadline: float) -> int:
        """Move a piece of what is to come to where `pour` does. OSError where that cannot be written."""
        count = await self.channel.receive_into(pour, self.conversation.direct, deadline)
        if not count:
            raise Cut("the connection was closed before the answer was whole")
        self.conversation.skip(count)
        return count

    async def head(self, deadline: float | None) -> Head:
        part = await self.next_part(deadline)
        if not isinstance(part, Head):
            raise Cut("the answer has no head")
        return part

    async def file(self, deadline: float) -> int | None:
        """Take what comes first of an answer, and return the descriptor that comes with it: None where there is none, as
        with a refusal, or by way of somebody who passes on bytes alone."""
        try:
            data, fd = await self.channel.receive_with_file(deadline)
        except TimeoutError:
            raise
        except OSError as problem:
            raise Cut(str(problem), is_reset=isinstance(problem, ConnectionResetError)) from problem
        self.conversation.feed(data)
        return fd

    async def next_part(self, deadline: float | None) -> Head | bytes | Mark:
        while True:
            part = self.conversation.next_part()
            if part is not Mark.NEED_DATA:
                return part
            try:
                self.conversation.feed(await self.channel.receive(deadline))
            except TimeoutError:
                raise
            except OSError as problem:
                raise Cut(str(problem), is_reset=isinstance(problem, ConnectionResetError)) from problem

    def close(self) -> None:
        self.channel.close()

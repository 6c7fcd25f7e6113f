"""Who answers the calls of one run to the tools of this program, while it follows that run."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

from sandcell.api import AnswerTool
from sandcell.client.aio.channel import Errands, call_tool, is_of_tool
from sandcell.client.nesting import inside
from sandcell.client.tool_offer import answering
from sandcell.tools import encode_result, failure_of_tool
from sandcell_container.errors import SandcellError

if TYPE_CHECKING:
    from sandcell.client.aio.follow import AsyncFollower
    from sandcell.client.aio.transport import AsyncTransport
    from sandcell.client.tool_offer import Offer
    from sandcell.events import ToolCalled

__all__ = ["AsyncToolHost"]


class AsyncToolHost:
    """See the module. `is_behind`: it may hear of calls long after they were made, so it asks before it does one; and the
    deadline of who follows is the caller's own, not one for the run.

    The blocking client does each call where its caller stands; the asyncio one beside it, functions in a thread.
    """

    def __init__(self, transport: AsyncTransport, run_id: str, offer: Offer, *, is_behind: bool) -> None:
        self._transport = transport
        self._run_id = run_id
        self._offer = offer
        self._is_behind = is_behind
        self._errands = Errands()
        self._open = set[str]()

    async def heed(self, event: ToolCalled, follower: AsyncFollower) -> None:
        """Answer a call, or hear that one is over. A deadline of the run is put off by what the answer takes."""
        if event.state == "called":
            begins = self._is_behind or bool(self._open)
            self._open.add(event.id)
            self._put_off(follower, event.timeout)
            await self._errands.begin(event.id, partial(self._work, event, follower, begins=begins))
            return
        self._open.discard(event.id)
        if event.state == "abandoned":
            self._errands.drop(event.id)

    async def close(self) -> None:
        """Answer no more: what still works is cancelled, where that can be."""
        await self._errands.close()

    async def _work(self, called: ToolCalled, follower: AsyncFollower, *, begins: bool) -> None:
        began_at = time.monotonic()
        try:
            await self._answer(called, begins=begins)
        finally:
            took = time.monotonic() - began_at
            self._put_off(follower, min(took - called.timeout, 0.0))

    async def _answer(self, called: ToolCalled, *, begins: bool) -> None:
        try:
            if begins:
                await self._send(called, AnswerTool(key=self._offer.key))
            await self._send(called, await self._outcome(called))
        except SandcellError:
            pass  # the call is over, as the run's events tell; or the sandbox is, as whoever follows it hears

    async def _outcome(self, called: ToolCalled) -> AnswerTool:
        tool, key = self._offer.tools.get(called.name), self._offer.key
        try:
            if tool is None:
                raise LookupError(called.name)
            arguments = tool.parameters.read(called.arguments)
            with inside(self._run_id):
                value = await call_tool(tool.fn, arguments, called.timeout)
            return AnswerTool(key=key, result=encode_result(value))
        except BaseException as problem:
            if not is_of_tool(problem):
                raise
            # The tool's own failure: data for the code that called it, even where it would have left this program.
            return AnswerTool(key=key, error=failure_of_tool(problem))

    async def _send(self, called: ToolCalled, answer: AnswerTool) -> None:
        await self._transport.fetch(answering(self._run_id, called.id, answer))

    def _put_off(self, follower: AsyncFollower, seconds: float) -> None:
        if not self._is_behind:
            follower.put_off(seconds)

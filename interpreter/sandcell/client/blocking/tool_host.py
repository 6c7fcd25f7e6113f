# Made from ../aio/tool_host.py by `python -m sandcell.client.generate`: change that file, not this one.
"""Who answers the calls of one run to the tools of this program, while it follows that run."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

from sandcell.api import AnswerTool
from sandcell.client.blocking.channel import Errands, call_tool, is_of_tool
from sandcell.client.nesting import inside
from sandcell.client.tool_offer import answering
from sandcell.tools import encode_result, failure_of_tool
from sandcell_container.errors import SandcellError

if TYPE_CHECKING:
    from sandcell.client.blocking.follow import Follower
    from sandcell.client.blocking.transport import Transport
    from sandcell.client.tool_offer import Offer
    from sandcell.events import ToolCalled

__all__ = ["ToolHost"]


class ToolHost:
    """See the module. `is_behind`: it may hear of calls long after they were made, so it asks before it does one; and the
    deadline of who follows is the caller's own, not one for the run.

    The blocking client does each call where its caller stands; the asyncio one beside it, functions in a thread.
    """

    def __init__(self, transport: Transport, run_id: str, offer: Offer, *, is_behind: bool) -> None:
        self._transport = transport
        self._run_id = run_id
        self._offer = offer
        self._is_behind = is_behind
        self._errands = Errands()
        self._open = set[str]()

    def heed(self, event: ToolCalled, follower: Follower) -> None:
        """Answer a call, or hear that one is over. A deadline of the run is put off by what the answer takes."""
        if event.state == "called":
            begins = self._is_behind or bool(self._open)
            self._open.add(event.id)
            self._put_off(follower, event.timeout)
            self._errands.begin(event.id, partial(self._work, event, follower, begins=begins))
            return
        self._open.discard(event.id)
        if event.state == "abandoned":
            self._errands.drop(event.id)

    def close(self) -> None:
        """Answer no more: what still works is cancelled, where that can be."""
        self._errands.close()

    def _work(self, called: ToolCalled, follower: Follower, *, begins: bool) -> None:
        began_at = time.monotonic()
        try:
            self._answer(called, begins=begins)
        finally:
            took = time.monotonic() - began_at
            self._put_off(follower, min(took - called.timeout, 0.0))

    def _answer(self, called: ToolCalled, *, begins: bool) -> None:
        try:
            if begins:
                self._send(called, AnswerTool(key=self._offer.key))
            self._send(called, self._outcome(called))
        except SandcellError:
            pass  # the call is over, as the run's events tell; or the sandbox is, as whoever follows it hears

    def _outcome(self, called: ToolCalled) -> AnswerTool:
        tool, key = self._offer.tools.get(called.name), self._offer.key
        try:
            if tool is None:
                raise LookupError(called.name)
            arguments = tool.parameters.read(called.arguments)
            with inside(self._run_id):
                value = call_tool(tool.fn, arguments, called.timeout)
            return AnswerTool(key=key, result=encode_result(value))
        except BaseException as problem:
            if not is_of_tool(problem):
                raise
            # The tool's own failure: data for the code that called it, even where it would have left this program.
            return AnswerTool(key=key, error=failure_of_tool(problem))

    def _send(self, called: ToolCalled, answer: AnswerTool) -> None:
        self._transport.fetch(answering(self._run_id, called.id, answer))

    def _put_off(self, follower: Follower, seconds: float) -> None:
        if not self._is_behind:
            follower.put_off(seconds)

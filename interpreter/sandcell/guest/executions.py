"""Runs of code: start, follow, interrupt, answer."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from sandcell.api import AnswerTool, CreateExecution, SendInput
from sandcell.guest.request import ApiHandler
from sandcell.guest.stream import send_journal
from sandcell_container.errors import ErrorCode, error
from sandcell_container.frames import Cursor

if TYPE_CHECKING:
    from collections.abc import Generator

    from sandcell.context import Execution

__all__ = [
    "ExecutionEventsHandler",
    "ExecutionHandler",
    "ExecutionInputHandler",
    "ExecutionInterruptHandler",
    "ExecutionToolHandler",
    "ExecutionsHandler",
]

SDK = "sdk"


class ExecutionsHandler(ApiHandler):
    """POST, GET /v1/executions"""

    async def post(self) -> None:
        body = self.body(CreateExecution, lone="surrogateescape")  # its environment and folder are bytes
        follow = self.flag("follow", default=True)
        if body.on_disconnect == "interrupt" and not follow:
            raise error(
                ErrorCode.INVALID_ARGUMENT,
                'on_disconnect="interrupt" is for a run whose starter follows it: nobody would hear of its end',
                hint="follow it from its start, as run_code does, or leave out on_disconnect",
                details={"field": "on_disconnect"},
            )
        await self.guest.contexts.speakers.learn(body.language)
        execution = self.guest.executions.start(body, inside=self.inside)
        if not body.fresh:
            self.guest.memo.note_made("context", execution.context_id)
        self.set_header("Sandcell-Id", execution.id)
        self.set_header("Sandcell-Context", execution.context_id)
        if not follow:
            self.reply(execution.info(), status=201)
            return
        with hosting(execution, body.tools.key if body.tools else ""):
            await send_journal(self, execution.journal)
        if self.client_gone and body.on_disconnect == "interrupt":
            await execution.interrupt(who=body.origin)

    def get(self) -> None:
        context_id, origin = (self.get_query_argument(name, None) for name in ("context", "origin"))
        found = self.guest.executions.list(context_id=context_id, origin=origin)
        self.reply([each.info() for each in found])


class ExecutionHandler(ApiHandler):
    """GET /v1/executions/{id}"""

    def get(self, execution_id: str) -> None:
        self.reply(self.guest.executions.get(execution_id).info(with_code=True))


class ExecutionEventsHandler(ApiHandler):
    """GET /v1/executions/{id}/events"""

    async def get(self, execution_id: str) -> None:
        execution = self.guest.executions.get(execution_id)
        journal = execution.journal
        cursor = self.get_query_argument("cursor", "")
        after = Cursor.parse(cursor, epoch=journal.epoch) if cursor else None
        with hosting(execution, self.get_query_argument("tools", "")):
            await send_journal(self, journal, after=after, follow=self.flag("follow", default=True))


class ExecutionInterruptHandler(ApiHandler):
    """POST /v1/executions/{id}/interrupt"""

    async def post(self, execution_id: str) -> None:
        execution = self.guest.executions.get(execution_id)
        await execution.interrupt(who=SDK)
        self.reply(execution.info())


class ExecutionInputHandler(ApiHandler):
    """POST /v1/executions/{id}/input"""

    def post(self, execution_id: str) -> None:
        execution: Execution = self.guest.executions.get(execution_id)
        execution.send_input(self.body(SendInput).text)
        self.reply(execution.info())


class ExecutionToolHandler(ApiHandler):
    """POST /v1/executions/{id}/tools/{call}"""

    def post(self, execution_id: str, call_id: str) -> None:
        execution = self.guest.executions.get(execution_id)
        self.reply(execution.tools.answer(call_id, self.body(AnswerTool)))


@contextmanager
def hosting(execution: Execution, key: str) -> Generator[None]:
    """Inside the block somebody follows the run who answers its tools, where there is a `key`: the one that they came with.

    Raises:
        Refused (FORBIDDEN): it is another.
    """
    if not key:
        yield
        return
    tools = execution.tools
    tools.check_key(key)
    tools.enter_host()
    try:
        yield
    finally:
        tools.leave_host()

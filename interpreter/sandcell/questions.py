"""Questions of an editor to a live interpreter: what could stand here, what is this, which variables are there.

They are answered within a bounded time, emptily where the interpreter is busy: a question is asked again at the next
key, and one that waits for a long cell to end is of no use to anybody.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from sandcell.api import Completion, Inspection, Variables
from sandcell.content import take_flag, take_lines, take_number, take_object
from sandcell.runs import Answer
from sandcell.screen import strip_colours
from sandcell_container.errors import ErrorCode, SandcellError, error
from sandcell_kernel.wire import new_message

if TYPE_CHECKING:
    from sandcell.api import AskComplete, AskInspect
    from sandcell.context import Context
    from sandcell.runs import RunEnded
    from sandcell_kernel.wire import Channel, Message

__all__ = ["Questions"]

_SESSION = "sandcell"
_MOST_OPEN = 8  # unanswered at once; more would only hold up the cell after the one that runs
_MOST_MATCHES = 1000
_LONGEST_MATCH = 1000
_LONGEST_TEXT = 256 * 2**10


class Questions:
    """The questions to one context; each is answered within `timeout` seconds."""

    def __init__(self, context: Context, *, timeout: float) -> None:
        self._context = context
        self._timeout = timeout
        self._open = 0

    async def complete(self, asked: AskComplete) -> Completion:
        """Return what could stand at the cursor.

        Raises:
            Gone (LOST): the context was deleted. Unsupported (UNSUPPORTED): its language has none.
        """
        self._context.speaks.check("complete")
        at = _cursor_of(asked.code, asked.cursor_pos)
        content = await self._ask("complete", {"code": asked.code, "cursor_pos": at})
        matches = tuple(each[:_LONGEST_MATCH] for each in take_lines(content, "matches")[:_MOST_MATCHES])
        start, end = take_number(content, "cursor_start"), take_number(content, "cursor_end")
        if start is None or end is None or not 0 <= start <= end <= len(asked.code):
            return Completion(matches=(), start=at, end=at)
        return Completion(matches=matches, start=start, end=end)

    async def inspect(self, asked: AskInspect) -> Inspection:
        """Return what is known of the name at the cursor. Raises as `complete`."""
        self._context.speaks.check("inspect")
        at = _cursor_of(asked.code, asked.cursor_pos)
        request = {"code": asked.code, "cursor_pos": at, "detail_level": asked.detail_level}
        content = await self._ask("inspect", request)
        bundle = take_object(content, "data")
        data = {mime: text[:_LONGEST_TEXT] for mime, text in bundle.items() if isinstance(text, str)}
        text = strip_colours(data.get("text/plain", ""))
        return Inspection(found=take_flag(content, "found") and bool(data), text=text, data=data)

    async def variables(self) -> Variables:
        """Return the variables, also while a cell runs.

        Raises:
            Gone (LOST, CONTEXT_DIED): the context was deleted, or its interpreter has just ended.
            Unsupported (UNSUPPORTED): its language has none.
            Conflict (BUSY): the interpreter is inside code that lets no other thread run.
            Unavailable: it cannot be started.
        """
        self._context.speaks.check("variables")
        await self._context.ready()
        answer = Answer("sandcell_variables_reply")
        self._context.send("control", new_message("sandcell_variables_request", {}, session=_SESSION), answer)
        try:
            async with asyncio.timeout(self._timeout):
                content = await answer.content()
        except TimeoutError:
            raise error(
                ErrorCode.BUSY,
                f"the interpreter of {self._context.id} did not say within {self._timeout:g} s what is in it",
                hint="it is inside code that lets nothing else run; ask again later",
            ) from None
        try:
            return msgspec.convert(content, Variables)
        except msgspec.ValidationError as problem:
            raise error(ErrorCode.INTERNAL, f"the kernel answered nonsense: {problem}") from problem

    async def _ask(self, what: str, content: dict[str, Any]) -> dict[str, Any]:
        """Return the content of the reply, {} where none comes in time."""
        if self._open >= _MOST_OPEN:
            return {}
        question = _Question(f"{what}_reply", self)
        try:
            self._context.send("shell", new_message(f"{what}_request", content, session=_SESSION), question)
        except SandcellError as problem:
            if problem.code is ErrorCode.LOST:
                raise
            return {}
        self._open += 1
        try:
            async with asyncio.timeout(self._timeout):
                return await question.content()
        except (TimeoutError, SandcellError):
            return {}

    def note_over(self) -> None:
        """One was answered, or never will be."""
        self._open -= 1


class _Question(Answer):
    """A listener that also says when nothing more comes."""

    def __init__(self, msg_type: str, owner: Questions) -> None:
        super().__init__(msg_type)
        self._owner: Questions | None = owner

    def on_message(self, channel: Channel, message: Message) -> None:
        super().on_message(channel, message)
        if self.is_done:
            self._close()

    def on_run_end(self, msg_id: str, ended: RunEnded) -> None:
        super().on_run_end(msg_id, ended)
        self._close()

    def _close(self) -> None:
        if self._owner is not None:
            self._owner.note_over()
            self._owner = None


def _cursor_of(code: str, cursor: int | None) -> int:
    if cursor is None:
        return len(code)
    if not 0 <= cursor <= len(code):
        raise error(
            ErrorCode.INVALID_ARGUMENT,
            f"cursor_pos={cursor} is not in the code, which has {len(code)} characters",
            details={"field": "cursor_pos"},
        )
    return cursor

"""Questions of a shell cell, asked of whoever runs the cell."""

from __future__ import annotations

import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from sandcell_container.errors import SandcellError
from sandcell_container.guest.shell_questions import open_questions
from sandcell_container.ids import new_id

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncGenerator

    from sandcell.guest.desk import Desk
    from sandcell.guest.stage import Stage
    from sandcell_container.guest.shell_questions import Question, ShellQuestions

__all__ = ["asking"]

log = logging.getLogger(__name__)


@asynccontextmanager
async def asking(stage: Stage, desk: Desk) -> AsyncGenerator[tuple[str, str] | None]:
    """Yield the FIFOs by which a command asks inside the block, None where nobody answers: then its `read` finds nothing."""
    if not stage.may_ask:
        yield None
        return
    asker = _Asker(stage)
    try:
        folder = f"{desk.boot.scratch_dir}/input"
        questions = await open_questions(desk.files, folder, new_id("exe"), asker.hear)
    except SandcellError as problem:
        log.info("a cell cannot ask code=%s", problem.code)
        yield None
        return
    asker.questions = questions
    try:
        yield questions.paths
    finally:
        asker.hear(None)
        questions.close()
        for path in questions.paths:
            desk.files.remove_soon(path)


class _Asker:
    """Asks one question at a time; a new one takes the place of the one before."""

    def __init__(self, stage: Stage) -> None:
        self.questions: ShellQuestions | None = None
        self._stage = stage
        self._asking: asyncio.Task[None] | None = None

    def hear(self, question: Question | None) -> None:
        if self._asking is not None:
            self._asking.cancel()
            self._asking = None
        if question is not None:
            self._asking = self._stage.spawn(self._ask(question))

    async def _ask(self, question: Question) -> None:
        line = await self._stage.ask(question.prompt, password=question.password)
        if self.questions is not None:
            self.questions.answer(line)

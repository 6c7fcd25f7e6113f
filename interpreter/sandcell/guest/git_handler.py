"""The route of git."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

from sandcell.failure import failure_of
from sandcell.git_bodies import CloneRepository
from sandcell.guest.files import placed
from sandcell.guest.git_room import VERBS, GitRoom
from sandcell.guest.request import ApiHandler
from sandcell.guest.stream import send_journal
from sandcell.names import encode_names
from sandcell_container.errors import ErrorCode, error
from sandcell_container.frames import Kind
from sandcell_container.journal import Journal, JournalLimits

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    Work = Callable[[Callable[[str], None]], Awaitable[object]]

__all__ = ["GitHandler"]

_LIMITS = JournalLimits(
    memory=2**20
)  # of progress; the newest entry, which is the result, is kept whatever its size
_CLONE = "clone"


class GitHandler(ApiHandler):
    """POST /v1/git/{verb}: its result as JSON, or with `progress=true` a journal: lines of progress, then the result.

    It belongs to its request: when the client goes, git is ended.
    """

    async def post(self, verb: str) -> None:
        work = self._work(verb)
        with self.guest.leases.work():
            if self.flag("progress", default=False):
                await self._stream(work)
                return
            with self.while_client_waits():
                self.reply(await work(lambda _: None))

    def _work(self, verb: str) -> Work:
        """Return what does it, with the body checked."""
        git = GitRoom(self.guest.spawner, self.guest.boot, self.guest.config)
        if verb == _CLONE:
            asked = self.body(CloneRepository, lone="surrogateescape")
            cwd = placed(self, ".")
            return lambda on_progress: git.clone(asked, cwd, on_progress)
        if verb not in VERBS:
            raise error(
                ErrorCode.NOT_FOUND,
                f"git has no verb {verb[:40]!r} here",
                hint=f"there are {', '.join((_CLONE, *VERBS))}; exec runs any command of git",
            )
        body = self.body(VERBS[verb].body, lone="surrogateescape")
        path = placed(self, body.path)
        return lambda on_progress: git.work(verb, body, path, on_progress)

    async def _stream(self, work: Work) -> None:
        journal = Journal(self.guest.boot.epoch, _LIMITS)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(self._record(work, journal))
            try:
                await send_journal(self, journal)
            finally:
                task.cancel()

    async def _record(self, work: Work, journal: Journal) -> None:
        """Write down what the work says, and its result or its failure, in one ENDED or ERROR."""
        try:
            result = await work(lambda line: _note(journal, line))
            journal.append(Kind.ENDED, self._masked(encode_names(result)))
        except Exception as problem:  # noqa: BLE001 -- whatever it is, it is told
            self.log_exception(type(problem), problem, problem.__traceback__)
            failure = failure_of(problem, request_id=self.request_id)
            journal.append(Kind.ERROR, self._masked(json.dumps(failure.to_dict()).encode()))
        finally:
            journal.end()


def _note(journal: Journal, line: str) -> None:
    journal.append(Kind.STDERR, f"{line}\n".encode())

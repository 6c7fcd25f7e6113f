"""What changes in a folder, as a stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandcell.guest.files import path_in_query
from sandcell.guest.request import ApiHandler
from sandcell.guest.stream import await_news, send_journal
from sandcell.guest.terminals import MAX_WAIT_S
from sandcell_container.errors import ErrorCode, error
from sandcell_container.frames import Cursor
from sandcell_container.guest.watch import WatchPlan
from sandcell_container.ids import new_id

if TYPE_CHECKING:
    from sandcell_container.guest.watch import Watch

__all__ = ["WatchHandler"]

_MOST_PATTERNS = 100
_LONGEST_DEBOUNCE_S = 60.0


class WatchHandler(ApiHandler):
    """GET /v1/files/watch?path=: a journal of changes. With its `id` it goes on from a cursor."""

    async def get(self) -> None:
        watches = self.guest.watches
        watch_id = self.get_query_argument("id", "") or new_id("wch")
        cursor = self.get_query_argument("cursor", "")
        after = Cursor.parse(cursor, epoch=self.guest.boot.epoch) if cursor else None
        with self.while_client_waits():
            watch = await watches.open(watch_id, self._plan(), resumes=after is not None)
            self.set_header("Sandcell-Id", watch.id)
            with watches.view(watch):
                await self._send(watch, after)

    async def _send(self, watch: Watch, after: Cursor | None) -> None:
        if self.flag("follow", default=True):
            await send_journal(self, watch.journal, after=after)
            return
        place = watch.journal.start if after is None else after
        await await_news(watch.journal, place, self.number("wait", most=MAX_WAIT_S) or 0.0)
        await send_journal(self, watch.journal, after=place, follow=False)

    def _plan(self) -> WatchPlan:
        debounce = self.number("debounce", most=_LONGEST_DEBOUNCE_S)
        return WatchPlan(
            path=path_in_query(self),
            recursive=self.flag("recursive", default=True),
            include=self._patterns("include"),
            exclude=self._patterns("exclude"),
            debounce=WatchPlan._field_defaults["debounce"] if debounce is None else debounce,
        )

    def _patterns(self, name: str) -> tuple[str, ...]:
        found = self.request.query_arguments.get(name, [])
        if len(found) > _MOST_PATTERNS:
            hint = f"at most {_MOST_PATTERNS}"
            raise error(
                ErrorCode.INVALID_ARGUMENT, f"{len(found)} patterns", hint=hint, details={"field": name}
            )
        return tuple(each.decode("utf-8", "surrogateescape") for each in found)

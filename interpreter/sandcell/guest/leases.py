"""Who holds the sandbox in use, and when its end has come. A small machine over one timer of the loop."""

from __future__ import annotations

import asyncio
import json
import math
import time
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from sandcell_container.end import End
from sandcell_container.frames import Kind
from sandcell_container.journal import Journal, JournalLimits

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

__all__ = ["LOST_SPAWNER", "Leases", "end_for"]

IDLE = "idle"
LAPSED = "its last lease lapsed"
NOBODY = "nobody came"
LOST_SPAWNER = "its spawner has ended"
_ENDS = {
    IDLE: End(cause="culled", limit="idle_timeout"),
    LAPSED: End(cause="culled", limit="lease"),
    NOBODY: End(cause="culled", limit="lease"),
    LOST_SPAWNER: End(cause="lost"),
}
SLACK_S = 0.1  # two clocks are compared
FAREWELL_S = 0.5  # for a follower that reads slowly, or not at all
WARNING_S = 30.0  # CONTRACT section 2: everyone hears of a cull so long ahead


def end_for(reason: str) -> End:
    """Return the end of a sandbox that ends for `reason`, now."""
    return replace(_ENDS.get(reason, End(cause="killed")), at=time.time())


class Clock(Protocol):
    """What is needed of an event loop; tests move another one by hand."""

    def time(self) -> float: ...
    def call_at(self, when: float, callback: Callable[..., object], *args: Any) -> asyncio.TimerHandle: ...


class _Due(NamedTuple):
    at: float
    reason: str


class Leases:
    """Counts leases and work; `over()` returns when the sandbox has to end. Durations in seconds.

    `keep`: the sandbox outlives its owner and ends by idleness alone. `again`: it was started again, maybe by hand, so nobody
    needs to come at once. `quiet_for` tells for how many seconds no
    code has run, asked when the sandbox is about to be ended for idleness. `news` is the journal of
    `GET /v1/events`. Give it back with `close()`.
    """

    def __init__(
        self,
        *,
        epoch: str,
        boot_deadline: float,
        grace: float,
        idle_timeout: float | None,
        keep: bool,
        again: bool = False,
        warning: float = WARNING_S,
        quiet_for: Callable[[], float] = lambda: math.inf,
        clock: Clock | None = None,
    ) -> None:
        self.news = Journal(epoch, JournalLimits(memory=64 * 2**10))
        self._boot_deadline = boot_deadline
        self._grace = grace
        self._idle_timeout = idle_timeout
        self._keep = keep
        self._waits_for_nobody = again and (keep or idle_timeout is not None)
        self._warning = warning
        self._quiet_for = quiet_for
        self._clock = clock or asyncio.get_running_loop()
        self._over: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._told: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._listeners = 0
        self._timer: asyncio.TimerHandle | None = None
        self._held = 0
        self._working = 0
        self._had_lease = False
        self._warned = False
        self._free_since = self._idle_since = self._clock.time()
        self._say("running")
        self._arm()

    @contextmanager
    def hold(self) -> Generator[None]:
        """Hold a lease inside the block."""
        self._held += 1
        self._had_lease = True
        self._arm()
        try:
            yield
        finally:
            self._held -= 1
            self._free_since = self._idle_since = self._clock.time()
            self._arm()

    @contextmanager
    def listen(self) -> Generator[None]:
        """Somebody follows `news` inside the block, and is to hear the end."""
        self._listeners += 1
        try:
            yield
        finally:
            self._listeners -= 1
            if self._over.done() and not self._listeners and not self._told.done():
                self._told.set_result(None)

    @contextmanager
    def work(self) -> Generator[None]:
        """Something runs inside the block, so the sandbox is not idle."""
        self._working += 1
        self._arm()
        try:
            yield
        finally:
            self._working -= 1
            self._idle_since = self._clock.time()
            self._arm()

    @property
    def is_over(self) -> bool:
        """Whether the end has come; nothing is to begin any more."""
        return self._over.done()

    def set_idle_timeout(self, seconds: float | None) -> None:
        """Have another `idle_timeout` from now on."""
        self._idle_timeout = seconds
        self._disarm()
        self._arm()

    def stop(self, reason: str) -> None:
        """End the sandbox now."""
        if not self._over.done():
            self._over.set_result(reason)

    async def over(self) -> str:
        """Wait for the end and return its reason, when everyone who follows `news` has been told."""
        reason = await asyncio.shield(self._over)
        self._say("stopping", reason=reason)
        self.news.end()
        if self._listeners:
            await asyncio.wait({self._told}, timeout=FAREWELL_S)
        return reason

    def note_refused(self, reason: str) -> None:
        """Tell who follows `news` of a host that the sandbox may not reach."""
        self._say("refused", reason=reason)

    def close(self) -> None:
        """Give back the timer and end the followers of `news`."""
        self._disarm()
        self.news.end()

    def _arm(self) -> None:
        if self._held and self._timer is None and not self._warned:
            return  # the usual case: a lease is held and nothing is due
        self._disarm()
        due = self._due()
        if due is None:
            if self._warned:
                self._warned = False
                self._say("running")
            return
        if self._warned or (due.reason == LAPSED and due.at <= self._clock.time()):
            self._timer = self._clock.call_at(due.at, self._expire, due)
        else:
            ahead = max(due.at - self._warning, self._clock.time())
            self._timer = self._clock.call_at(ahead, self._warn, due)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _due(self) -> _Due | None:
        """What would end the sandbox next if nothing changed; None while a lease is held."""
        if self._held:
            return None
        if not self._had_lease and not self._waits_for_nobody:
            return _Due(self._free_since + self._boot_deadline, NOBODY)
        found = list[_Due]()
        if not self._keep and self._had_lease:
            found.append(_Due(self._free_since + self._grace, LAPSED))
        if self._idle_timeout is not None and not self._working:
            found.append(_Due(self._idle_since + self._idle_timeout, IDLE))
        return min(found, default=None)

    def _warn(self, due: _Due) -> None:
        if self._put_off(due):
            return
        self._warned = True
        self._say("stopping", reason=due.reason, at=time.time() + max(due.at - self._clock.time(), 0.0))
        self._arm()

    def _expire(self, due: _Due) -> None:
        if not self._put_off(due):
            self.stop(due.reason)

    def _put_off(self, due: _Due) -> bool:
        """Whether the sandbox is not idle after all, because code ran; looked at only now, as runs are many."""
        quiet_since = self._clock.time() - self._quiet_for()
        if due.reason != IDLE or quiet_since <= self._idle_since + SLACK_S:
            return False
        self._idle_since = quiet_since
        self._arm()
        return True

    def _say(self, status: str, **facts: object) -> None:
        self.news.append(Kind.STATUS, json.dumps({"status": status, **facts}).encode())

"""The errands of one kernel process: begun and given up as its cells are, one task each."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from sandcell.notebook_problem import problem_of
from sandcell_container.errors import SandcellError
from sandcell_kernel.answers import Problem

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from types import TracebackType
    from typing import Self

    from sandcell.errands.lobby import Lobby
    from sandcell.errands.place import Place
    from sandcell.errands.stage import HostStage
    from sandcell.guest_address import GuestAddress
    from sandcell_container.engine import Updated
    from sandcell_kernel.outer import Errand, OuterAction, OuterKernel
    from sandcell_kernel.wire import RequestKey

__all__ = ["ErrandDesk"]

log = logging.getLogger(__name__)

_NO_SANDBOX = Problem(name="SANDBOX_GONE", value="there is no sandbox to do it in")


class ErrandDesk:
    """See the module. An async context manager that owns the tasks, and the links that they have made.

    What errands need is loaded with the first one: most notebooks have none.
    """

    def __init__(self, machine: OuterKernel, act: Callable[[list[OuterAction]], None]) -> None:
        self._machine = machine
        self._act = act
        self._group = asyncio.TaskGroup()
        self._running: dict[RequestKey, tuple[HostStage, asyncio.Task[None]]] = {}
        self._place: Place | None = None
        self._change: asyncio.Future[None] | None = None
        self._has_restarted = False
        self._lobby: Lobby | None = None

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        for _, task in list(self._running.values()):
            task.cancel()
        if self._lobby is not None:
            await self._lobby.close()
        await self._group.__aexit__(kind, problem, trace)

    def serve(self, place: Place) -> None:
        """Do errands in this start of a sandbox from now on."""
        self._place = place
        if self._lobby is not None:
            self._lobby.guest = place.guest

    async def has_restarted(self) -> bool:
        """Tell whether an errand has started the sandbox anew since this was asked last; one that is at it is waited for."""
        if self._change is not None:
            await asyncio.wait({self._change})
        told, self._has_restarted = self._has_restarted, False
        return told

    def begin(self, errand: Errand) -> None:
        """Do one; its machine is told how it went."""
        if self._place is None:
            self._act(self._machine.end_errand(errand.key, errand.number, _NO_SANDBOX))
            return
        from sandcell.errands.stage import HostStage

        stage = HostStage(errand, self._machine, self._act)
        self._running[errand.key] = stage, self._group.create_task(self._do(errand, stage))

    def end(self, key: RequestKey) -> None:
        """Give up what is done for a cell, which has ended."""
        running = self._running.pop(key, None)
        if running is not None:
            running[1].cancel()

    def answer(self, key: RequestKey, text: str) -> None:
        """A person has answered."""
        running = self._running.get(key)
        if running is not None:
            running[0].answer(text)

    async def _do(self, errand: Errand, stage: HostStage) -> None:
        problem = await self._attempt(errand, stage)
        self._running.pop(errand.key, None)
        change, self._change = self._change, None
        if change is not None and problem is None and self._has_restarted:
            self._act(self._machine.end_cell(errand.key))
        else:
            if (
                change is not None and problem is not None
            ):  # its guest may be gone, and with it the cell's own end
                stage.say(f"{problem.name}: {problem.value}")
            self._act(self._machine.end_errand(errand.key, errand.number, problem))
        if change is not None:
            change.set_result(None)

    async def _attempt(self, errand: Errand, stage: HostStage) -> Problem | None:
        from sandcell.errands.work import ErrandWork

        assert self._place is not None, "looked at before"
        place = self._place
        try:
            work = ErrandWork(place, lambda: self._open_lobby(place.guest), self._update)
            await work.perform(stage, errand.order)
        except Exception as caught:
            if not isinstance(caught, SandcellError):
                log.exception("an errand failed verb=%s", errand.order.verb)
            return problem_of(caught)
        return None

    async def _update(self, changing: Awaitable[Updated]) -> Updated:
        """Await a change that may start the sandbox anew."""
        self._change = asyncio.get_running_loop().create_future()
        done = await changing
        self._has_restarted = done.restarted
        return done

    def _open_lobby(self, guest: GuestAddress) -> Lobby:
        if self._lobby is None:
            from sandcell.errands.lobby import Lobby

            self._lobby = Lobby(guest, self._group.create_task)
        return self._lobby

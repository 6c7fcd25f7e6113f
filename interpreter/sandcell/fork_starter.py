"""Kernels by fork where that gives what a plain start would give, by a plain start everywhere else.

A fork server is started with the first kernel, and grows when that is up: it imports what many cells begin with.
From then on one child is kept ready. All of it is given back when nothing was started for a while.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Self

from sandcell.fork_server import ForkServer, NotImported
from sandcell.forked_child import ForkedChild, ForkFailed, Stale

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from sandcell.fork_server import ServerPlan
    from sandcell.starter import KernelRequest, KernelStarter, StartedKernel
    from sandcell_container.guest.spawn import Spawner

__all__ = ["ForkServers", "ForkStarter", "early_env"]

log = logging.getLogger(__name__)

_READY_S = 20.0  # an interpreter and its imports, on a slow disk
_CHILD_S = 10.0  # a child needs 30 ms; what user code has in its .pth files and start-up files comes on top
_GROW_S = 60.0
_STEADY_S = 60.0  # a server that lived for so long may be replaced at once when it ends
_LONGEST_PAUSE_S = 60.0
# Read before a forked child hears of them: by the dynamic linker, the interpreter, or libraries when imported.
_EARLY = (
    "PYTHON", "LD_", "GLIBC_", "GCONV_", "MALLOC_", "OPENSSL_", "LANG", "LC_", "TZ", "HOME", "XDG_", "IPYTHON", "JUPYTER", "MPL", "MATPLOTLIB",
    "OMP_", "OPENBLAS_", "GOTO_", "MKL_", "KMP_", "BLIS_", "NUMEXPR_", "NPY_", "NUMPY_", "PANDAS_",
)  # fmt: skip


def early_env(env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of `env` that a process has to be started with to heed them. Pure."""
    return {name: value for name, value in env.items() if name.startswith(_EARLY)}


class ForkServers:
    """The one server that is in use: started when it is asked for, again after its end, at growing intervals.

    `problem` says why there is none, None where all is well.
    """

    def __init__(
        self, spawner: Spawner, plan: ServerPlan, preload: tuple[str, ...], tasks: asyncio.TaskGroup
    ) -> None:
        self._spawner = spawner
        self._plan = plan
        self._preload = preload
        self._tasks = tasks
        self._loop = asyncio.get_running_loop()
        self._server: ForkServer | None = None
        self._starting: asyncio.Task[None] | None = None
        self._has_grown = False
        self._off = False
        self._deaths = 0
        self._started_at = 0.0
        self._not_before = 0.0
        self.problem: str | None = None

    @property
    def pid(self) -> int | None:
        """The server's process, None where there is none."""
        return self._server.pid if self._server is not None else None

    async def get(self) -> ForkServer:
        """Return a server, started where there is none. Raises ForkFailed."""
        if self._server is None:
            if self._off or self._loop.time() < self._not_before:
                raise ForkFailed(self.problem or "there is no fork server")
            if self._starting is None:
                self._starting = self._tasks.create_task(self._start())
            await asyncio.wait({self._starting})
        if self._server is None:
            raise ForkFailed(self.problem or "the fork server has ended")
        return self._server

    async def grow(self) -> None:
        """Import what many cells begin with, where that is still to be done. Raises ForkFailed."""
        if self._has_grown or not self._preload:
            return
        self._has_grown = True
        small = await self.get()
        grown = await self._grow(small)
        if self._server not in (small, None):
            grown.close()
            return
        self._server = grown
        small.close()

    async def _grow(self, small: ForkServer) -> ForkServer:
        """Return a grown server, without what cannot be imported: each such module costs an attempt."""
        while True:
            try:
                return await small.grow(self._preload, timeout=_GROW_S, on_end=self._on_end)
            except NotImported as problem:
                if problem.module not in self._preload:
                    raise
                log.info("%s", problem)
                self._preload = tuple(name for name in self._preload if name != problem.module)

    def heed(self, stale: Stale) -> None:
        """Act on what a newly forked child found: the server has in memory what it should not have."""
        log.info("the fork server is stale kind=%s: %s", stale.kind, stale)
        if stale.kind == "extra":
            self._preload = ()
        if stale.kind == "core":
            self._off = True
            self.problem = f"kernels are started without a fork server: {stale}"
        self.drop()

    def close(self) -> None:
        """End the server, and the start of one. Nothing is to be asked for afterwards."""
        self._off = True
        if self._starting is not None:
            self._starting.cancel()
        self.drop()

    def drop(self) -> None:
        """End the server. Another is started when one is asked for."""
        server, self._server = self._server, None
        self._has_grown = False
        if server is not None:
            server.close()

    async def _start(self) -> None:
        self._started_at = self._loop.time()
        try:
            self._server = await ForkServer.start(
                self._spawner, self._plan, timeout=_READY_S, on_end=self._on_end
            )
        except ForkFailed as problem:
            self._note_death(str(problem))
        finally:
            self._starting = None

    def _on_end(self) -> None:
        if self._server is not None and not self._server.is_open:
            self.drop()
            self._note_death("the fork server has ended")

    def _note_death(self, reason: str) -> None:
        now = self._loop.time()
        self._deaths = self._deaths + 1 if now - self._started_at < _STEADY_S else 1
        pause = min(_LONGEST_PAUSE_S, 2.0 ** (self._deaths - 1) - 1)  # 0, 1, 3, 7, ...
        self._not_before = now + pause
        self.problem = f"{reason}; kernels are started without it for {pause:g} s" if pause else None
        log.warning("no fork server for %g s: %s", pause, reason)


class ForkStarter:
    """Implements KernelStarter. An async context manager; leaving it ends the server and the idle child, no kernel.

    `preload` names modules; `linger` is how many seconds after the last start, and what it had made ready for the next
    one, all that is given back.
    """

    def __init__(
        self,
        spawner: Spawner,
        plan: ServerPlan,
        plain: KernelStarter,
        *,
        preload: tuple[str, ...],
        linger: float,
    ) -> None:
        self._spawner = spawner
        self._plan = plan
        self._plain = plain
        self._preload = preload
        self._linger = linger
        self._early = early_env(plan.child_env)
        self._idle: ForkedChild | None = None
        self._preparing: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        self._tasks: asyncio.TaskGroup
        self._servers: ForkServers

    async def __aenter__(self) -> Self:
        self._tasks = await asyncio.TaskGroup().__aenter__()
        self._servers = ForkServers(self._spawner, self._plan, self._preload, self._tasks)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._preparing is not None:
            self._preparing.cancel()
        self._rest()
        self._servers.close()
        try:
            await self._tasks.__aexit__(kind, exc, trace)
        finally:
            self._rest()  # a task may have come to its end before it heard of its cancellation

    def start_soon(self) -> None:
        """Start a server before anybody asks for a kernel."""
        self._preparing = self._tasks.create_task(self._begin())

    async def _begin(self) -> None:
        try:
            await self._servers.get()
        except ForkFailed as problem:
            log.info("no fork server was started ahead: %s", problem)
        finally:
            self._preparing = None
            if not self._closed:
                self._put_off_rest()

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a user should know of how kernels are started."""
        return (self._servers.problem,) if self._servers.problem else ()

    async def start(self, request: KernelRequest) -> StartedKernel:
        """Return a kernel that is ready for connections. See `KernelStarter.start`."""
        if early_env(request.env) != self._early:
            return await self._plain.start(request)
        started = await self._fork(request) or await self._plain.start(request)
        self._prepare_soon(request)
        return started

    @property
    def kept(self) -> tuple[int | None, int | None]:
        """The processes that are there for the next start: the server, the child that is ready."""
        return self._servers.pid, self._idle.job.pid if self._idle is not None else None

    async def prepared(self) -> None:
        """Return when nothing more is being prepared for the next start."""
        if self._preparing is not None:
            await asyncio.wait({self._preparing})

    async def _fork(self, request: KernelRequest) -> StartedKernel | None:
        """Return a forked kernel, or None where there is a reason to start it in another way."""
        child = self._take_idle(request)
        if child is not None:
            try:
                return await child.attach(request, _CHILD_S)
            except ForkFailed as problem:
                log.info("the idle kernel is of no use: %s", problem)
        try:
            server = await self._servers.get()
            child = await server.fork(request)
            return await child.attach(request, _CHILD_S)
        except Stale as stale:
            self._servers.heed(stale)
        except ForkFailed as problem:
            log.warning("a kernel is started without the fork server: %s", problem)
        return None

    def _take_idle(self, request: KernelRequest) -> ForkedChild | None:
        """Return the child that is ready, unless it was born with other settings."""
        if self._idle is None or self._idle.request.settings != request.settings:
            return None
        child, self._idle = self._idle, None
        return child

    def _prepare_soon(self, request: KernelRequest) -> None:
        """Have a child ready for the next start, which is likely to be as this one; and put off the end of it all."""
        self._put_off_rest()
        if self._idle is None and self._preparing is None:
            self._preparing = self._tasks.create_task(self._prepare(request))

    def _put_off_rest(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(self._linger, self._rest_in_time)

    def _rest_in_time(self) -> None:
        """Give back what nobody used, but not under who prepares: what that makes would be there for ever."""
        if self._preparing is None:
            self._rest()

    async def _prepare(self, request: KernelRequest) -> None:
        child = None
        try:
            await self._servers.grow()
            child = await (await self._servers.get()).fork(request)
            await child.ready(_CHILD_S)
            self._idle, child = child, None
        except Stale as stale:
            self._servers.heed(stale)
        except ForkFailed as problem:
            log.info("no kernel is kept ready: %s", problem)
        finally:
            self._preparing = None
            if child is not None:
                child.close()
            if not self._closed:
                self._put_off_rest()

    def _rest(self) -> None:
        child, self._idle = self._idle, None
        if child is not None:
            child.close()
        self._servers.drop()

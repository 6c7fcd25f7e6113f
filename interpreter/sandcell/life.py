"""The life of a context's kernels: at most one at a time, started when it is needed, started anew after a death."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from sandcell.config import Config
from sandcell.environment import merge_env
from sandcell.failure import failure_of
from sandcell.kernel import Kernel
from sandcell.memory import limit_of
from sandcell.starter import KernelStarter
from sandcell_container.errors import ErrorCode, SandcellError, error
from sandcell_container.guest.masks import Masks

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sandcell.execution import Death
    from sandcell.kernel import Doom
    from sandcell.starter import KernelRequest
    from sandcell_kernel.output import RunOutput, StreamName
    from sandcell_kernel.wire import Channel, Message

__all__ = ["KernelLife", "KernelMaker", "KernelObserver", "LiveKernel", "ProcessMaker", "Workshop"]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workshop:
    """What kernels of one language are made with, and the group that owns the task of each. `memory` in bytes. `masks` takes
    secrets out of what runs write."""

    maker: KernelMaker
    config: Config
    memory: int | None = None  # what each process of the sandbox may have
    masks: Masks | None = None
    tasks: asyncio.TaskGroup


class LiveKernel(Protocol):
    """Something that speaks Jupyter and runs code: a process, or a session of the sandbox. See `Kernel`."""

    leaving: bool

    @property
    def pid(self) -> int: ...
    @property
    def note(self) -> str: ...
    @property
    def grace(self) -> float: ...
    def is_dying(self) -> bool: ...
    def send(self, channel: Channel, message: Message) -> None: ...
    def open_output(self, msg_id: str, on_text: Callable[[StreamName, str], None]) -> RunOutput | None: ...
    def interrupt(self) -> None: ...
    def kill(self, doom: Doom) -> None: ...
    async def stop(self, doom: Doom) -> None: ...
    async def ended(self) -> Death: ...
    async def close(self) -> None: ...


class KernelMaker(Protocol):
    """Makes the kernels of one language."""

    async def open(
        self, request: KernelRequest, shop: Workshop, observer: KernelObserver, *, owner: str
    ) -> LiveKernel:
        """Return a kernel that is ready. `owner` is the id of its context. Cancelling ends it.

        Raises:
            InvalidRequest (CWD_NOT_FOUND), Unsupported, Unavailable (START_FAILED, START_TIMEOUT).
        """
        ...


@dataclass(frozen=True, slots=True)
class ProcessMaker:
    """Makes kernels that are processes."""

    starter: KernelStarter

    async def open(
        self, request: KernelRequest, shop: Workshop, observer: KernelObserver, *, owner: str
    ) -> LiveKernel:
        """As `KernelMaker` says."""
        return await Kernel.open(
            self.starter,
            request,
            owner=owner,
            config=shop.config,
            memory=limit_of(request.memory, shop.memory),
            tasks=shop.tasks,
            on_message=observer.on_message,
            on_text=observer.on_text,
        )


class KernelObserver(Protocol):
    """A context, as it is told of its kernel. Called from the loop; must not block or raise."""

    def on_up(self, kernel: LiveKernel) -> None: ...
    def on_message(self, channel: Channel, message: Message) -> None: ...
    def on_text(self, name: StreamName, text: str) -> None: ...
    def on_down(self, death: Death) -> None: ...
    def on_start_failed(self, problem: SandcellError) -> None: ...


class KernelLife:
    """See the module."""

    def __init__(
        self, name: str, request: KernelRequest, workshop: Workshop, observer: KernelObserver
    ) -> None:
        self._name = name
        self._request = request
        self._workshop = workshop
        self._observer = observer
        self._task: asyncio.Task[None] | None = None
        self._attempt: asyncio.Future[SandcellError | None] | None = None
        self._over = False
        self.kernel: LiveKernel | None = None
        self.death: Death | None = None
        self.starts = 0

    def start_soon(self) -> None:
        """Start a kernel unless one is there or on its way, or this life is over."""
        if self.kernel is None and not self._is_starting and not self._over:
            self.starts += 1
            attempt = self._attempt = asyncio.get_running_loop().create_future()
            self._task = self._workshop.tasks.create_task(self._live(attempt))
            # A task that is cancelled before its first step never gets to say so itself.
            self._task.add_done_callback(lambda _: _settle(attempt))

    async def ready(self) -> LiveKernel:
        """Return the kernel, started where there is none. Raises as `KernelMaker.open`, and Gone (LOST): it is over."""
        while self.kernel is None:
            if self._over:
                raise error(ErrorCode.LOST, f"the context {self._name} was deleted", hint="make another")
            self.start_soon()
            assert self._attempt is not None
            problem = await asyncio.shield(self._attempt)
            if problem is not None:
                raise problem
        return self.kernel

    async def stop(self, doom: Doom, *, politely: bool) -> None:
        """End the kernel, if there is one or one is on its way; returns when the observer was told."""
        task, kernel = self._task, self.kernel
        if kernel is not None and politely:
            await kernel.stop(doom)
        elif kernel is not None:
            kernel.kill(doom)
        elif task is not None and self._is_starting:
            task.cancel()
        if task is not None:
            await asyncio.wait({task})

    async def close(self, doom: Doom, *, politely: bool) -> None:
        """Do what `stop` does, for good."""
        self._over = True
        await self.stop(doom, politely=politely)

    def inherit_env(self, changes: Mapping[str, str | None]) -> dict[str, str | None]:
        """Change the environment of the kernels to come; returns the changes that hold here: a context keeps what it was
        given itself."""
        news = {name: value for name, value in changes.items() if name not in self._request.own}
        self._request = replace(self._request, env=merge_env(self._request.env, news))
        return news

    def kill(self, doom: Doom) -> None:
        """Begin what `close` does, impolitely."""
        self._over = True
        if self.kernel is not None:
            self.kernel.kill(doom)
        elif self._task is not None and self._is_starting:
            self._task.cancel()

    @property
    def _is_starting(self) -> bool:
        return self._attempt is not None and not self._attempt.done()

    async def _live(self, attempt: asyncio.Future[SandcellError | None]) -> None:
        try:
            kernel = self.kernel = await self._open()
        except SandcellError as problem:
            log.warning("a kernel did not start context=%s code=%s", self._name, problem.code)
            attempt.set_result(problem)
            self._observer.on_start_failed(problem)
            return
        except asyncio.CancelledError:
            _settle(attempt)
            raise
        log.info("a kernel started context=%s pid=%s", self._name, kernel.pid)
        attempt.set_result(None)
        try:
            self._observer.on_up(kernel)
            death = await kernel.ended()
            log.info("a kernel ended context=%s cause=%s", self._name, death.end.cause)
            self.kernel, self.death = None, death
            self._observer.on_down(death)
        finally:
            self.kernel = None if self.kernel is kernel else self.kernel
            await kernel.close()

    async def _open(self) -> LiveKernel:
        shop = self._workshop
        try:
            return await shop.maker.open(self._request, shop, self._observer, owner=self._name)
        except Exception as problem:
            failure = failure_of(problem)
            if failure is not problem:
                log.exception("a kernel did not start context=%s", self._name)
            raise failure from problem


def _settle(attempt: asyncio.Future[SandcellError | None]) -> None:
    """Tell who waits for a start that was given up."""
    if not attempt.done():
        attempt.set_result(error(ErrorCode.CONTEXT_DIED, "the context was stopped while it started"))

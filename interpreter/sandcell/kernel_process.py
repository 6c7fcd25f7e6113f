"""What `launch_kernel` becomes: the kernel process on the host, from its connection to its end.

It terminates the front end's sockets and holds the sandbox; what a cell does is decided by its front in the guest.
With SANDCELL_SANDBOX it attaches to a sandbox that somebody else made, and leaves that as it is. A sandbox of its own is
put aside for the process that follows a restart, and else removed.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from sandcell.api import CreateFront, FrontInfo
from sandcell.client.aio.sandbox import AsyncSandbox
from sandcell.client.aio.transport import AsyncTransport
from sandcell.client.host import the_host
from sandcell.client.protocol import Request, path_of
from sandcell.client.records import Found, find_record
from sandcell.config import PRELOAD_NONE, Config
from sandcell.errands.desk import ErrandDesk
from sandcell.errands.permission import Permission
from sandcell.errands.place import Place
from sandcell.failure import failure_of
from sandcell.guest_address import GuestAddress
from sandcell.kernel_options import check_options, merge_options, read_options
from sandcell.kernel_sandbox import hand_over, name_for, notebook_options, open_own, put_aside, remove_own
from sandcell.notebook_problem import problem_of
from sandcell.version import VERSION
from sandcell_container.errors import SandcellError, Unavailable
from sandcell_container.ids import new_id
from sandcell_kernel.answers import Problem
from sandcell_kernel.outer import Answered, Errand, ErrandsOver, OuterKernel, Stop, Up, Wake
from sandcell_kernel.remedies import missing_file_remedy
from sandcell_kernel.requests import flag_field
from sandcell_kernel.sockets import OuterSockets, read_connection_file

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, MutableMapping
    from pathlib import Path

    from sandcell.front_link import FrontLink
    from sandcell.kernel_options import KernelOptions
    from sandcell_container.engine import Record
    from sandcell_container.engines.zygote_process import ZygoteProcess
    from sandcell_kernel.channels import Connection
    from sandcell_kernel.outer import OuterAction
    from sandcell_kernel.wire import Channel, Message

__all__ = ["KernelProcess", "serve", "set_defaults"]

log = logging.getLogger(__name__)

_DOWN_S = 2.0  # from a guest's last answer to the end of its sandbox: what it ends has a grace
_RESTS = Problem(
    name="SANDBOX_GONE",
    value="the sandbox was stopped",
    lines=("run a cell: it is started again, with its files and without variables",),
)
_STOP_S = 1.8  # jupyter_client sends SIGTERM after 2.5 s of a shutdown_request


class KernelProcess:
    """One kernel process. `zygote` is for the engine of its sandbox, where that was started ahead."""

    def __init__(
        self,
        connection: Connection,
        config: Config,
        wishes: Callable[[], KernelOptions],
        zygote: ZygoteProcess | None = None,
    ) -> None:
        self._config = config
        self._wishes = wishes
        self._zygote = zygote
        self._own_name = name_for(connection.key)
        self._restarts = False
        self._front_id = new_id("frt")
        self._machine = OuterKernel(
            session=self._front_id,
            version=VERSION,
            remedy=partial(missing_file_remedy, is_here=os.path.exists),
        )
        self._errands = ErrandDesk(self._machine, self._act)
        self._loop = asyncio.get_running_loop()
        self._sockets = OuterSockets(
            connection, session=self._front_id, loop=self._loop, on_message=self._receive
        )
        self._link: FrontLink | None = None
        self._stopped: asyncio.Future[Stop | None] = self._loop.create_future()
        self._woken = asyncio.Event()

    async def run(self) -> None:
        """Serve until the front end or a signal asks for the end, or the parent dies.

        The sockets are there at once: the heartbeat answers and requests wait while the sandbox starts.

        Raises:
            Unavailable (START_FAILED): the sockets' addresses cannot be had.
        """
        async with self._sockets, self._errands, asyncio.TaskGroup() as tasks:
            with self._signals():
                front = tasks.create_task(self._keep_front())
                stop = await self._stopped
                self._restarts = stop is not None and flag_field(stop.request, "restart", default=False)
                front.cancel()
                await asyncio.wait({front}, timeout=_STOP_S)
                if stop is not None:
                    self._act(self._machine.answer_stop(stop))

    def stop(self) -> None:
        """End the process, as if nobody had asked for an answer."""
        if not self._stopped.done():
            self._stopped.set_result(None)

    def _receive(self, channel: Channel, message: Message) -> None:
        self._act(self._machine.receive(channel, message))

    def _act(self, actions: list[OuterAction]) -> None:
        for action in actions:
            match action:
                case Up(channel, message):
                    if self._link is not None:
                        self._link.send(channel, message)
                case Wake():
                    self._woken.set()
                case Errand():
                    self._errands.begin(action)
                case ErrandsOver(key):
                    self._errands.end(key)
                case Answered(key, text):
                    self._errands.answer(key, text)
                case Stop():
                    if not self._stopped.done():
                        self._stopped.set_result(action)
                case _:
                    self._sockets.send(*action)

    def _interrupt(self) -> None:
        self._act(self._machine.interrupt())

    async def _keep_front(self) -> None:
        try:
            wishes = self._wishes()
            async with self._open_sandbox(wishes) as sandbox:
                while True:
                    if await self._serve_start(sandbox, wishes):
                        continue
                    self._woken.clear()
                    await self._woken.wait()
                    await self._wake(sandbox)
        except Exception as problem:
            failure = failure_of(problem)
            log.warning("no sandbox code=%s: %s", failure.code, failure, exc_info=_unless_ours(problem))
            self._act(self._machine.give_up(problem_of(failure)))

    @asynccontextmanager
    async def _open_sandbox(self, wishes: KernelOptions) -> AsyncGenerator[AsyncSandbox]:
        """Yield the sandbox that is wished for, which then stays as it is, or one of our own."""
        if wishes.sandbox is not None:
            async with await AsyncSandbox.connect(wishes.sandbox) as attached:
                log.info("attached sandbox=%s", attached.name)
                yield attached
            return
        if self._zygote is not None:
            await hand_over(self._zygote, wishes.create.get("engine", self._config.engine))
        sandbox = await open_own(self._own_name, wishes.create)
        log.info("made sandbox=%s", sandbox.name)
        try:
            yield sandbox
        finally:
            await (put_aside(sandbox) if self._restarts else remove_own(sandbox))

    async def _serve_start(self, sandbox: AsyncSandbox, wishes: KernelOptions) -> bool:
        """Serve until this start of the sandbox has ended, and can be followed by another one; True says that it was already.
        Raises what else ends it."""
        record = await _record_of(sandbox)
        guest = GuestAddress(record.address, record.token, self._config.connect_timeout)
        self._errands.serve(_place_of(sandbox, guest, wishes))
        try:
            await self._serve_front(record, guest, wishes)
        except SandcellError as problem:
            if await self._errands.has_restarted():
                return True
            if not await _can_start(sandbox, record.starts):
                raise
            log.info("the sandbox rests sandbox=%s code=%s", sandbox.name, problem.code)
            self._act(self._machine.rest(_RESTS))
        return False

    async def _wake(self, sandbox: AsyncSandbox) -> None:
        """Start the sandbox for a cell; one that does not start, but is there, is tried again at the next."""
        while True:
            try:
                return await sandbox.start()
            except Unavailable as problem:
                self._woken.clear()
                self._act(self._machine.rest(problem_of(problem)))
            await self._woken.wait()

    async def _serve_front(self, record: Record, guest: GuestAddress, wishes: KernelOptions) -> None:
        async with _open_front(record, self._front_id, self._config, wishes):
            from sandcell.front_link import (
                FrontLink,  # not before: now the interpreter starts, which takes longer
            )

            self._link = FrontLink(
                guest,
                self._front_id,
                max_message=self._config.max_message,
                on_open=lambda: self._act(self._machine.connect()),
                on_message=lambda channel, message: self._act(self._machine.hear(channel, message)),
                on_gap=lambda entries: self._act(self._machine.lose(entries)),
                on_close=self._machine.disconnect,
            )
            await self._link.run()

    def _signals(self) -> ExitStack:
        """Take signals and the parent's death until the block ends."""
        with ExitStack() as held:
            for number, act in ((signal.SIGINT, self._interrupt), (signal.SIGTERM, self.stop)):
                self._loop.add_signal_handler(number, act)
                held.callback(self._loop.remove_signal_handler, number)
            _watch_parent(held, self._loop, self.stop)
            return held.pop_all()


def _watch_parent(held: ExitStack, loop: asyncio.AbstractEventLoop, on_death: Callable[[], None]) -> None:
    """Call `on_death` when the process that Jupyter names as our parent ends; it may end without a word."""
    parent = int(os.environ.get("JPY_PARENT_PID", "0") or 0)
    if parent <= 1:
        return
    try:
        handle = os.pidfd_open(parent)
    except ProcessLookupError:
        loop.call_soon(on_death)
        return
    held.callback(os.close, handle)
    loop.add_reader(handle, on_death)
    held.callback(loop.remove_reader, handle)


def _place_of(sandbox: AsyncSandbox, guest: GuestAddress, wishes: KernelOptions) -> Place:
    permission = Permission(
        folder=os.getcwd(), transfers=wishes.transfers, network_changes=wishes.network_changes
    )
    return Place(sandbox=sandbox, guest=guest, permission=permission, is_own=wishes.sandbox is None)


async def _record_of(sandbox: AsyncSandbox) -> Record:
    """Ask its own engine alone: to open the others, which may be daemons, takes longer than all else here."""
    engine = (await asyncio.to_thread(the_host().engine, sandbox.engine)).engine
    found = [Found(engine, record) for record in await asyncio.to_thread(engine.list)]
    return find_record(found, sandbox.id).record


async def _can_start(sandbox: AsyncSandbox, starts: int) -> bool:
    """Whether the start number `starts` of a sandbox has ended, and its files are there for another one."""
    engine = (await asyncio.to_thread(the_host().engine, sandbox.engine)).engine
    await asyncio.to_thread(partial(engine.await_end, sandbox.id, timeout=_DOWN_S))
    found = await asyncio.to_thread(engine.find, sandbox.id)
    return found is not None and (found.status in {"stopped", "creating"} or found.starts > starts)


@asynccontextmanager
async def _open_front(
    record: Record, front_id: str, config: Config, wishes: KernelOptions
) -> AsyncGenerator[FrontInfo]:
    """Yield a front of this process, which is deleted at the end; its context stays."""
    transport = AsyncTransport(
        record.address,
        record.token,
        connect_timeout=config.connect_timeout,
        reply_timeout=config.reply_timeout,
    )
    body = msgspec.json.encode(CreateFront(id=front_id, context=wishes.context, language=wishes.language))
    try:
        yield await transport.call(Request(method="POST", path=path_of("fronts"), body=body), FrontInfo)
    finally:
        if wishes.sandbox is not None:  # a sandbox of our own takes it along
            await _delete_front(transport, front_id)
        transport.close()


async def _delete_front(transport: AsyncTransport, front_id: str) -> None:
    try:
        await transport.fetch(Request(method="DELETE", path=path_of("fronts", front_id)))
    except SandcellError as problem:
        log.debug("front=%s was not deleted: %s", front_id, problem)  # most often its guest is gone


def _unless_ours(problem: Exception) -> Exception | None:
    return None if isinstance(problem, SandcellError) else problem


def _read_config() -> Config:
    try:
        return Config.from_environ()
    except SandcellError as problem:
        # Making the sandbox fails for the same reason, and then every cell says so: a user sees no log.
        log.error("the settings cannot be used: %s", problem)
        return Config()


def _wishes_of(spec: str, config: Config) -> KernelOptions:
    """Return what kernelspec, environment and notebook wish, in rising order. Raises what is wrong with them."""
    of_spec = read_options(spec, source="the kernelspec")
    of_environ = read_options(config.kernel_options or "{}", source="SANDCELL_KERNEL_OPTIONS")
    named = {
        "engine": config.engine,
        "image": config.image,
        "sandbox": config.sandbox,
        "context": config.context,
    }
    of_environ |= {name: value for name, value in named.items() if value not in {None, "auto"}}
    of_notebook = notebook_options(os.environ.get("JPY_SESSION_NAME", ""))
    check_options(of_spec)
    check_options(of_environ)
    check_options(of_notebook, of_notebook=True)
    return merge_options(of_spec, of_environ, of_notebook, folder=os.getcwd())


def set_defaults(environ: MutableMapping[str, str]) -> None:
    """Set what is better for a notebook's own sandbox, where nothing else is said.

    Most notebooks have one interpreter: what is imported ahead for others would only slow its first cells down. And all have that
    one, so it is begun with the sandbox.
    """
    environ.setdefault("SANDCELL_PRELOAD", PRELOAD_NONE)
    environ.setdefault("SANDCELL_FORK_START", "ahead")


def serve(connection_file: Path, spec: str, zygote: ZygoteProcess | None) -> None:
    """Be the kernel process of this connection until its end. `spec` is what the kernelspec asks of the sandbox, as JSON;
    `zygote` was started for it ahead.

    Raises:
        OSError, SandcellError: there are no sockets.
    """
    set_defaults(os.environ)
    config = _read_config()
    logging.basicConfig(level=config.log_level, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    connection = read_connection_file(connection_file)

    async def run() -> None:
        await KernelProcess(connection, config, partial(_wishes_of, spec, config), zygote).run()

    asyncio.run(run())

"""One live kernel: its process, our connection to it, and how it ended. The context above decides what to send."""

from __future__ import annotations

import asyncio
import signal
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sandcell.content import content_of, take_text
from sandcell.dying import is_dying
from sandcell.execution import Death
from sandcell.memory import describe_size, judge_end
from sandcell.starter import describe_exit
from sandcell_container.end import Cause, End
from sandcell_container.errors import ErrorCode, SandcellError, error
from sandcell_kernel.channels import KernelChannels
from sandcell_kernel.output import KernelOutput
from sandcell_kernel.wire import new_message
from sandcell_kernel.zmtp import MessageTooLarge

if TYPE_CHECKING:
    from collections.abc import Callable

    from sandcell.config import Config
    from sandcell.memory import MemoryLimit
    from sandcell.starter import KernelRequest, KernelStarter, StartedKernel
    from sandcell_container.guest.job import Job, JobExit
    from sandcell_kernel.output import RunOutput, StreamName
    from sandcell_kernel.wire import Channel, Message
    from sandcell_kernel.zmtp import BadPeer

__all__ = ["Doom", "Kernel"]

_LAST_OUTPUT_S = 0.5  # for what a dead kernel had sent, when a child of its keeps the socket open
_LINES_TOLD = 5
_CUT_S = 1.0  # between the end of the connection and that of the process


@dataclass(frozen=True, slots=True, kw_only=True)
class Doom:
    """Why this side ends a kernel. `reason` is for a person."""

    cause: Cause
    reason: str
    who: str | None = None
    limit: str | None = None


class Kernel:
    """See the module. Made by `open`; `run` has to be awaited to its end by whoever owns it."""

    def __init__(
        self,
        started: StartedKernel,
        config: Config,
        tasks: asyncio.TaskGroup,
        *,
        memory: MemoryLimit | None,
    ) -> None:
        loop = asyncio.get_running_loop()
        self._memory = memory
        self._started = started
        self._config = config
        self._exit = tasks.create_task(_exit_of(started.job))
        self._welcome: asyncio.Future[None] = loop.create_future()
        self._cut: asyncio.Future[None] = loop.create_future()
        self._channels: KernelChannels
        self._dialect = started.dialect
        self._greeting = ""  # the id of the request that runs it
        self._refusal = ""  # what it answered to that, where it was not ok
        self._forget = _once(started.forget)
        self._output = KernelOutput(started.connection, loop)
        self.doom: Doom | None = None
        self.leaving = False  # it said that it is about to exit

    @classmethod
    async def open(
        cls,
        starter: KernelStarter,
        request: KernelRequest,
        *,
        owner: str,
        config: Config,
        memory: MemoryLimit | None,
        tasks: asyncio.TaskGroup,
        on_message: Callable[[Channel, Message], None],
        on_text: Callable[[StreamName, str], None],
    ) -> Kernel:
        """Start a kernel and return it once its output is sure to arrive. Cancelling ends it.

        `owner` is the id of its context. `memory` is what it may have, None where nobody knows. `on_text` gets what it
        writes past its messages, where somebody reads that.

        Raises:
            InvalidRequest (CWD_NOT_FOUND): as the starter.
            Unavailable (START_FAILED, START_TIMEOUT): as the starter, or it died before it said welcome.
        """
        started = await starter.start(request)
        started.job.owner = owner
        kernel = cls(started, config, tasks, memory=memory)
        try:
            await kernel._connect(on_message, on_text)
        except BaseException:
            await kernel._give_back()
            raise
        return kernel

    @property
    def pid(self) -> int:
        return self._started.job.pid

    def is_dying(self) -> bool:
        """Whether the process is known to execute no code any more, though its end has not been told yet."""
        return self._exit.done() or is_dying(self.pid)

    def send(self, channel: Channel, message: Message) -> None:
        """Send a message. Raises Conflict (BUSY) when the kernel reads nothing any more."""
        for before in self._dialect.tell(channel, message):
            self._channels.send(*before)
        self._channels.send(channel, message)

    @property
    def note(self) -> str:
        """Why it is not our runtime's, and what is missed without; "" where it is."""
        started = self._started
        return f"{started.stock}: {started.lacks}" if started.stock else ""

    @property
    def grace(self) -> float:
        """How many seconds it may take to heed an interrupt."""
        own = self._started.grace
        return self._config.interrupt_grace if own is None else min(own, self._config.interrupt_grace)

    def open_output(self, msg_id: str, on_text: Callable[[StreamName, str], None]) -> RunOutput | None:
        """Give the kernel pipes for what the run of this request writes, before the request is sent."""
        return self._output.open(msg_id, on_text)

    def interrupt(self) -> None:
        """Interrupt what it runs, as ^C does: by SIGINT to it and what it runs in the foreground, or as it wants to be told."""
        if self._started.interrupts == "signal":
            self._started.job.signal(signal.SIGINT, "group")
            return
        try:
            self.send("control", new_message("interrupt_request", {}, session="sandcell"))
        except SandcellError:
            pass  # it reads nothing any more, and is killed when the grace is over

    def kill(self, doom: Doom) -> None:
        """End it and all its processes at once; why is remembered."""
        self.doom = self.doom or doom
        self._started.job.signal(signal.SIGKILL, "tree")

    async def stop(self, doom: Doom) -> None:
        """Ask it to exit, so that the code's own exit handlers run; kill it where it does not in time."""
        self.doom = self.doom or doom
        self.leaving = True
        try:
            self.send("control", new_message("shutdown_request", {"restart": False}, session="sandcell"))
            await asyncio.wait({self._exit}, timeout=self._config.kill_grace)
        except SandcellError:
            pass  # it reads nothing any more, so it is killed below
        if not self._exit.done():
            self.kill(doom)

    async def ended(self) -> Death:
        """Wait for the end of the process and hand over all that it had sent; then tell how it ended."""
        first: set[asyncio.Future[Any]] = {self._exit, self._cut}
        await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
        if not self._exit.done():
            await self._confirm_cut()
        ended = await self._exit
        await asyncio.wait({self._cut}, timeout=_LAST_OUTPUT_S)
        self._channels.drain()
        self._output.drain()
        if self._started.own_output is not None:
            self._started.own_output.read()
        return self._death(ended)

    async def close(self) -> None:
        """End what is left of its processes, and give back sockets and descriptors."""
        self._release()  # first: a process that is left could bind the kernel's free names
        try:
            await self._started.job.kill_tree(self._config.kill_grace)
        except SandcellError:
            pass  # the sandbox is ending, and everything in it
        self._output.drain()
        self._output.close()

    async def _connect(
        self,
        on_message: Callable[[Channel, Message], None],
        on_text: Callable[[StreamName, str], None],
    ) -> None:
        def receive(channel: Channel, message: Message) -> None:
            if not self._welcome.done():
                self._hear_welcome(channel, message)
            elif not self._started.stock:
                on_message(channel, message)
            else:
                self._hear(channel, message, on_message)

        self._channels = KernelChannels(
            self._started.connection,
            loop=asyncio.get_running_loop(),
            on_message=receive,
            on_disconnect=self._note_disconnect,
            max_message=self._config.max_message,
        )
        self._channels.open()
        if self._started.stock:
            self._ask_who()
        # Before the welcome the subscription is not there, and the output of a first run would go nowhere.
        first: set[asyncio.Future[Any]] = {self._welcome, self._exit}
        timeout = self._config.kernel_start_timeout
        await asyncio.wait(first, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        self._forget()
        if not self._welcome.done():
            raise await self._no_welcome()
        if self._refusal:
            raise error(ErrorCode.START_FAILED, f"the kernel cannot be used here: {self._refusal}")
        if not self._started.stock:
            self._output.connect()
        elif self._started.own_output is not None:
            self._started.own_output.read()  # what it says of its start is of no run
            self._started.own_output.on_text = on_text

    async def _no_welcome(self) -> SandcellError:
        words = self._started.words
        if not self._exit.done():
            return error(
                ErrorCode.START_TIMEOUT, "the kernel did not welcome us", details={"stderr": words.text}
            )
        ended = await self._exit
        if isinstance(ended, SandcellError):
            return ended
        words.close()  # reads what it said last
        message = f"the kernel ended before it was ready, with {describe_exit(ended.status)}"
        if last := words.text.splitlines()[-_LINES_TOLD:]:
            message += ": " + "\n".join(last)
        return error(ErrorCode.START_FAILED, message, details={"stderr": words.text})

    def _hear(
        self, channel: Channel, message: Message, on_message: Callable[[Channel, Message], None]
    ) -> None:
        own = self._started.own_output
        if own is not None and message.msg_type in ("execute_reply", "status"):
            own.read()  # what was written before this was said
        shown, asked = self._dialect.hear(channel, message)
        for each in asked:
            self._channels.send(each.channel, each.message)
        for each in shown:
            on_message(each.channel, each.message)

    def _hear_welcome(self, channel: Channel, message: Message) -> None:
        """Take what comes before anything was asked: the welcome, or what has to do for it."""
        if channel == "iopub" and (message.msg_type == "iopub_welcome" or self._started.stock):
            self._greet()
        elif self._greeting and message.parent_id == self._greeting and message.msg_type == "execute_reply":
            reply = content_of(message)
            self._refusal = "" if take_text(reply, "status") == "ok" else take_text(reply, "evalue") or "?"
            self._welcome.set_result(None)
        elif message.msg_type == "kernel_info_reply" and not self._greeting:
            self._ask_who()  # what it published with this was before our subscription

    def _ask_who(self) -> None:
        """Ask what an ipykernel before 7 answers: it says no welcome, but publishes whenever it answers."""
        self.send("shell", new_message("kernel_info_request", {}, session="sandcell"))

    def _greet(self) -> None:
        """Have it run what makes it one that can be spoken to, where something has to."""
        code = self._dialect.greeting
        if not code:
            self._welcome.set_result(None)
        elif not self._greeting:
            content = {"code": code, "silent": True, "store_history": False, "allow_stdin": False}
            greeting = new_message("execute_request", content, session="sandcell")
            self._greeting = greeting.msg_id
            self._channels.send("shell", greeting)

    def _note_disconnect(self, channel: Channel, problem: BadPeer | None) -> None:
        if isinstance(problem, MessageTooLarge):
            self.kill(Doom(cause="limit", limit="max_message", reason=f"{problem}, sent on {channel}"))
        if not self._cut.done():
            self._cut.set_result(None)

    async def _confirm_cut(self) -> None:
        """The connection ended: the process has to end as well, or it is of no use any more."""
        await asyncio.wait({self._exit}, timeout=self._config.kill_grace if self.leaving else _CUT_S)
        if not self._exit.done():
            self.kill(Doom(cause="limit", limit="protocol", reason="it closed or broke its own connection"))

    async def _give_back(self) -> None:
        self._started.job.signal(signal.SIGKILL, "tree")
        self._release()
        self._output.close()
        await self._exit

    def _release(self) -> None:
        self._forget()
        if hasattr(self, "_channels"):
            self._channels.close()
        self._started.words.close()

    def _death(self, ended: JobExit | SandcellError) -> Death:
        doom = self.doom
        if isinstance(ended, SandcellError):
            return Death(end=End(cause="lost"), reason=ended.message, problem=ended)
        end = ended.end(doom.cause if doom else None)
        if doom is not None:
            told = replace(end, who=doom.who, limit=doom.limit)
            return Death(end=told, reason=doom.reason, announced=self.leaving)
        words = tuple(self._started.words.text.splitlines())
        end = judge_end(end, self._memory)
        reason = f"the interpreter ended with {describe_exit(ended.status)}"
        if end.cause == "oom":
            may = f": it may have {describe_size(self._memory.size)}" if self._memory else ""
            reason = f"{reason} for want of memory{may}"
        return Death(end=end, reason=reason, words=words, announced=self.leaving)


def _once(act: Callable[[], None]) -> Callable[[], None]:
    waiting = [act]
    return lambda: waiting.pop()() if waiting else None


async def _exit_of(job: Job) -> JobExit | SandcellError:
    """Return how the process ended, or why nobody will ever know: then the whole sandbox is ending."""
    try:
        return await job.wait()
    except SandcellError as problem:
        return problem

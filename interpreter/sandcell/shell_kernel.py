"""Bash as a kernel: what is run in a context goes to the session of the same name, which everyone else can use, too."""

from __future__ import annotations

import asyncio
import codecs
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from sandcell.content import content_of, metadata_of, take_object, take_text
from sandcell.execution import Death
from sandcell_container.end import CommandEnd, End
from sandcell_container.errors import ErrorCode, SandcellError
from sandcell_container.frames import Cursor, Kind
from sandcell_container.guest.session_command import CommandOrder
from sandcell_container.journal import JournalReader
from sandcell_kernel.answers import reply_type
from sandcell_kernel.requests import command_problem, know_nothing
from sandcell_kernel.wire import new_message

if TYPE_CHECKING:
    from collections.abc import Callable

    from sandcell.kernel import Doom
    from sandcell.life import KernelObserver, LiveKernel, Workshop
    from sandcell.starter import KernelRequest
    from sandcell_container.frames import Entry
    from sandcell_container.guest.session import Session, Sessions
    from sandcell_container.guest.session_command import SessionCommand
    from sandcell_kernel.output import RunOutput, StreamName
    from sandcell_kernel.wire import Channel, Message

__all__ = ["ShellKernel", "ShellMaker"]

_SESSION = "sandcell"
_STREAMS: dict[int, StreamName] = {Kind.STDOUT: "stdout", Kind.STDERR: "stderr"}
_INFO: dict[str, Any] = {
    "protocol_version": "5.3",
    "implementation": "sandcell",
    "implementation_version": "",
    "language_info": {
        "name": "bash",
        "version": "",
        "mimetype": "text/x-sh",
        "file_extension": ".sh",
        "codemirror_mode": "shell",
        "pygments_lexer": "bash",
    },
    "banner": "bash",
    "help_links": [],
}
# What to say on questions that nobody here can answer.
_EMPTY: dict[str, dict[str, Any]] = {
    "kernel_info_request": _INFO,
    "history_request": {"history": []},
    "comm_info_request": {"comms": {}},
}
# In the reply to `exit`, as IPython has it: the interpreter is about to end.
_FAREWELL = [{"source": "ask_exit", "keepkernel": False}]


class ShellMaker:
    """Makes kernels over `sessions`. `workdir` is where a session begins that nobody asked more of."""

    def __init__(self, sessions: Sessions, *, workdir: str) -> None:
        self._sessions = sessions
        self._workdir = workdir

    async def open(
        self, request: KernelRequest, shop: Workshop, observer: KernelObserver, *, owner: str
    ) -> LiveKernel:
        """As `KernelMaker` says; a session of the context's name is used where there is one. Raises as `Sessions.create`."""
        cwd = None if request.cwd == self._workdir else request.cwd
        env = request.env if request.own else None
        session = await self._sessions.create(owner, cwd=cwd, env=env)
        if session.ended:
            await session.restart()
        return ShellKernel(session, self._sessions, shop, observer)


class ShellKernel:
    """One bash of a session, as a `LiveKernel`."""

    note = ""

    def __init__(
        self, session: Session, sessions: Sessions, shop: Workshop, observer: KernelObserver
    ) -> None:
        self.leaving = False
        self.grace = shop.config.interrupt_grace
        self._loop = asyncio.get_running_loop()
        self._session = session
        self._life = session.life
        self._sessions = sessions
        self._shop = shop
        self._observer = observer
        self._doom: Doom | None = None
        self._count = 0
        self._command: SessionCommand | None = None
        self._follower: asyncio.Task[None] | None = None
        self._told: asyncio.Future[None] | None = None  # that the last command has ended

    @property
    def pid(self) -> int:
        return self._life.pid

    def is_dying(self) -> bool:
        return self._life.is_over

    def open_output(self, msg_id: str, on_text: Callable[[StreamName, str], None]) -> RunOutput | None:
        """Output comes in messages."""
        return None

    def send(self, channel: Channel, message: Message) -> None:
        """Take a message. Answers come from the loop, as a kernel's do."""
        if message.msg_type == "execute_request":
            self._execute(message)
            return
        kind = message.msg_type
        content = {"status": "ok", **_EMPTY[kind]} if kind in _EMPTY else know_nothing(message)
        self._loop.call_soon(self._answer, channel, message, content)

    def interrupt(self) -> None:
        """Interrupt the command that runs; the session kills itself where that is not heeded."""
        if self._command is not None:
            self._command.interrupt()

    def kill(self, doom: Doom) -> None:
        """End the shell and all that it started; why is remembered."""
        self._doom = self._doom or doom
        self._shop.tasks.create_task(self._life.stop())

    async def stop(self, doom: Doom) -> None:
        """As `kill`; the shell's own EXIT trap runs in either case."""
        self._doom = self._doom or doom
        self.leaving = True
        await self._life.stop()

    async def ended(self) -> Death:
        """Wait for the end of the shell, and until all of its output was handed over; then tell how it ended."""
        await self._life.over()
        if self._told is not None:
            await asyncio.wait({self._told})
        end = self._life.end or End(cause="lost")
        if self._doom is not None:
            told = replace(end, cause=self._doom.cause, who=self._doom.who, limit=self._doom.limit)
            return Death(end=told, reason=self._doom.reason, announced=self.leaving)
        how = f"signal {end.signal}" if end.code is None else f"exit status {end.code}"
        words = tuple(self._session.last_output.splitlines())
        return Death(end=end, reason=f"the shell ended with {how}", words=words, announced=self.leaving)

    async def close(self) -> None:
        """Follow no more. A session that was ended on purpose is forgotten, one that ended by itself can be looked at."""
        self._stop_following()
        if self._doom is not None and self._session.life is self._life:
            try:
                await self._sessions.delete(self._session.id)
            except SandcellError:
                pass  # somebody else has deleted it

    def _execute(self, message: Message) -> None:
        self._stop_following()
        self._count += 1
        code = take_text(content_of(message), "code")
        extras = take_object(metadata_of(message), "sandcell")
        env = {**take_object(extras, "env"), **_lead_to_tools(take_object(extras, "tools"))}
        order = CommandOrder(text=code, cwd=take_text(extras, "cwd") or None, env=env)
        try:
            command = self._command = self._session.run(order)
        except SandcellError as problem:
            if problem.code is not ErrorCode.SESSION_ENDED:  # which is told as the end of this kernel
                self._loop.call_soon(self._refuse, message, order, problem)
            return
        self._told = self._loop.create_future()
        self._follower = self._shop.tasks.create_task(self._follow(message, command, self._told))

    def _stop_following(self) -> None:
        """What comes late is of the last command alone."""
        if self._follower is not None:
            self._follower.cancel()
            self._follower = None

    async def _follow(self, message: Message, command: SessionCommand, told: asyncio.Future[None]) -> None:
        screen = _Screen()
        try:
            self._publish(message, "status", {"execution_state": "busy"})
            self._publish(
                message,
                "execute_input",
                {"code": command.order.text, "execution_count": self._count},
            )
            with JournalReader(command.journal) as reader:
                while batch := await reader.next():
                    for entry in batch:
                        self._show(message, screen, entry)
                self._conclude(message, command, screen)
                told.set_result(None)
                while True:
                    await command.journal.changed()
                    for entry in command.journal.read(reader.at):
                        self._show(message, screen, entry)
                        reader.at = Cursor(command.journal.epoch, entry.seq, entry.offset)
        finally:
            if not told.done():
                told.set_result(None)
            command.journal.close()

    def _show(self, message: Message, screen: _Screen, entry: Entry) -> None:
        if entry.kind in _STREAMS:
            self._print(message, _STREAMS[entry.kind], screen.decode(_STREAMS[entry.kind], entry.data))
        elif entry.kind == Kind.GAP:
            dropped = json.loads(entry.data)["bytes"]
            self._print(message, "stderr", f"\n[sandcell] {dropped} bytes of output were dropped\n")
        elif entry.kind == Kind.ENDED:
            screen.end = msgspec.json.decode(entry.data, type=CommandEnd)

    def _print(self, message: Message, name: StreamName, text: str) -> None:
        if text:
            self._publish(message, "stream", {"name": name, "text": text})

    def _conclude(self, message: Message, command: SessionCommand, screen: _Screen) -> None:
        for name in _STREAMS.values():
            self._print(message, name, screen.finish(name))
        self._command = None
        if command.refusal is not None:
            if command.refusal.code is not ErrorCode.SESSION_ENDED:
                self._refuse(message, command.order, command.refusal)
            return
        end = screen.end
        if end is None:
            return  # the shell is gone, as the end of this kernel tells
        if end.end.state == "lost" and end.end.cause != "exited":
            return  # likewise
        self.leaving = self.leaving or end.end.state == "lost"
        problem = command_problem(end, interrupted=False)
        content: dict[str, Any] = {
            "execution_count": self._count,
            "sandcell": {"exit_code": end.exit_code},
            "payload": _FAREWELL if end.end.state == "lost" else [],
        }
        if problem is None:
            self._reply(message, {**content, "status": "ok", "user_expressions": {}})
        else:
            self._fail(message, content, problem.name, problem.value)

    def _refuse(self, message: Message, order: CommandOrder, problem: SandcellError) -> None:
        """Nothing of it ran."""
        is_place = problem.code in (ErrorCode.CWD_NOT_FOUND, ErrorCode.NOT_A_DIRECTORY)
        why = order.cwd if is_place and order.cwd else problem.message
        self._fail(message, {"sandcell": {"refused": str(problem.code)}}, str(problem.code), why)

    def _fail(self, message: Message, content: dict[str, Any], name: str, value: str) -> None:
        told: dict[str, Any] = {"ename": name, "evalue": value, "traceback": []}
        if "refused" not in content["sandcell"]:
            self._publish(message, "error", told)
        self._reply(message, {**content, **told, "status": "error"})

    def _reply(self, message: Message, content: dict[str, Any]) -> None:
        answer = new_message("execute_reply", content, session=_SESSION, parent=message.header)
        self._observer.on_message("shell", answer)
        self._publish(message, "status", {"execution_state": "idle"})

    def _answer(self, channel: Channel, message: Message, content: dict[str, Any]) -> None:
        self._publish(message, "status", {"execution_state": "busy"})
        if kind := reply_type(message.msg_type):
            answer = new_message(kind, content, session=_SESSION, parent=message.header)
            self._observer.on_message(channel, answer)
        self._publish(message, "status", {"execution_state": "idle"})

    def _publish(self, message: Message, msg_type: str, content: dict[str, Any]) -> None:
        answer = new_message(msg_type, content, session=_SESSION, parent=message.header)
        self._observer.on_message("iopub", answer)


def _lead_to_tools(told: dict[str, Any]) -> dict[str, str]:
    """Return what `sandcell-tool` looks for, of a run that has host tools. Source: docs/protocol.md."""
    return {"SANDCELL_TOOLS": f"{told['address']}:{told['secret']}"} if told else {}


class _Screen:
    """What one command has shown: both streams as text, and how it ended."""

    def __init__(self) -> None:
        make = codecs.getincrementaldecoder("utf-8")
        self._decoders = {"stdout": make("replace"), "stderr": make("replace")}
        self.end: CommandEnd | None = None

    def decode(self, name: StreamName, data: bytes) -> str:
        return self._decoders[name].decode(data)

    def finish(self, name: StreamName) -> str:
        return self._decoders[name].decode(b"", final=True)

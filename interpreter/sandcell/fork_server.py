"""The client of one fork server: a process in the sandbox that forks kernels in a few milliseconds.

Knows the protocol of `sandcell_runtime.fork_server`, which its docstring fixes.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import struct
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

from sandcell.forked_child import ForkedChild, ForkFailed
from sandcell.starter import LastWords
from sandcell_container.errors import SandcellError
from sandcell_container.guest.start import Start

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sandcell.starter import KernelRequest
    from sandcell_container.guest.boot import GuestBoot
    from sandcell_container.guest.job import Job
    from sandcell_container.guest.spawn import Spawner

__all__ = ["ForkServer", "NotImported", "ServerPlan"]

_CODE_VARIABLES = ("PYTHON", "LD_", "GLIBC_", "GCONV_", "MALLOC_", "OPENSSL_")
_NO_HOME = "/nonexistent"
_ANSWER_S = 5.0  # a fork takes milliseconds; user code can stop the server
_LONGEST_ANSWER = 2**16
_MOST_DESCRIPTORS = 4
_KINDS: dict[Literal["fork", "grow"], Literal["child", "server"]] = {"fork": "child", "grow": "server"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerPlan:
    """How a fork server is started: `interpreter` with the environment `env`; the rest are its options.

    `python` and `site` where the interpreter is one that user code cannot write, below the user's own; `spawner`
    where its children need keepers. `child_env` is the environment that its children may take for their own.
    """

    interpreter: str
    runtime_dir: str
    env: Mapping[str, str]
    child_env: Mapping[str, str]
    home: str
    python: str | None = None
    site: tuple[str, ...] | None = None
    spawner: str | None = None

    @classmethod
    def of(cls, boot: GuestBoot, spawner_file: str) -> ServerPlan:
        """Return how the guest of `boot` starts its fork server. Pure."""
        if boot.trusted_python is None:
            return cls(
                interpreter=boot.python,
                runtime_dir=boot.runtime_dir,
                env=boot.base_env,
                child_env=boot.base_env,
                home=boot.home,
                spawner=spawner_file,
            )
        # What is trusted takes neither code nor libraries from where variables or a home point to.
        safe = {name: value for name, value in boot.base_env.items() if not name.startswith(_CODE_VARIABLES)}
        return cls(
            interpreter=boot.trusted_python,
            runtime_dir=boot.runtime_dir,
            env={**safe, "HOME": _NO_HOME},
            child_env=safe,
            home=boot.base_env.get("HOME", boot.home),
            python=boot.python,
            site=boot.trusted_site,
        )

    def start(self, *, stdin: int, stderr: int) -> Start:
        argv = (self.interpreter, os.path.join(self.runtime_dir, "launch.py"), "fork-server")
        return Start(argv=argv, env=self.env, cwd="/", stdin=stdin, stderr=stderr)

    @property
    def options(self) -> dict[str, Any]:
        return {"home": self.home, "python": self.python, "site": self.site, "spawner": self.spawner}


class Words(msgspec.Struct, frozen=True, kw_only=True):
    """What a server said, as its protocol has it."""

    ready: bool = False
    missing: list[str] = []
    forked: int | None = None
    pid: int = 0
    failed: int | None = None
    reason: str = ""
    module: str | None = None


class Answer(NamedTuple):
    """Words of a server, and the descriptors that came with them, which whoever asked closes."""

    words: Words
    descriptors: list[int]

    def close(self) -> None:
        _close_all(self.descriptors)


class NotImported(ForkFailed):
    """A server could not import `module`."""

    def __init__(self, module: str, reason: str) -> None:
        super().__init__(f"the fork server cannot import {reason}")
        self.module = module


class Control:
    """Our end of a server's socket: numbered questions, and the one word that it is ready."""

    def __init__(self, sock: socket.socket, on_end: Callable[[], None]) -> None:
        self._sock = sock
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._waiting = dict[int | None, asyncio.Future[Answer]]()
        self._count = 0
        self.is_open = True
        sock.settimeout(0.0)
        self._loop.add_reader(sock.fileno(), self._on_readable)

    async def hear_ready(self, timeout: float) -> list[str]:
        """Return which modules are not there to be imported. Raises ForkFailed, as `ask`; NotImported."""
        answer = await self._wait(None, timeout)
        if answer.words.module is not None:
            raise NotImported(answer.words.module, answer.words.reason)
        if not answer.words.ready:
            raise ForkFailed(f"the fork server is of no use: {answer.words.reason}")
        return answer.words.missing

    async def ask(self, verb: str, descriptors: Sequence[int], **fields: object) -> Answer:
        """Ask for a child. Raises ForkFailed when it cannot be had, or the server does not answer in time."""
        self._count += 1
        number = self._count
        self.tell({verb: number, **fields}, descriptors)
        answer = await self._wait(number, _ANSWER_S)
        if answer.words.forked is None:
            answer.close()
            raise ForkFailed(f"the fork server could not fork: {answer.words.reason}")
        return answer

    def tell(self, message: dict[str, Any], descriptors: Sequence[int] = ()) -> None:
        """Send. Raises ForkFailed when the server is gone, or reads nothing any more."""
        rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack(f"{len(descriptors)}i", *descriptors))
        try:
            self._sock.sendmsg([json.dumps(message).encode()], [rights] if descriptors else [])
        except OSError as problem:
            self.close()
            raise ForkFailed(f"the fork server takes no request: {problem}") from None

    def close(self) -> None:
        """Give the socket back; everyone who waits is told. Closing twice is fine."""
        if not self.is_open:
            return
        self.is_open = False
        self._loop.remove_reader(self._sock.fileno())
        self._sock.close()
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(ForkFailed("the fork server has ended"))
        self._on_end()

    async def _wait(self, number: int | None, timeout: float) -> Answer:
        waiting: asyncio.Future[Answer] = self._loop.create_future()
        self._waiting[number] = waiting
        if not self.is_open:
            waiting.set_exception(ForkFailed("the fork server has ended"))
        try:
            await asyncio.wait({waiting}, timeout=timeout)
        finally:
            del self._waiting[number]
        if not waiting.done():
            self.close()  # stopped, or busy for ever: of no more use to anyone
            raise ForkFailed(f"the fork server did not answer within {timeout:g} s")
        return waiting.result()

    def _on_readable(self) -> None:
        while self.is_open:
            try:
                message, ancillary, _, _ = self._sock.recvmsg(
                    _LONGEST_ANSWER, socket.CMSG_SPACE(4 * _MOST_DESCRIPTORS), socket.MSG_CMSG_CLOEXEC
                )
            except BlockingIOError:
                return
            except ConnectionError:
                message, ancillary = b"", []
            descriptors = _descriptors(ancillary)
            try:
                words = msgspec.json.decode(message, type=Words)
            except msgspec.MsgspecError:  # an end of file, or a server that user code has changed
                _close_all(descriptors)
                self.close()
            else:
                self._take(Answer(words, descriptors))

    def _take(self, answer: Answer) -> None:
        number = answer.words.failed if answer.words.forked is None else answer.words.forked
        waiting = self._waiting.get(number)
        if waiting is None or waiting.done():
            answer.close()
        else:
            waiting.set_result(answer)


def _descriptors(ancillary: Sequence[tuple[int, int, bytes]]) -> list[int]:
    found = list[int]()
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            found += struct.unpack(f"{len(data) // 4}i", data[: len(data) // 4 * 4])
    return found


def _close_all(descriptors: Sequence[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


class ForkServer:
    """One server, ready to fork. Whoever has it closes it; `on_end` is called once it is of no more use."""

    def __init__(
        self, spawner: Spawner, plan: ServerPlan, control: Control, words: LastWords, job: Job
    ) -> None:
        self._spawner = spawner
        self._plan = plan
        self._control = control
        self._words = words
        self._job = job
        self.missing: list[str] = []

    @classmethod
    async def start(
        cls, spawner: Spawner, plan: ServerPlan, *, timeout: float, on_end: Callable[[], None]
    ) -> ForkServer:
        """Start a server and return it once it can fork. Raises ForkFailed."""
        with ExitStack() as ours, ExitStack() as theirs:
            control, words, (stdin, stderr) = _new_ends(on_end, ours, theirs)
            job = await _start(spawner, plan.start(stdin=stdin, stderr=stderr))
            ours.callback(job.signal, signal.SIGKILL, "process")
            theirs.close()  # else its end would not end them
            control.tell(plan.options)
            server = cls(spawner, plan, control, words, job)
            server.missing = await server._hear_ready(timeout)
            ours.pop_all()
            return server

    async def grow(self, preload: Sequence[str], *, timeout: float, on_end: Callable[[], None]) -> ForkServer:
        """Return another server, forked from this one, that has imported `preload` too.

        Raises:
            NotImported: one of these is there and cannot be imported. ForkFailed.
        """
        with ExitStack() as ours, ExitStack() as theirs:
            control, words, ends = _new_ends(on_end, ours, theirs)
            job = await self._fork("grow", ends, preload=list(preload))
            ours.callback(job.signal, signal.SIGKILL, "process")
            theirs.close()
            server = ForkServer(self._spawner, self._plan, control, words, job)
            server.missing = await server._hear_ready(timeout)
            ours.pop_all()
            return server

    async def fork(self, request: KernelRequest) -> ForkedChild:
        """Return a child that is on its way to be the kernel of `request`. Raises ForkFailed."""
        with ExitStack() as ours, ExitStack() as theirs:
            channel, theirs_end = socket.socketpair()
            ours.enter_context(channel)
            theirs.enter_context(theirs_end)
            errors, stderr = os.pipe()
            theirs.callback(os.close, stderr)
            words = LastWords(errors)
            ours.callback(words.close)
            job = await self._fork("fork", [theirs_end.fileno(), stderr])
            ours.callback(job.signal, signal.SIGKILL, "tree")
            child = await ForkedChild.be_born(job, channel, words, request)
            ours.pop_all()
            return child

    @property
    def is_open(self) -> bool:
        return self._control.is_open

    @property
    def pid(self) -> int:
        return self._job.pid

    def close(self) -> None:
        """End it. Its children go on."""
        self._control.close()
        self._words.close()
        # Not its tree: where there are keepers, those of its children are in it.
        self._job.signal(signal.SIGKILL, "process")

    async def _hear_ready(self, timeout: float) -> list[str]:
        try:
            return await self._control.hear_ready(timeout)
        except NotImported:
            raise
        except ForkFailed as problem:
            raise ForkFailed(f"{problem}; it said: {self._words.text[-1000:]}") from None

    async def _fork(self, verb: Literal["fork", "grow"], ends: Sequence[int], **fields: object) -> Job:
        """Have a child forked and owned by the spawner before it is told anything, so that no end of it is missed."""
        with ExitStack() as held:
            keeper = list[int]()
            if self._plan.spawner is not None:
                ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                held.enter_context(ours)
                with theirs:
                    answer = await self._control.ask(verb, [*ends, theirs.fileno()], **fields)
                keeper.append(ours.fileno())
            else:
                answer = await self._control.ask(verb, ends, **fields)
            held.callback(answer.close)
            try:
                descriptors = [*keeper, *answer.descriptors]
                return await self._spawner.adopt(answer.words.pid, descriptors, kind=_KINDS[verb])
            except SandcellError as problem:
                raise ForkFailed(problem.message) from problem


async def _start(spawner: Spawner, start: Start) -> Job:
    try:
        return await spawner.start_server(start)
    except SandcellError as problem:
        raise ForkFailed(problem.message) from problem


def _new_ends(
    on_end: Callable[[], None], ours: ExitStack, theirs: ExitStack
) -> tuple[Control, LastWords, tuple[int, int]]:
    """Return our ends of what connects us with a server, and the two descriptors that are to be its."""
    our_end, their_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    theirs.enter_context(their_end)
    errors, stderr = os.pipe()
    theirs.callback(os.close, stderr)
    words, control = LastWords(errors), Control(our_end, on_end)
    ours.callback(words.close)
    ours.callback(control.close)
    return control, words, (their_end.fileno(), stderr)

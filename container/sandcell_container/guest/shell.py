"""One bash that takes commands as data. Knows no queue and no journal; what is said to bash is `shell_lines`' business.

Commands go to `eval` in bash's main shell, so the folder, variables, functions, aliases, options and traps stay, and a
syntax error is that command's own. How it works, and why so:

* bash is interactive, without a terminal: only then does SIGINT end a command and not the shell. A command runs
  inside a sourced line, where bash is as quiet as in a script: no "[1] 4711" for a job, no "exit".
* Its standard input is a socket of ours: lines to execute come in, commands to read, and answers go back. While a
  command runs, bash keeps that socket, and the pipes, at close-on-exec descriptors above 9; the command has
  its own input, stdout, stderr and no other. Between commands bash's own 1 and 2 are /dev/null, so nobody sees its
  prompts and traces of our lines.
* A command is sent only when bash said that it reads. SIGINT makes bash drop the line it executes, whoever sent it; so
  a line behind it tells when nothing reads any more, and the command is sent again. Reports are asked for twice.

User code that looks for that socket and writes to it harms its own session and nothing else.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from sandcell_container.errors import ErrorCode, SandcellError, error
from sandcell_container.guest.shell_lines import (
    CLOSED,
    FIRST_LINES,
    Begun,
    Dropped,
    Reading,
    Refused,
    Reported,
    Taking,
    encode_order,
    head_of,
    parse_answer,
    reading_lines,
    report_lines,
)
from sandcell_container.guest.start import Start

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sandcell_container.guest.job import Job, JobExit
    from sandcell_container.guest.shell_lines import ShellOrder
    from sandcell_container.guest.spawn import Spawner

__all__ = ["Finish", "Interrupt", "Shell", "first_of", "start_shell"]

T = TypeVar("T")

_START_S = 10.0  # for bash and the user's ~/.bashrc
_NO_BASH = {"errno": "ENOENT", "step": "exec"}
_LONGEST_ANSWER = 8192
_MOST_DROPS = 100


class Finish(NamedTuple):
    """How a command came back to bash. `ran`: whether it began. `refusal`: why its order could not hold."""

    status: int
    ran: bool
    refusal: str | None


class Interrupt(NamedTuple):
    """A SIGINT that was sent: who was `there` before, and who of them was forked and had run no program by then."""

    there: frozenset[int]
    young: frozenset[int]


async def start_shell(
    spawner: Spawner, *, cwd: str, env: Mapping[str, str], stdout: int, stderr: int
) -> Shell:
    """Start bash, which reads /etc/bash.bashrc and ~/.bashrc, and return it when it reads its first command.

    `stdout` and `stderr` are write ends for what commands say; the caller closes its own. What the rc files say
    goes there too, before this returns.

    Raises:
        InvalidRequest (UNSUPPORTED): there is no bash. Else as `Spawner.start`.
        Unavailable (START_FAILED): it ended, or read no command within 10 s: the rc files are at fault.
    """
    ours, theirs = socket.socketpair()
    with theirs:
        start = Start(
            argv=("bash", "--noediting", "-i"),
            env=env,
            cwd=cwd,
            stdin=theirs.fileno(),
            stdout=stdout,
            stderr=stderr,
        )
        try:
            job = await spawner.start(start)
        except BaseException as problem:
            ours.close()
            if isinstance(problem, SandcellError) and problem.details == _NO_BASH:
                message = "a session needs bash, and there is none in PATH"
                raise error(ErrorCode.UNSUPPORTED, message) from problem
            raise
    shell = Shell(ours, job, cwd)
    try:
        await shell.open()
    except BaseException:
        shell.close()
        job.start_kill(0.0, lambda _: None)
        raise
    return shell


async def first_of(*futures: asyncio.Future[Any], timeout_s: float | None = None) -> None:
    """Return when one of `futures` is done, or the time is over. Does not touch them."""
    await asyncio.wait(futures, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)


class Shell:
    """A bash at work. Commands one at a time: `ready`, `begin`, wait for what that returns, `interrupt` meanwhile.

    `cwd` is its folder, as it said after the last command. `is_broken`: it ends because a command has taken its descriptors.
    """

    def __init__(self, sock: socket.socket, job: Job, cwd: str) -> None:
        self.job = job
        self.cwd = cwd
        self.is_broken = False
        self.exited: asyncio.Future[JobExit | None] = asyncio.get_running_loop().create_future()
        self._loop = asyncio.get_running_loop()
        self._sock = sock
        self._number = 0
        self._status = 0
        self._inbox = bytearray()
        self._outbox = bytearray()
        self._round = _Round(0)
        self._drops = 0  # lines in a row that should have read an order, and were dropped
        self._sock.settimeout(0.0)
        self._loop.add_reader(sock.fileno(), self._on_readable)
        job.when_exited(self._on_exit)

    @property
    def is_reading(self) -> bool:
        """Whether `begin` may be called."""
        now = self._round
        return now.order is None and now.again is None and now.reading.done()

    @property
    def begun(self) -> asyncio.Future[bool]:
        """Whether the command runs or was refused, as soon as bash has read it."""
        return self._round.begun

    async def open(self) -> None:
        """Make bash read its first command. Raises as `start_shell`."""
        self._post(FIRST_LINES)
        self._ask_to_read()
        reading = self._round.reading
        await first_of(reading, self.exited, timeout_s=_START_S)
        if not reading.done():
            what = "ended" if self.exited.done() else f"read no command within {_START_S:g} s"
            raise error(ErrorCode.START_FAILED, f"bash {what}", hint="look at ~/.bashrc")

    async def ready(self) -> bool:
        """Let bash read the next command; returns True when it does, False when it ended."""
        if self._round.finish.done():
            await first_of(self._round.reported, self.exited)  # all that was asked meanwhile is answered
            self._ask_to_read()
        while not self.is_reading and not self.exited.done():
            await first_of(self._round.reading, self.exited)
        return not self.exited.done()

    def begin(self, order: ShellOrder) -> asyncio.Future[Finish | None]:
        """Let bash run a command; it `is_reading`. The future is how it came back, or None when bash ended with it."""
        self._send(order)
        return self._round.finish

    async def interrupt(self) -> Interrupt:
        """Send SIGINT to bash and what it waits for, once the command has begun."""
        await first_of(self._round.begun, self.exited)
        before = await self.job.forks()
        self.job.signal(signal.SIGINT, "group")
        there = await self.job.forks()  # requests are answered in order: now the signal has been sent
        if self._round.order is not None:
            self._report()  # the signal may have hit a line that reports, which is then dropped
        return Interrupt(
            there=frozenset(each.pid for each in before),
            young=frozenset(each.pid for each in (*before, *there) if each.is_forked),
        )

    async def is_overlooked(self, sent: Interrupt) -> bool:
        """Tell whether bash, or a child of it, has not taken an interrupt for what it was.

        A child of bash that has not become its program yet takes SIGINT for bash's own and drops it; bash itself, when
        it is just forking. So there is a program that was none, or a process that bash has forked since then.
        """
        now = await self.job.forks()
        bashes = {self.job.pid, *(each.pid for each in now if each.is_forked)}
        return any(
            (each.pid in sent.young and not each.is_forked)
            or (each.pid not in sent.there and each.parent in bashes)
            for each in now
        )

    def close(self) -> None:
        """End bash as an end of file does. Its EXIT trap runs; what it left is the caller's to end."""
        if self._sock.fileno() >= 0:
            self._loop.remove_reader(self._sock.fileno())
            self._loop.remove_writer(self._sock.fileno())
            self._sock.close()

    # lines of ours

    def _ask_to_read(self) -> None:
        self._number += 1
        self._round = _Round(self._number)
        self._post(reading_lines(self._number, before=self._status))

    def _send(self, order: ShellOrder) -> None:
        mark = b"__sandcell_" + os.urandom(16).hex().encode()
        self._round.order, self._round.head = order, head_of(mark)
        self._post(encode_order(order, mark))
        self._report()

    def _report(self) -> None:
        order = self._round.order
        assert order is not None, "begun"
        self._post(report_lines(order, self._number + 1))
        self._number += 2
        self._round.last_report = self._number
        if self._round.reported.done():  # of those before: nothing is sent behind these until bash has read
            self._round.reported = self._loop.create_future()

    # the socket

    def _post(self, data: bytes) -> None:
        if self._sock.fileno() < 0:
            return
        if not self._outbox:
            self._loop.add_writer(self._sock.fileno(), self._on_writable)
        self._outbox += data
        self._on_writable()

    def _on_writable(self) -> None:
        try:
            while self._outbox:
                del self._outbox[: self._sock.send(self._outbox)]
        except BlockingIOError:
            return
        except OSError:
            self._outbox.clear()  # bash is gone, or became another program; its exit tells
        self._loop.remove_writer(self._sock.fileno())

    def _on_readable(self) -> None:
        try:
            data = self._sock.recv(_LONGEST_ANSWER)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._loop.remove_reader(self._sock.fileno())
        *answers, rest = (self._inbox + data).split(b"\0")
        self._inbox = rest[-_LONGEST_ANSWER:]
        for said in answers:
            self._hear(bytes(said))

    def _hear(self, said: bytes) -> None:
        """Take an answer. What is none, or none that is due, was written by user code."""
        now = self._round
        if now.is_lost:
            return
        match parse_answer(said):
            case Reading(number) if number == now.number:
                _resolve(now.reading, None)
                if now.again is not None:
                    self._send(now.again)
            case Taking(number, head) if number == now.number:
                now.is_taking = True
                if head != now.head:
                    self._give_up()  # its `read` is not bash's own any more
            case Begun(number) if number == now.number:
                _resolve(now.begun, now.refusal is None)
                self._drops = 0
            case Refused(reason) if reason == CLOSED:
                self.is_broken = True
            case Refused(reason):
                now.refusal = reason
            case Dropped(number) if number == now.number:
                self._on_dropped()
            case Reported(number, status, ran, cwd) if now.number < number <= now.last_report:
                self._on_reported(number, Finish(status, ran, now.refusal), cwd)
            case _:
                pass

    def _on_dropped(self) -> None:
        """Bash reads no order. When it has run none, somebody else's SIGINT came while it waited."""
        now = self._round
        if now.begun.done() or now.is_dropped:
            return
        now.is_dropped = True
        self._drops += 1
        if now.is_taking or self._drops > _MOST_DROPS:
            self._give_up()  # who knows what it takes for lines of ours
        elif now.order is None:
            self._begin_again()
        else:
            self._report()  # behind it bash has read all of the order, and reads our next line from its beginning

    def _give_up(self) -> None:
        """What bash says is true no more: end it, and let its end be that of the command."""
        self._round.is_lost = True
        self.job.signal(signal.SIGKILL, "process")

    def _begin_again(self) -> None:
        before = self._round
        self._ask_to_read()
        self._round.take_over(before)
        _resolve(before.reading, None)  # who waits looks again

    def _on_reported(self, number: int, finish: Finish, cwd: bytes) -> None:
        now = self._round
        if now.is_dropped:
            if number == now.last_report:
                self._begin_again()
            return
        if not now.finish.done():
            _resolve(now.begun, finish.ran)
            if finish.ran:
                self._status = finish.status
            if cwd.startswith(b"/"):
                self.cwd = cwd.decode(errors="surrogateescape")
            now.finish.set_result(finish)
        if number == now.last_report:
            _resolve(now.reported, None)

    def _on_exit(self, ended: JobExit | None) -> None:
        if self._sock.fileno() >= 0:
            self._on_readable()  # its last words may be there
        self.exited.set_result(ended)
        if not self._round.finish.done():
            self._round.finish.set_result(None)


class _Round:
    """One order from the asking to the last report, and what bash has said of it."""

    def __init__(self, number: int) -> None:
        loop = asyncio.get_running_loop()
        self.number = number
        self.last_report = 0
        self.order: ShellOrder | None = None
        self.again: ShellOrder | None = None  # to be sent as soon as bash reads: SIGINT came before
        self.is_taking = False
        self.is_dropped = False
        self.is_lost = False
        self.head = b""  # the first line of its order
        self.refusal: str | None = None
        self.reading: asyncio.Future[None] = loop.create_future()
        self.begun: asyncio.Future[bool] = loop.create_future()
        self.reported: asyncio.Future[None] = loop.create_future()
        self.finish: asyncio.Future[Finish | None] = loop.create_future()

    def take_over(self, before: _Round) -> None:
        """Be the round of what nobody has read in the round before."""
        self.again = before.order or before.again
        self.begun, self.finish = before.begun, before.finish


def _resolve(future: asyncio.Future[T], result: T) -> None:
    if not future.done():
        future.set_result(result)

"""One bash that takes commands as data, and the lines of ours that make it do so. Knows no queue and no journal.

Commands go to `eval` in bash's main shell, so the folder, variables, functions, aliases, options and traps stay, and a
syntax error is that command's own. How it works, and why so:

* bash is interactive, without a terminal: only then does SIGINT end a command and not the shell. A command runs
  inside a sourced line, where bash is as quiet as in a script: no "[1] 4711" for a job, no "exit".
* Its standard input is a socket of ours: lines to execute come in, commands to read, and answers go back. While a
  command runs, bash keeps that socket, and the pipes, at close-on-exec descriptors above 9; the command has
  /dev/null, stdout, stderr and no other. Between commands bash's own 1 and 2 are /dev/null, so nobody sees its
  prompts and traces of our lines.
* A command is sent only when bash said that it reads. SIGINT makes bash drop the line it executes; a command that
  came unread after that would be executed as a line.

User code that looks for that socket and writes to it harms its own session and nothing else.
"""

from __future__ import annotations

import asyncio
import re
import signal
import socket
from typing import TYPE_CHECKING, Any

from sandcell_container.errors import ErrorCode, SandcellError, error
from sandcell_container.guest.spawn import Start

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sandcell_container.guest.spawn import Job, JobExit, Spawner

__all__ = ["Shell", "first_of", "start_shell"]

_START_S = 10.0  # for bash and the user's ~/.bashrc
_NO_BASH = {"errno": "ENOENT", "step": "exec"}
_LONGEST_ANSWER = 4096
_YOUNG_S = 0.005  # ten times what a process needs to become its program
_LOOKS = 3
_ANSWER = re.compile(rb"([<>=]) (\d{1,18})(?: (\d{1,3}))?")

# \builtin: neither an alias nor a function of the user's can stand in between.
_FIRST = b"""exec 251>&1 252>&2 >/dev/null 2>&1; PS0= PS1= PS2=; unset PROMPT_COMMAND; set +H +o history
__sandcell_last() { return "$__sandcell_before"; }
"""
# `{ exec; } 2>`: not traced. One line, so that the numbers of a command's lines are its own.
_READ = rb"""\builtin printf '< %d\n' >&0; IFS= \builtin read -r -d '' __sandcell_command; \builtin printf '> %d\n' >&0; """
_BEFORE = b"__sandcell_before=%d __sandcell_status=130; "
_RUN = (
    rb"""\builtin . /dev/fd/9 9<<<'{ \exec 9<&-; } 2>/dev/null; %s\builtin eval -- "$__sandcell_command"' """
)
_STREAMS = b"""</dev/null >&251 2>&252 251>&- 252>&-\n"""
# The status of the command before has to be in $?, but neither `set -e` nor an ERR trap may act on it again: `||`.
_AFTER_FAILURE = b"__sandcell_last || "
# The lone `)` is a syntax error on purpose. After one in a command substitution, bash 5.2 counts its open quotes from
# -1 and writes in front of its own heap; another one sets it right. No quote may stand on the lines up to there.
_REPORT = b"__sandcell_status=$?\n)\n" + rb"""\builtin printf '= %d %%d\n' "$__sandcell_status" >&0""" + b"\n"


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
    shell = Shell(ours, job)
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
    """A bash at work. Commands one at a time: `ready`, `begin`, wait for what that returns, `interrupt` meanwhile."""

    def __init__(self, sock: socket.socket, job: Job) -> None:
        self.job = job
        self.exited: asyncio.Future[JobExit | None] = asyncio.get_running_loop().create_future()
        self._loop = asyncio.get_running_loop()
        self._sock = sock
        self._number = 0
        self._reading = 0
        self._status = 0
        self._inbox = bytearray()
        self._outbox = bytearray()
        self._heard: dict[tuple[bytes, int], asyncio.Future[int]] = {}
        self._finish: asyncio.Future[int | None] = self._loop.create_future()
        self._sock.settimeout(0.0)
        self._loop.add_reader(sock.fileno(), self._on_readable)
        job.when_exited(self._on_exit)

    async def open(self) -> None:
        """Make bash read its first command. Raises as `start_shell`."""
        self._post(_FIRST)
        self._ask_to_read()
        reading = self._heard[b"<", self._reading]
        await first_of(reading, self.exited, timeout_s=_START_S)
        if not reading.done():
            what = "ended" if self.exited.done() else f"read no command within {_START_S:g} s"
            raise error(ErrorCode.START_FAILED, f"bash {what}", hint="look at ~/.bashrc")

    async def ready(self) -> bool:
        """Let bash read the next command; returns True when it does, False when it ended."""
        if self._finish.done():
            await self._one_of(self._heard[b"=", self._number])  # all that was asked meanwhile is answered
            self._ask_to_read()
        await self._one_of(self._heard[b"<", self._reading])
        return not self.exited.done()

    def begin(self, command: bytes) -> asyncio.Future[int | None]:
        """Let bash run `command`, which holds no NUL. The future is its status, or None when bash ended with it."""
        self._post(command + b"\0")
        self._report()
        return self._finish

    async def interrupt(self) -> list[int]:
        """Send SIGINT to bash and what it waits for, once the command has begun; return who was there before."""
        await self._one_of(self._heard[b">", self._reading])
        there = await self._settled_pids()
        self.job.signal(signal.SIGINT, "group")
        await self.job.pids()  # requests are answered in order: now the signal has been sent
        # The signal may have hit the line that reports, which is then dropped. It can only hit one.
        self._report()
        self._report()
        return there

    def close(self) -> None:
        """End bash as an end of file does. Its EXIT trap runs; what it left is the caller's to end."""
        if self._sock.fileno() >= 0:
            self._loop.remove_reader(self._sock.fileno())
            self._loop.remove_writer(self._sock.fileno())
            self._sock.close()

    # lines of ours

    def _ask_to_read(self) -> None:
        self._number += 1
        self._reading = self._number
        self._heard.clear()
        self._finish = self._loop.create_future()
        self._expect(b"<", self._number)
        self._expect(b">", self._number)
        run = _RUN % (_AFTER_FAILURE if self._status else b"")
        self._post(_READ % (self._number, self._number) + _BEFORE % self._status + run + _STREAMS)

    def _report(self) -> None:
        self._number += 1
        self._expect(b"=", self._number)
        self._post(_REPORT % self._number)

    async def _settled_pids(self) -> list[int]:
        """Return the processes of the shell when none of them is new: a child of bash that has not become its program
        yet takes SIGINT for bash's own and drops it. Where they come and go all the time, return soon all the same."""
        there = await self.job.pids()
        for _ in range(_LOOKS):
            before = there
            await asyncio.sleep(_YOUNG_S)
            there = await self.job.pids()
            if there == before:
                break
        return there

    async def _one_of(self, heard: asyncio.Future[int]) -> None:
        await first_of(heard, self.exited)

    def _expect(self, mark: bytes, number: int) -> None:
        self._heard[mark, number] = self._loop.create_future()

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
        *lines, rest = (self._inbox + data).split(b"\n")
        self._inbox = rest[-_LONGEST_ANSWER:]
        for line in lines:
            self._hear(bytes(line))

    def _hear(self, line: bytes) -> None:
        """Take an answer. What is none was written by user code."""
        answer = _ANSWER.fullmatch(line)
        if answer is None:
            return
        mark, number, status = answer[1], int(answer[2]), int(answer[3] or 0)
        expected = self._heard.get((mark, number))
        if expected is None or expected.done():
            return
        expected.set_result(status)
        if mark == b"=" and not self._finish.done():
            self._status = status
            self._finish.set_result(status)

    def _on_exit(self, ended: JobExit | None) -> None:
        self.exited.set_result(ended)
        if not self._finish.done():
            self._finish.set_result(None)

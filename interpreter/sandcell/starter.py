"""How the kernel of a context comes to be: the seam that plain spawns, a fork server and other kernels fill."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import signal
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast

from sandcell.own_output import OwnOutput
from sandcell_container.errors import ErrorCode, SandcellError, error
from sandcell_container.guest.job import Job
from sandcell_container.guest.start import Start
from sandcell_kernel.channels import Connection, new_connection
from sandcell_kernel.dialects import Dialect, Plain

if TYPE_CHECKING:
    from sandcell_container.guest.job import JobExit
    from sandcell_container.guest.spawn import Spawner

__all__ = ["KernelRequest", "KernelStarter", "LastWords", "PlainStarter", "StartedKernel", "Words"]

_WORDS_KEPT = 8 * 2**10
_ANSWER_SIZE = 64 * 2**10
_LINES_TOLD = 5
_LACKS = (
    "its own kernel runs the code, so runs have no value, no tables and charts as data, no accounting and no pipes of their "
    "own: output of threads, children and C code is of whatever runs when it comes, and what was written before a crash may "
    "be lost"
)
# What the system says of an interpreter that user code removed, spoilt, or put something else in the place of.
_GONE = frozenset(
    errno.errorcode[number]
    for number in (errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.EISDIR, errno.ENOEXEC, errno.ELOOP)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelRequest:
    """What the interpreter is to be born with: its whole environment, its folder, its bounds. `own` are the names of
    variables that its context was given itself.

    `max_frame` is how many bytes of JSON one message may have, and how many of buffers; `memory` how many bytes the
    interpreter and each of its processes may have of their own, None is no limit.
    """

    env: Mapping[str, str]
    cwd: str
    max_frame: int
    memory: int | None = None
    own: frozenset[str] = frozenset()

    @property
    def settings(self) -> dict[str, int | None]:
        """What the runtime is told; it cannot be changed when the interpreter is there."""
        return {"max_frame": self.max_frame, "memory": self.memory}


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedKernel:
    """A kernel whose sockets are bound, or will be. Whoever gets it ends `job`, closes `words`, and calls `forget` when
    it has answered or will not.

    `stock` says why it is not our runtime's, "" where it is, and `lacks` what is missed without. Of such a kernel
    `own_output` is what it writes past its messages, None where nobody reads that; `interrupts` how it is interrupted;
    `grace` how many seconds it may take to heed that, None as `Config` has it.
    """

    job: Job
    connection: Connection
    words: Words
    stock: str = ""
    lacks: str = _LACKS
    own_output: OwnOutput | None = None
    dialect: Dialect = field(default_factory=Plain)
    interrupts: Literal["signal", "message"] = "signal"
    grace: float | None = None
    forget: Callable[[], None] = lambda: None


class Words(Protocol):
    """What a kernel process has said last, for the case that it dies."""

    @property
    def text(self) -> str: ...
    def close(self) -> None:
        """Read what is there, and give the descriptors back. Closing twice is fine."""
        ...


class KernelStarter(Protocol):
    """Starts kernels of one language."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a user should know of how kernels are started here."""
        ...

    async def start(self, request: KernelRequest) -> StartedKernel:
        """Return a kernel that is ready for connections. Cancelling leaves nothing behind.

        Raises:
            InvalidRequest (CWD_NOT_FOUND): the folder is missing.
            Unavailable (START_FAILED, START_TIMEOUT): with what the process said.
        """
        ...


class LastWords:
    """What a kernel process says on its own stderr: read so that it never blocks, the newest part kept."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._kept: deque[bytes] = deque()
        self._size = 0
        os.set_blocking(descriptor, False)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(descriptor, self._read)

    @property
    def text(self) -> str:
        return b"".join(self._kept)[-_WORDS_KEPT:].decode("utf-8", "replace").strip()

    def close(self) -> None:
        """Read what is there, then give the descriptor back. Closing twice is fine."""
        if self._descriptor >= 0:
            self._read()
        if self._descriptor >= 0:
            self._give_back()

    def _read(self) -> None:
        try:
            data = os.read(self._descriptor, 64 * 2**10)
        except BlockingIOError:
            return
        if not data:
            self._give_back()
            return
        self._kept.append(data)
        self._size += len(data)
        while self._size - len(self._kept[0]) >= _WORDS_KEPT:
            self._size -= len(self._kept.popleft())

    def _give_back(self) -> None:
        self._loop.remove_reader(self._descriptor)
        os.close(self._descriptor)
        self._descriptor = -1


class PlainStarter:
    """Starts each kernel as a process of its own: `PYTHON RUNTIME_DIR/launch.py`."""

    warnings = ()

    def __init__(self, spawner: Spawner, *, python: str, runtime_dir: str, timeout: float) -> None:
        self._spawner = spawner
        self._argv = (python, os.path.join(runtime_dir, "launch.py"))
        self._timeout = timeout

    async def start(self, request: KernelRequest) -> StartedKernel:
        connection = new_connection()
        told = {"connection": connection.to_dict(), "settings": request.settings}
        ready, words, job = await self._spawn(request, json.dumps(told).encode())
        try:
            async with asyncio.timeout(self._timeout):
                said = await _wait_ready(ready, words, job)
        except BaseException as problem:
            job.signal(signal.SIGKILL, "tree")
            words.close()
            if isinstance(problem, TimeoutError):
                raise error(
                    ErrorCode.START_TIMEOUT,
                    f"the interpreter {self._argv[0]} is not ready after {self._timeout:g} s",
                    hint="is the machine overloaded? SANDCELL_KERNEL_START_TIMEOUT is the bound",
                    details={"stderr": words.text},
                ) from None
            raise
        finally:
            os.close(ready)
        return StartedKernel(job=job, connection=connection, words=words, stock=str(said.get("stock", "")))

    async def _spawn(self, request: KernelRequest, told: bytes) -> tuple[int, LastWords, Job]:
        stdin, stdin_end = os.pipe()
        os.write(stdin_end, told)  # far below what a pipe holds
        os.close(stdin_end)
        ready, stdout = os.pipe()
        errors, stderr = os.pipe()
        start = Start(
            argv=self._argv, env=request.env, cwd=request.cwd, stdin=stdin, stdout=stdout, stderr=stderr
        )
        try:
            job = await self._spawner.start(start)
        except BaseException as problem:
            os.close(ready)
            os.close(errors)
            if isinstance(problem, SandcellError) and _is_of_interpreter(problem):
                raise _environment_gone(start.argv[0], problem) from problem
            raise
        finally:
            for descriptor in (stdin, stdout, stderr):
                os.close(descriptor)
        return ready, LastWords(errors), job


async def _wait_ready(descriptor: int, words: LastWords, job: Job) -> dict[str, Any]:
    """Return what the launcher said when it said ready; what else stands before its line is no business of ours.

    Raises:
        Unavailable (START_FAILED): it said why it cannot, or ended without a word.
    """
    said = await _read_answer(descriptor, job)
    if "failed" in said:
        raise _start_failed(str(said["failed"]), str(said.get("hint", "")), words)
    if said.get("ready") is not True:
        status = (await job.wait()).status
        raise _ended_early(status, words)
    return said


async def _read_answer(descriptor: int, job: Job) -> dict[str, Any]:
    """Return the launcher's answer; {} when the pipe or the process ends without one."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[dict[str, Any]] = loop.create_future()
    text = bytearray()

    def read() -> None:
        try:
            data = os.read(descriptor, _ANSWER_SIZE)
        except BlockingIOError:
            return
        text.extend(data)
        *lines, rest = bytes(text).split(b"\n")
        found = next((said for said in map(_json_object, lines) if said.keys() & {"ready", "failed"}), None)
        text[:] = rest[-_ANSWER_SIZE:]
        if (found is not None or not data) and not answer.done():
            loop.remove_reader(descriptor)
            answer.set_result(found or {})

    def note_exit(_: JobExit | None) -> None:
        # Not every end of the pipe's other side is the interpreter's own, so its end alone may never be seen.
        if not answer.done():
            read()
        if not answer.done():
            answer.set_result({})

    os.set_blocking(descriptor, False)
    loop.add_reader(descriptor, read)
    job.when_exited(note_exit)
    try:
        return await answer
    finally:
        loop.remove_reader(descriptor)


def _json_object(line: bytes) -> dict[str, Any]:
    try:
        said = json.loads(line)
    except ValueError:
        return {}
    return cast("dict[str, Any]", said) if isinstance(said, dict) else {}


def _is_of_interpreter(problem: SandcellError) -> bool:
    """Whether the interpreter's own file is why nothing started: a caller named a folder and variables, no program."""
    return problem.details.get("step") != "cwd" and problem.details.get("errno") in _GONE


def _environment_gone(python: str, problem: SandcellError) -> SandcellError:
    return error(
        ErrorCode.START_FAILED,
        f"the sandbox's Python environment is gone: {python}",
        hint="a new sandbox has one; files in /workspace can be downloaded first",
        details={**problem.details, "cause": problem.message},
    )


def _ended_early(status: int, words: LastWords) -> SandcellError:
    words.close()  # reads what it said last
    message = f"the interpreter ended before it was ready, with {describe_exit(status)}"
    if last := words.text.splitlines()[-_LINES_TOLD:]:
        message += ": " + "\n".join(last)
    exited = os.WIFEXITED(status)
    return _start_failed(message, _EARLY_END if exited else "", words)


_EARLY_END = (
    "user code may have changed what every interpreter runs when it starts: look at ~/.ipython/profile_default/startup "
    "and at the .pth files among the installed packages"
)


def _start_failed(message: str, hint: str, words: LastWords) -> SandcellError:
    return error(ErrorCode.START_FAILED, message, hint=hint, details={"stderr": words.text})


def describe_exit(status: int) -> str:
    """Return a raw wait status in words, such as "exit status 1" or "signal 11 (SIGSEGV)"."""
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return f"exit status {code}"
    try:
        return f"signal {-code} ({signal.Signals(-code).name})"
    except ValueError:
        return f"signal {-code}"

"""One git, from its start to its end, as the user and with a bounded output."""

from __future__ import annotations

import re
import time
from collections import deque
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple, Self

from sandcell_container.errors import ErrorCode, SandcellError, error
from sandcell_container.guest.exec import start_exec
from sandcell_container.guest.git.credentials import WITH_CHANNEL, CredentialChannel
from sandcell_container.guest.git.environment import git_env
from sandcell_container.guest.git.failure import failure_of, git_missing, timed_out
from sandcell_container.guest.masks import masks_of
from sandcell_container.guest.stdin_pipe import StdinPipe
from sandcell_container.ids import new_id
from sandcell_container.journal import JournalReader, Kind

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping

    from sandcell_container.end import CommandEnd
    from sandcell_container.guest.boot import GuestBoot
    from sandcell_container.guest.exec import Exec, Input
    from sandcell_container.guest.git.credentials import Credentials
    from sandcell_container.guest.spawn import Spawner

__all__ = ["GitRunner", "Job"]

MOST_OUTPUT = 8 * 2**20  # bytes of one git that are kept

_LONGEST_LINE = 2000
_LAST_LINES = 60
_LINE_END = re.compile(rb"[\r\n]")
_NO_PROGRAM = {"ENOENT", "ENOTDIR", "EACCES"}
_NOT_FOUND = 127  # of a shell, for a program that is not there


class Job(NamedTuple):
    """One call of a verb, which may take several gits. `cwd` is the repository; `deadline` (`time.monotonic()`) is `timeout`
    seconds after its start; `on_progress` gets each line that git says of its progress."""

    verb: str
    cwd: str
    timeout: float | None
    deadline: float | None
    on_progress: Callable[[str], None]

    @classmethod
    def begin(cls, verb: str, cwd: str, timeout: float | None, on_progress: Callable[[str], None]) -> Self:
        """Return a call that starts now."""
        deadline = None if timeout is None else time.monotonic() + timeout
        return cls(verb=verb, cwd=cwd, timeout=timeout, deadline=deadline, on_progress=on_progress)

    @property
    def left(self) -> float | None:
        """The seconds that are left. Raises Unavailable (GIT_FAILED) where none are."""
        if self.deadline is None or self.timeout is None:
            return None
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise timed_out(self.verb, self.timeout)
        return left


class Answer(NamedTuple):
    """What a git said. `truncated`: there was more."""

    stdout: bytes
    exit_code: int
    truncated: bool

    @property
    def line(self) -> str:
        return self.stdout.decode(errors="surrogateescape").strip("\n")


class GitRunner:
    """Runs gits in the sandbox of `boot`, whose secrets are masked in what they say."""

    def __init__(self, spawner: Spawner, boot: GuestBoot, *, kill_grace: float) -> None:
        self._spawner = spawner
        self._boot = boot
        self._kill_grace = kill_grace

    async def run(
        self,
        job: Job,
        *arguments: str,
        remote: bool = False,
        credentials: Credentials | None = None,
        stdin: bytes | None = None,
        env: Mapping[str, str] | None = None,
        allowed: tuple[int, ...] = (0,),
    ) -> Answer:
        """Run one git and return what it said. `remote` and `credentials`: see `git_env`; `env` is added to that. Exit codes in
        `allowed` are no failure. Cancelling ends it.

        Raises:
            Unavailable (GIT_FAILED): it failed, or took too long.
            InvalidRequest: CWD_NOT_FOUND; UNSUPPORTED: there is no git.
            Gone (SANDBOX_GONE): the sandbox ended under it.
        """
        given: Input | None = None if stdin is None else StdinPipe(stdin)
        if credentials is not None:
            given = CredentialChannel(credentials)
        whole = git_env(self._boot.base_env, remote=remote, credentials=credentials) | dict(env or {})
        argv = (*(() if credentials is None else WITH_CHANNEL), "git", *arguments)
        async with self._started(job, argv, whole, given, credentials) as started:
            heard = _Heard(job.on_progress)
            await heard.listen(started)
            end = await started.wait()
        self._check_end(job, end, heard)
        if end.exit_code not in allowed:
            if credentials is not None and end.exit_code == _NOT_FOUND:
                raise git_missing()
            raise failure_of(job.verb, heard.said, exit_code=end.exit_code)
        return Answer(stdout=bytes(heard.stdout), exit_code=end.exit_code or 0, truncated=heard.is_cut)

    @asynccontextmanager
    async def _started(
        self,
        job: Job,
        argv: tuple[str, ...],
        env: Mapping[str, str],
        stdin: Input | None,
        credentials: Credentials | None,
    ) -> AsyncGenerator[Exec]:
        secrets = {**self._boot.secrets, **(credentials.secrets if credentials is not None else {})}
        try:
            started = await start_exec(
                self._spawner,
                argv,
                exec_id=new_id("git"),
                epoch=self._boot.epoch,
                cwd=job.cwd,
                env=env,
                stdin=stdin,
                timeout=job.left,
                max_output=None,
                stream=True,
                kill_grace=self._kill_grace,
                spill_dir=None,
                masks=masks_of(secrets),
            )
        except SandcellError as problem:
            if stdin is not None:
                stdin.close()
            if problem.code is ErrorCode.INVALID_ARGUMENT and problem.details.get("errno") in _NO_PROGRAM:
                raise git_missing() from problem
            raise
        try:
            yield started
        finally:
            await started.cancel()  # of one that has ended this does nothing

    def _check_end(self, job: Job, end: CommandEnd, heard: _Heard) -> None:
        match end.end.cause:
            case "timeout" if job.timeout is not None:
                raise timed_out(job.verb, job.timeout)
            case "exited":
                return
            case "lost":
                lost = error(ErrorCode.SANDBOX_GONE, f"the sandbox ended while git {job.verb} ran")
                raise self._spawner.problem or lost
            case cause:
                said = f"{heard.said}\nfatal: it ended by {cause}, signal {end.signal}"
                raise failure_of(job.verb, said, exit_code=None)


class _Heard:
    """The output of one git as it comes."""

    def __init__(self, on_progress: Callable[[str], None]) -> None:
        self.stdout = bytearray()
        self.is_cut = False
        self._on_progress = on_progress
        self._lines: deque[str] = deque(maxlen=_LAST_LINES)
        self._rest = b""

    @property
    def said(self) -> str:
        """The end of what it said: a merge tells of its conflicts where others put their results."""
        return "\n".join((self.stdout[-_LONGEST_LINE:].decode(errors="replace"), *self._lines))

    async def listen(self, started: Exec) -> None:
        with JournalReader(started.journal) as reader:
            while batch := await reader.next():
                for entry in batch:
                    if entry.kind == Kind.STDOUT:
                        self._keep(entry.data)
                    elif entry.kind == Kind.STDERR:
                        self._split(entry.data)
        self._tell(self._rest, is_line=True)

    def _keep(self, data: bytes) -> None:
        room = MOST_OUTPUT - len(self.stdout)
        self.stdout += data[:room]
        self.is_cut = self.is_cut or len(data) > room

    def _split(self, data: bytes) -> None:
        data, at = self._rest + data, 0
        for found in _LINE_END.finditer(data):
            self._tell(data[at : found.start()], is_line=found[0] == b"\n")
            at = found.end()
        self._rest = data[at:][-_LONGEST_LINE:]

    def _tell(self, line: bytes, *, is_line: bool) -> None:
        """Hand on one line. What a return overwrites is progress, and no part of what it said in the end."""
        text = line[:_LONGEST_LINE].decode(errors="replace").rstrip()
        if not text:
            return
        if is_line:
            self._lines.append(text)
        self._on_progress(text)

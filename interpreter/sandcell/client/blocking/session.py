# Made from ../aio/session.py by `python -m sandcell.client.generate`: change that file, not this one.
"""A session as its caller holds it: a persistent shell, in which commands run one after another."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Unpack

from sandcell.client.blocking.commands import read_result
from sandcell.client.blocking.follow import Follower
from sandcell.client.blocking.making import make, own_place
from sandcell.client.blocking.process import Process
from sandcell.client.blocking.processes import begin_process
from sandcell.client.checks import check_callbacks, check_text, env_of
from sandcell.client.options import NOT_GIVEN
from sandcell.client.process_options import ProcessCallbacks, ProcessOptions, make_process
from sandcell.client.protocol import Request, path_of
from sandcell.client.session_options import make_session, make_session_exec
from sandcell.command import command_failed
from sandcell.job_bodies import ChangeEnv, ProcessInfo, SessionInfo
from sandcell.names import encode_names
from sandcell_container.spec import parse_size

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence
    from weakref import WeakSet

    from sandcell.client.blocking.files import Files
    from sandcell.client.blocking.follow import Followed
    from sandcell.client.blocking.git import Git
    from sandcell.client.blocking.transport import Transport
    from sandcell.client.options import NotGiven
    from sandcell.command import ExecResult, StreamName
    from sandcell.events import Stderr, Stdout
    from sandcell.job_bodies import SessionExec
    from sandcell_container.end import End

__all__ = ["Session", "Sessions", "session_entries"]

_START_PATIENCE_S = 60.0  # what it may take to end a shell and to start another, by the guest's own limits


class Session:
    """One shell. Its folder, variables, functions, aliases, options, traps and jobs stay from command to command.

    `files` and `git` are the sandbox's; a relative path counts from the session's folder. Every method may raise NOT_FOUND: the
    session was deleted.
    """

    def __init__(self, transport: Transport, info: SessionInfo, watched: WeakSet[Process]) -> None:
        self._transport = transport
        self._info = info
        self._watched = watched

    @cached_property
    def files(self) -> Files:
        """The sandbox's files, as seen from the session's folder."""
        from sandcell.client.blocking.files import Files

        return Files(self._transport, session=self.id)

    @cached_property
    def git(self) -> Git:
        """Git in the sandbox, from the session's folder; its variables are not git's."""
        from sandcell.client.blocking.git import Git

        return Git(self._transport, session=self.id)

    @property
    def id(self) -> str:
        return self._info.id

    @property
    def status(self) -> str:
        """What was last heard: idle, busy or ended."""
        return self._info.status

    @property
    def cwd(self) -> str:
        """Its folder, as was last heard."""
        return self._info.cwd

    @property
    def end(self) -> End | None:
        """How its shell ended, where that was heard."""
        return self._info.end

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} ({self.status})>"

    def refresh(self) -> SessionInfo:
        """Ask for what is known of it now: what runs, what waits, its folder; how it ended and what it said last."""
        request = Request(method="GET", path=path_of("sessions", self.id))
        self._info = self._transport.call(request, SessionInfo)
        return self._info

    def exec(
        self,
        command: str,
        *,
        cwd: str | None = None,
        env: Mapping[str, str | None] | None = None,
        stdin: str | bytes | None = None,
        timeout: float | NotGiven | None = NOT_GIVEN,
        queue_timeout: float | None = None,
        check: bool = False,
        max_output: str | int = "1MiB",
        on_stdout: Callable[[str], object] | None = None,
        on_stderr: Callable[[str], object] | None = None,
    ) -> ExecResult:
        """Run one line of shell in its turn and return its output; `end.state` says whether the shell was "lost".

        `cwd`, from the session's folder where it is relative, and `env`, where None takes a variable away, hold for
        this command; afterwards all is as before, but for what the command itself has changed. `stdin` is what it may
        read. `timeout` counts from its start: then it is interrupted, and killed with the session if it goes on.
        `queue_timeout` counts while it waits for its turn.

        Of each stream at most `max_output` is kept, head and tail; `truncated` says what was cut and where the whole is.
        Callbacks get all text, as it comes. It is interrupted when this is given up.

        Raises:
            InvalidRequest: CWD_NOT_FOUND, INVALID_ARGUMENT, INVALID_ENV_NAME (also of one that is read-only), TOO_LARGE.
            Gone (SESSION_ENDED): its shell has ended; `details` say how, and what it said last.
            Conflict (BUSY): its turn did not come. Limited (QUOTA_EXCEEDED): the queue is full.
            Failed (COMMAND_FAILED): with `check`, when it did not exit with 0; its `result` is the ExecResult.
        """
        check_callbacks(on_stdout=on_stdout, on_stderr=on_stderr)
        named: dict[StreamName, Callable[[str], object] | None] = {"stdout": on_stdout, "stderr": on_stderr}
        limit = parse_size(max_output, what="max_output")
        body = make_session_exec(
            command,
            cwd=cwd,
            env=env,
            stdin=stdin,
            timeout=timeout,
            queue_timeout=queue_timeout,
            max_output=limit,
            stream=on_stdout is not None or on_stderr is not None,
        )
        entries = session_entries(self._transport, self.id, body)
        result = read_result(self._transport, entries, max_output=limit, callbacks=named)
        if check and not result.ok:
            raise command_failed(result, command)
        return result

    def start_process(
        self,
        command: str | Sequence[str],
        *,
        on_output: Callable[[Stdout | Stderr], object] | None = None,
        on_exit: Callable[[End], object] | None = None,
        **options: Unpack[ProcessOptions],
    ) -> Process:
        """Start a process as `Sandbox.start_process` does, from the state of this session once its turn has come.

        Its folder, variables, functions, aliases and options are copied, and nothing comes back. Raises as
        `Sandbox.start_process` and `exec`.
        """
        callbacks = ProcessCallbacks(on_output=on_output, on_exit=on_exit)
        path = path_of("sessions", self.id, "processes")
        body = make_process(command, **options)
        own = own_place("processes", options.get("id"), body.id)
        started = begin_process(self._transport, path, body, callbacks, own=own)
        if callbacks:
            self._watched.add(started)
        return started

    def processes(self) -> list[Process]:
        """Return the processes that were started from it, oldest first."""
        request = Request(method="GET", path=path_of("processes"), query={"session": self.id})
        found = self._transport.call(request, list[ProcessInfo])
        return [Process(self._transport, each) for each in found]

    def set_env(self, **values: str | None) -> None:
        """Change variables from its next command on, also after a restart; None takes one away.

        All of them or none. While a command runs or waits nobody can tell what will be read-only: then the next one is
        refused instead.

        Raises:
            InvalidRequest (INVALID_ENV_NAME): no variable, or one that is read-only in the session. Gone (SESSION_ENDED): its
                shell has ended.
        """
        body = ChangeEnv(env=env_of(values))
        request = Request(
            method="PATCH", path=path_of("env"), query={"session": self.id}, body=encode_names(body)
        )
        self._info = self._transport.call(request, SessionInfo)

    def interrupt(self) -> None:
        """Interrupt the command that runs, as ^C does, and return when it has ended. Nothing running is fine.

        One that goes on for 5 s is killed, and the session ends with it.
        """
        self._info = self._transport.call(self._asking("interrupt"), SessionInfo)

    def restart(self) -> None:
        """End the shell with its jobs, where there is one, and start another in the folder where this one began.

        What its code has set is lost, and what `set_env` has set is kept. Commands that run or wait end as "killed".
        Processes go on.

        Raises:
            Unavailable (START_FAILED): bash did not start, or ended in ~/.bashrc.
        """
        self._info = self._transport.call(self._asking("restart"), SessionInfo)

    def delete(self, *, keep_processes: bool = False) -> None:
        """End the shell with its jobs, and the processes that were started from it, and forget the session."""
        request = Request(
            method="DELETE",
            path=path_of("sessions", self.id),
            query={"keep_processes": "true"} if keep_processes else {},
            patience=_START_PATIENCE_S,
        )
        self._transport.fetch(request)

    def _asking(self, verb: str) -> Request:
        return Request(
            method="POST",
            path=path_of("sessions", self.id, verb),
            repeatable=verb != "restart",
            patience=_START_PATIENCE_S,
        )


def session_entries(transport: Transport, session_id: str, body: SessionExec) -> Generator[Followed]:
    """Return what runs one command of a session and yields what comes of it, up to ENDED.

    It is interrupted when that is closed.
    """
    request = Request(method="POST", path=path_of("sessions", session_id, "exec"), body=encode_names(body))
    return Follower(transport, request, None).entries()


class Sessions:
    """What a sandbox's handle can do with sessions. `_transport` is the handle's."""

    _transport: Transport
    _watched: WeakSet[Process]

    def create_session(
        self, id: str | None = None, *, cwd: str | None = None, env: Mapping[str, str | None] | None = None
    ) -> Session:
        """Start a persistent shell and return it when it is ready: bash, which reads ~/.bashrc.

        The same `id` gives the same session, also one that has ended: `restart` starts that anew. `cwd` counts from the
        working directory; `env` changes the user's environment, None takes a variable away.

        Raises:
            InvalidRequest: CWD_NOT_FOUND, INVALID_NAME, INVALID_ENV_NAME; UNSUPPORTED: there is no bash.
            Conflict (EXISTS): the session of this id began in another folder or environment.
            Unavailable (START_FAILED): bash did not start, or ended in ~/.bashrc.
        """
        body = make_session(id, cwd=cwd, env=env)
        request = Request(
            method="POST", path=path_of("sessions"), body=encode_names(body), patience=_START_PATIENCE_S
        )
        own = own_place("sessions", id, body.id)
        return self._session_of(make(self._transport, request, SessionInfo, own=own))

    def session(self, id: str) -> Session:
        """Return the session `id`, whoever made it, also one that has ended. NOT_FOUND where there is none."""
        request = Request(method="GET", path=path_of("sessions", check_text(id, what="id")))
        return self._session_of(self._transport.call(request, SessionInfo))

    def sessions(self) -> list[Session]:
        """Return the sessions, oldest first, also those of notebooks and those that have ended."""
        found = self._transport.call(Request(method="GET", path=path_of("sessions")), list[SessionInfo])
        return [self._session_of(each) for each in found]

    def _session_of(self, info: SessionInfo) -> Session:
        return Session(self._transport, info, self._watched)

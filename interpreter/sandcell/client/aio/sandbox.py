"""A sandbox as its caller holds it."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Self, Unpack
from weakref import WeakSet

import msgspec

from sandcell.api import ContextInfo, ExecutionInfo, OsProcess, SandboxInfo
from sandcell.client.aio.channel import in_thread
from sandcell.client.aio.commands import run_command
from sandcell.client.aio.context import START_PATIENCE_S, AsyncContext
from sandcell.client.aio.execution import AsyncExecution, run_execution, start_execution
from sandcell.client.aio.files import AsyncFiles
from sandcell.client.aio.lease import AsyncLease
from sandcell.client.aio.processes import AsyncProcesses
from sandcell.client.aio.session import AsyncSessions
from sandcell.client.aio.terminal import AsyncTerminals
from sandcell.client.aio.transport import AsyncTransport
from sandcell.client.checks import check_callbacks, check_text
from sandcell.client.host import Creation, Host, the_host
from sandcell.client.options import (
    NOT_GIVEN,
    Callbacks,
    CreateOptions,
    NotGiven,
    OnBusy,
    OnDisconnect,
    RunOptions,
    fit_engine,
    make_command,
    make_context,
    make_execution,
    make_spec,
)
from sandcell.client.protocol import Request, path_of
from sandcell.client.records import born_dead, info_of_record
from sandcell.client.signature import show_options
from sandcell.client.stdin import Stdin, StdinFile, check_stdin
from sandcell.names import encode_names
from sandcell_container.errors import ErrorCode, SandcellError, error
from sandcell_container.ids import check_id
from sandcell_container.spec import parse_size

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType
    from typing import Literal

    from sandcell.command import ExecResult, StreamName
    from sandcell.results import ExecutionError, Result, RunResult
    from sandcell_container.engine import Engine, Record
    from sandcell_container.spec import Status

__all__ = ["AsyncSandbox"]

_END_TIMEOUT = 12.0  # until a sandbox that nobody holds any more has ended: kill_grace and 10 s


class AsyncSandbox(AsyncProcesses, AsyncSessions, AsyncTerminals):
    """One isolated machine-like place that runs code and commands. Times in seconds, sizes in bytes.

    Made by `create`, `connect` or `get_or_create`; give it back with `close()` or the end of a `with` block.
    Usable from several threads. A forked child may use it too, holds no lease of it and never removes it.

    Every method that reaches the sandbox may raise SANDBOX_GONE (it has ended) and UNREACHABLE (it does not
    answer; `details.admitted` says whether the request was taken).
    """

    def __init__(
        self, record: Record, engine: Engine, transport: AsyncTransport, lease: AsyncLease, *, owner: bool
    ) -> None:
        """Not for callers: use `create` or `connect`."""
        self.files = AsyncFiles(transport)
        self._record = record
        self._engine = engine
        self._transport = transport
        self._lease = lease
        self._owner_pid = os.getpid() if owner else None
        self._status: Status = "running"
        self._watched = WeakSet()
        self._notes: tuple[str, ...] = ()

    # --- how one comes by a sandbox

    @classmethod
    @show_options()
    async def create(cls, image: str | None = None, **options: Unpack[CreateOptions]) -> Self:
        """Make a sandbox and return it when it answers.

        `name` and `reuse`: a taken name is EXISTS, or with `reuse` the sandbox that has it. `engine`: "auto",
        "docker", "podman", "local" or "process". `cpus` in cores, `memory` and `disk` as "512MiB" or bytes,
        `pids`; one that cannot be applied is in `info().warnings`, an error with `strict`. `env` for all user code.
        `python`: the interpreter whose environment user code gets, by default this one. `default_timeout` for
        runs and commands, `idle_timeout`, `start_timeout` in seconds. `on_release`: what becomes of it when
        its owner closes it or dies: "remove", "stop" or "keep".

        Raises:
            InvalidRequest: INVALID_ARGUMENT, INVALID_NAME, INVALID_ENV_NAME; UNSUPPORTED: an option of a later
                version.
            Conflict (EXISTS): the name is taken.
            Unavailable: ENGINE_UNAVAILABLE, START_FAILED, START_TIMEOUT, each with its cause and what to do.
        """
        host = await in_thread(the_host)
        spec = make_spec(host.config, image, options)
        engine, passed_over = await in_thread(host.engine, options.get("engine") or host.config.engine)
        spec = fit_engine(spec, engine.name, image)
        creation = Creation(engine.create, engine.remove)
        try:
            record = await in_thread(creation.run, spec)
        except SandcellError as problem:
            if problem.code == ErrorCode.EXISTS and options.get("reuse"):
                return await cls.connect(spec.name)
            raise
        except BaseException:
            creation.give_up()
            raise
        try:
            made = await cls._attach(host, engine, record, "owner")
        except BaseException:
            await in_thread(engine.remove, record.id)
            raise
        made._notes = tuple(f"passed over engine {each.engine}: {each.reason}" for each in passed_over)
        return made

    @classmethod
    async def connect(cls, name_or_id: str) -> Self:
        """Return a sandbox that exists on this machine. Closing what this returns leaves the sandbox alone.

        Raises:
            NotFound (NOT_FOUND): no sandbox has this name or id.
        """
        host = await in_thread(the_host)
        found = await in_thread(host.find, check_text(name_or_id, what="name_or_id"))
        return await cls._attach(host, found.engine, found.record, "attached")

    @classmethod
    @show_options(required=("name",))
    async def get_or_create(cls, **options: Unpack[CreateOptions]) -> Self:
        """Return the sandbox `name`, made by `create` with the other options where there is none."""
        check_id(options.get("name") or "", what="name of a sandbox")
        options["reuse"] = True
        return await cls.create(**options)

    @classmethod
    async def _attach(
        cls, host: Host, engine: Engine, record: Record, kind: Literal["owner", "attached"]
    ) -> Self:
        transport = AsyncTransport(
            record.address,
            record.token,
            connect_timeout=host.config.connect_timeout,
            reply_timeout=host.config.reply_timeout,
        )
        try:
            lease = await AsyncLease.take(transport, kind)
        except SandcellError as problem:
            if kind == "owner" and problem.code is ErrorCode.SANDBOX_GONE:
                raise born_dead(problem) from problem
            raise
        return cls(record, engine, transport, lease, owner=kind == "owner")

    # --- what it is

    @property
    def id(self) -> str:
        return self._record.id

    @property
    def name(self) -> str:
        return self._record.name

    @property
    def engine(self) -> str:
        return self._record.engine

    @property
    def status(self) -> Status:
        """What was last heard: running, stopped or removed."""
        if self._status == "running" and self._transport.ended:
            return "removed" if self._record.on_release == "remove" else "stopped"
        return self._status

    async def info(self) -> SandboxInfo:
        """Return what is known of it: engine, limits, isolation, versions, warnings.

        The warnings also say which engines `engine="auto"` passed over, and why.
        """
        info = await self._transport.call(Request(method="GET", path=path_of("info")), SandboxInfo)
        return msgspec.structs.replace(info, warnings=(*info.warnings, *self._notes))

    async def top(self) -> list[OsProcess]:
        """Return the live processes in it, oldest first, each with the `owner` that it belongs to; what serves the
        sandbox itself is not among them."""
        return await self._transport.call(Request(method="GET", path=path_of("top")), list[OsProcess])

    # --- code

    async def run_code(
        self,
        code: str,
        *,
        language: str = "python",
        context: AsyncContext | str | None = None,
        fresh: bool = False,
        env: Mapping[str, str | None] | None = None,
        cwd: str | None = None,
        timeout: float | NotGiven | None = NOT_GIVEN,
        queue_timeout: float | None = None,
        on_busy: OnBusy = "wait",
        on_disconnect: OnDisconnect = "continue",
        on_stdout: Callable[[str], object] | None = None,
        on_stderr: Callable[[str], object] | None = None,
        on_result: Callable[[Result], object] | None = None,
        on_error: Callable[[ExecutionError], object] | None = None,
        on_input: Callable[[str], object] | None = None,
        check: bool = False,
        id: str | None = None,
    ) -> RunResult:
        """Run `code` and return all that a notebook would show; an exception of the code is in `error`.

        `context`: which interpreter, by default the one of its language, whose state lasts. `fresh`: in a new
        interpreter that ends with the run. `env`, `cwd`: for this run only; None as a value takes a variable
        away. `timeout` counts from its start, `queue_timeout` while it waits for its turn; `on_busy="reject"`
        does not wait. `on_disconnect`: what becomes of the run when this program vanishes.

        Callbacks are called where the caller stands, while the run goes on, and may use the sandbox: with text, a
        result, an error, or the prompt of an `input()`, whose line `on_input` returns (without it, an error in the
        code). One that raises, ^C and a cancelled task interrupt the run. `check`: code that failed raises.

        Raises:
            InvalidRequest: UNKNOWN_LANGUAGE, CWD_NOT_FOUND, INVALID_ARGUMENT, INVALID_NAME, INVALID_ENV_NAME.
            NotFound (NOT_FOUND): there is no such context.
            Conflict (BUSY): with `on_busy="reject"`, or its turn did not come within `queue_timeout`.
            Limited (QUOTA_EXCEEDED): the queue is full.
            Failed (CODE_FAILED): with `check`; its `result` is the RunResult.
        """
        callbacks = Callbacks(
            on_stdout=on_stdout,
            on_stderr=on_stderr,
            on_result=on_result,
            on_error=on_error,
            on_input=on_input,
        )
        body = make_execution(
            code,
            language=language,
            context=context.id if isinstance(context, AsyncContext) else context,
            allow_stdin=on_input is not None,
            id=id,
            fresh=fresh,
            env=env,
            cwd=cwd,
            timeout=timeout,
            queue_timeout=queue_timeout,
            on_busy=on_busy,
            on_disconnect=on_disconnect,
        )
        return await run_execution(self._transport, body, callbacks, check=check)

    async def start_code(
        self,
        code: str,
        *,
        language: str = "python",
        context: AsyncContext | str | None = None,
        **options: Unpack[RunOptions],
    ) -> AsyncExecution:
        """Start `code` as `run_code` does and return at once; its questions are answered by `send_input`.

        It goes on whoever comes and goes: `on_disconnect="interrupt"` is INVALID_ARGUMENT here.
        """
        context_id = context.id if isinstance(context, AsyncContext) else context
        body = make_execution(code, language=language, context=context_id, allow_stdin=True, **options)
        return await start_execution(self._transport, body)

    async def execution(self, id: str) -> AsyncExecution:
        """Return the run `id`, whoever started it. NOT_FOUND where there is none."""
        request = Request(method="GET", path=path_of("executions", check_text(id, what="id")))
        return AsyncExecution(self._transport, await self._transport.call(request, ExecutionInfo))

    async def executions(self) -> list[AsyncExecution]:
        """Return the runs that the sandbox knows, oldest first."""
        found = await self._transport.call(
            Request(method="GET", path=path_of("executions")), list[ExecutionInfo]
        )
        return [AsyncExecution(self._transport, each) for each in found]

    async def create_context(
        self,
        language: str = "python",
        *,
        id: str | None = None,
        cwd: str = "/workspace",
        env: Mapping[str, str | None] | None = None,
        memory: str | int | None = None,
    ) -> AsyncContext:
        """Start an interpreter of its own and return it when it is ready. The same `id` gives the same one.

        Raises:
            InvalidRequest: UNKNOWN_LANGUAGE, CWD_NOT_FOUND, INVALID_NAME, INVALID_ENV_NAME.
        """
        body = make_context(language=language, id=id, cwd=cwd, env=env, memory=memory)
        encoded = encode_names(body)
        request = Request(method="POST", path=path_of("contexts"), body=encoded, patience=START_PATIENCE_S)
        return AsyncContext(self._transport, await self._transport.call(request, ContextInfo))

    async def context(self, id: str) -> AsyncContext:
        """Return the context `id`. NOT_FOUND where there is none."""
        request = Request(method="GET", path=path_of("contexts", check_text(id, what="id")))
        return AsyncContext(self._transport, await self._transport.call(request, ContextInfo))

    async def contexts(self) -> list[AsyncContext]:
        """Return the contexts that there are."""
        found = await self._transport.call(Request(method="GET", path=path_of("contexts")), list[ContextInfo])
        return [AsyncContext(self._transport, each) for each in found]

    # --- commands

    async def exec(
        self,
        command: str | Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str | None] | None = None,
        stdin: Stdin | None = None,
        timeout: float | NotGiven | None = NOT_GIVEN,
        check: bool = False,
        max_output: str | int = "1MiB",
        on_stdout: Callable[[str], object] | None = None,
        on_stderr: Callable[[str], object] | None = None,
    ) -> ExecResult:
        """Run one command and return its output: a line for `bash`, or words that nothing interprets.

        Nothing but files survives it: what it started and left behind is ended. `env`: changes to the user's, None
        as a value takes a variable away. `stdin`: text, bytes or an open file, which is read while the command runs and
        as fast as it reads; None is no input at all.

        Of each stream at most `max_output` is kept, head and tail. `truncated` says what was cut; the whole, up to 64 MiB,
        is then in a file of the sandbox, `truncated["stdout"].path`, for as long as the command is among the last 200.
        Callbacks get all text, as it comes; one that is slow makes the command wait. It ends when this is given up.

        Raises:
            InvalidRequest: CWD_NOT_FOUND; INVALID_ARGUMENT: no such program, a path as `stdin`; INVALID_ENV_NAME.
            Failed (COMMAND_FAILED): with `check`, when it did not exit with 0; its `result` is the ExecResult.
        """
        check_callbacks(on_stdout=on_stdout, on_stderr=on_stderr)
        named: dict[StreamName, Callable[[str], object] | None] = {"stdout": on_stdout, "stderr": on_stderr}
        limit = parse_size(max_output, what="max_output")
        given = check_stdin(stdin)
        file = given if isinstance(given, StdinFile) else None
        request = make_command(
            command,
            cwd=cwd,
            env=env,
            stdin=None if isinstance(given, StdinFile) else given,
            timeout=timeout,
            max_output=limit,
            stream=on_stdout is not None or on_stderr is not None,
        )
        return await run_command(
            self._transport, request, file, max_output=limit, callbacks=named, check=check
        )

    # --- its end

    async def remove(self) -> None:
        """End it and all that is in it, now.

        Raises:
            Refused (FORBIDDEN): this handle did not create it.
        """
        if not self._is_owner():
            raise error(
                ErrorCode.FORBIDDEN,
                f"the sandbox {self.name} belongs to the program that created it",
                hint=f"end it there, or by hand: sandcell rm {self.name}",
            )
        await in_thread(self._engine.remove, self.id)
        self._status = "removed"
        await self._let_go()

    async def close(self) -> None:
        """Give it back. What its owner's `on_release` says happens: removed, stopped or left running.

        A handle that did not create it only lets go. Twice is fine.
        """
        ends = self._is_owner() and self._status == "running"
        if ends and self._record.on_release == "remove":
            await self.remove()
            return
        await self._let_go()
        if ends and self._record.on_release == "stop":
            await in_thread(partial(self._engine.await_end, self.id, timeout=_END_TIMEOUT))
            self._status = "stopped"

    @classmethod
    async def list(cls) -> list[SandboxInfo]:
        """Return the sandboxes of this machine."""
        host = await in_thread(the_host)
        return [info_of_record(found.record) for found in await in_thread(host.records)]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} ({self.engine}, {self.status})>"

    def _is_owner(self) -> bool:
        return self._owner_pid == os.getpid()

    async def _let_go(self) -> None:
        for process in list(self._watched):
            await process.close()
        self._lease.release()
        self._transport.close()

"""A sandbox as its caller holds it."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Unpack
from weakref import WeakSet

from sandcell.api import ContextInfo, ExecutionInfo, OsProcess
from sandcell.client.aio.channel import in_thread
from sandcell.client.aio.commands import run_command
from sandcell.client.aio.context import START_PATIENCE_S, AsyncContext
from sandcell.client.aio.environment import AsyncEnvironment
from sandcell.client.aio.execution import AsyncExecution, run_execution, start_execution
from sandcell.client.aio.held import AsyncHeld
from sandcell.client.aio.making import make, own_place
from sandcell.client.aio.processes import AsyncProcesses
from sandcell.client.aio.session import AsyncSessions
from sandcell.client.aio.terminal import AsyncTerminals
from sandcell.client.checks import check_callbacks, check_text
from sandcell.client.options import (
    NOT_GIVEN,
    Callbacks,
    NotGiven,
    OnBusy,
    OnDisconnect,
    RunOptions,
    make_command,
    make_context,
    make_execution,
)
from sandcell.client.protocol import Request, path_of
from sandcell.client.stdin import Stdin, StdinFile, check_stdin
from sandcell.client.tool_offer import make_offer
from sandcell.names import encode_names
from sandcell_container.spec import parse_size

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence

    from sandcell.client.aio.files import AsyncFiles
    from sandcell.client.aio.git import AsyncGit
    from sandcell.client.aio.hold import AsyncHold
    from sandcell.client.aio.ports import AsyncPorts
    from sandcell.client.aio.transport import AsyncTransport
    from sandcell.command import ExecResult, StreamName
    from sandcell.notebook import NotebookProgress, NotebookResult, OnError
    from sandcell.results import ExecutionError, Result, RunResult
    from sandcell.tools import ToolLike

__all__ = ["AsyncSandbox"]


class AsyncSandbox(AsyncHeld, AsyncEnvironment, AsyncProcesses, AsyncSessions, AsyncTerminals):
    """One isolated machine-like place that runs code and commands. Times in seconds, sizes in bytes.

    Made by `create`, `connect` or `get_or_create`; give it back with `close()` or the end of a `with` block.
    Usable from several threads. A forked child may use it too, and never removes or stops it.

    Every method that reaches the sandbox starts it where it is stopped, and may raise SANDBOX_GONE (it has ended; `details.end` says
    how) and UNREACHABLE (it does not answer; `details.admitted` says whether the request was taken).
    """

    def __init__(self, hold: AsyncHold, transport: AsyncTransport, *, owner: bool) -> None:
        """Not for callers: use `create` or `connect`."""
        super().__init__(hold, transport, owner=owner)
        self._watched = WeakSet()

    # What not every program uses is loaded when it is first asked for.

    @cached_property
    def files(self) -> AsyncFiles:
        """Its files."""
        from sandcell.client.aio.files import AsyncFiles

        return AsyncFiles(self._transport)

    @cached_property
    def git(self) -> AsyncGit:
        """Git in it, run as the user of user code."""
        from sandcell.client.aio.git import AsyncGit

        return AsyncGit(self._transport)

    @cached_property
    def ports(self) -> AsyncPorts:
        """What listens in it."""
        from sandcell.client.aio.ports import AsyncPorts

        return AsyncPorts(self._transport)

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
        tools: Sequence[ToolLike] | None = None,
    ) -> RunResult:
        """Run `code` and return all that a notebook would show; an exception of the code is in `error`.

        `context`: which interpreter, by default the one of its language, whose state lasts. `fresh`: in a new
        interpreter that ends with the run. `env`, `cwd`: for this run only; None as a value takes a variable
        away. `timeout` counts from its start, `queue_timeout` while it waits for its turn; `on_busy="reject"`
        does not wait. `on_disconnect`: what becomes of the run when this program vanishes.

        Callbacks are called where the caller stands, while the run goes on, and may use the sandbox: with text, a
        result, an error, or the prompt of an `input()`, whose line `on_input` returns (without it, an error in the
        code). One that raises, ^C and a cancelled task interrupt the run. `check`: code that failed raises.
        `tools`: functions of this program that the code may call, in the place of those that the sandbox was given; they
        are called as callbacks are, those of AsyncSandbox beside the caller.

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
        offer = make_offer(tools, self._tools, client=self._transport.client_id)
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
            offer=offer,
        )
        return await run_execution(self._transport, body, callbacks, offer, check=check)

    async def start_code(
        self,
        code: str,
        *,
        language: str = "python",
        context: AsyncContext | str | None = None,
        tools: Sequence[ToolLike] | None = None,
        **options: Unpack[RunOptions],
    ) -> AsyncExecution:
        """Start `code` as `run_code` does and return at once; its questions are answered by `send_input`, and calls to its
        `tools` while this program follows it or waits for it.

        It goes on whoever comes and goes: `on_disconnect="interrupt"` is INVALID_ARGUMENT here.
        """
        context_id = context.id if isinstance(context, AsyncContext) else context
        offer = make_offer(tools, self._tools, client=self._transport.client_id)
        body = make_execution(
            code, language=language, context=context_id, allow_stdin=True, offer=offer, **options
        )
        return await start_execution(self._transport, body, offer)

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
        return AsyncContext(
            self._transport,
            await make(self._transport, request, ContextInfo, own=own_place("contexts", id, body.id)),
            self._tools,
        )

    async def context(self, id: str) -> AsyncContext:
        """Return the context `id`. NOT_FOUND where there is none."""
        request = Request(method="GET", path=path_of("contexts", check_text(id, what="id")))
        return AsyncContext(self._transport, await self._transport.call(request, ContextInfo), self._tools)

    async def contexts(self) -> list[AsyncContext]:
        """Return the contexts that there are."""
        found = await self._transport.call(Request(method="GET", path=path_of("contexts")), list[ContextInfo])
        return [AsyncContext(self._transport, each, self._tools) for each in found]

    async def run_notebook(
        self,
        source: str | os.PathLike[str],
        out: str | os.PathLike[str] | None = None,
        *,
        context: AsyncContext | str | None = None,
        fresh: bool = False,
        cwd: str | None = None,
        timeout: float | NotGiven | None = NOT_GIVEN,
        on_error: OnError = "stop",
        parameters: Mapping[str, Any] | None = None,
        on_progress: Callable[[NotebookProgress], object] | None = None,
        check: bool = False,
    ) -> NotebookResult:
        """Run the notebook in the file `source` cell by cell, write it with its outputs to `out`, and return both.

        Both are files of this machine, and may be the same. The cells run as in a notebook's kernel: in the sandbox's own
        context for its language, in `context`, or with `fresh` in an interpreter that ends with the run; those that
        begin with `%%shell` in a session. The outputs are as JupyterLab would store them. Cells tagged `skip-execution`
        and empty ones do not run; one tagged `raises-exception` may fail.

        `timeout` is for each cell. After a cell that failed, the rest is left alone, or with `on_error="continue"` run.
        `parameters` become a cell tagged `injected-parameters` behind the one tagged `parameters`, as with papermill.
        `on_progress` is called before and after each cell. `out` is written as the cells end, and holds what has run by
        then, also when this is given up or the sandbox goes. `check`: a cell that failed raises.

        Raises:
            NotFound (FILE_NOT_FOUND): there is no such notebook. (NOT_FOUND): no such context.
            InvalidRequest: INVALID_ARGUMENT: it is no notebook, `out` cannot be written, a parameter that no cell can
                be made of; UNKNOWN_LANGUAGE, CWD_NOT_FOUND, INVALID_NAME.
            Failed (CODE_FAILED): with `check`; its `result` is the NotebookResult.
        """
        # What notebooks need takes longer to load than all the rest.
        from sandcell.client.aio.notebook import execute_notebook
        from sandcell.client.notebook_options import make_plan

        plan = make_plan(
            source,
            out,
            context=context.id if isinstance(context, AsyncContext) else context,
            fresh=fresh,
            cwd=cwd,
            timeout=timeout,
            on_error=on_error,
            parameters=parameters,
            on_progress=on_progress,
        )
        result = await execute_notebook(self, self._transport, plan)
        if check:
            result.raise_for_error()
        return result

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

    async def _end_watching(self) -> None:
        for process in list(self._watched):
            await process.close()

    async def _end_serving(self) -> None:
        await in_thread(self.ports.stop_serving)

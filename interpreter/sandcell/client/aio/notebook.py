"""Running a notebook, cell by cell, in a context and in sessions of a sandbox."""

from __future__ import annotations

import time
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Protocol, assert_never

import msgspec

from sandcell.api import Ticket
from sandcell.client.aio.channel import call, in_thread
from sandcell.client.aio.execution import past_events, run_execution
from sandcell.client.options import Callbacks, make_execution
from sandcell.client.protocol import Request, path_of
from sandcell.events import Ended, ErrorRaised, Started, Stderr, Stdout
from sandcell.languages import language_for, own_context_of
from sandcell.notebook import NotebookResult, NotebookRun, inject_parameters, language_of
from sandcell.notebook_file import NotebookFile, check_target, read_notebook
from sandcell.results import ExecutionError
from sandcell_container.end import CommandEnd, End
from sandcell_container.errors import ErrorCode, NotFound, SandcellError
from sandcell_kernel.cells import (
    ContextCell,
    ExecCell,
    HelpCell,
    LineCell,
    ProcessCell,
    PythonCell,
    ShellCell,
    WrongCell,
)
from sandcell_kernel.requests import command_problem

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from sandcell.api import CreateExecution
    from sandcell.client.aio.context import AsyncContext
    from sandcell.client.aio.process import AsyncProcess
    from sandcell.client.aio.sandbox import AsyncSandbox
    from sandcell.client.aio.session import AsyncSession
    from sandcell.client.aio.transport import AsyncTransport
    from sandcell.client.notebook_options import NotebookPlan
    from sandcell.client.options import NotGiven
    from sandcell.command import ExecResult
    from sandcell.events import Event
    from sandcell.notebook import CellWork

__all__ = ["execute_notebook"]

_ORIGIN = "run_notebook"
_NEEDS_KERNEL = "a line magic of Sandcell needs the Jupyter kernel"


async def execute_notebook(
    sandbox: AsyncSandbox, transport: AsyncTransport, plan: NotebookPlan
) -> NotebookResult:
    """Run a notebook as `plan` says; see `Sandbox.run_notebook`."""
    began = time.monotonic()
    if plan.out is not None:
        await in_thread(check_target, plan.out)
    notebook = await in_thread(read_notebook, plan.source)
    inject_parameters(notebook, plan.parameters)
    run, file = NotebookRun(notebook), NotebookFile(plan.out)
    async with _context_for(sandbox, plan, language_of(notebook)) as context:
        try:
            runner = _Runner(sandbox, transport, plan, context)
            await _run_cells(runner, run, plan, file)
            await runner.hear_late(run)
        finally:
            file.save(notebook)  # without another thread: what has run is kept whatever ends this
    duration = time.monotonic() - began
    return NotebookResult(cells=run.results(), notebook=notebook, path=plan.out, duration=duration)


@asynccontextmanager
async def _context_for(
    sandbox: AsyncSandbox, plan: NotebookPlan, language: str
) -> AsyncGenerator[AsyncContext]:
    """Yield where the cells run: in a context that there is, in the sandbox's own, or in one that ends with the block."""
    if plan.context is not None:
        yield await sandbox.context(plan.context)
        return
    if not plan.fresh:
        yield await sandbox.create_context(language, id=own_context_of(language))
        return
    context = await sandbox.create_context(language)
    try:
        yield context
    finally:
        await context.delete()


async def _run_cells(runner: _Runner, run: NotebookRun, plan: NotebookPlan, file: NotebookFile) -> None:
    for work in run.todo:
        await _tell(plan, run, work)
        try:
            await runner.run(work)
        except BaseException as problem:
            work.outputs.fail(_reason_of(problem))
            run.finish(work)
            raise
        result = run.finish(work)
        await _tell(plan, run, work)
        if result.failed and plan.on_error == "stop":
            return
        await in_thread(file.save_soon, run.notebook)


async def _tell(plan: NotebookPlan, run: NotebookRun, work: CellWork) -> None:
    if plan.on_progress is not None:
        await call(plan.on_progress, run.progress(work))


class _RunCommand(Protocol):
    """Runs a command: in a session, or without one."""

    async def __call__(
        self,
        command: str,
        *,
        timeout: float | NotGiven | None,
        on_stdout: Callable[[str], object],
        on_stderr: Callable[[str], object],
    ) -> ExecResult: ...


class _Runner:
    """Runs one cell after another, each where its first line says."""

    def __init__(
        self,
        sandbox: AsyncSandbox,
        transport: AsyncTransport,
        plan: NotebookPlan,
        context: AsyncContext,
    ) -> None:
        self._sandbox = sandbox
        self._transport = transport
        self._plan = plan
        self._context = context
        # By id of a run: its cell, and the cursor behind its events.
        self._heard: dict[str, tuple[CellWork, str]] = {}

    async def run(self, work: CellWork) -> None:
        """Run a cell to its end; what it shows is in its outputs by then.

        Raises:
            SandcellError: it could not be run.
        """
        match work.where:
            case PythonCell():
                await self._run_here(work)
            case ContextCell(context_id, language, code, _):
                await self._run_in(work, context_id, language, code)
            case ShellCell(session_id, code):
                await self._run_shell(work, session_id, code)
            case ExecCell(code):
                await self._run_command(work, self._sandbox.exec, code)
            case ProcessCell():
                await self._run_process(work, work.where)
            case WrongCell(problem):
                work.outputs.fail(ExecutionError(name="UsageError", value=problem))
            case LineCell() | HelpCell():
                work.outputs.fail(ExecutionError(name="UNSUPPORTED", value=_NEEDS_KERNEL))
            case _:
                assert_never(work.where)

    async def _run_here(self, work: CellWork) -> None:
        body = make_execution(
            work.source,
            language=self._context.language,
            context=self._context.id,
            cwd=self._plan.cwd,
            timeout=self._plan.timeout,
        )
        await self._run_code(work, body)

    async def _run_in(self, work: CellWork, context_id: str, language: str | None, code: str) -> None:
        """Run a cell in another context, with a number of the notebook's own."""
        count = await self._ticket()
        chosen = language or language_for(context_id)
        context = await self._sandbox.create_context(chosen, id=context_id)
        body = make_execution(code, language=context.language, context=context.id, timeout=self._plan.timeout)
        await self._run_code(work, body, count=count)

    async def _run_code(self, work: CellWork, body: CreateExecution, *, count: int | None = None) -> None:
        """Run code; `count` is the number of its cell, where it is another than its interpreter's."""
        plain = msgspec.structs.replace(body, want=(), origin=_ORIGIN)  # nothing that no notebook would have

        def hear(event: Event) -> None:
            if count is not None and isinstance(event, Started | Ended):
                event = msgspec.structs.replace(event, execution_count=count)
            work.outputs.add(event)
            self._heard[plain.id or ""] = work, event.cursor

        await run_execution(self._transport, plain, Callbacks(on_event=hear), check=False)

    async def _run_process(self, work: CellWork, cell: ProcessCell) -> None:
        count, outputs = await self._ticket(), work.outputs
        outputs.add(Started(execution_count=count, time=time.time()))
        job = await self._sandbox.start_process(cell.code, id=cell.process_id)
        if cell.is_detached:
            ended = Ended(
                end=End(cause="exited", code=0, at=time.time()), execution_count=count, time=time.time()
            )
            outputs.add(ended)
            return
        async with aclosing(job.follow()) as events:
            async for event in events:
                if isinstance(event, Ended):
                    await self._end_process(work, job, msgspec.structs.replace(event, execution_count=count))
                elif isinstance(event, Stdout | Stderr):
                    outputs.add(event)

    async def _end_process(self, work: CellWork, job: AsyncProcess, ended: Ended) -> None:
        end = ended.end
        signal = end.signal
        told = CommandEnd(
            end=end, exit_code=None if signal else end.code, signal=signal, duration=ended.duration
        )
        problem = command_problem(told, interrupted=False)
        if problem is not None:
            work.outputs.add(ErrorRaised(name=problem.name, value=f"{job.id}: {problem.value}"))
        work.outputs.add(ended)

    async def hear_late(self, run: NotebookRun) -> None:
        """Put into the notebook what threads and children have written since their cells ended."""
        for run_id, (work, cursor) in self._heard.items():
            try:
                async with aclosing(past_events(self._transport, run_id, cursor=cursor)) as events:
                    async for event in events:
                        work.outputs.add(event)
            except NotFound:
                continue  # of hundreds of cells the first are forgotten by now
            run.finish(work)

    async def _run_shell(self, work: CellWork, session_id: str, code: str) -> None:
        session = await self._session(session_id)
        await self._run_command(work, session.exec, code)

    async def _run_command(self, work: CellWork, run: _RunCommand, code: str) -> None:
        count, outputs = await self._ticket(), work.outputs
        outputs.add(Started(execution_count=count, time=time.time()))
        done = await run(
            code,
            timeout=self._plan.timeout,
            on_stdout=lambda text: outputs.add(Stdout(text=text)),
            on_stderr=lambda text: outputs.add(Stderr(text=text)),
        )
        problem = _problem_of(done)
        if problem is not None:
            outputs.add(problem)
        ended = Ended(end=done.end, execution_count=count, duration=done.duration, time=time.time())
        outputs.add(ended)

    async def _session(self, session_id: str) -> AsyncSession:
        try:
            session = await self._sandbox.session(session_id)
        except NotFound:
            return await self._sandbox.create_session(session_id)
        if session.status == "ended":
            await session.restart()
        return session

    async def _ticket(self) -> int | None:
        """Take the next number of the context, as a cell of the kernel's does that runs elsewhere; None where its language
        counts only its own."""
        request = Request(method="POST", path=path_of("contexts", self._context.id, "ticket"))
        try:
            return (await self._transport.call(request, Ticket)).execution_count
        except SandcellError as problem:
            if problem.code is not ErrorCode.UNSUPPORTED:
                raise
            return None


def _problem_of(done: ExecResult) -> ErrorRaised | None:
    end = CommandEnd(end=done.end, exit_code=done.exit_code, signal=done.signal, duration=done.duration)
    problem = command_problem(end, interrupted=False)
    return None if problem is None else ErrorRaised(name=problem.name, value=problem.value)


def _reason_of(problem: BaseException) -> ExecutionError:
    """Return what a cell shows that was given up, or that could not be run."""
    if isinstance(problem, SandcellError):
        return ExecutionError(name=str(problem.code), value=problem.message)
    return ExecutionError(name="KeyboardInterrupt", value="whoever ran the notebook has given up")

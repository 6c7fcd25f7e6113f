"""A context: a live interpreter of the sandbox, with state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from sandcell.api import ContextInfo
from sandcell.client.aio.execution import run_execution, start_execution
from sandcell.client.options import Callbacks, RunOptions, make_execution
from sandcell.client.protocol import Request, path_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from sandcell.client.aio.execution import AsyncExecution
    from sandcell.client.aio.transport import AsyncTransport
    from sandcell.results import ExecutionError, Result, RunResult

__all__ = ["START_PATIENCE_S", "AsyncContext"]


START_PATIENCE_S = 120.0
"""What it may take to end an interpreter and to start another, by the guest's own limits."""


class AsyncContext:
    """One interpreter: variables and imports of one run are there in the next, which waits for its turn."""

    def __init__(self, transport: AsyncTransport, info: ContextInfo) -> None:
        self._transport = transport
        self._info = info

    @property
    def id(self) -> str:
        return self._info.id

    @property
    def language(self) -> str:
        return self._info.language

    @property
    def status(self) -> str:
        """What was last heard: starting, idle, busy, dead or deleted."""
        return self._info.status

    async def run_code(
        self,
        code: str,
        *,
        on_stdout: Callable[[str], object] | None = None,
        on_stderr: Callable[[str], object] | None = None,
        on_result: Callable[[Result], object] | None = None,
        on_error: Callable[[ExecutionError], object] | None = None,
        on_input: Callable[[str], object] | None = None,
        check: bool = False,
        **options: Unpack[RunOptions],
    ) -> RunResult:
        """Run `code` here and return what came out: `Sandbox.run_code` with this context."""
        callbacks = Callbacks(
            on_stdout=on_stdout,
            on_stderr=on_stderr,
            on_result=on_result,
            on_error=on_error,
            on_input=on_input,
        )
        body = make_execution(
            code,
            language=self.language,
            context=self.id,
            allow_stdin=on_input is not None,
            **options,
        )
        return await run_execution(self._transport, body, callbacks, check=check)

    async def start_code(self, code: str, **options: Unpack[RunOptions]) -> AsyncExecution:
        """Start `code` here and return at once: `Sandbox.start_code` with this context."""
        body = make_execution(code, language=self.language, context=self.id, allow_stdin=True, **options)
        return await start_execution(self._transport, body)

    async def refresh(self) -> ContextInfo:
        """Ask for what is known of it now."""
        request = Request(method="GET", path=path_of("contexts", self.id))
        self._info = await self._transport.call(request, ContextInfo)
        return self._info

    async def interrupt(self) -> None:
        """Interrupt the run that runs now, as ^C does. Nothing running is fine."""
        await self._transport.fetch(self._asking("interrupt"))

    async def restart(self) -> None:
        """Start the interpreter anew: state and queued runs are lost."""
        await self._transport.fetch(self._asking("restart"))

    async def delete(self) -> None:
        """End the interpreter and forget the context."""
        request = Request(method="DELETE", path=path_of("contexts", self.id))
        await self._transport.fetch(request)

    def _asking(self, verb: str) -> Request:
        return Request(
            method="POST",
            path=path_of("contexts", self.id, verb),
            repeatable=verb != "restart",
            patience=START_PATIENCE_S,
        )

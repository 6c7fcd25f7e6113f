"""A context: a live interpreter of the sandbox, with state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Unpack

import msgspec

from sandcell.api import AskComplete, AskInspect, Completion, ContextInfo, Inspection, Variable, Variables
from sandcell.client.aio.execution import run_execution, start_execution
from sandcell.client.checks import check_file
from sandcell.client.objects import Encoded, decode_object, encode_object
from sandcell.client.options import MAX_READ, Callbacks, RunOptions, make_execution, too_large_to_pull
from sandcell.client.protocol import Request, path_of
from sandcell.client.tool_offer import make_offer
from sandcell_container.spec import parse_size

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

    from sandcell.client.aio.execution import AsyncExecution
    from sandcell.client.aio.transport import AsyncTransport
    from sandcell.results import ExecutionError, Result, RunResult
    from sandcell.tools import ToolLike, Toolset

__all__ = ["START_PATIENCE_S", "AsyncContext"]


START_PATIENCE_S = 120.0
"""What it may take to end an interpreter and to start another, by the guest's own limits."""


_EXCHANGE_PATIENCE_S = 660.0  # of an object's turn in the queue, and then its way, by the guest's own limits


class AsyncContext:
    """One interpreter: variables and imports of one run are there in the next, which waits for its turn."""

    def __init__(self, transport: AsyncTransport, info: ContextInfo, tools: Toolset | None) -> None:
        """Not for callers. `tools` are those of the sandbox's handle."""
        self._transport = transport
        self._info = info
        self._tools = tools

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
        tools: Sequence[ToolLike] | None = None,
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
        offer = make_offer(tools, self._tools, client=self._transport.client_id)
        body = make_execution(
            code,
            language=self.language,
            context=self.id,
            allow_stdin=on_input is not None,
            offer=offer,
            **options,
        )
        return await run_execution(self._transport, body, callbacks, offer, check=check)

    async def start_code(
        self,
        code: str,
        *,
        tools: Sequence[ToolLike] | None = None,
        **options: Unpack[RunOptions],
    ) -> AsyncExecution:
        """Start `code` here and return at once: `Sandbox.start_code` with this context."""
        offer = make_offer(tools, self._tools, client=self._transport.client_id)
        body = make_execution(
            code, language=self.language, context=self.id, allow_stdin=True, offer=offer, **options
        )
        return await start_execution(self._transport, body, offer)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} ({self.status})>"

    async def refresh(self) -> ContextInfo:
        """Ask for what is known of it now."""
        request = Request(method="GET", path=path_of("contexts", self.id))
        self._info = await self._transport.call(request, ContextInfo)
        return self._info

    async def variables(self) -> list[Variable]:
        """Return its variables, at most a thousand, in the order of their making; also while a run runs.

        Left out are modules and names that begin with an underscore. No code of the user's is run for it: what only
        that could show has a type and no preview.

        Raises:
            Conflict (BUSY): the interpreter is inside code that lets nothing else run.
            Gone (CONTEXT_DIED): the interpreter has just ended.
        """
        request = Request(method="GET", path=path_of("contexts", self.id, "variables"))
        return list((await self._transport.call(request, Variables)).variables)

    async def complete(self, code: str, cursor_pos: int | None = None) -> Completion:
        """Return what could stand at the cursor, by default the end of `code`. Empty where it is busy for a second."""
        body = AskComplete(code=code, cursor_pos=cursor_pos)
        return await self._transport.call(self._asking("complete", body), Completion)

    async def inspect(
        self, code: str, cursor_pos: int | None = None, *, detail_level: Literal[0, 1] = 0
    ) -> Inspection:
        """Return what is known of the name at the cursor; 1 asks for its source. Empty where it is busy for a second."""
        body = AskInspect(code=code, cursor_pos=cursor_pos, detail_level=detail_level)
        return await self._transport.call(self._asking("inspect", body), Inspection)

    async def push(self, **objects: Any) -> None:
        """Make variables of these objects, each in its turn behind the runs that wait.

        What can be sent: values as JSON has them, bytes, numpy arrays, pandas and Arrow tables (these need pyarrow
        on both sides). Tuples arrive as lists.

        Raises:
            InvalidRequest: INVALID_ARGUMENT: one has no such form. UNSUPPORTED: a library is missing, here or there.
            Conflict (BUSY): its turn did not come. Gone (CONTEXT_DIED): the interpreter ended.
        """
        encoded = {name: encode_object(name, value) for name, value in objects.items()}
        for name, (form, data) in encoded.items():
            await self._transport.fetch(self._exchanging("PUT", name, data=data, form=form))

    async def pull(self, name: str, *, max_bytes: str | int = MAX_READ) -> Any:
        """Return the variable `name` as it is there, in the forms that `push` has.

        Nothing that comes out of the sandbox is unpickled, so other objects cannot come. Raises as `push`, and:
            NotFound (NOT_FOUND): there is no such variable.
            InvalidRequest (TOO_LARGE): it has more than `max_bytes` on its way, by default 256 MiB; in memory, lists and
                tables take several times as much.
        """
        limit = parse_size(max_bytes, what="max_bytes")
        answer = await self._transport.open(self._exchanging("GET", name))
        try:
            parts, size = list[bytes](), 0
            async for chunk in answer.chunks():
                size += len(chunk)
                if size > limit:
                    raise too_large_to_pull(name, limit)
                parts.append(chunk)
        finally:
            answer.close()
        return decode_object(name, Encoded(answer.head.headers.get("content-type", ""), b"".join(parts)))

    async def to_notebook(self, path: str | os.PathLike[str], *, origin: str | None = None) -> int:
        """Write what has run here as a notebook to a file of this machine, and return how many cells it has.

        One cell for each run, oldest first, with its code, what it has shown by now, its failure or interrupt, and in its
        metadata who ran it: all, or those of one `origin`, such as "sdk". The last 200 runs of a sandbox that have ended
        are known. What is at `path` is replaced.

        Raises:
            InvalidRequest (INVALID_ARGUMENT): it cannot be written there.
        """
        from sandcell.client.aio.history import write_history  # brings nbformat

        target = check_file(path, what="path")
        return await write_history(self._transport, self.id, self.language, target, origin=origin)

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

    def _asking(self, verb: str, body: msgspec.Struct | None = None) -> Request:
        return Request(
            method="POST",
            path=path_of("contexts", self.id, verb),
            body=msgspec.json.encode(body) if body is not None else b"",
            repeatable=verb != "restart",
            patience=START_PATIENCE_S,
        )

    def _exchanging(self, method: str, name: str, *, data: bytes = b"", form: str = "") -> Request:
        return Request(
            method=method,
            path=path_of("contexts", self.id, "objects", name),
            body=data,
            content_type=form,
            patience=_EXCHANGE_PATIENCE_S,
        )

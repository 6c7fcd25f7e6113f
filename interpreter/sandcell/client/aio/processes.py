"""The processes of a sandbox: start one, find one, end all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from sandcell.client.aio.making import make, own_place
from sandcell.client.aio.process import AsyncProcess
from sandcell.client.checks import check_text
from sandcell.client.process_options import ProcessCallbacks, ProcessOptions, check_status, make_process
from sandcell.client.protocol import Request, path_of
from sandcell.job_bodies import ProcessInfo, Removed
from sandcell.names import encode_names
from sandcell_container.end import KillReport

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from weakref import WeakSet

    from sandcell.client.aio.transport import AsyncTransport
    from sandcell.events import Stderr, Stdout
    from sandcell.job_bodies import CreateProcess, ProcessStatus
    from sandcell_container.end import End

__all__ = ["AsyncProcesses", "begin_process"]

_KILL_PATIENCE_S = 60.0  # all at once: the grace, and what it takes to find and end them


class AsyncProcesses:
    """What a sandbox's handle can do with processes. `_transport` is the handle's."""

    _transport: AsyncTransport
    _watched: WeakSet[AsyncProcess]
    """Those whose callbacks are told in a task."""

    async def start_process(
        self,
        command: str | Sequence[str],
        *,
        on_output: Callable[[Stdout | Stderr], object] | None = None,
        on_exit: Callable[[End], object] | None = None,
        **options: Unpack[ProcessOptions],
    ) -> AsyncProcess:
        """Start a job with a life of its own and return it: a line for `bash`, or words that nothing interprets.

        It outlives this call and this program, as long as the sandbox does. `id`: the same one with the same request
        gives the same process. `cwd`, `env` (None takes a variable away). `timeout`: after so many seconds its whole
        tree is ended, by default never. `stdin`: whether it can be written to. `memory`: for each process of its tree;
        `warnings` tell what does not hold. `on_full`: what it writes is kept up to 64 MiB; then the oldest is dropped
        and a Gap tells of it, or with "block" the process waits until somebody has read. `keep_record=False`: its
        record and output go with its end.

        `on_output` gets each Stdout and Stderr event, `on_exit` its End: in the asyncio client while the program does
        something else, in the blocking client inside `wait()`. They may use the sandbox; `wait()` raises what they raise.

        Raises:
            InvalidRequest: CWD_NOT_FOUND; INVALID_ARGUMENT: no such program; INVALID_NAME, INVALID_ENV_NAME.
            Conflict (EXISTS): the id is that of another process.
            Unavailable (START_FAILED): the sandbox can start no more processes.
        """
        callbacks = ProcessCallbacks(on_output=on_output, on_exit=on_exit)
        body = make_process(command, **options)
        own = own_place("processes", options.get("id"), body.id)
        started = await begin_process(self._transport, path_of("processes"), body, callbacks, own=own)
        if callbacks:
            self._watched.add(started)
        return started

    async def process(self, id: str) -> AsyncProcess:
        """Return the process `id`, whoever started it. NOT_FOUND where there is none."""
        request = Request(method="GET", path=path_of("processes", check_text(id, what="id")))
        return AsyncProcess(self._transport, await self._transport.call(request, ProcessInfo))

    async def processes(
        self, session: str | None = None, status: ProcessStatus | None = None
    ) -> list[AsyncProcess]:
        """Return the processes, oldest first: all, those of a session, or those that are "running" or "ended"."""
        query = {} if session is None else {"session": check_text(session, what="session")}
        if status is not None:
            query["status"] = check_status(status)
        request = Request(method="GET", path=path_of("processes"), query=query)
        found = await self._transport.call(request, list[ProcessInfo])
        return [AsyncProcess(self._transport, each) for each in found]

    async def kill_all(self) -> KillReport:
        """End all processes that run, each with its whole tree, and return how many were signalled and are left."""
        request = Request(method="DELETE", path=path_of("processes"), patience=_KILL_PATIENCE_S)
        return await self._transport.call(request, KillReport)

    async def clean_processes(self) -> int:
        """Forget the processes that have ended, and their output; returns how many. Their ids are free again."""
        request = Request(method="DELETE", path=path_of("processes"), query={"status": "ended"})
        return (await self._transport.call(request, Removed)).removed


async def begin_process(
    transport: AsyncTransport,
    path: str,
    body: CreateProcess,
    callbacks: ProcessCallbacks,
    *,
    own: tuple[str, str] | None,
) -> AsyncProcess:
    """Start a process by a POST to `path`, which may be a session's, and return it. `own` as `make`."""
    request = Request(method="POST", path=path, body=encode_names(body))
    return AsyncProcess(transport, await make(transport, request, ProcessInfo, own=own), callbacks)

# Made from ../aio/execution.py by `python -m sandcell.client.generate`: change that file, not this one.
"""One run of code as its caller holds it: follow it, wait for it, interrupt it, answer its questions."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from sandcell.api import CreateExecution, ExecutionInfo, SendInput
from sandcell.client.blocking.channel import call
from sandcell.client.blocking.follow import Follower, read_entries
from sandcell.client.protocol import Cut, Request, path_of
from sandcell.events import (
    Ended,
    ErrorRaised,
    InputRequested,
    Started,
    Stderr,
    Stdout,
    ToolCalled,
    event_of,
)
from sandcell.names import encode_names
from sandcell.results import RunBuilder, RunResult
from sandcell_container.errors import ErrorCode, SandcellError, error

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from sandcell.client.blocking.tool_host import ToolHost
    from sandcell.client.blocking.transport import Transport
    from sandcell.client.options import Callbacks
    from sandcell.client.tool_offer import Offer
    from sandcell.events import Event

__all__ = ["Execution", "past_events", "run_execution", "start_execution"]

_PATIENCE_S = 10.0  # what a guest may take to end a run whose time is over: interrupt, kill, tell


class Execution:
    """One run. It goes on whether or not anybody follows it."""

    def __init__(self, transport: Transport, info: ExecutionInfo, offer: Offer | None = None) -> None:
        self._transport = transport
        self._info = info
        self._offer = offer

    @property
    def id(self) -> str:
        return self._info.id

    @property
    def context_id(self) -> str:
        return self._info.context_id

    @property
    def status(self) -> str:
        """What was last heard: queued, running or ended."""
        return self._info.status

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} ({self.status})>"

    def refresh(self) -> ExecutionInfo:
        """Ask for what is known of it now."""
        self._info = self._transport.call(_of(self.id), ExecutionInfo)
        return self._info

    def __iter__(self) -> Iterator[Event]:
        return self.follow()

    def follow(self, cursor: str | None = None) -> Generator[Event]:
        """Yield its events from the start, or after the `cursor` of an event, up to and with Ended.

        Behind it stands what came late so far; following again from its cursor gives what came since. Calls to the tools
        that this program gave the run are answered meanwhile.

        Raises:
            InvalidRequest (STALE_CURSOR): the cursor is of another life of the sandbox.
        """
        request = _events_of(self.id, self._offer, cursor=cursor)
        follower = Follower(self._transport, request, request)
        with closing(_events(follower, self._host())) as events:
            for event in events:
                self._note(event)
                yield event

    def wait(self, timeout: float | None = None) -> RunResult:
        """Wait for its end and return what came out; `timeout` in seconds, and the run goes on after it.

        Raises:
            WaitTimeout (WAIT_TIMEOUT): it has not ended by then.
        """
        request = _events_of(self.id, self._offer)
        follower = Follower(self._transport, request, request)
        if timeout is not None:
            follower.deadline = time.monotonic() + timeout
        built = RunBuilder(self._info.id, self._info.context_id, self._info.origin)
        try:
            with closing(_events(follower, self._host())) as events:
                for event in events:
                    self._note(event)
                    _add(self._transport, built, event)
        except SandcellError as problem:
            if follower.is_late and isinstance(problem.__cause__, TimeoutError):
                raise error(
                    ErrorCode.WAIT_TIMEOUT,
                    f"the run {self.id} has not ended within {timeout} s",
                    hint="it goes on: wait again, or interrupt it",
                ) from problem
            raise
        return built.result()

    def interrupt(self) -> None:
        """Interrupt it, as ^C does, and kill its interpreter where that is not heeded. Ended already is fine."""
        self._transport.fetch(_asking(self.id, "interrupt"))

    def send_input(self, text: str) -> None:
        """Answer the line of input that it waits for.

        Raises:
            Conflict (BUSY): it waits for none.
        """
        body = msgspec.json.encode(SendInput(text=text))
        self._transport.fetch(_asking(self.id, "input", body))

    def _host(self) -> ToolHost | None:
        return _host_of(self._transport, self.id, self._offer, is_behind=True)

    def _note(self, event: Event) -> None:
        if isinstance(event, Started | Ended):
            status = "running" if isinstance(event, Started) else "ended"
            self._info = msgspec.structs.replace(self._info, status=status)


def start_execution(transport: Transport, body: CreateExecution, offer: Offer | None) -> Execution:
    """Start a run and return it. Given up on the way, it is interrupted. `offer` is what stands in `body`."""
    try:
        info = transport.call(_creating(body, follow=False), ExecutionInfo)
    except SandcellError:
        raise
    except BaseException:
        _give_up(transport, body.id or "")
        raise
    return Execution(transport, info, offer)


def run_execution(
    transport: Transport,
    body: CreateExecution,
    callbacks: Callbacks,
    offer: Offer | None = None,
    *,
    check: bool,
) -> RunResult:
    """Run and wait: one request. Given up (^C, cancelled, a callback that raises), the run is interrupted.

    `offer` is what stands in `body`.
    """
    run_id = body.id or ""
    follower = Follower(transport, _creating(body, follow=True), _events_of(run_id, offer))
    host = _host_of(transport, run_id, offer, is_behind=False)
    built = RunBuilder(run_id, body.context or body.language, body.origin)
    try:
        with closing(_events(follower, host)) as events:
            for event in events:
                _add(transport, built, event)
                if callbacks.on_event is not None:
                    callbacks.on_event(event)
                if isinstance(event, Started) and isinstance(body.timeout, float):
                    follower.deadline = time.monotonic() + body.timeout + _PATIENCE_S
                _tell(transport, run_id, event, built, callbacks)
                follower.be_patient(_PATIENCE_S)
    except SandcellError:
        raise
    except BaseException:
        _give_up(transport, run_id)
        raise
    result = built.result()
    if check:
        result.raise_for_error()
    return result


def past_events(transport: Transport, run_id: str, *, cursor: str | None = None) -> Generator[Event]:
    """Yield the events of a run that there are by now, all or those after `cursor`."""
    asked = _events_of(run_id, None, cursor=cursor)
    request = replace(asked, query={**asked.query, "follow": "false"})
    answer = transport.open(request)
    try:
        with closing(read_entries(transport, answer)) as entries:
            for entry, place in entries:
                event = event_of(entry, place.epoch)
                if event is not None:
                    yield event
    except Cut as cut:
        raise transport.missed(str(cut), admitted=True) from cut
    finally:
        answer.close()


def _events(follower: Follower, host: ToolHost | None) -> Generator[Event]:
    try:
        with closing(follower.entries()) as entries:
            for entry, cursor in entries:
                event = event_of(entry, cursor.epoch)
                if host is not None and isinstance(event, ToolCalled):
                    host.heed(event, follower)
                if event is not None:
                    yield event
    finally:
        if host is not None:
            host.close()


def _host_of(transport: Transport, run_id: str, offer: Offer | None, *, is_behind: bool) -> ToolHost | None:
    if offer is None:
        return None
    from sandcell.client.blocking.tool_host import ToolHost  # for who has tools

    return ToolHost(transport, run_id, offer, is_behind=is_behind)


def _add(transport: Transport, built: RunBuilder, event: Event) -> None:
    try:
        built.add(event)
    except (
        SandcellError
    ) as problem:  # the news that the run could not be made, or that the sandbox ended under it
        raise transport.heed(problem, admitted=True) from None


def _tell(transport: Transport, run_id: str, event: Event, built: RunBuilder, callbacks: Callbacks) -> None:
    match event:
        case Stdout() if callbacks.on_stdout:
            call(callbacks.on_stdout, event.text)
        case Stderr() if callbacks.on_stderr:
            call(callbacks.on_stderr, event.text)
        case InputRequested() if callbacks.on_input:
            text = str(call(callbacks.on_input, event.prompt))
            body = msgspec.json.encode(SendInput(text=text))
            transport.fetch(_asking(run_id, "input", body))
        case ErrorRaised() if callbacks.on_error and built.error:
            call(callbacks.on_error, built.error)
        case _:
            if callbacks.on_result and (added := built.last_result(event)):
                call(callbacks.on_result, added)


def _give_up(transport: Transport, run_id: str) -> None:
    try:
        transport.fetch(_asking(run_id, "interrupt"))
    except SandcellError:
        pass  # the sandbox is gone, or never heard of the run: nothing is left to interrupt


def _creating(body: CreateExecution, *, follow: bool) -> Request:
    return Request(
        method="POST",
        path=path_of("executions"),
        query={} if follow else {"follow": "false"},
        body=encode_names(body),
    )


def _of(run_id: str) -> Request:
    return Request(method="GET", path=path_of("executions", run_id))


def _events_of(run_id: str, offer: Offer | None, *, cursor: str | None = None) -> Request:
    query = {} if cursor is None else {"cursor": cursor}
    if offer is not None:
        query["tools"] = offer.key
    return Request(method="GET", path=path_of("executions", run_id, "events"), query=query, admitted=True)


def _asking(run_id: str, verb: str, body: bytes = b"") -> Request:
    return Request(
        method="POST",
        path=path_of("executions", run_id, verb),
        body=body,
        repeatable=verb != "input",
    )

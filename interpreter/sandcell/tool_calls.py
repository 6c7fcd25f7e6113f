"""The calls of one run to the tools of its client: taken, told, answered, given up. Nothing here reads a socket.

                  answer: done, failed
  CALLED  ---------------------------------->  OVER        (each is told twice in the run's journal: when it was
     |     caller gone, host gone, time over,    ^          called, and when it is over)
     |     run over: abandoned                   |
     +-------------------------------------------+

Code in the run can call what it likes as often as it likes; whoever follows the run with the key of its offer answers.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import secrets
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, cast

import msgspec
from msgspec import UNSET

from sandcell.api import ToolCallInfo, ToolFailure
from sandcell.events import ToolCalled
from sandcell_container.errors import ErrorCode, error
from sandcell_container.ids import new_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from sandcell.api import AnswerTool, OfferTools, ToolSpec, ToolState
    from sandcell.config import Config

__all__ = ["Caller", "ToolCalls", "unavailable"]

_TOLD = ("name", "description", "schema")
_DEEPEST = 64  # what one level of JSON may hold of others: readers recurse


class Caller(Protocol):
    """The run that the calls are of."""

    def record_call(self, event: ToolCalled) -> None: ...

    def hold_clock(self) -> None:
        """The host works: that is no time of the run's."""
        ...

    def release_clock(self) -> None: ...


@dataclass(slots=True)
class _Call:
    """One that waits."""

    info: ToolCallInfo
    began_at: float
    over: asyncio.Future[msgspec.Raw | ToolFailure]
    is_begun: bool = False


class ToolCalls:
    """See the module. At `address` code calls with `secret`. `grace` in seconds is for a host that connects again.
    `is_present` tells of a client whether its program is there; `on_close` is called with the secret."""

    def __init__(
        self,
        offer: OfferTools,
        address: str,
        config: Config,
        *,
        grace: float,
        is_present: Callable[[str], bool],
        on_close: Callable[[str], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._offer = offer
        self._caller: Caller
        self._is_present = is_present
        self._on_close = on_close
        self._config = config
        self._grace = grace
        self._calls: dict[str, ToolCallInfo] = {}  # all: little of each, as a run is remembered for long
        self._waiting: dict[str, _Call] = {}
        self._specs = {each.name: each for each in offer.tools}
        self._hosts = 0
        self._is_missed = False
        self._leaving: asyncio.TimerHandle | None = None
        self.address = address
        self.secret = secrets.token_hex(16)
        self.is_closed = False

    def attach(self, caller: Caller) -> None:
        """Say whose calls they are, before there are any."""
        self._caller = caller

    @property
    def shown(self) -> msgspec.Raw:
        """What the code is told of the tools: name, description and schema of each."""
        told = [{name: getattr(each, name) for name in _TOLD} for each in self._offer.tools]
        return msgspec.Raw(msgspec.json.encode(told))

    # --- the code

    async def call(self, name: str, text: bytes) -> msgspec.Raw | ToolFailure:
        """Have the host answer a call with the arguments `text`, a JSON object; return its result or why there is none.

        Cancelling gives the call up.
        """
        spec = self._specs.get(name)
        refusal = self._refusal(name, spec)
        if refusal is not None or spec is None:
            return refusal or unavailable("")
        arguments = _arguments_of(text)
        if isinstance(arguments, ToolFailure):
            return arguments
        limit = spec.timeout or self._config.tool_timeout
        made = self._begin(name, arguments, limit)
        try:
            await asyncio.wait((made.over,), timeout=limit)
        except asyncio.CancelledError:
            self._abandon(made, f"nobody waits for the answer of {name} any more")
            raise
        if not made.over.done():
            self._abandon(made, f"the host gave {name} no answer within {limit:g} s")
        return made.over.result()

    def _refusal(self, name: str, spec: ToolSpec | None) -> ToolFailure | None:
        if self.is_closed:
            return unavailable("the run that these tools belong to has ended")
        if spec is None:
            known = ", ".join([*self._specs][:40])
            return ToolFailure(
                name="UnknownTool", message=f"there is no host tool {name[:80]!r}: there is {known}"
            )
        if self._is_missed:
            return unavailable(_GONE)
        if len(self._calls) >= self._config.max_tool_calls:
            return unavailable(f"this run has made {len(self._calls)} calls to host tools, which is the most")
        return None

    def _begin(self, name: str, arguments: msgspec.Raw, limit: float) -> _Call:
        info = ToolCallInfo(id=new_id("cal"), name=name, state="called")
        made = _Call(info, time.monotonic(), self._loop.create_future())
        self._calls[info.id], self._waiting[info.id] = info, made
        if len(self._waiting) == 1:
            self._caller.hold_clock()
        self._caller.record_call(
            ToolCalled(id=info.id, name=name, state="called", arguments=arguments, timeout=limit)
        )
        return made

    # --- the host

    def answer(self, call_id: str, answer: AnswerTool) -> ToolCallInfo:
        """Take the host's answer; one without a result or an error says that it begins.

        Raises:
            Refused (FORBIDDEN): the key is not that of the offer. NotFound: the run made no such call.
            Gone (LOST): the call is over. Conflict (BUSY): somebody else has begun with it.
        """
        self.check_key(answer.key)
        if call_id not in self._calls:
            raise error(ErrorCode.NOT_FOUND, f"the run made no call {call_id[:80]!r} to a tool")
        made = self._waiting.get(call_id)
        if made is None:
            raise error(ErrorCode.LOST, f"the call {call_id} is over: {self._calls[call_id].state}")
        if answer.error is not None:
            self._settle(made, "failed", answer.error)
        elif answer.result is not UNSET:
            self._settle(made, "done", self._bounded(made, answer.result))
        elif made.is_begun:
            raise error(ErrorCode.BUSY, f"the call {call_id} is being answered already")
        else:
            made.is_begun = True
        return self._calls[call_id]

    def check_key(self, key: str) -> None:
        """Return when `key` is that of the offer. Raises Refused (FORBIDDEN)."""
        if not hmac.compare_digest(
            key.encode("utf-8", "replace"), self._offer.key.encode("utf-8", "replace")
        ):
            raise error(ErrorCode.FORBIDDEN, "only the client that made the run answers its tools")

    def enter_host(self) -> None:
        """Somebody who can answer follows the run."""
        self._hosts += 1
        self._is_missed = False
        if self._leaving is not None:
            self._leaving.cancel()
            self._leaving = None

    def leave_host(self) -> None:
        """One of them follows no more; after the last, calls wait for the next, where their program is there."""
        self._hosts -= 1
        self.look_for_host()

    def look_for_host(self) -> None:
        """See whether there is nobody left who could answer."""
        if self._leaving is None and not self.is_closed and not self._has_host():
            self._leaving = self._loop.call_later(self._grace, self._miss_host)

    def _has_host(self) -> bool:
        return self._hosts > 0 or self._is_present(self._offer.client)

    def close(self) -> None:
        """The run is over, and with it every call. Twice is fine."""
        self.is_closed = True
        self._on_close(self.secret)
        if self._leaving is not None:
            self._leaving.cancel()
        self._abandon_all("the run has ended")
        self._offer = msgspec.structs.replace(self._offer, tools=())
        self._specs.clear()

    # --- the end of a call

    def _miss_host(self) -> None:
        self._leaving = None
        if not self._has_host():
            self._is_missed = True
            self._abandon_all(_GONE)

    def _abandon_all(self, why: str) -> None:
        for made in list(self._waiting.values()):
            self._abandon(made, why)

    def _abandon(self, made: _Call, why: str) -> None:
        if made.info.id in self._waiting:
            self._settle(made, "abandoned", unavailable(why))

    def _settle(self, made: _Call, state: ToolState, outcome: msgspec.Raw | ToolFailure) -> None:
        if isinstance(outcome, ToolFailure) and state == "done":
            state = "failed"
        del self._waiting[made.info.id]
        self._calls[made.info.id] = msgspec.structs.replace(made.info, state=state)
        told = outcome if isinstance(outcome, ToolFailure) else None
        self._caller.record_call(
            ToolCalled(
                id=made.info.id,
                name=made.info.name,
                state=state,
                result=None if told else outcome,
                error={"name": told.name, "message": told.message} if told else None,
                duration=time.monotonic() - made.began_at,
            )
        )
        made.over.set_result(outcome)
        if not self._waiting:
            self._caller.release_clock()

    def _bounded(self, made: _Call, result: object) -> msgspec.Raw | ToolFailure:
        """Return the result, or that it is too large to travel."""
        raw = result if isinstance(result, msgspec.Raw) else msgspec.Raw(b"null")
        size, most = len(memoryview(raw)), self._config.max_tool_size
        if size <= most:
            return raw
        return unavailable(f"what {made.info.name} returned has {size} bytes of JSON, at most {most} travel")


_GONE = "the program whose tools these are is gone"


def unavailable(why: str) -> ToolFailure:
    """Return that a call had nobody to answer it."""
    return ToolFailure(name="ToolUnavailable", message=why, kind="unavailable")


def _arguments_of(text: bytes) -> msgspec.Raw | ToolFailure:
    """Return a call's arguments as JSON that every reader reads: what code sends may be anything."""
    try:
        arguments: Any = json.loads(text, parse_constant=_refuse_constant)
        if not isinstance(arguments, dict):
            return _misfit("the arguments have to be a JSON object, by name")
        if _is_deep([arguments]):
            return _misfit(f"the arguments have more than {_DEEPEST} levels")
        return msgspec.Raw(json.dumps(arguments, separators=(",", ":"), allow_nan=False).encode())
    except (ValueError, RecursionError) as problem:
        return _misfit(f"the arguments are no JSON: {problem}"[:1000])


def _misfit(why: str) -> ToolFailure:
    return ToolFailure(name="InvalidArguments", message=why, kind="arguments")


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")


def _is_deep(level: list[Any]) -> bool:
    for _ in range(_DEEPEST):
        level = [inner for each in level for inner in _parts(each)]
        if not level:
            return False
    return True


def _parts(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return cast("dict[str, Any]", value).values()
    return cast("Sequence[Any]", value) if isinstance(value, list) else ()

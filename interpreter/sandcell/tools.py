"""Host tools as their program gives them: functions of its own that code in a sandbox may call.

What one is called, what it takes and says; whether arguments fit; how a result travels. No IO, and nothing of a run.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import msgspec

from sandcell.api import ToolFailure, ToolSpec
from sandcell.tool_schema import Misfit, Parameters, parameters_of, parameters_of_schema
from sandcell_container.errors import ErrorCode, SandcellError, error

__all__ = ["BoundTool", "Tool", "ToolLike", "Toolset", "encode_result", "failure_of_tool", "make_toolset"]

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_TAKEN = ("list",)  # `tools.list()` tells what there is
_MOST = 128
_MESSAGE = 4096  # characters of an exception's message that travel


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that code in a sandbox may call, with a name and a schema of its own.

    `schema` is a JSON Schema of an object, whose properties are the arguments of `fn`, given by name; None is
    that of the signature of `fn`. `fn` may be a coroutine function. `timeout` in seconds is what one call may
    take; None is the sandbox's own, 60 s.
    """

    name: str
    description: str
    schema: Mapping[str, Any] | None
    fn: Callable[..., Any]
    timeout: float | None = None


ToolLike = Callable[..., Any] | Tool


class BoundTool(NamedTuple):
    """A tool that was looked at: what is told of it, what reads its arguments, what does it."""

    spec: ToolSpec
    parameters: Parameters
    fn: Callable[..., Any]


class Toolset:
    """The tools of one run, by name."""

    def __init__(self, tools: Iterable[BoundTool]) -> None:
        self._tools = {tool.spec.name: tool for tool in tools}

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        return tuple(tool.spec for tool in self._tools.values())

    def __bool__(self) -> bool:
        return bool(self._tools)

    def get(self, name: str) -> BoundTool | None:
        return self._tools.get(name)


def make_toolset(tools: object) -> Toolset:
    """Return the tools of a list, looked at: functions, and `Tool`s.

    Raises:
        InvalidRequest (INVALID_ARGUMENT): one is no function and no Tool, has no name that can be called, parameters
            that have no JSON form, or no valid schema; two have the same name; there are more than 128.
    """
    given = type(tools).__name__
    if isinstance(tools, str | bytes | Mapping) or not isinstance(tools, Iterable):
        raise _wrong(f"tools has to be a list of functions, not {given}")
    bound = [_bind(each) for each in cast("Iterable[object]", tools)]
    names = [each.spec.name for each in bound]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise _wrong(f"two tools are called {twice!r}", hint="Tool(name, ...) gives one another name")
    if len(bound) > _MOST:
        raise _wrong(f"{len(bound)} tools are more than {_MOST}")
    return Toolset(bound)


def encode_result(value: object) -> msgspec.Raw:
    """Return what a tool returned as JSON: not a number and the infinities are null there.

    Raises:
        TypeError, ValueError: it has no such form.
    """
    return msgspec.Raw(msgspec.json.encode(value, enc_hook=_plain))


def failure_of_tool(problem: BaseException) -> ToolFailure:
    """Return an exception of a tool as it is told inside: its type's name and its message, and nothing of this program."""
    try:
        message = str(problem)
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 -- a class of the caller's may do anything there: then it says nothing
        message = ""
    said = _sendable(message)[:_MESSAGE]
    if isinstance(problem, Misfit):
        return ToolFailure(name="InvalidArguments", message=said, kind="arguments")
    return ToolFailure(name=type(problem).__name__, message=said)


def _bind(given: object) -> BoundTool:
    tool = given if isinstance(given, Tool) else _tool_of(given)
    if not callable(tool.fn):
        raise _wrong(f"the tool {tool.name!r} has nothing to call: {type(tool.fn).__name__}")
    name = _check_name(tool.name)
    try:
        read = parameters_of(tool.fn) if tool.schema is None else parameters_of_schema(tool.schema)
    except Misfit as problem:
        hint = "Tool(name, description, schema, fn) with a schema of your own takes anything"
        raise _wrong(f"the tool {name!r} cannot be offered: {problem}", hint=hint) from problem
    spec = ToolSpec(
        name=name,
        description=_sendable(tool.description or read.description),
        schema=read.schema,
        timeout=_check_timeout(name, tool.timeout),
    )
    return BoundTool(spec, read, tool.fn)


def _tool_of(given: object) -> Tool:
    if not callable(given):
        raise _wrong(f"a tool is a function or a Tool, not {type(given).__name__}")
    name = getattr(given, "__name__", None)
    if not isinstance(name, str):
        raise _wrong(f"{given!r} has no name", hint="Tool(name, description, None, fn) gives it one")
    return Tool(name, "", None, cast("Callable[..., Any]", given))


def _check_name(name: object) -> str:
    hint = "a letter, then letters, digits, _ or -, 64 at most"
    if not isinstance(name, str) or _NAME.fullmatch(name) is None or keyword.iskeyword(name):
        raise _wrong(f"a tool cannot be called {name!r}", hint=hint)
    if name in _TAKEN:
        raise _wrong(f"a tool cannot be called {name!r}: that is a word of `tools` itself", hint=hint)
    return name


def _check_timeout(name: str, timeout: float | None) -> float | None:
    if timeout is not None and not (timeout > 0 and timeout < float("inf")):
        raise _wrong(f"the timeout of the tool {name!r} has to be seconds above 0, not {timeout!r}")
    return timeout


def _plain(value: Any) -> Any:
    """Return what msgspec does not know as what it does: arrays and scalars of numpy as lists and numbers."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    raise TypeError(f"what it returned has no JSON form: {type(value).__name__}")


def _sendable(text: str) -> str:
    """Return text that UTF-8 can carry."""
    return text.encode(errors="backslashreplace").decode()


def _wrong(problem: str, *, hint: str = "") -> SandcellError:
    return error(ErrorCode.INVALID_ARGUMENT, problem[:400], hint=hint, details={"field": "tools"})

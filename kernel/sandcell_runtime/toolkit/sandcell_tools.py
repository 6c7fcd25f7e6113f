"""Host tools: functions of the program that made this run, called from inside of it.

    tools.search("cats", limit=3)          # `tools` is there without an import
    await tools.search.aio("cats")
    tools.list(); help(tools.search)

They are there while the run runs that was given them. What a tool raises is raised here as a ToolError of the same name, which is
a ValueError too where it was one there.

In a kernel this module is the runtime's; in any other process of a run it finds its way by SANDCELL_TOOLS, and
as a program it is the command `sandcell-tool`. It needs nothing but the standard library, of Python 3.10 or newer.
"""

from __future__ import annotations

import builtins
import inspect
import json
import keyword
import os
import socket
import struct
import sys
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = ["InvalidArguments", "ToolError", "ToolUnavailable", "Tools", "tools"]

VARIABLE = "SANDCELL_TOOLS"  # ADDRESS:SECRET

_TYPES = {"integer": int, "number": float, "string": str, "boolean": bool, "array": list, "object": dict}
_NOT_TO_BE = (StopIteration, StopAsyncIteration)  # raised in a coroutine they would be something else
_CHUNK = 65536
_REACHED_S = 10  # in which the other side takes a caller, and what it asks


class ToolError(Exception):
    """A tool failed on the host; `tool` is its name."""

    tool = ""

    def __init__(self, message: str, tool: str = "") -> None:
        Exception.__init__(self, message)
        self.message = message
        self.tool = tool

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[Any, ...]:
        return (_error_of, (type(self).__name__, self.message, self.tool))


class UnknownTool(ToolError, AttributeError, KeyError):
    """There is no tool of this name."""


class InvalidArguments(ToolError, TypeError):
    """The arguments do not fit what the tool takes, or have no JSON form."""


class ToolUnavailable(ToolError):
    """There is nobody who could answer: no run that has tools, no host any more, no time, too many calls."""


_OURS: dict[str, type[ToolError]] = {
    each.__name__: each for each in (InvalidArguments, ToolUnavailable, UnknownTool)
}


class Link:
    """The way to the tools of one run."""

    def __init__(self, address: str, secret: str) -> None:
        self.address = address
        self.secret = secret

    def __str__(self) -> str:
        return f"{self.address}:{self.secret}"


class Catalogue:
    """What there is for one run."""

    def __init__(self, secret: str, specs: Sequence[dict[str, Any]]) -> None:
        self.secret = secret
        self.specs = {spec["name"]: spec for spec in specs}
        self.functions: dict[str, Any] = {}  # each is one thing, or it could not be pickled


class Tools:
    """The host tools of a run, each an attribute or, by any name, `tools["name"]`. `find` returns the Link, None without."""

    def __init__(self, find: Callable[[], Link | None]) -> None:
        self._find = find
        self._known = Catalogue("", ())

    def list(self) -> Sequence[dict[str, Any]]:
        """Return what there is: of each tool its `name`, `description` and `schema`, the JSON Schema of its arguments."""
        return [*self._catalogue().specs.values()]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return self[name]

    def __getitem__(self, name: str) -> Any:
        known = self._catalogue()
        if name not in known.specs:
            raise UnknownTool(_unknown(name, known.specs), name)
        if name not in known.functions:
            known.functions[name] = _function_of(self._link, known.specs[name])
        return known.functions[name]

    def __dir__(self) -> Sequence[str]:
        try:
            return ["list", *self._catalogue().specs]
        except ToolError:
            return ["list"]

    def __repr__(self) -> str:
        return f"<host tools: {', '.join(self.__dir__()[1:]) or 'none'}>"

    def _link(self) -> Link:
        return _there(self._find())

    def _catalogue(self) -> Catalogue:
        link, known = self._link(), self._known
        if known.secret != link.secret:
            self._known = known = Catalogue(link.secret, _exchange(link, _request(link, "list")))
        return known


def _there(link: Link | None) -> Link:
    if link is None:
        raise ToolUnavailable("no host tools were given to this run")
    return link


def _call(link: Link, name: str, arguments: dict[str, Any]) -> Any:
    return _exchange(link, _request(link, "call", name, arguments), name)


async def _call_async(link: Link, name: str, arguments: dict[str, Any]) -> Any:
    import asyncio

    request = _request(link, "call", name, arguments)
    try:
        opening = asyncio.open_unix_connection("\0" + link.address)
        reader, writer = await asyncio.wait_for(opening, _REACHED_S)
    except (OSError, asyncio.TimeoutError) as problem:  # noqa: UP041 -- in 3.10 they are two
        raise _unreachable(problem) from None
    try:
        writer.write(request)
        head = await reader.readline()
        body = await reader.readexactly(_size_of(head))
    except (OSError, asyncio.IncompleteReadError) as problem:
        raise _unreachable(problem) from None
    finally:
        writer.close()
    return _answer_of(head, body, name)


def _function_of(find: Callable[[], Link], spec: dict[str, Any]) -> Any:
    """Return a function that calls the tool, and looks like it: name, parameters, help; `aio` is its coroutine function."""
    name, schema = spec["name"], spec["schema"]
    parameters = _parameters_of(schema)

    def tool(*args: Any, **kwargs: Any) -> Any:
        try:
            return _call(find(), name, _bind(name, parameters, args, kwargs))
        except BaseException as problem:  # noqa: BLE001 -- ^C, too: what happens in here concerns nobody
            failed = problem.with_traceback(None)
        raise failed

    async def aio(*args: Any, **kwargs: Any) -> Any:
        try:
            return await _call_async(find(), name, _bind(name, parameters, args, kwargs))
        except BaseException as problem:  # noqa: BLE001 -- as above
            failed = problem.with_traceback(None)
        raise failed

    made: Any = tool
    made.aio, made.schema = aio, schema
    functions: tuple[Any, ...] = (tool, aio)
    for function in functions:
        function.__name__ = function.__qualname__ = name
        function.__module__ = __name__
        # To show its lines in a traceback takes longer than all the rest of that.
        function.__code__ = function.__code__.replace(co_filename="<host tool>", co_name=name)
        function.__doc__ = _help_of(spec)
        function.__signature__ = inspect.Signature(parameters)
    return made


def _parameters_of(schema: Mapping[str, Any]) -> list[inspect.Parameter]:
    """Return the properties of a schema as parameters, those that are required first."""
    required = schema.get("required", ())
    made = [
        _parameter_of(name, shown, is_required=name in required)
        for name, shown in schema.get("properties", {}).items()
        if name.isidentifier() and not keyword.iskeyword(name)
    ]
    return sorted(made, key=lambda each: each.default is not each.empty)


def _parameter_of(name: str, schema: Any, *, is_required: bool) -> inspect.Parameter:
    shown = cast("dict[str, Any]", schema) if isinstance(schema, dict) else {}
    kind, empty = shown.get("type"), inspect.Parameter.empty
    return inspect.Parameter(
        name,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        default=empty if is_required else shown.get("default", ...),
        annotation=_TYPES.get(kind, empty) if isinstance(kind, str) else empty,
    )


def _help_of(spec: dict[str, Any]) -> str:
    lines: list[str] = [spec["description"] or "A tool of the host."]
    for name, shown in spec["schema"].get("properties", {}).items():
        if isinstance(shown, dict) and shown.get("description"):
            lines.append(f"{name}: {shown['description']}")
    return "\n\n".join((lines[0], "\n".join(lines[1:]))).strip()


def _bind(
    name: str, parameters: Sequence[inspect.Parameter], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> dict[str, Any]:
    """Return arguments by name; those that have none are taken in the order of the parameters."""
    names = [each.name for each in parameters]
    if len(args) > len(names):
        raise InvalidArguments(f"{name}() takes {len(names)} arguments, not {len(args)}", name)
    bound: dict[str, Any] = dict(zip(names, args))  # noqa: B905 -- no more than these were given
    twice = [each for each in kwargs if each in bound]
    if twice:
        raise InvalidArguments(f"{name}() got the argument {twice[0]!r} twice", name)
    bound.update(kwargs)
    return bound


def _unknown(name: str, specs: Mapping[str, Any]) -> str:
    import difflib

    close = difflib.get_close_matches(str(name), specs, 1)
    meant = f"; did you mean {close[0]}?" if close else "."
    return f"there is no host tool {name!r}{meant} There is: {', '.join(specs) or 'none'}"


# --- the way to the host


def _request(link: Link, verb: str, name: str = "", arguments: dict[str, Any] | None = None) -> bytes:
    try:
        body = b"" if arguments is None else json.dumps(arguments, allow_nan=False, default=_plain).encode()
    except (TypeError, ValueError, RecursionError) as problem:
        raise InvalidArguments(f"the arguments of {name} have no JSON form: {problem}", name) from None
    head = {"secret": link.secret, "verb": verb, "name": name, "size": len(body)}
    return json.dumps(head).encode() + b"\n" + body


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):  # arrays and scalars of numpy
        return value.tolist()
    if hasattr(value, "isoformat"):
        return value.isoformat()
    if isinstance(value, set | frozenset):
        return list(cast("set[Any]", value))
    if isinstance(value, os.PathLike):
        return os.fspath(cast("os.PathLike[str]", value))
    raise TypeError(f"{type(value).__name__} is none of text, number, list or dict")


def _exchange(link: Link, request: bytes, name: str = "") -> Any:
    """Send a request and return its answer. Whatever breaks this off gives the call up: the connection ends."""
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            # Of connecting, too, which waits where many others do; not of reading: a tool has its own time.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", _REACHED_S, 0))
            connection.connect("\0" + link.address)
            try:
                connection.sendall(request)
            except OSError:
                pass  # it was refused before it was read: the answer says why
            with connection.makefile("rb") as answer:
                head = answer.readline()
                body = answer.read(_size_of(head))
        except OSError as problem:
            raise _unreachable(problem) from None
    return _answer_of(head, body, name)


def _size_of(head: bytes) -> int:
    if not head.endswith(b"\n"):
        raise _unreachable("the connection ended")
    return int(json.loads(head)["size"])


def _answer_of(head: bytes, body: bytes, name: str) -> Any:
    said, answer = json.loads(head), json.loads(body)
    if said["ok"]:
        return answer
    raise _error_of(answer["name"], answer["message"], name, answer["kind"])


def _unreachable(problem: object) -> ToolUnavailable:
    return ToolUnavailable(f"the host tools cannot be reached: {problem}")


def _error_of(name: str, message: str, tool: str, kind: str = "raised") -> ToolError:
    """Return an error of the host as one of here: of the same name, and of the same kind where that is a built-in one."""
    if kind != "raised" or name in _OURS:
        return _OURS.get(name, ToolUnavailable)(message, tool)
    known: Any = getattr(builtins, name, None)
    if isinstance(known, type) and issubclass(known, Exception) and known not in _NOT_TO_BE:
        try:
            return _kind_of(name, (ToolError, known))(message, tool)
        except (TypeError, ValueError):
            pass  # a group of exceptions wants others than a message
    return _kind_of(name, (ToolError,))(message, tool)


def _kind_of(name: str, bases: tuple[type, ...]) -> type[ToolError]:
    kind: Any = type(name if name.isidentifier() else "ToolError", bases, {"__module__": __name__})
    return cast("type[ToolError]", kind)


# --- other processes of a run, and the command


def _link_of_environment() -> Link | None:
    address, _, secret = os.environ.get(VARIABLE, "").rpartition(":")
    return Link(address, secret) if address else None


tools = Tools(_link_of_environment)


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(name)
    return getattr(tools, name)


_USAGE = """usage: sandcell-tool [-r] NAME [ARGUMENTS]   call a tool; ARGUMENTS is a JSON object, - reads it from stdin
       sandcell-tool --list                  the tools: names and what they do
       sandcell-tool --schema NAME           the JSON Schema of a tool's arguments

The result goes to stdout as JSON; with -r text goes as it is. Exit code 1: the tool failed; 2: it cannot be called
like that; 3: there is nobody who could answer.
"""


def main(words: list[str]) -> int:
    """Be the command `sandcell-tool`; returns the exit code."""
    try:
        return _do(words)
    except (InvalidArguments, UnknownTool) as problem:
        return _complain(problem, 2)
    except ToolUnavailable as problem:
        return _complain(problem, 3)
    except ToolError as problem:
        return _complain(problem, 1)


def _do(words: list[str]) -> int:
    is_raw = words[:1] == ["-r"]
    words = words[1:] if is_raw else words
    if words == ["--list"]:
        for spec in tools.list():
            first = spec["description"].strip().split("\n")[0]
            sys.stdout.write(f"{spec['name']}\t{first}\n")
    elif len(words) == 2 and words[0] == "--schema":
        sys.stdout.write(json.dumps(tools[words[1]].schema) + "\n")
    elif len(words) in (1, 2) and not words[0].startswith("-"):
        result = _call(_there(_link_of_environment()), words[0], _arguments(words[1:]))
        sys.stdout.write((result if is_raw and isinstance(result, str) else json.dumps(result)) + "\n")
    else:
        (sys.stdout if words in (["-h"], ["--help"]) else sys.stderr).write(_USAGE)
        return 0 if words in (["-h"], ["--help"]) else 2
    return 0


def _arguments(words: list[str]) -> dict[str, Any]:
    text = sys.stdin.read() if words == ["-"] else "".join(words) or "{}"
    try:
        arguments = json.loads(text)
    except ValueError as problem:
        raise InvalidArguments(f"the arguments are no JSON: {problem}") from None
    if not isinstance(arguments, dict):
        raise InvalidArguments("the arguments have to be a JSON object")
    return cast("dict[str, Any]", arguments)


def _complain(problem: ToolError, code: int) -> int:
    sys.stderr.write(f"sandcell-tool: {type(problem).__name__}: {problem}\n")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

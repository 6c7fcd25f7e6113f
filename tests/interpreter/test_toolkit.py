"""What code in a sandbox has of host tools, without a host: functions that look like them, errors, bounds on arguments."""

from __future__ import annotations

import builtins
import inspect
import pickle
import pydoc
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import sandcell_runtime.toolkit.sandcell_tools as toolkit
from sandcell_runtime.toolkit.sandcell_tools import Link, ToolError, Tools, ToolUnavailable

PROGRAM = Path(toolkit.__file__).with_name("sandcell-tool")
SPEC = {
    "name": "get-it",
    "description": "Get it.",
    "schema": {
        "type": "object",
        "properties": {
            "late": {"type": ["string", "null"], "default": None},
            "number": {"type": "integer", "description": "how many"},
            "not-a-name": {"type": "string"},
            "class": True,
        },
        "required": ["number", "not-a-name"],
    },
}


def tools_of(*specs: dict[str, Any]) -> Tools:
    """Return tools that nobody answers."""
    tools = Tools(lambda: Link("nowhere-at-all", "secret"))
    tools._known = toolkit.Catalogue("secret", specs)  # pyright: ignore[reportPrivateUsage]
    return tools


def error_of(name: str) -> ToolError:
    return toolkit._error_of(name, "said", "tool")  # pyright: ignore[reportPrivateUsage]


def test_a_function_looks_like_its_tool() -> None:
    function = tools_of(SPEC)["get-it"]
    assert str(inspect.signature(function)) == "(number: int, late=None)"
    assert function.schema is SPEC["schema"]
    assert inspect.iscoroutinefunction(function.aio)
    shown = pydoc.plain(pydoc.render_doc(function))
    assert "Get it." in shown
    assert "number: how many" in shown


@pytest.mark.parametrize(
    ("args", "kwargs"), [((1, None, 3), {}), ((1,), {"number": 2}), ((object(),), {}), ((float("nan"),), {})]
)
def test_what_cannot_be_arguments_is_refused_before_it_travels(args: Any, kwargs: Any) -> None:
    with pytest.raises(TypeError) as caught:
        tools_of(SPEC)["get-it"](*args, **kwargs)
    assert type(caught.value).__name__ == "InvalidArguments"


def test_where_nobody_takes_callers_it_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolkit, "_REACHED_S", 1)
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as first:
        listener.bind("")
        listener.listen(0)
        first.connect(listener.getsockname())
        link = Link(listener.getsockname()[1:].decode(), "secret")
        with pytest.raises(ToolUnavailable, match="cannot be reached"):
            Tools(lambda: link).list()


def test_without_anybody_there_it_is_unavailable() -> None:
    with pytest.raises(ToolUnavailable, match="cannot be reached"):
        tools_of(SPEC)["get-it"](1)
    with pytest.raises(ToolUnavailable, match="no host tools were given"):
        Tools(lambda: None).list()
    assert repr(Tools(lambda: None)) == "<host tools: none>"


@pytest.mark.parametrize(
    "name",
    [name for name, kind in vars(builtins).items() if isinstance(kind, type) and issubclass(kind, Exception)],
)
def test_every_built_in_exception_arrives_as_itself(name: str) -> None:
    problem = error_of(name)
    assert (type(problem).__name__, str(problem), problem.tool) == (name, "said", "tool")
    is_like = isinstance(problem, getattr(builtins, name))
    assert is_like or name in ("StopIteration", "StopAsyncIteration", "ExceptionGroup", "BaseExceptionGroup")


@given(st.text())
def test_any_name_of_an_error_is_one(name: str) -> None:
    problem = error_of(name)
    assert isinstance(problem, ToolError)
    assert not isinstance(problem, SystemExit | KeyboardInterrupt)


@pytest.mark.parametrize("name", ["ValueError", "Own", "ToolUnavailable"])
def test_an_error_goes_from_process_to_process(name: str) -> None:
    problem = pickle.loads(pickle.dumps(error_of(name)))
    assert (type(problem).__name__, str(problem)) == (name, "said")


def test_the_command_is_a_program_that_needs_nothing() -> None:
    environment = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}
    done = subprocess.run([PROGRAM, "--help"], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("usage: sandcell-tool")

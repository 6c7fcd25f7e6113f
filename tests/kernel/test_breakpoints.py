"""What `breakpoint()` does in a run."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from sandcell_runtime.breakpoints import set_breakpoint_hook


def stop_in_debugger() -> None: ...


stop_in_debugger.__module__ = "debugpy.public_api"


@pytest.fixture(autouse=True)
def debugger(monkeypatch: pytest.MonkeyPatch) -> None:
    """debugpy, as it is when it has been imported, without all that the real one does to this process."""
    module = ModuleType("debugpy")
    module.breakpoint = stop_in_debugger  # type: ignore[attr-defined]  # as the real one has
    monkeypatch.setitem(sys.modules, "debugpy", module)
    monkeypatch.setattr(sys, "breakpointhook", stop_in_debugger)
    monkeypatch.delenv("PYTHONBREAKPOINT", raising=False)


def _stop() -> object:
    return sys.breakpointhook("aba", "a")  # noqa: T100 -- what `breakpoint("aba", "a")` calls


def test_a_debugger_that_is_attached_has_it() -> None:
    set_breakpoint_hook(is_debugged=False, may_ask=True)
    set_breakpoint_hook(is_debugged=True, may_ask=True)
    assert sys.breakpointhook is stop_in_debugger


def test_else_it_is_a_prompt_where_somebody_can_be_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    set_breakpoint_hook(is_debugged=False, may_ask=True)
    monkeypatch.setenv("PYTHONBREAKPOINT", "operator.countOf")  # Python's own hook does as that says
    assert _stop() == 2
    set_breakpoint_hook(is_debugged=False, may_ask=False)
    assert _stop() == 2


def test_it_is_passed_over_where_nobody_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    set_breakpoint_hook(is_debugged=False, may_ask=False)
    monkeypatch.setenv("PYTHONBREAKPOINT", "operator.countOf")
    assert _stop() is None


def test_a_hook_of_the_user_s_stays() -> None:
    def own() -> None: ...

    sys.breakpointhook = own
    set_breakpoint_hook(is_debugged=False, may_ask=True)
    assert sys.breakpointhook is own

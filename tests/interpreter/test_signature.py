"""What people see of the options of a sandbox is what happens when they give none."""

from __future__ import annotations

import inspect
import pydoc
from typing import TYPE_CHECKING, Any

import pytest

from sandcell import AsyncSandbox, Sandbox
from sandcell.client.options import make_spec
from sandcell.client.signature import option_defaults
from sandcell.config import Config

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.mark.parametrize("create", [Sandbox.create, AsyncSandbox.create])
def test_the_options_are_shown_with_their_defaults(create: Callable[..., object]) -> None:
    shown = inspect.signature(create).parameters
    assert (*shown,)[:2] == ("image", "name")
    assert (*shown,)[-1] == "later"
    assert (shown["engine"].default, shown["idle_timeout"].default) == ("auto", 600.0)
    assert "memory: 'str | int | None' = None" in pydoc.plain(pydoc.render_doc(create))


def test_a_name_is_required_where_it_has_to_be_given() -> None:
    shown = inspect.signature(Sandbox.get_or_create).parameters
    assert shown["name"].default is inspect.Parameter.empty
    assert shown["python"].default is None


def test_the_defaults_that_are_shown_are_those_that_hold() -> None:
    def spec_of(options: Any) -> dict[str, Any]:
        spec = make_spec(Config(), None, options)
        return {each: getattr(spec, each) for each in type(spec).__slots__ if each not in {"id", "name"}}

    assert spec_of(option_defaults()) == spec_of({})

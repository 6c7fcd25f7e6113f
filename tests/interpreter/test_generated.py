"""The blocking client is what the generator makes of the asyncio one, and the rims have the same names."""

from __future__ import annotations

import ast
import inspect
from typing import TYPE_CHECKING

from sandcell.client import generate
from sandcell.client.aio import channel as aio_rim
from sandcell.client.aio.sandbox import AsyncSandbox
from sandcell.client.blocking import channel as blocking_rim
from sandcell.client.blocking.sandbox import Sandbox

if TYPE_CHECKING:
    from types import ModuleType


def test_the_generated_files_are_fresh() -> None:
    for path, text in generate.generate().items():
        assert path.read_text() == text, f"{path.name}: run python -m sandcell.client.generate"


def test_nothing_of_asyncio_is_left_in_them() -> None:
    for path in generate.generate():
        names = {node.id for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Name)}
        assert not {name for name in names if name.lower().startswith(("async", "aio"))}


def test_both_rims_offer_the_same() -> None:
    assert aio_rim.__all__ == blocking_rim.__all__
    assert functions_of(aio_rim) == functions_of(blocking_rim)


def functions_of(rim: ModuleType) -> dict[str, list[str]]:
    channel = {f"Channel.{name}": each for name, each in inspect.getmembers(rim.Channel, callable)}
    named = {name: getattr(rim, name) for name in rim.__all__} | channel
    return {
        name: list(inspect.signature(each).parameters)
        for name, each in named.items()
        if not name.startswith("Channel._")
    }


def test_both_sandboxes_have_the_same_methods_and_parameters() -> None:
    def public(kind: type[object]) -> dict[str, list[str]]:
        return {
            name: list(inspect.signature(each).parameters)
            for name, each in inspect.getmembers(kind, callable)
            if not name.startswith("_")
        }

    assert public(AsyncSandbox) == public(Sandbox)

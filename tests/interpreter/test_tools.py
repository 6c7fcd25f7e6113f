"""What a program offers as host tools: names, schemas, arguments, results."""

from __future__ import annotations

import datetime
import enum
import json
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandcell.tool_schema import Misfit
from sandcell.tools import BoundTool, Tool, encode_result, failure_of_tool, make_toolset
from sandcell_container.errors import ErrorCode, SandcellError


class Color(enum.Enum):
    RED = "red"


@dataclass
class Point:
    x: float


def everything(
    text: str,
    color: Color,
    where: Point,
    day: datetime.date,
    *,
    many: Annotated[list[int], msgspec.Meta(max_length=2)] | None = None,
    kind: Literal["a", "b"] = "a",
    bare: Any = None,
) -> None:
    """Do all.

    It takes a while.

    Args:
        text (str): what to say
        kind: which
    """


def bound(tool: Any) -> BoundTool:
    found = make_toolset([tool]).get(tool.name if isinstance(tool, Tool) else tool.__name__)
    assert found is not None
    return found


def test_a_schema_comes_from_signature_and_docstring() -> None:
    spec = bound(everything).spec
    assert (spec.name, spec.description) == ("everything", "Do all.\n\nIt takes a while.")
    shown = spec.schema["properties"]
    assert shown["text"] == {"type": "string", "description": "what to say"}
    assert shown["kind"] == {"enum": ["a", "b"], "description": "which", "default": "a"}
    assert shown["bare"] == {"default": None}
    assert spec.schema["required"] == ["text", "color", "where", "day"]
    assert spec.schema["additionalProperties"] is False
    assert spec.schema["$defs"].keys() == {"Color", "Point"}
    assert json.loads(json.dumps(spec.schema)) == spec.schema


def test_arguments_arrive_as_what_the_signature_says() -> None:
    given = {"text": "t", "color": "red", "where": {"x": 1}, "day": "2026-01-02"}
    assert bound(everything).parameters.read(given) == {
        "text": "t",
        "color": Color.RED,
        "where": Point(1),
        "day": datetime.date(2026, 1, 2),
    }


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"text": 1}, "Expected `str`, got `int` - at `$.text`"),
        ({"color": "blue"}, "Invalid enum value 'blue' - at `$.color`"),
        ({"where": {}}, "Object missing required field `x` - at `$.where`"),
        ({"many": [1, 2, 3]}, "Expected `array` of length <= 2 - at `$.many`"),
        ({"other": 1}, "Object contains unknown field `other`"),
    ],
)
def test_what_does_not_fit_is_said_with_its_place(change: dict[str, Any], said: str) -> None:
    given = {"text": "t", "color": "red", "where": {"x": 1}, "day": "2026-01-02", **change}
    with pytest.raises(Misfit) as caught:
        bound(everything).parameters.read(given)
    assert str(caught.value) == said


def test_a_schema_of_ones_own_is_checked_and_fetches_nothing() -> None:
    schema = {"properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}
    parameters = bound(Tool("take", "Take.", schema, print)).parameters
    assert parameters.read({"n": 1}) == {"n": 1}
    with pytest.raises(Misfit, match=r"'x' is not of type 'integer' - at `\$.n`"):
        parameters.read({"n": "x"})
    remote = Tool("take", "", {"$ref": "http://127.0.0.1:9/schema.json"}, print)
    with pytest.raises(Exception, match="Unresolvable"):
        bound(remote).parameters.read({})


@pytest.mark.parametrize(
    ("tools", "said"),
    [
        ("abc", "a list of functions, not str"),
        ([5], "a function or a Tool, not int"),
        ([lambda: 1], "cannot be called '<lambda>'"),
        ([Tool("list", "", None, print)], "a word of `tools` itself"),
        ([Tool("class", "", {}, print)], "cannot be called 'class'"),
        ([Tool("a b", "", {}, print)], "cannot be called 'a b'"),
        ([Tool("a", "", {}, print), Tool("a", "", {}, print)], "two tools are called 'a'"),
        ([Tool("a", "", {"type": "nothing"}, print)], "its schema is none: 'nothing'"),
        ([Tool("a", "", {"type": "array"}, print)], "one of an object, not of 'array'"),
        ([Tool("a", "", {"x": object()}, print)], "its schema is no JSON"),
        ([Tool("a", "", None, print)], "its parameter *args has no name"),
        ([Tool("a", "", {}, 5)], "nothing to call: int"),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        ([Tool("a", "", {}, print, timeout=0)], "has to be seconds above 0, not 0"),
        ([Tool(f"t{n}", "", {}, print) for n in range(129)], "129 tools are more than 128"),
    ],
)
def test_what_cannot_be_offered_is_refused_in_words(tools: Any, said: str) -> None:
    with pytest.raises(SandcellError) as caught:
        make_toolset(tools)
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT
    assert said in caught.value.message


def test_a_type_without_json_form_is_refused() -> None:
    def takes(what: type) -> None: ...

    with pytest.raises(SandcellError, match=r"type.* has no form in JSON that is known"):
        make_toolset([takes])


class Model:
    """As pydantic makes them."""

    def __init__(self, x: int) -> None:
        self.x = x

    @classmethod
    def model_json_schema(cls) -> dict[str, Any]:
        return {
            "type": "object",
            "properties": {"x": {"$ref": "#/$defs/X"}},
            "$defs": {"X": {"type": "integer"}},
        }

    @classmethod
    def model_validate(cls, value: dict[str, Any]) -> Model:
        if value.get("x") != int(value["x"]):
            raise ValueError("x has to be whole")
        return cls(value["x"])

    def model_dump(self, mode: str) -> dict[str, Any]:
        return {"x": self.x, "mode": mode}


def test_classes_that_tell_their_own_schema_are_types_too() -> None:
    def take(model: Model, others: list[Model] | None = None) -> None: ...

    tool = bound(take)
    assert tool.spec.schema["$defs"] == {"X": {"type": "integer"}}
    assert "$defs" not in json.dumps(tool.spec.schema["properties"]).replace("#/$defs/X", "")
    read = tool.parameters.read({"model": {"x": 1}, "others": [{"x": 2}]})
    assert (read["model"].x, read["others"][0].x) == (1, 2)
    with pytest.raises(Misfit, match=r"x has to be whole - at `\$.model`"):
        tool.parameters.read({"model": {"x": "1"}})
    assert bytes(encode_result(Model(3))) == b'{"x":3,"mode":"json"}'


class FakeArray:
    def tolist(self) -> list[int]:
        return [1, 2]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (float("nan"), b"null"),
        (2**70, b"1180591620717411303424"),
        ((1, {2}), b"[1,[2]]"),
        ({1: None}, b'{"1":null}'),
        (Point(2), b'{"x":2}'),
        (FakeArray(), b"[1,2]"),
        (datetime.datetime(2026, 1, 2), b'"2026-01-02T00:00:00"'),
    ],
)
def test_results_become_json(value: object, text: bytes) -> None:
    assert bytes(encode_result(value)) == text


@pytest.mark.parametrize("value", [object(), "\ud800", {(1, 2): 3}, len])
def test_a_result_without_json_form_is_an_error(value: object) -> None:
    with pytest.raises((TypeError, ValueError)):
        encode_result(value)


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError


@given(st.text())
def test_an_exception_is_told_by_name_and_message_whatever_that_is(message: str) -> None:
    told = failure_of_tool(KeyError(message))
    assert told.name == "KeyError"
    assert len(told.message) <= 4096
    msgspec.json.encode(told)
    assert failure_of_tool(Mute()).message == ""

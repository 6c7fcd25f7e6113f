"""What is told of variables, and that none of the user's code is run for it."""

from __future__ import annotations

import collections
import datetime
import decimal
import importlib
import threading
import time
import types
from pathlib import PosixPath
from typing import Any

import pytest

from sandcell_runtime.variables import MAX_PREVIEW, MAX_VARIABLES, describe_variables

np: Any = importlib.import_module("numpy")
pd: Any = importlib.import_module("pandas")
pa: Any = importlib.import_module("pyarrow")


def told(value: object) -> dict[str, Any]:
    (variable,) = describe_variables({"x": value}, {})["variables"]
    assert variable.pop("name") == "x"
    return dict(variable)


@pytest.mark.parametrize(
    ("value", "kind", "shape", "preview"),
    [
        (None, "NoneType", None, "None"),
        (True, "bool", None, "True"),
        (42, "int", None, "42"),
        (10**1000, "int", None, "<int of 3322 bits>"),
        (1.5, "float", None, "1.5"),
        ("é'\n", "str", [3], repr("é'\n")),
        ("\ud800", "str", [1], "'\\ud800'"),
        (b"\0", "bytes", [1], "b'\\x00'"),
        ([1, [2, [3, [4, [5]]]]], "list", [2], "[1, [2, [3, [...]]]]"),
        ((1,), "tuple", [1], "(1)"),
        ({"a": {"b": 1}}, "dict", [1], "{'a': {'b': 1}}"),
        ({1}, "set", [1], "{1}"),
        (list(range(10**6)), "list", [10**6], "[0, 1, 2, 3, 4, 5, ...]"),
        (range(10**9), "range", [10**9], "range(0, 1000000000, 1)"),
        (collections.deque([1, 2]), "collections.deque", [2], "deque([1, 2])"),
        (decimal.Decimal("1.50"), "decimal.Decimal", None, "1.50"),
        (datetime.date(2020, 1, 2), "datetime.date", None, "2020-01-02"),
        (PosixPath("/tmp"), f"{PosixPath.__module__}.PosixPath", None, "/tmp"),
        (len, "builtin_function_or_method", None, "<built-in function len>"),
        (int, "type", None, "<class int>"),
        (np.arange(6.0).reshape(2, 3), "numpy.ndarray", [2, 3], "float64 [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]"),
        (np.zeros(0), "numpy.ndarray", [0], "float64"),
        (np.float32(0.5), "numpy.float32", [], "0.5"),
        (pd.DataFrame({"a": [1], "b": ["x"]}), "pandas.DataFrame", [1, 2], "columns: 'a', 'b'"),
        (pd.Series([1, 2]), "pandas.Series", [2], "int64"),
        (pa.table({"a": [1, 2]}), "pyarrow.lib.Table", [2, 1], "columns: 'a'"),
    ],
    ids=lambda value: "" if isinstance(value, list) else repr(value)[:20],
)
def test_what_is_told(value: object, kind: str, shape: list[int] | None, preview: str) -> None:
    variable = told(value)
    assert (variable["type"], variable["shape"], variable["preview"]) == (kind, shape, preview)


def test_sizes_are_those_of_the_data() -> None:
    assert told(np.zeros(1000))["size"] == 8000
    assert told(pd.DataFrame({"a": np.zeros(1000)}))["size"] == 8000
    assert told("x" * 1000)["size"] > 1000


def test_names_are_in_order_and_without_what_is_not_the_users() -> None:
    hidden = {"quit": quit, "changed": 1}
    names = {"b": 1, "_private": 2, "a": 3, "os": __import__("os"), "quit": quit, "changed": 2}
    report = describe_variables(names, hidden)
    assert [variable["name"] for variable in report["variables"]] == ["b", "a", "changed"]
    assert report["total"] == 3


def test_only_so_many_are_told_and_how_many_there_are() -> None:
    report = describe_variables({f"v{number}": number for number in range(MAX_VARIABLES + 10)}, {})
    assert (len(report["variables"]), report["total"]) == (MAX_VARIABLES, MAX_VARIABLES + 10)


def _spring(*_: object) -> Any:
    raise AssertionError("code of the user's was run")


def _trap_of_classes() -> Any:
    """Return a metaclass whose every answer is a fault."""
    asked = ("__getattribute__", "__instancecheck__", "__subclasscheck__", "__repr__")
    named = ("__name__", "__module__", "__mro__")
    return type(
        "Trap", (type,), {**dict.fromkeys(asked, _spring), **{each: property(_spring) for each in named}}
    )


Trap = _trap_of_classes()


def _trapped(name: str, bases: tuple[type, ...] = ()) -> Any:
    body = dict.fromkeys(
        ("__repr__", "__str__", "__len__", "__iter__", "__getattribute__", "__sizeof__", "__hash__"), _spring
    )
    return type(name, bases, {**body, "__class__": property(_spring), "shape": property(_spring)})


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (_trapped("Mine")(), "Mine"),
        (_trapped("MyList", (list,))(), "MyList"),
        (_trapped("MyDict", (dict,))(a=1), "MyDict"),
        (_trapped("MyText", (str,))("x"), "MyText"),
        (_trapped("MyFrame", (pd.DataFrame,)).__new__(_trapped("MyFrame", (pd.DataFrame,))), "MyFrame"),
        (np.zeros(3).view(type("MyArray", (np.ndarray,), {"__repr__": _spring})), "MyArray"),
        (Trap("Trapped", (), {}), "Trap"),
        (Trap("Trapped", (), {})(), "Trapped"),
    ],
    ids=["object", "list", "dict", "str", "frame", "array", "class", "instance"],
)
def test_what_is_the_users_is_named_and_not_asked(value: object, kind: str) -> None:
    variable = told(value)
    assert variable["type"].rpartition(".")[2] == kind
    assert (variable["shape"], variable["size"]) == (None, None)
    inside = told([value])
    assert "[<" in inside["preview"]


def test_what_is_told_is_short() -> None:
    huge = [["x" * 10**6] * 100] * 100
    assert len(told(huge)["preview"]) <= MAX_PREVIEW
    assert len(told({"k" * 10**6: huge})["preview"]) <= MAX_PREVIEW
    cycle: list[object] = []
    cycle.append(cycle)
    assert told(cycle)["preview"] == "[[[[...]]]]"


def test_what_changes_meanwhile_is_no_fault() -> None:
    shared: dict[str, Any] = {"grows": set[int]()}
    stop = threading.Event()

    def change() -> None:
        for number in range(10**9):
            if stop.is_set():
                return
            shared["grows"].add(number)
            shared[f"v{number % 50}"] = number

    thread = threading.Thread(target=change)
    thread.start()
    try:
        for _ in range(200):
            describe_variables(shared, {})
    finally:
        stop.set()
        thread.join()


def test_it_takes_little_time() -> None:
    names = {f"v{number}": list(range(1000)) for number in range(500)}
    started = time.monotonic()
    describe_variables(names, {})
    assert time.monotonic() - started < 1.0


def test_a_module_that_is_none_is_a_variable() -> None:
    assert told(types.SimpleNamespace(a=1))["type"] == "types.SimpleNamespace"

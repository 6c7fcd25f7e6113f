"""Figures of plotly, which describe themselves as JSON, in the schema of charts. Pure, and read without trust.

Boxes and histograms are drawn by the browser from samples. The five numbers of a box are worked out here as plotly does by
default; a histogram keeps its samples (the column `value`), as where its bins begin is the browser's choice.
Source: plotly's figure reference; typed arrays as plotly.py has written them since version 6.
"""

from __future__ import annotations

import array
import base64
import binascii
import math
import re
import sys
from typing import TYPE_CHECKING, Any, cast

from sandcell.chart import Axes, Axis, Chart, Series

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["chart_of_plotly"]

MAX_POINTS = 1000
MAX_GRID = 100
MAX_SERIES = 100
_TYPES = {
    "i1": "b",
    "u1": "B",
    "i2": "h",
    "u2": "H",
    "i4": "i",
    "u4": "I",
    "i8": "q",
    "u8": "Q",
    "f4": "f",
    "f8": "d",
}
_UNIT = re.compile(r"[(\[]([^()\[\]]{1,40})[)\]]\s*$")
_TAG = re.compile(r"<[^<>]{0,100}>")
_SCALES = {"date": "datetime", "log": "log", "category": "category", "multicategory": "category"}
_MAX_TEXT = 1000


def chart_of_plotly(raw: object) -> Chart | None:
    """Return the chart of a figure's JSON, None where it is no figure."""
    figure = _object(raw)
    traces = [_object(trace) for trace in _list(figure.get("data"))[:MAX_SERIES]]
    if not traces and not figure.get("layout"):
        return None
    layout = _object(figure.get("layout"))
    plots = dict[tuple[str, str], list[dict[str, Any]]]()
    for trace in traces:
        plots.setdefault(_place_of(trace), []).append(trace)
    axes = [_axes(layout, place, traces) for place, traces in plots.items()]
    title = _title(layout)
    return Chart(kind=_common([each.kind for each in axes]), title=title, library="plotly", axes=axes)


def _place_of(trace: dict[str, Any]) -> tuple[str, str]:
    """Return the names of the two axes that a trace is drawn along; those without any have none."""
    x, y = trace.get("xaxis"), trace.get("yaxis")
    return (x if isinstance(x, str) else "x"), (y if isinstance(y, str) else "y")


def _axes(layout: dict[str, Any], place: tuple[str, str], traces: list[dict[str, Any]]) -> Axes:
    series = [found for trace in traces if (found := _series(trace)) is not None]
    x, y = (_axis(_object(layout.get(f"{name[0]}axis{name[1:]}"))) for name in place)
    return Axes(kind=_common([each.kind for each in series]), x=x, y=y, series=series)


def _axis(told: dict[str, Any]) -> Axis:
    label = _title(told)
    found = _UNIT.search(label or "")
    kind = told.get("type")
    return Axis(
        label=label,
        unit=found[1].strip() if found else None,
        scale=_SCALES.get(kind, "linear") if isinstance(kind, str) else "linear",
        limits=_values(told.get("range"))[:2],
        ticks=_thin(_values(told.get("tickvals"))),
        tick_labels=[_text(label) for label in _thin(_values(told.get("ticktext")))],
    )


def _common(kinds: Sequence[str]) -> str:
    found = set(kinds) - {"other"}
    return found.pop() if len(found) == 1 else "mixed" if found else "other"


def _title(told: dict[str, Any]) -> str | None:
    title: object = told.get("title")
    return _text(title) or _text(_object(title).get("text"))


def _text(value: object) -> str | None:
    """Return text without plotly's tags, None where it is none."""
    return (_TAG.sub("", value[:_MAX_TEXT]) or None) if isinstance(value, str) else None


# --- series


def _series(trace: dict[str, Any]) -> Series | None:
    match trace.get("type", "scatter"):
        case "scatter" | "scattergl" | "scatterpolar":
            return _scatter(trace)
        case "bar":
            return _bar(trace)
        case "pie":
            return _pie(trace)
        case "box":
            return _boxes(trace)
        case "histogram":
            samples = _values(trace.get("y" if trace.get("orientation") == "h" else "x"))
            return _made("histogram", trace, ["value"], [[value] for value in samples])
        case "heatmap" | "contour":
            return _heatmap(trace)
        case "image":
            return Series(kind="image", name=trace.get("name"))
        case _:
            return None


def _made(kind: str, trace: dict[str, Any], columns: list[str], points: list[list[Any]]) -> Series:
    name = _text(trace.get("name"))
    return Series(kind=kind, name=name, columns=columns, points=_thin(points), total=len(points))


def _scatter(trace: dict[str, Any]) -> Series:
    mode = trace.get("mode")
    kind = "scatter" if isinstance(mode, str) and "lines" not in mode else "line"
    ys = _values(trace.get("r" if "r" in trace else "y"))
    xs = _values(trace.get("theta" if "theta" in trace else "x")) or list(range(len(ys)))
    return _made(kind, trace, ["x", "y"], [list(pair) for pair in zip(xs, ys, strict=False)])


def _bar(trace: dict[str, Any]) -> Series:
    lying = trace.get("orientation") == "h"
    values = _values(trace.get("x" if lying else "y"))
    labels = _values(trace.get("y" if lying else "x")) or list(range(len(values)))
    return _made("bar", trace, ["label", "value"], [list(pair) for pair in zip(labels, values, strict=False)])


def _pie(trace: dict[str, Any]) -> Series:
    labels, values = _values(trace.get("labels")), _numbers(trace.get("values"))
    whole = math.fsum(values) or 1.0
    names = labels + [None] * (len(values) - len(labels))
    points = [[name, value / whole] for name, value in zip(names, values, strict=False)]
    return _made("pie", trace, ["label", "share"], points)


def _heatmap(trace: dict[str, Any]) -> Series:
    rows = [_values(row) for row in _values(trace.get("z"))]
    step = max(math.ceil(max([len(rows), *map(len, rows)]) / MAX_GRID), 1)
    return Series(
        kind="heatmap",
        name=_text(trace.get("name")),
        points=[row[::step] for row in rows[::step]],
        total=len(rows),
    )


def _boxes(trace: dict[str, Any]) -> Series:
    lying = trace.get("orientation") == "h" or ("x" in trace and "y" not in trace)
    values = _values(trace.get("x" if lying else "y"))
    labels = _values(trace.get("y" if lying else "x")) or [_text(trace.get("name"))] * len(values)
    samples = dict[Any, list[float]]()
    for label, value in zip(labels, values, strict=False):
        if isinstance(value, int | float) and math.isfinite(value):
            samples.setdefault(label if isinstance(label, str | int | float) else None, []).append(
                float(value)
            )
    columns = ["label", "low", "q1", "median", "q3", "high", "outliers"]
    return _made(
        "box", trace, columns, [[label, *_five_numbers(sorted(found))] for label, found in samples.items()]
    )


def _five_numbers(values: list[float]) -> list[Any]:
    """Return the five numbers of a box, and the outliers: whiskers reach one and a half times the height of the box."""
    q1, median, q3 = (_quantile(values, share) for share in (0.25, 0.5, 0.75))
    reach = 1.5 * (q3 - q1)
    inside = [value for value in values if q1 - reach <= value <= q3 + reach]
    outliers = [value for value in values if not q1 - reach <= value <= q3 + reach]
    return [min([*inside, q1]), q1, median, q3, max([*inside, q3]), _thin(outliers)]


def _quantile(values: list[float], share: float) -> float:
    """Return a quantile as plotly's method "linear" has it: the first value stands at 0.5 / n."""
    place = min(max(share * len(values) - 0.5, 0.0), len(values) - 1.0)
    low = math.floor(place)
    high = min(low + 1, len(values) - 1)
    return values[low] + (place - low) * (values[high] - values[low])


# --- JSON without trust


def _object(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return list(cast("Sequence[Any]", value)) if isinstance(value, list) else []


def _thin(values: list[Any]) -> list[Any]:
    return values[:: max(math.ceil(len(values) / MAX_POINTS), 1)]


def _numbers(value: object) -> list[float]:
    return [
        float(each) if isinstance(each, int | float) and math.isfinite(each) else 0.0
        for each in _values(value)
    ]


def _values(value: object) -> list[Any]:
    """Return the values of a list or of a typed array, of which one with two dimensions gives lists."""
    return _typed_array(cast("dict[str, Any]", value)) if isinstance(value, dict) else _list(value)


def _typed_array(told: dict[str, Any]) -> list[Any]:
    code, data, shape = _TYPES.get(str(told.get("dtype"))), told.get("bdata"), told.get("shape")
    if code is None or not isinstance(data, str):
        return []
    try:
        numbers = array.array(code, base64.b64decode(data, validate=True))
    except (binascii.Error, ValueError):
        return []
    if sys.byteorder == "big":
        numbers.byteswap()
    flat = [None if isinstance(each, float) and not math.isfinite(each) else each for each in numbers]
    sizes = (
        [int(size) for size in str(shape).split(",")]
        if isinstance(shape, str) and re.fullmatch(r"[\d, ]{1,40}", shape)
        else []
    )
    if len(sizes) != 2 or sizes[0] * sizes[1] != len(flat):
        return flat
    return [flat[at : at + sizes[1]] for at in range(0, len(flat), sizes[1] or 1)]

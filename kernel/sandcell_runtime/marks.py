"""What stands in one plot of matplotlib's, as series of data.

A series is `{"kind", "name", "columns": [text], "points": [[cell]], "total": n}`: each point has a value for each
column, and `total` is how many there are; where they are too many every nth is given. Kinds and their columns:

    line, scatter     x, y
    bar               label, value                    as stacked or grouped bars have it: each its own height
    histogram         from, to, count
    pie               label, share                    of the circle, 0 to 1
    box               label, low, q1, median, q3, high, outliers (a list)
    heatmap           none: each point is a row of the grid, the first one at the lowest index of y
    image             none, and no points: a picture

`name` is the label in the legend, of a heatmap that of its colour bar. Source: what matplotlib's own plotting methods
leave in `Axes.lines`, `patches`, `collections`, `images` and `containers`.
"""

from __future__ import annotations

import datetime
import importlib
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from sandcell_runtime.boxes import find_boxes
from sandcell_runtime.cells import Budget, cell_of
from sandcell_runtime.libraries import is_a

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

__all__ = ["Scale", "plain_values", "series_of"]

MAX_POINTS = 1000
MAX_SERIES = 100
MAX_GRID = 100  # rows, and columns
_MAX_BYTES = 10_000_000  # of one list of values: what bounds them is their number
_CLOSE = 1e-6
_NUMBER = re.compile(
    r"[-\u2212+]?[\d.,]+(e[-\u2212+]?\d+)?|\$.*\$"
)  # what matplotlib itself writes at a tick


def plain_values(values: Iterable[Any]) -> list[Any]:
    budget = Budget(_MAX_BYTES)
    return [cell_of(value, budget) for value in values]


@dataclass(frozen=True, slots=True)
class Scale:
    """How an axis reads numbers: `name` is "linear", "log" and so on, or "datetime" or "category"."""

    name: str
    labels: dict[float, str] = field(default_factory=dict[float, str])
    moment: Callable[[float], datetime.datetime] | None = None

    @classmethod
    def of(cls, axis: Any) -> Scale:
        kind = type(_converter_of(axis)).__name__
        frequency = getattr(axis.axes, "freq", None)
        if "Category" in kind:
            return cls("category", {at: str(label) for label, at in axis.units._mapping.items()})
        if "Date" in kind or "Time" in kind:
            return cls("datetime", moment=importlib.import_module("matplotlib.dates").num2date)
        if frequency is not None and axis is axis.axes.xaxis:
            return cls("datetime", moment=partial(_start_of_period, frequency))
        return cls(axis.get_scale(), _names_of(axis))

    def read(self, values: Iterable[Any]) -> list[Any]:
        """Return places on the axis as what they stand for."""
        if self.moment is not None:
            return [self._date(value) for value in values]
        if self.name == "category":
            return [self._label_at(_plain_number(value)) for value in values]
        return list(values)

    def label_of(self, place: float, reach: float) -> Any:
        """Return the name at a place, or the one within `reach` of it; the place itself where there is none."""
        if self.moment is not None:
            return self._date(place)
        near = min(self.labels, key=lambda at: abs(at - place), default=None)
        return self.labels[near] if near is not None and abs(near - place) <= reach else place

    def _label_at(self, place: Any) -> Any:
        return self.labels.get(round(place, 6), place) if isinstance(place, float | int) else place

    def _date(self, value: Any) -> Any:
        number = _plain_number(value)
        if self.moment is None or not isinstance(number, float | int) or not math.isfinite(number):
            start = getattr(value, "start_time", value)  # of a period of pandas', else a date all the time
            return start.isoformat() if is_a(start, "pandas", "Timestamp") else value
        try:
            return self.moment(number).replace(tzinfo=None).isoformat()
        except (ValueError, OverflowError):  # no date at all: an axis may reach anywhere
            return value


def _plain_number(value: Any) -> Any:
    return value.item() if is_a(value, "numpy", "number") else value


def _start_of_period(frequency: Any, number: float) -> datetime.datetime:
    """Return the beginning of a period, by whose number pandas draws a series of time."""
    period = importlib.import_module("pandas").Period(ordinal=round(number), freq=frequency)
    start: datetime.datetime = period.start_time.to_pydatetime()
    return start


def _converter_of(axis: Any) -> object:
    return axis.get_converter() if hasattr(axis, "get_converter") else axis.converter


def _names_of(axis: Any) -> dict[float, str]:
    """Return the names that were given to places on an axis of numbers."""
    if not is_a(axis.get_major_locator(), "matplotlib.ticker", "FixedLocator"):
        return {}
    labels = [label.get_text() for label in axis.get_ticklabels()]
    places = zip(axis.get_ticklocs(), labels, strict=False)
    return {float(at): label for at, label in places if label and not _NUMBER.fullmatch(label)}


# --- series


def series_of(axes: Any, x: Scale, y: Scale) -> list[dict[str, Any]]:
    """Return what is drawn in `axes`, at most a hundred series."""
    boxes = find_boxes(axes)
    found = [
        *([_boxes(boxes.found, y if boxes.horizontal else x)] if boxes.found else []),
        *_lines(axes, x, y, boxes.lines),
        *_bars(axes, x, y),
        *_stairs(axes),
        *_pies(axes),
        *_scatters(axes, x, y),
        *_grids(axes),
    ]
    return found[:MAX_SERIES]


def _series(
    kind: str, name: Any, columns: Sequence[str], points: list[list[Any]], total: int | None = None
) -> dict[str, Any]:
    return {
        "kind": kind,
        "name": plain_values([name])[0],
        "columns": list(columns),
        "points": points,
        "total": len(points) if total is None else total,
    }


def _thinned(values: Any) -> Any:
    """Return every nth of `values`, a list or an array, so that they are few enough."""
    return values[:: max(math.ceil(len(values) / MAX_POINTS), 1)]


def _pairs(kind: str, name: str | None, xs: Sequence[Any], ys: Sequence[Any]) -> dict[str, Any]:
    points = zip(plain_values(xs), plain_values(ys), strict=True)
    return _series(kind, name, ("x", "y"), [list(point) for point in points])


def _name_of(artist: Any) -> str | None:
    """Return the label that the user gave."""
    label = artist.get_label()
    return str(label) if label and not str(label).startswith("_") else None


def _lines(axes: Any, x: Scale, y: Scale, taken: set[Any]) -> Iterator[dict[str, Any]]:
    errors = _error_bars(axes)
    has_bars = any(is_a(each, "matplotlib.container", "BarContainer") for each in axes.containers)
    legend = {str(line.get_color()): _name_of(line) for line in axes.lines if not len(line.get_xdata())}
    for line in axes.lines:
        xs, ys = line.get_xdata(orig=True), line.get_ydata(orig=True)
        if line in taken or line in errors or line.get_transform() != axes.transData or not len(xs):
            continue  # of a box, of an error bar, across the plot at one value, or only in the legend
        name = _name_of(line) or _errors_name(axes, line) or legend.get(str(line.get_color()))
        if has_bars and len(xs) == 2 and name is None:
            continue  # seaborn's error bars
        kind = "scatter" if line.get_linestyle() in ("None", "", " ") else "line"
        series = _pairs(kind, name, x.read(_thinned(xs)), y.read(_thinned(ys)))
        yield {**series, "total": len(xs)}


def _error_bars(axes: Any) -> set[Any]:
    """Return the caps of error bars, which are lines too."""
    bars = [each for each in axes.containers if is_a(each, "matplotlib.container", "ErrorbarContainer")]
    return {cap for bar in bars for cap in bar.lines[1] or ()}


def _errors_name(axes: Any, line: Any) -> str | None:
    """Return the name of the error bars that a line belongs to."""
    return next(
        (
            _name_of(each)
            for each in axes.containers
            if is_a(each, "matplotlib.container", "ErrorbarContainer") and each.lines[0] is line
        ),
        None,
    )


def _bars(axes: Any, x: Scale, y: Scale) -> Iterator[dict[str, Any]]:
    for bars in axes.containers:
        if not is_a(bars, "matplotlib.container", "BarContainer") or not len(bars):
            continue
        upright = getattr(bars, "orientation", None) != "horizontal"
        edges = [_edges(bar, upright=upright) for bar in bars]
        scale = x if upright else y
        if _is_histogram(edges, scale):
            yield _series(
                "histogram",
                _name_of(bars) or _name_of(bars[0]),
                ("from", "to", "count"),
                _plain_rows(_thinned(edges)),
                len(edges),
            )
            continue
        rows = [
            [scale.label_of((low + high) / 2, abs(high - low) / 2 + 0.3), size]
            for low, high, size in _thinned(edges)
        ]
        yield _series("bar", _name_of(bars), ("label", "value"), _plain_rows(rows), len(edges))


def _edges(bar: Any, *, upright: bool) -> tuple[float, float, float]:
    """Return where a bar begins and ends, and how high it is."""
    if upright:
        return bar.get_x(), bar.get_x() + bar.get_width(), bar.get_height()
    return bar.get_y(), bar.get_y() + bar.get_height(), bar.get_width()


def _is_histogram(edges: list[tuple[float, float, float]], scale: Scale) -> bool:
    """Whether bars stand side by side without a gap, over numbers: matplotlib does not say what drew them."""
    if len(edges) < 2 or scale.name == "category" or scale.labels:
        return False
    width = abs(edges[0][1] - edges[0][0]) or 1.0
    neighbours = pairwise(edges)
    return all(
        abs(after[0] - before[1]) < _CLOSE * width + _CLOSE * abs(after[0]) for before, after in neighbours
    )


def _plain_rows(rows: Iterable[Iterable[Any]]) -> list[list[Any]]:
    return [plain_values(row) for row in rows]


def _stairs(axes: Any) -> Iterator[dict[str, Any]]:
    for patch in axes.patches:
        if is_a(patch, "matplotlib.patches", "StepPatch"):
            values, edges, _ = patch.get_data()
            rows = list(zip(edges[:-1], edges[1:], values, strict=True))
            yield _series(
                "histogram", _name_of(patch), ("from", "to", "count"), _plain_rows(_thinned(rows)), len(rows)
            )


def _pies(axes: Any) -> Iterator[dict[str, Any]]:
    wedges = [patch for patch in axes.patches if is_a(patch, "matplotlib.patches", "Wedge")]
    if wedges:
        rows = [[_name_of(wedge), abs(wedge.theta2 - wedge.theta1) / 360] for wedge in _thinned(wedges)]
        yield _series("pie", None, ("label", "share"), _plain_rows(rows), len(wedges))


def _scatters(axes: Any, x: Scale, y: Scale) -> Iterator[dict[str, Any]]:
    for marks in axes.collections:
        if is_a(marks, "matplotlib.collections", "PathCollection"):
            offsets = marks.get_offsets()
            if not len(offsets):
                continue  # only in the legend
            few = _thinned(offsets)
            series = _pairs(
                "scatter", _name_of(marks), x.read(few[:, 0].tolist()), y.read(few[:, 1].tolist())
            )
            yield {**series, "total": len(offsets)}


def _grids(axes: Any) -> Iterator[dict[str, Any]]:
    for drawn in (*axes.images, *axes.collections):
        mesh = is_a(drawn, "matplotlib.collections", "QuadMesh")
        if not mesh and not is_a(drawn, "matplotlib.image", "AxesImage"):
            continue
        grid = drawn.get_array()
        bar = getattr(drawn, "colorbar", None)
        name = (
            _name_of(drawn)
            or (bar.ax.get_ylabel() or bar.ax.get_xlabel() if bar is not None else None)
            or None
        )
        if grid is None or grid.ndim != 2:
            yield _series("image", name, (), [], 0)
            continue
        step = max(math.ceil(max(grid.shape) / MAX_GRID), 1)
        yield _series("heatmap", name, (), _plain_rows(grid[::step, ::step].tolist()), grid.shape[0])


def _boxes(found: Sequence[Any], scale: Scale) -> dict[str, Any]:
    rows = [
        [
            scale.label_of(box.place, 0.4),
            box.low,
            box.q1,
            box.median,
            box.q3,
            box.high,
            list(_thinned(box.outliers)),
        ]
        for box in _thinned(found)
    ]
    columns = ("label", "low", "q1", "median", "q3", "high", "outliers")
    return _series("box", None, columns, _plain_rows(rows), len(found))

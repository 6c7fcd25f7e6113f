"""Figures of matplotlib as data."""

from __future__ import annotations

import datetime
import io
import json
import warnings
from typing import Any, cast

import matplotlib
import numpy
import pandas
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure

from sandcell.chart import Axes, Chart, Series, chart_from
from sandcell_runtime.charts import chart_of

matplotlib.use("agg")


def plot(**more: Any) -> tuple[Any, Any]:
    figure: Any = Figure(**more)
    return figure, figure.subplots()


def read(figure: Any) -> Chart:
    """Return the chart as a client has it: drawn first, and by way of JSON."""
    figure.savefig(io.BytesIO())
    text = json.dumps(chart_of(figure), allow_nan=False)
    assert len(text) < 2**20
    chart = chart_from(json.loads(text))
    assert chart is not None
    return chart


def only(figure: Any) -> tuple[Axes, Series]:
    chart = read(figure)
    (axes,) = chart.axes
    (series,) = axes.series
    assert chart.kind == axes.kind == series.kind
    return axes, series


def test_lines_have_names_and_axes_labels_units_scales_and_ticks() -> None:
    figure, ax = plot()
    ax.plot([1, 10, 100], [1, 4, 9], label="squares")
    ax.plot([1, 10], [2, float("nan")])
    ax.axhline(3, color=(0.1, 0.2, 0.3))
    ax.set(title="A title", xlabel="time (s)", ylabel="length [m]", xscale="log", xlim=(1, 100))
    ax.set_xticks([1, 10, 100])
    chart = read(figure)
    assert (chart.kind, chart.title, chart.library) == ("line", "A title", "matplotlib")
    (axes,) = chart.axes
    assert (axes.x.label, axes.x.unit, axes.x.scale, axes.x.limits) == ("time (s)", "s", "log", [1, 100])
    assert (axes.x.ticks, len(axes.x.tick_labels)) == ([1, 10, 100], 3)
    assert (axes.y.unit, axes.y.scale) == ("m", "linear")
    assert [(each.name, each.columns, each.points) for each in axes.series] == [
        ("squares", ["x", "y"], [[1, 1], [10, 4], [100, 9]]),
        (None, ["x", "y"], [[1, 2], [10, None]]),
    ]


def test_dates_are_dates() -> None:
    figure, ax = plot()
    days = [datetime.date(2020, 1, 1), datetime.date(2020, 1, 2)]
    ax.plot(days, [1, 2])
    ax.scatter(days, [3, 4], label="s")
    (axes,) = read(figure).axes
    assert (axes.x.scale, axes.kind) == ("datetime", "mixed")
    assert [point[0] for point in axes.series[0].points] == ["2020-01-01", "2020-01-02"]
    assert [point[0] for point in axes.series[1].points] == ["2020-01-01T00:00:00", "2020-01-02T00:00:00"]
    assert all(str(tick).startswith("2020-01-0") for tick in axes.x.ticks)


def test_lines_over_names() -> None:
    figure, ax = plot()
    ax.plot(["a", "b"], [1, 2], color=[0.1, 0.2, 0.3])
    axes, series = only(figure)
    assert (axes.x.scale, axes.x.ticks, series.points) == ("category", ["a", "b"], [["a", 1], ["b", 2]])


def test_what_is_missing_stays_so_on_an_axis_of_names() -> None:
    figure, ax = plot()
    ax.scatter([1, 2], [float("nan"), 0])
    ax.barh(["a", "b"], [1, 2])
    scatter = next(series for series in read(figure).series if series.kind == "scatter")
    assert scatter.points == [[None, None], [2, "a"]]  # matplotlib keeps no half of a point


def test_scatters() -> None:
    figure, ax = plot()
    ax.scatter([1, 2], [3, 4], label="a")
    assert only(figure)[1] == Series(
        kind="scatter", name="a", columns=["x", "y"], points=[[1, 3], [2, 4]], total=2
    )
    figure, ax = plot()
    ax.plot([1, 2], [3, 4], "o")
    assert only(figure)[1].kind == "scatter"


def test_bars_by_category_grouped_and_lying() -> None:
    figure, ax = plot()
    ax.bar(["a", "b"], [1, 2], label="first")
    axes, series = only(figure)
    assert (axes.x.scale, series.name, series.points) == ("category", "first", [["a", 1], ["b", 2]])
    figure, ax = plot()
    places = numpy.arange(2)
    for at, name in enumerate(("x", "y")):
        ax.bar(places + 0.4 * at - 0.2, [at, at + 1], width=0.4, label=name)
    ax.set_xticks(places, ["north", "south"])
    assert [(each.name, each.points) for each in read(figure).series] == [
        ("x", [["north", 0], ["south", 1]]),
        ("y", [["north", 1], ["south", 2]]),
    ]
    figure, ax = plot()
    ax.barh(["a", "b"], [1, 2])
    assert only(figure)[1].points == [["a", 1], ["b", 2]]


@pytest.mark.parametrize("histtype", ["bar", "step"])
def test_histograms(histtype: str) -> None:
    figure, ax = plot()
    if histtype == "bar":
        ax.hist([1, 2, 2, 3], bins=[1, 2, 3, 4], label="h")
    else:
        ax.stairs([1, 2, 1], [1, 2, 3, 4], label="h")
    series = only(figure)[1]
    assert (series.kind, series.name, series.columns) == ("histogram", "h", ["from", "to", "count"])
    assert series.points == [[1, 2, 1], [2, 3, 2], [3, 4, 1]]


def test_pies() -> None:
    figure, ax = plot()
    ax.pie([1, 3], labels=["a", "b"])
    series = only(figure)[1]
    assert [(label, round(share, 6)) for label, share in series.points] == [("a", 0.25), ("b", 0.75)]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"vert": False},
        {"patch_artist": True},
        {"showcaps": False},
        {"showfliers": False},
        {"showmeans": True},
        {"notch": True},
    ],
    ids=str,
)
def test_boxes(options: dict[str, bool]) -> None:
    figure, ax = plot()
    upright = options.pop("vert", True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a notch may reach beyond its box
        ax.boxplot(
            [[1, 2, 3, 4, 20], [2, 3, 4]],
            tick_labels=["p", "q"],
            orientation="vertical" if upright else "horizontal",
            **options,
        )
    series = only(figure)[1]
    assert series.columns == ["label", "low", "q1", "median", "q3", "high", "outliers"]
    outliers = [] if options.get("showfliers") is False else [20]
    assert series.points == [["p", 1, 2, 3, 4, 4, outliers], ["q", 2, 2.5, 3, 3.5, 4, []]]


def test_heat_maps_and_pictures() -> None:
    figure, ax = plot()
    drawn = ax.imshow([[1, 2], [3, float("nan")]])
    figure.colorbar(drawn, ax=ax, label="degrees")
    series = only(figure)[1]
    assert (series.kind, series.name, series.points, series.total) == (
        "heatmap",
        "degrees",
        [[1, 2], [3, None]],
        2,
    )
    figure, ax = plot()
    ax.pcolormesh(numpy.arange(6).reshape(2, 3))
    assert only(figure)[1].points == [[0, 1, 2], [3, 4, 5]]
    figure, ax = plot()
    ax.imshow(numpy.zeros((4, 4, 3)))
    assert (only(figure)[1].kind, only(figure)[1].points) == ("image", [])


def test_several_axes() -> None:
    figure: Any = Figure()
    left, right = figure.subplots(1, 2)
    left.plot([1, 2])
    right.bar(["a"], [1])
    twin = left.twinx()
    twin.plot([5, 6])
    figure.suptitle("all")
    chart = read(figure)
    assert (chart.kind, chart.title, [axes.kind for axes in chart.axes]) == (
        "mixed",
        "all",
        ["line", "bar", "line"],
    )


def test_error_bars_are_one_line() -> None:
    figure, ax = plot()
    ax.errorbar([1, 2], [3, 4], yerr=[1, 1], capsize=3, label="e")
    series = only(figure)[1]
    assert (series.kind, series.name, series.points) == ("line", "e", [[1, 3], [2, 4]])


def test_what_is_not_known_is_other_and_what_is_large_is_thinned() -> None:
    figure: Any = Figure()
    figure.add_subplot(projection="3d").plot([1, 2], [3, 4], [5, 6])
    chart = read(figure)
    assert (chart.kind, chart.series) == ("other", [])
    figure, ax = plot()
    ax.plot(numpy.arange(1_000_000))
    series = only(figure)[1]
    assert (series.total, len(series.points)) == (1_000_000, 1000)
    assert series.points[1] == [1000, 1000]
    figure, ax = plot()
    ax.imshow(numpy.zeros((2000, 1000)))
    assert len(only(figure)[1].points) == 100


def test_a_chart_of_many_series_is_thinned_as_a_whole() -> None:
    figure, ax = plot(figsize=(1, 1))
    for _ in range(60):
        ax.plot(numpy.random.default_rng(0).random(2000))
    chart = read(figure)
    assert len(chart.series) == 60
    assert {len(series.points) for series in chart.series} < set(range(100, 1000))
    assert {series.total for series in chart.series} == {2000}


def test_series_of_time_as_pandas_draws_them() -> None:
    figure, ax = plot()
    days = pandas.date_range("2020-02-28", periods=3)
    cast("Any", pandas.Series([1, 2, 3], index=days, name="s")).plot(ax=ax, legend=True)
    axes, series = only(figure)
    assert (axes.x.scale, series.name) == ("datetime", "s")
    assert series.points == [
        ["2020-02-28T00:00:00", 1],
        ["2020-02-29T00:00:00", 2],
        ["2020-03-01T00:00:00", 3],
    ]


def test_a_chart_does_not_change_the_figure() -> None:
    figure, ax = plot()
    ax.hist([1, 2, 3])
    ax.set_title("t")
    before, after = io.BytesIO(), io.BytesIO()
    figure.savefig(before)
    chart_of(figure)
    figure.savefig(after)
    assert before.getvalue() == after.getvalue()


NUMBERS = st.lists(st.floats(-1e300, 1e300) | st.just(float("nan")), min_size=1, max_size=6)
TEXT = st.text(
    st.characters(categories=["L", "N"]), max_size=5
)  # of fonts, and mathematics between $, it is not about


def _draw(ax: Any, kind: str, xs: list[float], ys: list[float], label: str) -> None:
    finite = [y if abs(y) < 1e10 else 1.0 for y in ys]
    match kind:
        case "plot" | "scatter" | "bar" | "step" | "stem" | "fill_between":
            getattr(ax, kind)(xs, ys, label=label)
        case "pie":
            ax.pie([abs(y) + 1 for y in finite])
        case "hist" | "boxplot" | "violinplot":
            getattr(ax, kind)(finite)
        case "imshow" | "pcolormesh" | "contour":
            getattr(ax, kind)([finite, finite[::-1]] if len(finite) > 1 else [[1, 2], [3, 4]])
        case _:
            ax.barh([str(x) for x in xs], finite, label=label)


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_any_figure_is_a_chart(data: st.DataObject) -> None:
    kinds = (
        "plot scatter bar step stem fill_between pie hist boxplot violinplot imshow pcolormesh contour barh"
    )
    figure, ax = plot(figsize=(1, 1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # matplotlib has much to say about such numbers
        for kind in data.draw(st.lists(st.sampled_from(kinds.split()), max_size=3)):
            xs = data.draw(NUMBERS)
            try:
                _draw(
                    ax,
                    kind,
                    xs,
                    data.draw(st.lists(st.floats(), min_size=len(xs), max_size=len(xs))),
                    data.draw(TEXT),
                )
            except (ValueError, OverflowError, TypeError, ArithmeticError):
                continue  # matplotlib's own refusal
        ax.set(title=data.draw(TEXT), xlabel=data.draw(TEXT))
        try:
            figure.savefig(io.BytesIO())
        except Exception:  # noqa: BLE001 -- one that cannot be drawn is never shown
            return
        read(figure)

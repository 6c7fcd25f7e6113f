"""Figures of plotly in the schema of charts."""

from __future__ import annotations

import importlib
import json
from typing import TYPE_CHECKING, Any

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandcell.plotly_chart import chart_of_plotly

if TYPE_CHECKING:
    from sandcell.chart import Chart, Series

go: Any = importlib.import_module("plotly.graph_objects")
subplots: Any = importlib.import_module("plotly.subplots")


def read(figure: Any) -> Chart:
    chart = chart_of_plotly(json.loads(figure.to_json()))
    assert chart is not None
    return chart


def only(trace: Any) -> Series:
    (series,) = read(go.Figure(trace)).series
    return series


def test_lines_and_their_axes() -> None:
    figure = go.Figure(go.Scatter(x=numpy.arange(3), y=numpy.array([1.5, 2, numpy.nan])))
    figure.update_layout(title="<b>A</b> title")
    figure.update_xaxes(title_text="time (s)", type="log", range=[0, 1], tickvals=[1, 2], ticktext=["a", "b"])
    chart = read(figure)
    assert (chart.kind, chart.title, chart.library) == ("line", "A title", "plotly")
    (axes,) = chart.axes
    assert (axes.x.label, axes.x.unit, axes.x.scale, axes.x.limits) == ("time (s)", "s", "log", [0, 1])
    assert (axes.x.ticks, axes.x.tick_labels) == ([1, 2], ["a", "b"])
    assert axes.series[0].points == [[0, 1.5], [1, 2.0], [2, None]]


@pytest.mark.parametrize(
    ("trace", "kind", "columns", "points"),
    [
        (go.Scatter(x=[1], y=[2], mode="markers"), "scatter", ["x", "y"], [[1, 2]]),
        (go.Scatter(y=[5, 6]), "line", ["x", "y"], [[0, 5], [1, 6]]),
        (go.Bar(x=["a"], y=[2]), "bar", ["label", "value"], [["a", 2]]),
        (go.Bar(y=["a"], x=[2], orientation="h"), "bar", ["label", "value"], [["a", 2]]),
        (go.Pie(labels=["a", "b"], values=[1, 3]), "pie", ["label", "share"], [["a", 0.25], ["b", 0.75]]),
        (go.Histogram(x=[1, 2, 2]), "histogram", ["value"], [[1], [2], [2]]),
        (go.Heatmap(z=numpy.array([[1, 2], [3, 4]])), "heatmap", [], [[1, 2], [3, 4]]),
        (
            go.Box(y=[1, 2, 3, 4, 20], name="b"),
            "box",
            ["label", "low", "q1", "median", "q3", "high", "outliers"],
            [["b", 1, 1.75, 3, 8, 8, [20]]],
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_traces(trace: Any, kind: str, columns: list[str], points: list[Any]) -> None:
    series = only(trace)
    assert (series.kind, series.columns) == (kind, columns)
    assert series.points == points


def test_several_axes() -> None:
    figure: Any = subplots.make_subplots(rows=1, cols=2)
    figure.add_trace(go.Bar(x=["a"], y=[1]), row=1, col=1)
    figure.add_trace(go.Scatter(x=[1], y=[2], mode="lines"), row=1, col=2)
    figure.update_yaxes(title_text="right", row=1, col=2)
    chart = read(figure)
    assert (chart.kind, [axes.kind for axes in chart.axes]) == ("mixed", ["bar", "line"])
    assert chart.axes[1].y.label == "right"


def test_what_is_large_is_thinned() -> None:
    series = only(go.Scatter(y=numpy.arange(100_000.0)))
    assert (series.total, len(series.points), series.points[1]) == (100_000, 1000, [100, 100.0])
    assert len(only(go.Heatmap(z=numpy.zeros((300, 500)))).points[0]) == 100


def test_what_is_not_known_is_other() -> None:
    chart = read(go.Figure(go.Sankey()))
    assert (chart.kind, chart.series) == ("other", [])
    assert chart_of_plotly({}) is None
    assert chart_of_plotly("x") is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)
NAMES = "type mode x y z labels values orientation name xaxis yaxis r theta title range tickvals ticktext text bdata dtype shape"
PARTS = st.dictionaries(
    st.sampled_from(NAMES.split()), JSON | st.sampled_from(["box", "pie", "bar", "heatmap", "f8", "2,2"])
)


@given(st.lists(PARTS | JSON), st.dictionaries(st.sampled_from(["title", "xaxis", "yaxis"]), PARTS | JSON))
@settings(deadline=None)
def test_a_forged_figure_is_a_chart_or_none(traces: list[Any], layout: dict[str, Any]) -> None:
    chart_of_plotly({"data": traces, "layout": layout})
    typed = {"dtype": "f8", "bdata": "AAAAAAAA8D8=", "shape": layout.get("title")}
    chart_of_plotly({"data": [{"type": "box", "y": typed, "x": traces}], "layout": layout})

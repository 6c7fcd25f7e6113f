"""A chart that a run displayed, as data: one schema, whatever library drew it.

Source of the shape: `sandcell_runtime.charts` and `marks` for matplotlib, `sandcell.plotly_chart` for plotly, and
docs/results.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

__all__ = ["Axes", "Axis", "Chart", "Series", "chart_from"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """One axis: `scale` is linear, log, symlog, logit, datetime, category or another name of the library's.

    `limits` are two values, `ticks` those that can be seen, with a label for each. Dates are text in ISO 8601. `unit` is what
    stands in brackets at the end of the label.
    """

    label: str | None = None
    unit: str | None = None
    scale: str = "linear"
    limits: list[Any] = field(default_factory=list[Any])
    ticks: list[Any] = field(default_factory=list[Any])
    tick_labels: list[str | None] = field(default_factory=list[str | None])


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """What belongs together in a plot. Each point has a value for each of `columns`, which follow from `kind`:

    line and scatter: x, y. bar: label, value. histogram: from, to, count. pie: label, share (0 to 1).
    box: label, low, q1, median, q3, high, outliers. heatmap: no columns, each point is a row of the grid. A histogram of plotly's: value.
    `total` is how many points there are; where they are too many, `points` has every nth.
    """

    kind: str
    name: Any = None
    columns: list[str] = field(default_factory=list[str])
    points: list[list[Any]] = field(default_factory=list[list[Any]])
    total: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Axes:
    """One plot of a chart. `kind` is that of its series, "mixed" where they differ, "other" where none is known."""

    kind: str = "other"
    title: str | None = None
    x: Axis = field(default_factory=Axis)
    y: Axis = field(default_factory=Axis)
    series: list[Series] = field(default_factory=list[Series])


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A figure: its plots in the order in which they were made. `kind` is theirs, "mixed" where they differ."""

    kind: str
    title: str | None = None
    library: str = ""
    axes: list[Axes] = field(default_factory=list[Axes])

    @property
    def series(self) -> list[Series]:
        """The series of all plots."""
        return [series for axes in self.axes for series in axes.series]


def chart_from(raw: object) -> Chart | None:
    """Return the chart that a bundle holds; None where it is none, as code in the sandbox can put there what it likes."""
    try:
        return msgspec.convert(raw, Chart)
    except msgspec.ValidationError:
        return None

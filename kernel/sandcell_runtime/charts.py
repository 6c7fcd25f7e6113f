"""Figures of matplotlib as data: what was drawn, read from the figure's own objects.

A chart is `{"kind", "title", "library": "matplotlib", "axes": [axes]}`. Axes are one plot of the figure:
`{"kind", "title", "x": axis, "y": axis, "series": [series]}`; an axis is `{"label", "unit", "scale", "limits", "ticks", "tick_labels"}`. For a
series see `marks`. The kind of axes is that of their series where all have one, else "mixed"; "other" where nothing in
them is known here; the kind of a chart follows from its axes in the same way.

Everything is bounded, and numbers that an axis shows as dates or names are dates in ISO 8601 or names.
"""

from __future__ import annotations

import json
import math
import re
import warnings
from typing import TYPE_CHECKING, Any

from sandcell_runtime.cells import Budget, Full, cell_of
from sandcell_runtime.marks import Scale, plain_values, series_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["CHART_MIME", "chart_of"]

CHART_MIME = "application/vnd.sandcell.chart+json"
MAX_AXES = 64
MAX_TICKS = 100
MAX_BYTES = 900_000  # of JSON, below what a result in line may have
_ATTEMPTS = 4
_MAX_TEXT = 1000
_UNIT = re.compile(r"[(\[]([^()\[\]]{1,40})[)\]]\s*$")


def chart_of(figure: Any) -> dict[str, Any]:
    """Return the chart of a figure that has been drawn.

    Raises:
        Full: it is too large, even with fewer points. Whatever matplotlib does.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what it has to warn of, it did when it was drawn
        plots = [_axes(axes) for axes in _plots_of(figure)[:MAX_AXES]]
    _fit(plots)
    title = figure.get_suptitle() or (plots[0]["title"] if len(plots) == 1 else None)
    kind = _common(plot["kind"] for plot in plots)
    return {"kind": kind, "title": _text(title), "library": "matplotlib", "axes": plots}


def _fit(plots: list[dict[str, Any]]) -> None:
    """Leave out points of all series, evenly, so that the whole is of a size that can be sent."""
    for _ in range(_ATTEMPTS):
        size = len(json.dumps(plots, ensure_ascii=False).encode())
        if size <= MAX_BYTES:
            return
        step = math.ceil(size / MAX_BYTES) + 1
        for series in (each for plot in plots for each in plot["series"]):
            series["points"] = series["points"][::step]
    raise Full


def _plots_of(figure: Any) -> list[Any]:
    return [axes for axes in figure.axes if axes.get_visible() and not hasattr(axes, "_colorbar")]


def _axes(axes: Any) -> dict[str, Any]:
    flat = axes.name in ("rectilinear", "polar")
    x, y = Scale.of(axes.xaxis), Scale.of(axes.yaxis)
    series = series_of(axes, x, y) if flat else []
    title = next((text for side in ("center", "left", "right") if (text := axes.get_title(loc=side))), None)
    return {
        "kind": _common(each["kind"] for each in series),
        "title": _text(title),
        "x": _axis(axes.xaxis, x, axes.get_xlim()),
        "y": _axis(axes.yaxis, y, axes.get_ylim()),
        "series": series,
    }


def _axis(axis: Any, scale: Scale, limits: Sequence[float]) -> dict[str, Any]:
    label = _text(axis.get_label_text())
    ticks = _ticks_of(axis, limits)
    return {
        "label": label,
        "unit": _unit_of(label),
        "scale": scale.name,
        "limits": plain_values(scale.read(limits)),
        "ticks": plain_values(scale.read([place for place, _ in ticks])),
        "tick_labels": [_text(label) for _, label in ticks],
    }


def _ticks_of(axis: Any, limits: Sequence[float]) -> list[tuple[float, str]]:
    """Return the ticks that can be seen: places and labels."""
    low, high = min(limits), max(limits)
    labels = [label.get_text() for label in axis.get_ticklabels()]
    found = zip(axis.get_ticklocs(), labels, strict=False)
    return [(place, label) for place, label in found if low <= place <= high][:MAX_TICKS]


def _unit_of(label: str | None) -> str | None:
    """Return what stands in brackets at the end of a label."""
    found = _UNIT.search(label or "")
    return found[1].strip() if found else None


def _common(kinds: Iterable[str]) -> str:
    found = set(kinds) - {"other"}
    return found.pop() if len(found) == 1 else "mixed" if found else "other"


def _text(text: str | None) -> str | None:
    found = cell_of(str(text)[:_MAX_TEXT], Budget(8 * _MAX_TEXT)) if text else None
    return found or None

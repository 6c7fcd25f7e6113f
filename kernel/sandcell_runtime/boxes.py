"""Boxes and whiskers, found among the lines of a plot: matplotlib keeps no other trace of them.

`Axes.bxp` adds for each box, in this order: the box where it is a line, two whiskers from the box outwards, two caps where
it has any, the median, perhaps the mean, and the outliers as marks without a line.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import takewhile
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Box", "Boxes", "find_boxes"]

_LONGEST = 1000  # values of a line that are looked at
_ACROSS = 4  # two caps, the median, the mean
_MARKS = 2  # the mean and the outliers


class Box(NamedTuple):
    """One box: where it stands, and its five numbers."""

    place: float
    low: float
    q1: float
    median: float
    q3: float
    high: float
    outliers: list[float]


@dataclass(slots=True)
class Boxes:
    """All of one plot, and the `lines` that they are drawn with. `horizontal`: values lie along x."""

    found: list[Box] = field(default_factory=list[Box])
    lines: set[Any] = field(default_factory=set[Any])
    horizontal: bool = False


class _Stroke(NamedTuple):
    """A line along the place of a box, and along its values."""

    line: Any
    places: list[float]
    values: list[float]

    @property
    def is_marks(self) -> bool:
        return self.line.get_linestyle() in ("None", "", " ")

    @property
    def is_along(self) -> bool:
        """Whether it is one straight piece at one place, as a whisker is."""
        return len(self.places) == 2 and self.places[0] == self.places[1] and not self.is_marks

    @property
    def is_across(self) -> bool:
        """Whether it is one straight piece at one value, as a cap or the median is."""
        return len(self.values) == 2 and self.values[0] == self.values[1] and self.places[0] != self.places[1]

    def is_outline(self, q1: float, q3: float) -> bool:
        """Whether it goes round a box with these two values; its notches may reach beyond them."""
        return len(self.values) >= 5 and self.values[0] == self.values[-1] and {q1, q3} <= set(self.values)


def find_boxes(axes: Any) -> Boxes:
    """Return the boxes of a plot, upright or lying."""
    upright = _find(
        [_Stroke(line, _floats(line.get_xdata()), _floats(line.get_ydata())) for line in axes.lines]
    )
    if upright.found:
        return upright
    lying = _find(
        [_Stroke(line, _floats(line.get_ydata()), _floats(line.get_xdata())) for line in axes.lines]
    )
    lying.horizontal = True
    return lying


def _floats(values: Any) -> list[float]:
    """Return the values of a short line; long ones and those of other types are no part of a box."""
    try:
        return [float(value) for value in values[:_LONGEST]]
    except (TypeError, ValueError):
        return []


def _find(strokes: Sequence[_Stroke]) -> Boxes:
    boxes, at = Boxes(), 0
    while at < len(strokes) - 2:
        used = _box_at(strokes, at, boxes)
        at += used or 1
    return boxes


def _box_at(strokes: Sequence[_Stroke], at: int, boxes: Boxes) -> int:
    """Take the box whose whiskers are at `at`; return how many strokes it took, 0 where there is none."""
    lower, upper = strokes[at : at + 2]
    if not (lower.is_along and upper.is_along and lower.places == upper.places):
        return 0
    (q1, low), (q3, high), place = lower.values, upper.values, lower.places[0]
    across = list(takewhile(lambda stroke: stroke.is_across, strokes[at + 2 : at + 2 + _ACROSS]))
    if not across or not low <= q1 <= q3 <= high:
        return 0
    median = across[2 if len(across) > 2 else 0].values[0]  # behind the caps, where it has any
    end = at + 2 + len(across)
    marks = list(takewhile(lambda stroke: stroke.is_marks, strokes[end : end + _MARKS]))
    # Of two kinds of marks the first one is the mean.
    outliers = [value for stroke in marks[-1:] for value in stroke.values if not low <= value <= high]
    boxes.found.append(Box(place, low, q1, median, q3, high, outliers))
    begin = at - 1 if at and strokes[at - 1].is_outline(q1, q3) else at
    boxes.lines.update(stroke.line for stroke in strokes[begin : end + len(marks)])
    return end + len(marks) - at

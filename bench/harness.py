"""Times two ways of doing the same by turns, and says what one costs in terms of the other.

A machine is never idle in the same way twice: what is compared is measured in one run, each round one of each, in
changing order. The ratio is the median over rounds; a ratio moves less than the times it is made of.
"""

from __future__ import annotations

import json
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

__all__ = ["Outcome", "Row", "measure", "print_table", "save", "timed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One promise. `ours` and `theirs` do one round each; a round returns the seconds that count, or how much there is
    of `quantity`.

    The figure is ours over theirs; with `difference` it is ours less theirs, in milliseconds. The promise: at most `bound`.
    """

    name: str
    ours: Callable[[], float]
    theirs: Callable[[], float]
    bound: float
    unit: str = "x"
    rounds: int = 60
    warm_up: int = 5
    difference: bool = False
    quantity: str = "ms"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of a row. Medians in `quantity`; `figure` in the row's unit."""

    name: str
    ours: float
    theirs: float
    quantity: str
    figure: float
    bound: float
    unit: str
    rounds: int

    @property
    def kept(self) -> bool:
        return self.figure <= self.bound


def timed(work: Callable[[], object]) -> Callable[[], float]:
    """Return a round that does `work` once and returns how long it took."""

    def round_() -> float:
        start = time.perf_counter()
        work()
        return time.perf_counter() - start

    return round_


def measure(row: Row) -> Outcome:
    """Run the rounds of `row`, one of each by turns."""
    for _ in range(row.warm_up):
        row.ours()
        row.theirs()
    pairs = [_pair(row, turn) for turn in range(row.rounds)]
    ours, theirs = ([pair[side] for pair in pairs] for side in (0, 1))
    if row.difference:
        figure = 1000 * (statistics.median(ours) - statistics.median(theirs))
    else:
        figure = statistics.median(mine / other for mine, other in pairs)
    scale = 1000 if row.quantity == "ms" else 1
    return Outcome(
        name=row.name,
        ours=round(scale * statistics.median(ours), 3),
        theirs=round(scale * statistics.median(theirs), 3),
        quantity=row.quantity,
        figure=round(figure, 3),
        bound=row.bound,
        unit=row.unit,
        rounds=row.rounds,
    )


def _pair(row: Row, turn: int) -> tuple[float, float]:
    if turn % 2:
        theirs = row.theirs()
        return row.ours(), theirs
    return row.ours(), row.theirs()


def print_table(outcomes: Iterable[Outcome]) -> None:
    print(f"{'':56}{'ours':>10}{'theirs':>10}{'figure':>11}{'promised':>11}")
    for each in outcomes:
        print(
            f"{each.name:56}{each.ours:>8.2f}{each.quantity:2}{each.theirs:>8.2f}{each.quantity:2}"
            f"{each.figure:>9.2f}{each.unit:2}{each.bound:>9.2f}{each.unit:2}{'' if each.kept else '  MISSED'}"
        )


def save(outcomes: Iterable[Outcome], path: Path) -> None:
    """Keep the numbers, with what they were measured on."""
    machine = {"python": platform.python_version(), "system": platform.platform(), "at": time.time()}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        json.dumps({"machine": machine, "rows": [asdict(each) for each in outcomes]}, indent=2) + "\n"
    )

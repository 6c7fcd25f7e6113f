from __future__ import annotations

from typing import Any, cast

import pytest

from sandcell.errands.place import Place
from sandcell.errands.work import ErrandWork
from sandcell.guest.file_work import FileWork
from sandcell.guest.line_work import LineWork
from sandcell_kernel.cells import LineOrder, is_errand
from sandcell_kernel.magics import MAGICS

ANYTHING = cast("Any", None)
HERE = LineWork(ANYTHING, FileWork(ANYTHING)).verbs
ON_THE_HOST = ErrandWork(
    Place(sandbox=ANYTHING, guest=ANYTHING, permission=ANYTHING, is_own=True), ANYTHING, ANYTHING
).verbs
TOLD = [
    LineOrder(magic.name, verb)
    for magic in MAGICS
    if not magic.is_of_cells
    for verb in ([each.name for each in magic.verbs] or [""])
]


@pytest.mark.parametrize("order", TOLD, ids=lambda order: f"{order.magic} {order.verb}".strip())
def test_each_verb_that_is_told_of_is_served(order: LineOrder) -> None:
    verb = (order.magic, order.verb)
    assert verb in (ON_THE_HOST if is_errand(order) else HERE)


def test_nothing_is_served_that_is_not_told_of() -> None:
    assert HERE | ON_THE_HOST == {(order.magic, order.verb) for order in TOLD}

from __future__ import annotations

from typing import Any, cast

from sandcell.guest.line_work import LineWork
from sandcell_kernel.magics import MAGICS


def test_each_verb_that_is_told_of_is_served() -> None:
    told = {
        (magic.name, verb)
        for magic in MAGICS
        if not magic.is_of_cells
        for verb in ([each.name for each in magic.verbs] or [""])
    }
    assert LineWork(cast("Any", None)).verbs == told

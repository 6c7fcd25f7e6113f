from __future__ import annotations

import asyncio

from sandcell.activity import Activity, Deed
from sandcell_container.journal import Journal


def deed(code: str = "1", **changes: str) -> Deed:
    fields = {"id": "run_1", "who": "sdk", "where": "python", "language": "python", **changes}
    return Deed(kind="run", code=code, at=0.0, journal=Journal("e"), **fields)


async def test_who_watches_is_told_of_what_begins_from_then_on() -> None:
    activity = Activity()
    activity(deed("before"))
    with activity.watch() as watch:
        found = watch.deeds()
        waiting = asyncio.ensure_future(anext(found))
        activity(deed("now"))
        assert (await waiting).code == "now"
        activity(deed("then"))
        assert (await anext(found)).code == "then"
    activity(deed("after"))
    assert [each.code for each in activity.recent()] == ["before", "now", "then", "after"]


def test_what_nobody_takes_is_counted_and_not_kept() -> None:
    activity = Activity()
    with activity.watch() as watch:
        for number in range(1010):
            activity(deed(str(number)))
        assert watch.missed == 10
    assert len(activity.recent()) == 200


def test_long_code_is_cut() -> None:
    activity = Activity()
    activity(deed("x" * 2**15))
    assert len(activity.recent()[0].code) < 2**14 + 100

"""How a process comes to its end, from what is heard of it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sandcell_container.guest.ending import Ending
from sandcell_container.guest.job import JobExit

if TYPE_CHECKING:
    from sandcell_container.end import End

EXITED_3 = JobExit(status=3 << 8, peak_memory=100, cpu_user=0.5, cpu_system=0.25, at=7.0)
TERMINATED = JobExit(status=15, peak_memory=100, cpu_user=0.5, cpu_system=0.25, at=7.0)


def judge(end: End) -> End:
    return replace(end, cause="oom", limit="memory")


def unjudged(end: End) -> End:
    return end


def test_it_ends_as_its_process_exited() -> None:
    ending = Ending(unjudged)
    ending.note_exit(EXITED_3)
    ended = ending.result()
    assert (ended.exit_code, ended.signal, ended.end.cause, ended.end.at) == (3, None, "exited", 7.0)
    assert ended.usage == {"cpu_user": 0.5, "cpu_system": 0.25}
    assert ended.leftovers == 0
    assert ending.has_exited


def test_want_of_memory_is_judged_where_nobody_ended_it() -> None:
    ending = Ending(judge)
    ending.note_exit(TERMINATED)
    assert (ending.result().end.cause, ending.result().end.limit) == ("oom", "memory")
    killed = Ending(judge)
    killed.note_cause("timeout", None)
    killed.note_exit(TERMINATED)
    assert killed.result().end.cause == "timeout"


def test_the_first_who_ends_it_counts() -> None:
    ending = Ending(unjudged)
    ending.note_cause("killed", "first")
    ending.note_cause("timeout", None)
    ending.note_exit(TERMINATED)
    end = ending.result().end
    assert (end.cause, end.who, end.signal) == ("killed", "first", 15)


def test_who_ends_what_it_left_behind_does_not_change_its_end() -> None:
    ending = Ending(unjudged)
    ending.note_exit(EXITED_3)
    ending.note_cause("killed", "late")
    ending.note_leftovers(2)
    ending.note_leftovers(0)
    ended = ending.result()
    assert (ended.end.cause, ended.end.who, ended.leftovers) == ("exited", None, 2)


def test_a_lost_sandbox_leaves_no_more_to_say() -> None:
    ending = Ending(unjudged)
    ending.note_exit(None)
    ended = ending.result()
    assert (ended.end.cause, ended.exit_code, ended.usage) == ("lost", None, {})

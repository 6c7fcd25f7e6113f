from __future__ import annotations

from sandcell.errands.tickets import Target, Tickets

TERMINAL = Target(terminal="desk")


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_link_is_for_the_first_who_follows_it() -> None:
    tickets = Tickets(Clock(), life_s=600)
    secret = tickets.issue(TERMINAL)
    first = tickets.visit(secret, "")
    assert first is not None
    assert first.target == TERMINAL
    assert tickets.visit(secret, "") is tickets.visit(secret, "another") is None
    assert tickets.visit(secret, first.visitor) == tickets.admit(secret, first.visitor) == first


def test_a_link_that_nobody_follows_is_worth_nothing_later_and_one_that_was_used_is() -> None:
    clock = Clock()
    tickets = Tickets(clock, life_s=600)
    used, unused = tickets.issue(TERMINAL), tickets.issue(TERMINAL)
    visit = tickets.visit(used, "browser")
    clock.now = 600
    assert tickets.visit(unused, "browser") is None
    assert tickets.visit(used, "browser") == visit
    assert tickets.visit("nothing", "browser") is tickets.admit(unused, "") is None


def test_there_are_not_more_and_more_of_them() -> None:
    tickets = Tickets(Clock(), life_s=600)
    first = tickets.issue(TERMINAL)
    newer = [tickets.issue(Target(url="http://127.0.0.1/")) for _ in range(256)]
    assert tickets.visit(first, "") is None
    assert tickets.visit(newer[0], "") is not None
    assert "browser" not in repr(tickets.visit(newer[1], "browser"))

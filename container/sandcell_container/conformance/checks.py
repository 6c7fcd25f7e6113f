"""The checks of an engine, each with a name and a tag, and how they are run one after the other."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from sandcell_container.conformance.function import FUNCTION_CHECKS
from sandcell_container.conformance.isolation import ISOLATION_CHECKS
from sandcell_container.conformance.subject import Subject
from sandcell_container.errors import ErrorCode, SandcellError, error

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


__all__ = ["CHECKS", "Check", "Outcome", "Tag", "run_checks"]

Tag = Literal["function", "isolation"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One check: `run` raises AssertionError where the engine fails it. `what` is what holds where it does not."""

    name: str
    tag: Tag
    what: str
    run: Callable[[Subject], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a check: "held", "failed" or "unsupported", which an engine says itself; and why."""

    check: Check
    state: Literal["held", "failed", "unsupported"]
    why: str = ""


def _named(tag: Tag, functions: Iterable[Callable[[Subject], None]]) -> tuple[Check, ...]:
    return tuple(
        Check(
            name=each.__name__.replace("_", "-"),
            tag=tag,
            what=(each.__doc__ or "").splitlines()[0],
            run=each,
        )
        for each in functions
    )


CHECKS = (*_named("function", FUNCTION_CHECKS), *_named("isolation", ISOLATION_CHECKS))


def run_checks(subject: Subject, checks: Iterable[Check] = CHECKS) -> Iterator[Outcome]:
    """Run `checks` one after the other and yield what becomes of each; one that fails does not keep the others.

    Raises:
        InvalidRequest (UNSUPPORTED): Python runs without assertions, of which checks are made.
    """
    if not __debug__:
        raise error(ErrorCode.UNSUPPORTED, "checks are made of assertions", hint="run Python without -O")
    for check in checks:
        yield _run(check, subject)


def _run(check: Check, subject: Subject) -> Outcome:
    try:
        check.run(subject)
    except AssertionError as failed:
        last = traceback.extract_tb(failed.__traceback__)[-1]
        why = f"{failed or last.line} (line {last.lineno} of {os.path.basename(last.filename)})"
        return Outcome(check=check, state="failed", why=why)
    except SandcellError as problem:
        refused = problem.code is ErrorCode.UNSUPPORTED
        return Outcome(check=check, state="unsupported" if refused else "failed", why=str(problem))
    return Outcome(check=check, state="held")

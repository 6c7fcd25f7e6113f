"""The shipped checks, on the engines of this machine; `process` isolates nothing, and is asked for its function alone."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sandcell_container.conformance import CHECKS, Asker, Check, Subject, command, run_checks
from sandcell_container.engines.local import LocalEngine
from sandcell_container.engines.process import ProcessEngine
from sandcell_container.engines.settings import EngineSettings
from sandcell_container.errors import ErrorCode, error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sandcell_container.engines.hosted import HostedEngine

GUEST = command(str(Path(__file__).parents[2] / "kernel" / "sandcell_runtime"))


def open_subject(kind: type[HostedEngine], state: Path) -> Subject:
    settings: Any = EngineSettings(
        state=state, first_uid=61200, uid_count=1000, guest=GUEST, guest_settings={}
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the engine process isolates nothing
        return Subject(kind(settings), Asker)


@pytest.fixture
def local(tmp_path: Path) -> Iterator[Subject]:
    made = open_subject(LocalEngine, tmp_path)
    yield made
    made.close()
    made.engine.close()


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Subject]:
    made = open_subject(ProcessEngine, tmp_path)
    yield made
    made.close()
    made.engine.close()


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_local(local: Subject, check: Check) -> None:
    check.run(local)


@pytest.mark.parametrize(
    "check", [each for each in CHECKS if each.tag == "function"], ids=lambda check: check.name
)
def test_process(process: Subject, check: Check) -> None:
    check.run(process)


def test_checks_are_told_apart() -> None:
    assert len({check.name for check in CHECKS}) == len(CHECKS)
    assert all(check.what.endswith(".") for check in CHECKS)
    assert {check.tag for check in CHECKS} == {"function", "isolation"}


def test_outcomes_are_told_one_by_one(local: Subject) -> None:
    def fail(_: Subject) -> None:
        raise AssertionError("so it is")

    def cannot(_: Subject) -> None:
        raise error(ErrorCode.UNSUPPORTED, "not here")

    def breaks(_: Subject) -> None:
        raise error(ErrorCode.START_FAILED, "broken")

    def holds(_: Subject) -> None:
        """Nothing to say against it."""

    functions: tuple[Callable[[Subject], None], ...] = (fail, cannot, breaks, holds)
    made = [Check(name=each.__name__, tag="function", what="", run=each) for each in functions]
    assert [each.state for each in run_checks(local, made)] == ["failed", "unsupported", "failed", "held"]

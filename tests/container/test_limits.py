from __future__ import annotations

import pytest

from sandcell_container.engines.limits import AppliedLimits, apply_limits
from sandcell_container.errors import ErrorCode, InvalidRequest
from sandcell_container.spec import Limits


def test_no_limit_is_nothing_to_do() -> None:
    assert apply_limits(Limits(), strict=True) == AppliedLimits({}, ())


def test_what_the_spawner_can_set_is_set() -> None:
    applied = apply_limits(Limits(cpus=2, memory=2**30, pids=64), strict=False)
    assert applied.spawner == {"cpus": 2, "memory": 2**30, "pids": 64}
    assert len(applied.warnings) == 1


@pytest.mark.parametrize(
    ("limits", "word"),
    [(Limits(disk=2**30), "disk"), (Limits(memory=2**20), "memory"), (Limits(cpus=0.5), "cpus")],
)
def test_what_does_not_hold_as_asked_is_told_or_refused(limits: Limits, word: str) -> None:
    assert word in apply_limits(limits, strict=False).warnings[0]
    with pytest.raises(InvalidRequest, match=word) as caught:
        apply_limits(limits, strict=True)
    assert caught.value.code is ErrorCode.UNSUPPORTED

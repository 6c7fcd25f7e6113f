"""Signals as people write them."""

from __future__ import annotations

import signal

import pytest

from sandcell_container.errors import ErrorCode, SandcellError
from sandcell_container.signals import signal_number


@pytest.mark.parametrize("given", [15, "15", "TERM", "SIGTERM", "sigterm", " term ", signal.SIGTERM])
def test_the_ways_to_say_it(given: int | str) -> None:
    assert signal_number(given) == 15


def test_real_time_signals_have_names_too() -> None:
    assert signal_number("RTMIN") == signal.SIGRTMIN
    assert signal_number("SIGRTMIN+2") == signal.SIGRTMIN + 2
    assert signal_number("rtmax-1") == signal.SIGRTMAX - 1


@pytest.mark.parametrize(
    "given", [0, -1, 65, "", "SIG", "NOPE", "0", "99", "1e1", "\u0661", "RTMAX+1", "_IGN"]
)
def test_what_is_none_is_refused(given: int | str) -> None:
    with pytest.raises(SandcellError) as caught:
        signal_number(given)
    assert caught.value.code is ErrorCode.UNKNOWN_SIGNAL

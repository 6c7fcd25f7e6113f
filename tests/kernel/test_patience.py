from __future__ import annotations

import signal
import threading

import pytest

from sandcell_runtime.patience import TooSlow, limited


def wait_for_ever() -> None:
    threading.Event().wait()


def test_what_takes_long_is_left() -> None:
    before = signal.getsignal(signal.SIGALRM)
    with pytest.raises(TooSlow), limited(0.01):
        wait_for_ever()
    assert signal.getsignal(signal.SIGALRM) is before


def test_code_that_catches_everything_is_left_as_well() -> None:
    with pytest.raises(TooSlow), limited(0.01):
        try:
            wait_for_ever()
        except BaseException:  # noqa: BLE001 -- as user code does
            wait_for_ever()


def test_an_alarm_of_user_code_rings_afterwards() -> None:
    rung = threading.Event()

    def ring(_number: int, _frame: object) -> None:
        rung.set()

    before = signal.signal(signal.SIGALRM, ring)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.02)
        with pytest.raises(TooSlow), limited(0.05):
            wait_for_ever()
        assert not rung.is_set()
        assert rung.wait(20)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_elsewhere_than_in_the_main_thread_there_is_no_limit() -> None:
    done = list[str]()

    def ask() -> None:
        with limited(0.001):
            done.append("answered")

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    assert done == ["answered"]

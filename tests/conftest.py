"""What holds for every test."""

from __future__ import annotations

import signal

from hypothesis import settings


def pytest_configure() -> None:
    """Take signals as a terminal has them: a background job of a shell ignores SIGINT, one of nohup SIGHUP, and so
    would all that tests start.

    No example of a property has a deadline of its own.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    # A machine that is busy with other things says nothing about what is tested.
    settings.register_profile("patient", deadline=None)
    settings.load_profile("patient")

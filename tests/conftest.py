"""What holds for every test."""

from __future__ import annotations

import signal


def pytest_configure() -> None:
    """Take SIGINT as a terminal has it: a background job of a shell ignores it, and so would all that tests start."""
    signal.signal(signal.SIGINT, signal.default_int_handler)

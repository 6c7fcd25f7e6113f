"""What holds for every test."""

from __future__ import annotations

import signal

import pytest
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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With several processes, a file's tests stay in one, as they share its sandboxes, and so do all of the engines that
    are one for the whole machine."""
    for item in items:
        group = "engines" if item.get_closest_marker("docker") else item.location[0]
        item.add_marker(pytest.mark.xdist_group(group))

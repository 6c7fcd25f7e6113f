"""The last open files are left for who asks."""

from __future__ import annotations

import resource

import pytest

from sandcell_container.descriptors import leave_room


def test_the_last_numbers_are_refused() -> None:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    leave_room(0)
    leave_room(limit - 65)
    with pytest.raises(OSError, match="too many open files"):
        leave_room(limit - 64)

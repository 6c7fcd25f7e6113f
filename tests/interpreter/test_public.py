"""What `import sandcell` gives, and what it costs."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version

import pytest

import sandcell
from sandcell.version import VERSION

HEAVY = {"asyncio", "docker", "ipykernel", "jupyter_client", "nbformat", "ssl", "tornado", "zmq"}


def test_the_public_names_are_sorted_and_there() -> None:
    assert sandcell.__all__ == sorted(sandcell.__all__)
    assert {
        name for name in dir(sandcell) if name[0].isupper() and name not in {"Any", "TYPE_CHECKING"}
    } == set(sandcell.__all__)
    for name in sandcell.__all__:
        assert getattr(sandcell, name).__name__ == name


def test_handles_and_events_are_public() -> None:
    named = {sandcell.Process, sandcell.AsyncSession, sandcell.Stdout, sandcell.Ended, sandcell.End}
    assert len(named) == 5


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Sandbx'"):
        _ = sandcell.Sandbx


def test_what_is_installed_has_the_version_that_it_says() -> None:
    assert version("sandcell") == VERSION


@pytest.mark.short
def test_the_blocking_client_loads_nothing_heavy() -> None:
    code = "import sandcell, sys; sandcell.Sandbox; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not HEAVY & set(done.stdout.split())

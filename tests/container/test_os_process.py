from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from sandcell_container.os_process import OsProcess, await_ends, boot_id, end_processes

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process
        process.kill()


def test_a_process_is_ended_and_waited_for(sleeper: subprocess.Popen[bytes]) -> None:
    assert end_processes([OsProcess.of(sleeper.pid)], timeout=5) == []
    assert sleeper.wait() == -9


def test_another_process_with_the_same_number_is_left_alone(sleeper: subprocess.Popen[bytes]) -> None:
    earlier = OsProcess(sleeper.pid, OsProcess.of(sleeper.pid).started - 1)
    assert earlier.open() is None
    assert end_processes([earlier], timeout=5) == []
    assert sleeper.poll() is None


def test_a_process_that_is_gone_needs_no_ending() -> None:
    done = subprocess.Popen([sys.executable, "-c", ""])
    process = OsProcess.of(done.pid)
    done.wait()
    assert process.open() is None
    assert end_processes([process], timeout=5) == []


def test_what_does_not_end_in_time_is_returned(sleeper: subprocess.Popen[bytes]) -> None:
    process = OsProcess.of(sleeper.pid)
    assert end_processes([process], timeout=0) in ([process], [])
    assert end_processes([process], timeout=5) == []


def test_an_end_is_waited_for_without_being_made(sleeper: subprocess.Popen[bytes]) -> None:
    process = OsProcess.of(sleeper.pid)
    assert await_ends([process], timeout=0) == [process]
    sleeper.kill()
    assert await_ends([process], timeout=5) == []


def test_names_that_look_like_fields_do_not_confuse() -> None:
    program = "import ctypes; ctypes.CDLL(None).prctl(15, b') 1 (2 3'); print(flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert OsProcess.of(process.pid).started >= OsProcess.of(os.getpid()).started
        process.communicate(b"\n")


def test_a_pid_of_nobody_is_an_error() -> None:
    with pytest.raises(ProcessLookupError):
        OsProcess.of(2**22)


def test_the_boot_is_the_same_as_long_as_it_lasts() -> None:
    assert boot_id() == boot_id() != ""

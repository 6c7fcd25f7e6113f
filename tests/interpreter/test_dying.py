"""What /proc says of a process that is past executing code."""

from __future__ import annotations

import os
import signal
import subprocess

from sandcell.dying import is_dying, says_dying


def test_a_live_process_is_not_dying_and_a_killed_one_is_at_once() -> None:
    with subprocess.Popen(["sleep", "50"]) as child:
        assert not is_dying(child.pid)
        os.kill(child.pid, signal.SIGKILL)
        assert is_dying(child.pid)  # not waited for: on its way, or a zombie
        child.wait()
    assert not is_dying(child.pid)


def test_a_name_may_hold_anything_and_nonsense_says_nothing() -> None:
    stat = b"7 (a) Z b) S " + b" ".join([b"0"] * 40)
    assert not says_dying(stat)
    assert says_dying(stat.replace(b") S", b") Z"))
    assert not says_dying(b"")

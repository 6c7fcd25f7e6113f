"""How a container ended, from what the daemons were seen to tell of real deaths."""

from __future__ import annotations

import signal

import pytest

from sandcell_container.end import Cause, End
from sandcell_container.engines.docker_end import judge_end


@pytest.mark.parametrize(
    ("code", "oom_killed", "happened", "silent", "cause"),
    [
        (0, False, {"start", "die"}, False, "lost"),  # the guest was killed
        (0, False, {"start", "oom", "die"}, False, "oom"),
        (3, True, {"start", "oom", "die"}, False, "exited"),  # a child of it was killed for want of memory
        (137, True, {"start", "oom", "die"}, False, "oom"),
        (137, False, {"start", "oom", "die"}, False, "oom"),
        (137, False, {"start", "kill", "die"}, False, "killed"),
        (137, False, {"start", "die"}, False, "killed"),  # by the machine's root
        (137, False, {"start", "die"}, True, "oom"),
        (137, False, {"start", "kill", "die"}, True, "killed"),
        (137, False, set[str](), False, "killed"),  # the daemon has forgotten
    ],
)
def test_an_end_has_its_cause(
    code: int, *, oom_killed: bool, happened: set[str], silent: bool, cause: str
) -> None:
    end = judge_end(code, oom_killed=oom_killed, happened=happened, silent_oom=silent, said=None, at=1.0)
    assert end.cause == cause
    assert end.code == (code if cause == "exited" else None)
    assert end.signal == (None if cause in {"exited", "lost"} else signal.SIGKILL)
    assert end.limit == ("memory" if cause == "oom" else None)
    assert end.at == 1.0


@pytest.mark.parametrize(
    ("code", "said", "cause"), [(0, "culled", "culled"), (0, "lost", "lost"), (137, "culled", "killed")]
)
def test_a_guest_that_ends_says_why(code: int, said: Cause, cause: Cause) -> None:
    word = End(cause=said, limit="lease", at=2.0)
    end = judge_end(code, oom_killed=False, happened=set(), silent_oom=False, said=word, at=1.0)
    assert end.cause == cause

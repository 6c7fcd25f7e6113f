"""The environment of user code: changed while it lives, kept over a stop."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from sandcell_container.errors import ErrorCode, SandcellError
from sandcell_container.guest.user_env import UserEnv
from sandcell_container.memo import Memo

if TYPE_CHECKING:
    from pathlib import Path

AWKWARD = "a 'b' \"c\" $d \n\\ é \udcff"


def test_changes_are_seen_and_kept_over_a_stop(tmp_path: Path) -> None:
    fd = os.open(tmp_path / "memo", os.O_RDWR | os.O_CREAT | os.O_APPEND)
    try:
        env = UserEnv({"A": "1", "B": "2"}, Memo(fd))
        env.change({"A": None, "C": AWKWARD})
        env.change({"D": "4", "C": AWKWARD * 2})
        assert env == {"B": "2", "C": AWKWARD * 2, "D": "4"}
        again = UserEnv({"A": "1", "B": "new"}, Memo(fd))
        assert again == {"B": "new", "C": AWKWARD * 2, "D": "4"}
        for number in range(100):
            again.change({"C": f"{number}" + 60_000 * "x"})  # the memo is written anew now and then
        assert UserEnv({}, Memo(fd))["C"].startswith("99x")
        assert (tmp_path / "memo").stat().st_size < 5_000_000
    finally:
        os.close(fd)


def test_without_a_file_it_lives_as_long_as_the_guest() -> None:
    env = UserEnv({}, Memo(None))
    env.change({"A": "1"})
    assert env == {"A": "1"}


@pytest.mark.parametrize(
    "changes",
    [{"A": 131_072 * "x"}, {"A": 65_536 * "é"}, {f"A{number}": 100_000 * "x" for number in range(11)}],
)
def test_what_no_program_could_start_with_is_refused_and_changes_nothing(changes: dict[str, str]) -> None:
    env = UserEnv({"B": "2"}, Memo(None))
    with pytest.raises(SandcellError) as caught:
        env.change({"B": None, **changes})
    assert caught.value.code is ErrorCode.TOO_LARGE
    assert env == {"B": "2"}

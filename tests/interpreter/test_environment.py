"""Changes of the environment of user code."""

from __future__ import annotations

import pytest

from sandcell.environment import check_env, merge_env
from sandcell_container.errors import ErrorCode, SandcellError


def test_changes_are_applied_in_a_copy() -> None:
    base = {"A": "1", "B": "2"}
    assert merge_env(base, {"A": None, "C": "quotes ' \" $HOME\nünï", "NONE": None}) == {
        "B": "2",
        "C": "quotes ' \" $HOME\nünï",
    }
    assert merge_env(base, None) == base == {"A": "1", "B": "2"}


@pytest.mark.parametrize("name", ["", "A=B", "1A", "A B", "É", "A\0", "-"])
def test_a_name_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(SandcellError) as raised:
        check_env({name: "x"})
    assert raised.value.code is ErrorCode.INVALID_ENV_NAME


def test_a_value_that_no_environment_can_hold_is_refused() -> None:
    with pytest.raises(SandcellError):
        check_env({"A": "a\0b"})

from __future__ import annotations

import pytest

from sandcell_container.engines.derived_environments import reason_in


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("", ""),
        ("killed\n\n", "killed"),
        (
            "ERROR: Invalid requirement: 'a b; rm': Expected end\n    a b; rm\n      ^\n",
            "ERROR: Invalid requirement: 'a b; rm': Expected end",
        ),
        (
            "ERROR: no version\nERROR: No matching distribution found for a\n",
            "ERROR: No matching distribution found for a",
        ),
    ],
)
def test_what_pip_says_is_wrong_is_told(said: str, reason: str) -> None:
    assert reason_in(said) == reason

"""Names of what is on its way to its place."""

from __future__ import annotations

import pytest

from sandcell_container.drafts import draft_name, is_draft


def test_a_draft_is_known_by_its_name_which_is_nobody_elses() -> None:
    names = {draft_name(), draft_name(), draft_name(b".sandcell-new")}
    assert len(names) == 3 and all(is_draft(name) for name in names)


@pytest.mark.parametrize(
    "name",
    [
        b"",
        b"-",
        b".sandcell-",
        b".sandcell-0123456789ABCDEF",
        b".sandcell-venv",
        b"x.sandcell-0123456789abcdef",
    ],
)
def test_what_only_looks_like_one_is_none(name: bytes) -> None:
    assert not is_draft(name)

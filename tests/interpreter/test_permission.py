from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sandcell.errands.permission import Permission, ask_for
from sandcell_container.errors import Refused

if TYPE_CHECKING:
    from pathlib import Path


def test_files_below_a_folder_need_no_question_and_no_others(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "away").symlink_to("/etc")
    (tmp_path / "database").mkdir()
    permission = Permission(folder=str(tmp_path), transfers="data")
    for given in ("data", "data/a.csv", f"{tmp_path}/data/x/y", "database/../data/b"):
        assert permission.covers(permission.local_path(given))
    for given in ("database", "a.csv", "data/../a.csv", "data/away/passwd", "/etc/passwd", "~/.ssh/id", ".."):
        assert not permission.covers(permission.local_path(given))
    assert not Permission(folder=str(tmp_path)).covers(str(tmp_path))


@pytest.mark.parametrize(
    ("answer", "is_yes"), [("y", True), (" YES ", True), ("", False), ("no", False), ("yy", False)]
)
async def test_a_person_says_yes_or_it_is_not_done(*, answer: str, is_yes: bool) -> None:
    asked = list[str]()

    async def ask(prompt: str) -> str:
        asked.append(prompt)
        return answer

    try:
        await ask_for("read /a\nb\x1b[2J", "--transfers FOLDER", ask)
    except Refused as problem:
        assert not is_yes
        assert "--transfers FOLDER" in problem.hint
    else:
        assert is_yes
    assert asked == ["read /a b\N{REPLACEMENT CHARACTER}[2J? [y/N] "]


async def test_where_nobody_can_be_asked_it_is_refused() -> None:
    with pytest.raises(Refused, match="nobody can be asked"):
        await ask_for("read /etc/passwd", "--transfers FOLDER", None)

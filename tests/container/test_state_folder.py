from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

import pytest

from sandcell_container.errors import ErrorCode, Unavailable
from sandcell_container.state_folder import make_state_folder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def no_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("no_umask")
def test_nobody_else_may_write_in_it_or_above_it(tmp_path: Path) -> None:
    made = tmp_path / "state" / "sandcell" / "sandboxes"
    make_state_folder(made)
    make_state_folder(made)
    modes = [stat.S_IMODE(each.stat().st_mode) for each in (made, made.parent, made.parent.parent)]
    assert modes == [0o700, 0o755, 0o755]


@pytest.mark.parametrize("which", ["sandboxes", "."])
def test_one_that_everybody_may_write_in_is_refused(tmp_path: Path, which: str) -> None:
    made = tmp_path / "sandboxes"
    make_state_folder(made)
    (tmp_path / which).chmod(0o777)
    with pytest.raises(Unavailable) as refused:
        make_state_folder(made)
    assert refused.value.code is ErrorCode.ENGINE_UNAVAILABLE
    (tmp_path / which).chmod(0o1777)  # as /tmp, where nobody can take away what is another's
    make_state_folder(made)


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a folder away")
def test_one_of_somebody_else_is_refused(tmp_path: Path) -> None:
    os.chown(tmp_path, 65534, 65534)
    with pytest.raises(Unavailable, match="belongs to the user 65534"):
        make_state_folder(tmp_path / "sandboxes")
    os.chown(tmp_path, 0, 0)

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from sandcell_container.file_tree import remove_tree

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.short
def test_folders_without_permissions_are_removed(tmp_path: Path) -> None:
    top = tmp_path / "top"
    locked = top / "locked" / "inner"
    locked.mkdir(parents=True)
    (locked / "file").write_text("x")
    for folder in (locked, locked.parent, top):
        folder.chmod(0)
    remove_tree(top)
    assert not top.exists()


def test_symlinks_are_removed_and_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("x")
    top = tmp_path / "top"
    (top / "inner").mkdir(parents=True)
    for folder in (top, top / "inner"):
        (folder / "to-folder").symlink_to(outside)
        (folder / "to-file").symlink_to(outside / "kept")
        (folder / "to-nothing").symlink_to("/nowhere/at/all")
    remove_tree(top)
    assert not top.exists()
    assert (outside / "kept").read_text() == "x"


@pytest.mark.short
def test_a_symlink_in_its_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "top").symlink_to(tmp_path / "kept")
    with pytest.raises(OSError, match=r"Not a directory|symbolic links"):
        remove_tree(tmp_path / "top")
    assert (tmp_path / "kept").is_dir()


def test_names_of_any_bytes_are_removed(tmp_path: Path) -> None:
    top = os.fsencode(tmp_path / "top")
    os.makedirs(top + b"/\xff\xfe")
    for name in (b"\xff\x80", b"new\nline", b"-rf", b" ", b"\x01"):
        with open(top + b"/\xff\xfe/" + name, "w"):
            pass
    os.mkfifo(top + b"/fifo")
    remove_tree(tmp_path / "top")
    assert not os.path.lexists(top)


def test_a_tree_deeper_than_any_path_and_any_recursion_is_removed(tmp_path: Path) -> None:
    top = tmp_path / "top"
    top.mkdir()
    handle = os.open(top, os.O_RDONLY | os.O_DIRECTORY)
    for _ in range(3000):  # longer than PATH_MAX together
        os.mkdir("deep", dir_fd=handle)
        below = os.open("deep", os.O_RDONLY | os.O_DIRECTORY, dir_fd=handle)
        os.close(handle)
        handle = below
    os.close(handle)
    remove_tree(top)
    assert not top.exists()


def test_nothing_there_is_fine(tmp_path: Path) -> None:
    remove_tree(tmp_path / "never")

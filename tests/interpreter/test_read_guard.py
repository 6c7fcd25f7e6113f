"""What a fork server may read while it imports."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

KERNEL = Path(__file__).parents[2] / "kernel"
# In a process of its own: an audit hook is for ever.
PROGRAM = f"""
import os, sys
sys.path.append({str(KERNEL)!r})
from sandcell_runtime.preload import ReadGuard
guard = ReadGuard([sys.argv[1]])
path = sys.argv[2] if len(sys.argv) == 3 else os.fsencode(sys.argv[2])
with guard.active():
    try:
        os.listdir(path)
        print("read")
    except PermissionError:
        print("refused")
os.listdir(path)
"""


@pytest.mark.parametrize("kind", [(), ("bytes",)])
@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("inside", "read"),
        ("inside/folder", "read"),
        ("inside/.hidden", "read"),
        ("inside/../inside/folder", "read"),
        ("inside/../outside", "refused"),
        ("inside/folder/./../../outside", "refused"),
        ("inside-not", "refused"),
        ("outside", "refused"),
        (".", "refused"),
    ],
)
def test_a_guard_lets_nothing_be_read_but_what_lies_in_its_folders(
    tmp_path: Path, path: str, said: str, kind: tuple[str, ...]
) -> None:
    for folder in ("inside/folder", "inside/.hidden", "inside-not", "outside"):
        (tmp_path / folder).mkdir(parents=True)
    arguments = [str(tmp_path / "inside"), f"{tmp_path}/{path}", *kind]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == said

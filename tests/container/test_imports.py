from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

# argv: the roots; then the module to import, after the package `loaded` was
_PROGRAM = """
import importlib, importlib.metadata, sys
sys.path[:0] = [sys.argv[1], *sys.argv[3:]]
import loaded
from sandcell_container.engines.imports import import_only_from
import_only_from([sys.base_prefix, sys.prefix, *sys.argv[3:]])
assert importlib.metadata.version("pytest")
print(importlib.import_module(sys.argv[2]).__name__)
"""


@pytest.fixture
def writable(tmp_path: Path) -> Path:
    """A folder with a package, a package without __init__, a module, and a link from elsewhere to it."""
    folder = tmp_path / "writable"
    for package in ("loaded", "spaced"):
        (folder / package).mkdir(parents=True)
        (folder / package / "late.py").write_text("")
    (folder / "loaded" / "__init__.py").write_text("")
    (folder / "alone.py").write_text("")
    (tmp_path / "linking").mkdir()
    (tmp_path / "linking" / "linked.py").symlink_to(folder / "alone.py")
    return folder


def late_import(name: str, writable: Path, *roots: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, writable, name, *roots], capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or done.stderr.strip().rpartition("\n")[2]


@pytest.mark.parametrize("name", ["alone", "loaded.late", "spaced.late"])
def test_what_lies_outside_the_roots_is_not_found(writable: Path, name: str) -> None:
    assert late_import(name, writable).startswith("ModuleNotFoundError")
    assert late_import(name, writable, writable) == name


def test_a_link_that_leads_out_is_not_followed(writable: Path) -> None:
    linking = writable.parent / "linking"
    assert late_import("linked", writable, linking).startswith("ModuleNotFoundError")
    assert late_import("linked", writable, linking, writable) == "linked"


@pytest.mark.parametrize("name", ["encodings.idna", "xml.dom.minidom", "sys", "jupyter_client.session"])
def test_what_is_below_the_roots_or_built_in_is_found(writable: Path, name: str) -> None:
    assert late_import(name, writable) == name

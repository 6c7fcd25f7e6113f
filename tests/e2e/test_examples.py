"""Every example in the documents runs: Python blocks as programs, shell blocks that call `sandcell` as scripts."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(r"^```(?P<language>python|sh)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


class Example(NamedTuple):
    name: str
    language: str
    text: str

    @property
    def argv(self) -> list[str]:
        if self.language == "python":
            return [sys.executable, "-W", "error", "-c", self.text]
        return ["bash", "-euo", "pipefail", "-c", self.text]


def _examples() -> list[Example]:
    found = list[Example]()
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        text = path.read_text()
        for block in _BLOCK.finditer(text):
            line = text.count("\n", 0, block.start()) + 1
            if block["language"] == "python" or block["text"].startswith("sandcell "):
                found.append(Example(f"{path.name}:{line}", block["language"], block["text"]))
    return found


@pytest.fixture
def state() -> Generator[str]:
    """A registry of its own: what the examples make is nobody else's."""
    with tempfile.TemporaryDirectory(prefix="sandcell-") as folder:
        yield folder


@pytest.mark.parametrize("example", _examples(), ids=lambda example: example.name)
def test_example_runs(example: Example, state: str, tmp_path: Path) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    environment = {
        "HOME": os.environ["HOME"],
        "LANG": "C.UTF-8",
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "SANDCELL_ENGINE": "local",
        "SANDCELL_STATE_DIR": state,
        "JUPYTER_DATA_DIR": str(tmp_path / "jupyter"),
    }
    done = subprocess.run(
        example.argv, cwd=folder, env=environment, capture_output=True, text=True, timeout=50, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_readme_begins_with_the_two_commands() -> None:
    text = (ROOT / "README.md").read_text()
    first = _BLOCK.search(text)
    assert first is not None
    assert [line.split("#")[0].strip() for line in first["text"].splitlines()] == ["make demo", "make test"]

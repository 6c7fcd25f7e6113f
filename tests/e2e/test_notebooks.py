"""The notebooks and the agent script run as a user would run them, and show what they promise."""

from __future__ import annotations

import base64
import html
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sandcell_kernel.install import KERNEL_NAME, install_kernelspec

if TYPE_CHECKING:
    from collections.abc import Generator

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
PNG = b"\x89PNG\r\n\x1a\n"
_EMBEDDED = re.compile(r"data:image/png;base64,\s*([A-Za-z0-9+/=\s]+?)\"")


@pytest.fixture
def environment(tmp_path: Path) -> Generator[dict[str, str]]:
    """What the programs get: the kernel installed for them alone, a registry of their own, no Docker."""
    install_kernelspec(prefix=str(tmp_path / "prefix"))
    with tempfile.TemporaryDirectory(prefix="sandcell-") as state:
        yield {
            **os.environ,
            "JUPYTER_PATH": str(tmp_path / "prefix" / "share" / "jupyter"),
            "SANDCELL_ENGINE": "local",
            "SANDCELL_STATE_DIR": state,
            "SECRET_OF_THE_HOST": "for nobody else",
        }


def _run(argv: list[str], environment: dict[str, str], folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, *argv],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=55,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _to_html(notebook: Path, environment: dict[str, str], folder: Path) -> str:
    options = [
        "--to=html",
        "--execute",
        f"--ExecutePreprocessor.kernel_name={KERNEL_NAME}",
        f"--output-dir={folder}",
    ]
    _run(["-m", "nbconvert", "--log-level=ERROR", *options, str(notebook)], environment, folder)
    return html.unescape((folder / notebook.with_suffix(".html").name).read_text())


@pytest.mark.short
def test_the_quickstart_shows_plots_tables_and_no_home_of_the_host(
    environment: dict[str, str], tmp_path: Path
) -> None:
    shown = _to_html(NOTEBOOKS / "quickstart.ipynb", environment, tmp_path)
    plots = [base64.b64decode(each) for each in _EMBEDDED.findall(shown)]
    assert any(plot.startswith(PNG) for plot in plots)
    assert '<table border="1" class="dataframe">' in shown
    assert "files of the host's homes: []" in shown
    assert "SECRET_OF_THE_HOST" not in shown
    assert "345 penguins.csv" in shown  # %%shell saw the file that Python wrote
    assert "3 of 3: the heaviest" in shown  # the display was updated in place
    assert "1 of 3: the heaviest" not in shown
    assert "KeyError" in shown


def test_the_agent_script_says_what_it_found(environment: dict[str, str], tmp_path: Path) -> None:
    said = _run([str(NOTEBOOKS / "agent.py"), "--out", str(tmp_path / "out")], environment, tmp_path)
    assert "of engine local" in said
    assert "333 penguins measured in full" in said
    assert "a wrong answer failed and cost nothing: KeyError: 'flipper_length'" in said
    assert "each millimetre of flipper goes with 50.2 g of penguin" in said
    assert (tmp_path / "out" / "penguins.png").read_bytes().startswith(PNG)
    assert said.rstrip().endswith("the sandbox is gone")

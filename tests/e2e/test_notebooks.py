"""The notebooks and the agent script run as a user would run them, and show what they promise."""

from __future__ import annotations

import base64
import html
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
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


class Executed:
    """A notebook that has run, and what its cells show, by their ids."""

    def __init__(self, path: Path) -> None:
        notebook: dict[str, Any] = json.loads(path.read_text())
        cells: list[dict[str, Any]] = notebook["cells"]
        self.metadata: dict[str, Any] = notebook["metadata"]
        self._cells = {cell["id"]: cell for cell in cells if cell["cell_type"] == "code"}

    @property
    def failed(self) -> list[str]:
        """The ids of cells that ended in an error."""
        return [name for name, cell in self._cells.items() if "ename" in str(cell["outputs"])]

    def text(self, name: str) -> str:
        """What a cell wrote, and the text of what it shows."""
        outputs = self._cells[name]["outputs"]
        parts = [each.get("text") or each.get("data", {}).get("text/plain", []) for each in outputs]
        return "".join("".join(part) for part in parts)

    def shown(self, name: str, mime: str) -> list[str]:
        """What a cell shows in a format."""
        bundles = [each.get("data", {}) for each in self._cells[name]["outputs"]]
        return ["".join(data[mime]) for data in bundles if mime in data]

    def pictures(self, name: str) -> list[bytes]:
        return [base64.b64decode(each) for each in self.shown(name, "image/png")]


def _executed(name: str, environment: dict[str, str], folder: Path) -> Executed:
    """Run a notebook as its reader would: on this machine, with the kernel that it names."""
    options = ["--log-level=ERROR", "--to=notebook", "--execute", f"--output-dir={folder}"]
    _run(["-m", "nbconvert", *options, str(NOTEBOOKS / f"{name}.ipynb")], environment, folder)
    return Executed(folder / f"{name}.ipynb")


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
    assert "<strong>^Gentoo.*,63 in penguins.csv: " in shown
    assert "3 of 3: the heaviest" in shown  # the display was updated in place
    assert "1 of 3: the heaviest" not in shown
    assert "KeyError" in shown


def test_plots_and_tables_come_out_of_the_sandbox(environment: dict[str, str], tmp_path: Path) -> None:
    out = tmp_path / "out.ipynb"
    _run(
        ["-m", "sandcell", "run", str(NOTEBOOKS / "plots-and-tables.ipynb"), f"--out={out}"],
        environment,
        tmp_path,
    )
    ran = Executed(out)
    assert ran.failed == []
    assert "333 penguins of 3 species on 3 islands" in ran.text("setup")
    (styled,) = ran.shown("table", "text/html")
    assert "<caption>Means of 333 penguins</caption>" in styled
    for name in ("scatter", "shares", "map", "live"):
        (picture,) = ran.pictures(name)  # one each, also where it was drawn again and again
        assert picture.startswith(PNG), name
        assert len(picture) > 10_000, name
    assert "all                                   -0.082" in ran.text("slopes")
    assert ran.shown("formula", "text/latex")[0].startswith("$\\displaystyle r =")
    assert "<b>0.87</b>" in ran.shown("formula", "text/html")[0]
    assert ran.shown("svg", "image/svg+xml")[0].startswith("<svg")


def test_languages_share_files_and_keep_their_state(environment: dict[str, str], tmp_path: Path) -> None:
    out = tmp_path / "out.ipynb"
    _run(["-m", "sandcell", "run", str(NOTEBOOKS / "languages.ipynb"), f"--out={out}"], environment, tmp_path)
    ran = Executed(out)
    assert ran.failed == ["error"]
    assert '68 "species": "Chinstrap"' in ran.text("shell")
    assert '"Gentoo: 47.6 mm"' in ran.text("typescript")
    assert ran.shown("draw", "image/svg+xml")[0].count("<circle") == 333
    assert ran.text("after") == "333"
    assert "Chinstrap           18.42" in ran.text("back")


def test_widgets_follow_the_code_behind_them(environment: dict[str, str], tmp_path: Path) -> None:
    ran = _executed("widgets", environment, tmp_path)
    assert ran.failed == []
    assert "4 of 333: 4 Gentoo" in ran.text("move").replace("<b>", "").replace("</b>", "")
    assert ran.shown("slider", "application/vnd.jupyter.widget-view+json")
    widgets = ran.metadata["widgets"]["application/vnd.jupyter.widget-state+json"]["state"].values()
    values = {each["model_name"]: each["state"].get("value") for each in widgets}
    assert values["IntProgressModel"] == 20
    assert values["LabelModel"] == "4206 g, give or take 44"
    assert ran.text("progress").endswith("'4206 g, give or take 44'")
    assert ran.pictures("output")[0].startswith(PNG)
    assert 6000 in [each["state"].get("value") for each in widgets if each["model_name"] == "IntSliderModel"]


def test_shell_and_processes(environment: dict[str, str], tmp_path: Path) -> None:
    ran = _executed("shell-and-processes", environment, tmp_path)
    assert ran.failed == []
    assert ran.text("exec").split() == ["152", "Adelie", "124", "Gentoo", "68", "Chinstrap"]
    assert "a name; with $(everything) 'in' it" in ran.text("words")
    assert ran.text("fails") == "(False, 3, 'no walrus here\\n')"
    assert "169 biscoe.csv" in ran.text("session")
    assert "/workspace/islands" in ran.text("session-info")
    assert "Adelie,Dream" in ran.text("server")
    assert "GET /dream.csv" in ran.text("log")
    assert ran.text("follow").endswith("('exited', 4)")
    assert "killed" in ran.text("kill")
    assert ">>> sum(len(f) for _, _, f in os.walk('.'))\n5\n" in ran.text("terminal")
    assert ran.text("end") == "'removed'"


def test_a_long_running_job_goes_on_without_anybody(environment: dict[str, str], tmp_path: Path) -> None:
    ran = _executed("long-running-job", environment, tmp_path)
    assert ran.failed == []
    assert "the first round says: 50.26 g" in ran.text("look")
    assert ran.text("away") == "True"  # no line twice, none left out
    assert ran.text("end").startswith("('killed', 15")
    assert ran.text("again").startswith("taken up after round ")
    assert ran.text("again").endswith("('exited', 0)")
    assert ran.text("limit") == "1 MemoryError\n"
    (picture,) = ran.pictures("result")
    assert picture.startswith(PNG)


def test_an_agent_and_a_notebook_share_a_sandbox(environment: dict[str, str], tmp_path: Path) -> None:
    ran = _executed("agent-and-notebook", environment, tmp_path)
    assert ran.failed == []
    assert [line.split()[0] for line in ran.text("agent").splitlines()] == ["ok", "failed", "ok"]
    assert ran.text("person") == "longest flippers: Gentoo, 217.2 mm\n\n"
    assert "longest: str" in ran.text("back")
    assert "Gentoo it is" in ran.text("back")
    assert ran.text("leave") == "'running'"
    assert ran.text("report").count("'ok ") == 8
    assert ran.pictures("picture")[0].startswith(PNG)
    assert "result text/plain  146" in ran.text("diff")
    assert [line.split()[1] for line in ran.text("history").splitlines()[:5]] == ["sdk"] * 3 + [
        "notebook",
        "sdk",
    ]


def test_the_agent_script_says_what_it_found(environment: dict[str, str], tmp_path: Path) -> None:
    said = _run([str(NOTEBOOKS / "agent.py"), "--out", str(tmp_path / "out")], environment, tmp_path)
    assert "of engine local" in said
    assert "333 penguins measured in full" in said
    assert "a wrong answer failed and cost nothing: KeyError: 'flipper_length'" in said
    assert "each millimetre of flipper goes with 50.2 g of penguin" in said
    assert (tmp_path / "out" / "penguins.png").read_bytes().startswith(PNG)
    assert said.rstrip().endswith("the sandbox is gone")

"""What the sandbox behind a notebook is like, and who says so: kernelspec, environment, notebook, cells, in rising order."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.e2e.conftest import open_place
from tests.e2e.front_end import Cell, open_notebook

from sandcell.cli.verbs import main

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("kernelspec")

INSTALL = "kernel install --name data --engine local --memory 300MiB --pids 300 --env WHO=spec --transfers . --network-changes --prefix"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a notebook, where Jupyter starts its kernel, with a file beside it."""
    (tmp_path / "beside.csv").write_text("a,b\n")
    tmp_path.chmod(0o777)  # who runs the code in a container is nobody here
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_notebook(folder: Path, asked: Mapping[str, Any]) -> str:
    """Write a notebook that asks for this in its metadata, and return what Jupyter Server tells its kernel."""
    path = folder / "mine.ipynb"
    path.write_text(
        json.dumps({"cells": [], "metadata": {"sandcell": asked}, "nbformat": 4, "nbformat_minor": 5})
    )
    return str(path)


def shown(cell: Cell) -> str:
    return "\n".join(body["data"]["text/plain"] for _, body in cell.outputs if "data" in body)


async def test_the_later_one_wins_option_by_option(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    prefix = tmp_path_factory.mktemp("data")
    assert main([*INSTALL.split(), str(prefix)]) == 0
    monkeypatch.setenv("JUPYTER_PATH", str(prefix / "share" / "jupyter"))
    environment = {
        "SANDCELL_KERNEL_OPTIONS": json.dumps(
            {"pids": 200, "memory": "400MiB", "env": {"WHO": "environment"}}
        ),
        "JPY_SESSION_NAME": write_notebook(folder, {"memory": "500MiB"}),
    }
    async with open_notebook(kernel="sandcell-data", **environment) as notebook:
        info = shown(await notebook.run("%sandbox info"))
        assert "500.0 MiB of memory, 200 processes" in info
        assert (await notebook.run("import os; print(os.environ['WHO'])")).text() == "environment\n"
        await notebook.run("%sandbox env WHO=cell")
        assert (await notebook.run("print(os.environ['WHO'])")).text() == "cell\n"
        uploaded = await notebook.run("%sandbox upload beside.csv\n%sandbox network none", allow_stdin=False)
        assert (uploaded.reply["status"], uploaded.text("stderr")) == (
            "ok",
            "[sandcell] 1 file, 4 B: beside.csv in the sandbox\n",
        )


@pytest.mark.docker
@pytest.mark.parametrize("mode", ["ro", "rw"])
async def test_the_folder_of_the_notebook_is_there_as_it_was_asked_for(folder: Path, mode: str) -> None:
    with open_place("docker"):
        options = json.dumps({"engine": "docker", "notebook_folder": mode})
        async with open_notebook(SANDCELL_ENGINE="auto", SANDCELL_KERNEL_OPTIONS=options) as notebook:
            read = await notebook.run("print(open('notebook/beside.csv').read(), end='')")
            assert read.text() == "a,b\n"
            written = await notebook.run("open('notebook/new', 'w').close()")
            assert written.reply["status"] == ("error" if mode == "ro" else "ok")
    assert (folder / "new").exists() == (mode == "rw")


async def test_what_lies_beside_a_notebook_is_not_there_and_one_line_says_how_it_gets_there(
    folder: Path,
) -> None:
    async with open_notebook() as notebook:
        missing = await notebook.run("open('beside.csv')")
        assert missing.reply["ename"] == "FileNotFoundError"
        (line,) = [line for line in missing.text("stderr").splitlines() if "[sandcell]" in line]
        assert line.endswith("Copy it, in a cell: %sandbox upload beside.csv")
        assert (await notebook.run("import os; os.listdir()")).outputs[0][1]["data"]["text/plain"] == "[]"
        refused = await notebook.run("%pip install --retries 0 nothing-at-all")
        assert "in a cell: %sandbox network pypi.org files.pythonhosted.org; or" in refused.text("stderr")


@pytest.mark.parametrize("asked", [{"network": "open"}, {"transfers": "/"}, {"network_changes": True}])
async def test_a_notebook_gives_itself_nothing(folder: Path, asked: Mapping[str, Any]) -> None:
    async with open_notebook(JPY_SESSION_NAME=write_notebook(folder, asked)) as notebook:
        assert (await notebook.run("1")).reply["ename"] == "FORBIDDEN"

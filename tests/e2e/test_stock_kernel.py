"""A sandbox whose environment has an ipykernel that the runtime cannot be built on: it works, and says what is missing."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import venv
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sandcell import Sandbox

if TYPE_CHECKING:
    from collections.abc import Generator


SPARED = {"debugpy", "jedi"}  # large, and no cell needs them


def needed_by(name: str, found: set[str]) -> set[str]:
    """Return `name` and what it needs of what is installed here."""
    if name not in found | SPARED:
        found.add(name)
        for line in metadata.requires(name) or ():
            word = re.match(r"[A-Za-z0-9._-]+", line)
            if word and "extra ==" not in line and is_installed(word[0]):
                needed_by(word[0].lower(), found)
    return found


def is_installed(name: str) -> bool:
    try:
        return bool(metadata.version(name))
    except metadata.PackageNotFoundError:
        return False


def copy_package(name: str, to: Path) -> None:
    """Copy what a distribution has in the folder of packages."""
    for file in metadata.files(name) or ():
        source, target = Path(str(file.locate())), to / file
        if ".." not in file.parts and "tests" not in file.parts and source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)


@pytest.fixture(scope="module")
def python() -> Generator[str]:
    """The interpreter of an environment with an ipykernel that calls itself old, and brings no welcome."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        venv.create(folder, with_pip=False, symlinks=True)
        (packages,) = Path(folder).glob("lib/python*/site-packages")
        for name in needed_by("ipykernel", set()):
            copy_package(name, packages)
        for name, text, other in (
            ("_version.py", '__version__ = "', '__version__ = "6.29.5"\n_ = "'),
            ("kernelapp.py", "zmq.XPUB", "zmq.PUB"),
        ):
            file = packages / "ipykernel" / name
            assert text in file.read_text()
            file.write_text(file.read_text().replace(text, other))
        yield f"{folder}/bin/python"


def double(number: int) -> int:
    return number * 2


def test_its_own_kernel_runs_and_info_says_what_is_missing(python: str) -> None:
    with Sandbox.create(engine="local", python=python) as sandbox:
        run = sandbox.run_code("import os, sys; print('a'); os.environ['X'], 6 * 7", env={"X": "of the run"})
        assert (run.error, run.stdout, run.text) == (None, "a\n", "('of the run', 42)")
        assert run.value is None
        assert set(run.usage) == {"stdout_bytes", "stderr_bytes"}
        assert any(
            "older than 7" in warning and "no accounting" in warning for warning in sandbox.info().warnings
        )
        ask = "(tools.double(21), await tools.double.aio(4))"
        assert sandbox.run_code(ask, tools=[double]).text == "(42, 8)"
        assert sandbox.run_code("tools.double(1)").error is not None
        context = sandbox.create_context()
        assert context.run_code("1/0").error is not None
        assert any("no accounting" in warning for warning in context.refresh().warnings)
        live = context.start_code("kept = 1\nimport time; time.sleep(600)", timeout=0.5)
        assert live.wait(timeout=20).end.state == "kept"
        assert context.run_code("kept").text == "1"

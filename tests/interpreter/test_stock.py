"""Contexts over an ipykernel that lacks what the runtime needs: its own kernel runs, and that is told."""

from __future__ import annotations

import shutil
import sysconfig
import venv
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio
from tests.interpreter.house import Listener, a_house, cell, seen, submit

from sandcell.events import Stdout
from sandcell_container.errors import ErrorCode, SandcellError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from tests.interpreter.house import House

pytestmark = pytest.mark.asyncio(loop_scope="module")

# What is changed in a copy of the ipykernel that is there: file, text, other text.
OLD = [
    ("_version.py", '__version__ = "', '__version__ = "6.29.5"\n_ = "'),
    ("kernelapp.py", "zmq.XPUB", "zmq.PUB"),  # which brings no welcome
]
STRANGE = [("zmqshell.py", "def set_thread_parent", "def moved_elsewhere")]


def an_environment(folder: Path, changes: list[tuple[str, str, str]]) -> str:
    """Return the Python of an environment with everything that this one has, and another ipykernel."""
    venv.create(folder, with_pip=False, symlinks=True)
    here = Path(sysconfig.get_path("purelib"))
    packages = next(folder.glob("lib/python*/site-packages"))
    (packages / "here.pth").write_text(f"{here}\n")
    shutil.copytree(here / "ipykernel", packages / "ipykernel", ignore=shutil.ignore_patterns("__pycache__"))
    for name, text, other in changes:
        file = packages / "ipykernel" / name
        assert text in file.read_text()
        file.write_text(file.read_text().replace(text, other))
    return str(folder / "bin" / "python")


@pytest_asyncio.fixture(
    scope="module", loop_scope="module", params=[OLD, STRANGE], ids=["an old one", "a strange one"]
)
async def house(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncGenerator[House]:
    python = an_environment(tmp_path_factory.mktemp("environment"), request.param)
    async with a_house(python=python) as house:
        yield house


async def test_code_runs(house: House) -> None:
    run = await house.run(
        "import os, sys; print('a'); os.system('echo b'); print('c', file=sys.stderr); 6 * 7"
    )
    assert (sorted(run.stdout.split()), run.stderr, run.text, run.error) == (["a", "b"], "c\n", "42", None)
    assert (run.end.cause, run.end.code) == ("exited", 0)
    assert (await house.run("1/0")).error is not None


async def test_what_is_missing_is_told(house: House) -> None:
    context = await house.contexts.default("python")
    await context.ready()
    (warning,) = context.info().warnings
    assert "older than 7" in warning or "set_thread_parent" in warning
    assert "no accounting" in warning
    assert house.contexts.warnings == (warning,)
    run = await house.run("1")
    assert run.value is None
    assert set(run.usage) == {"stdout_bytes", "stderr_bytes"}


async def test_folder_and_environment_are_those_of_the_run(house: House) -> None:
    code = "import os; print(os.getcwd(), os.environ.get('NAME'))"
    assert (await house.run(code, cwd="/usr", env={"NAME": "x"})).stdout == "/usr x\n"
    assert (await house.run(code)).stdout == f"{house.folder} None\n"
    with pytest.raises(SandcellError) as raised:
        await house.run("1", cwd="/no/such")
    assert raised.value.code is ErrorCode.CWD_NOT_FOUND


async def test_the_counter_and_variables(house: House) -> None:
    context = await house.contexts.default("python")
    count = (await house.run("x = 1")).execution_count
    assert count is not None
    assert await context.take_ticket("front") == count + 1
    assert (await house.run("2")).execution_count == count + 2
    assert "x" in [each.name for each in (await context.questions.variables()).variables]


async def test_an_interrupt_ends_a_run_and_keeps_the_state(house: House) -> None:
    await house.run("kept = 'kept'")
    execution = house.start("print('go'); import time; time.sleep(60)")
    await seen(execution, Stdout)
    await execution.interrupt(who="test")
    assert (await house.result(execution)).end.cause == "interrupted"
    assert (await house.run("kept")).text == "'kept'"


async def test_its_death_is_told(house: House) -> None:
    await house.context("doomed")
    run = await house.run("import os; os._exit(3)", context="doomed")
    assert (run.end.code, run.end.state) == (3, "lost")
    assert (await house.run("1", context="doomed")).fresh_state is not None
    await house.contexts.delete("doomed")


async def test_a_notebook_gets_its_messages(house: House) -> None:
    context = await house.contexts.default("python")
    listener = Listener()
    submit(house, context, cell("print('a'); 1"), listener)
    await listener.until(lambda: listener.ends)
    assert [kind for kind in listener.kinds("iopub") if kind != "status"] == [
        "execute_input",
        "stream",
        "execute_result",
    ]

"""Interpreters that do not start, and what is said of it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from tests.interpreter.house import a_house

from sandcell.api import CreateContext
from sandcell_container.errors import ErrorCode, SandcellError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("instead", ["nothing", "a fifo", "no folder", "text"])
async def test_an_interpreter_that_user_code_took_away_is_not_the_callers_fault(
    tmp_path: Path, instead: str
) -> None:
    python = tmp_path / "python"
    if instead == "a fifo":
        os.mkfifo(python)
    if instead in ("no folder", "text"):
        python.write_text("nothing to run\n")
        python.chmod(0o755)
    if instead == "no folder":
        python /= "python"
    async with a_house(python=str(python)) as house:
        with pytest.raises(SandcellError) as raised:
            await house.contexts.create(CreateContext(id="a", cwd="."))
        assert raised.value.code is ErrorCode.START_FAILED
        assert raised.value.message == f"the sandbox's Python environment is gone: {python}"
        assert "a new sandbox" in raised.value.hint
        with pytest.raises(SandcellError) as raised:
            await house.contexts.create(CreateContext(id="b", cwd="missing"))
        assert raised.value.code is ErrorCode.CWD_NOT_FOUND


async def test_an_interpreter_that_ends_early_is_told_with_its_last_words_and_the_likely_cause(
    tmp_path: Path,
) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho first >&2; seq 5 >&2; exit 1\n")
    python.chmod(0o755)
    async with a_house(python=str(python)) as house:
        with pytest.raises(SandcellError) as raised:
            await house.contexts.create(CreateContext(id="a", cwd="."))
    assert raised.value.message.endswith("with exit status 1: 1\n2\n3\n4\n5")
    assert ".ipython" in raised.value.hint and ".pth" in raised.value.hint
    assert raised.value.details["stderr"].startswith("first")

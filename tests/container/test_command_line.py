"""Commands as their callers give them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from sandcell_container.errors import ErrorCode, SandcellError
from sandcell_container.guest.command_line import argv_of, start_command
from sandcell_container.guest.start import Start

if TYPE_CHECKING:
    from tests.container.conftest import Place

pytestmark = pytest.mark.short


def test_a_text_is_a_line_for_bash_and_words_are_themselves() -> None:
    assert argv_of("ls | head") == ("bash", "-c", "ls | head")
    assert argv_of(["ls", "-l"]) == ("ls", "-l")


@pytest.mark.parametrize(("command", "code"), [("exit 3", 3), (["dash", "-c", "exit 4"], 4)])
async def test_a_line_runs_in_sh_where_there_is_no_bash(
    place: Place, command: str | list[str], code: int
) -> None:
    (place.outside / "bin").mkdir()
    for name in ("sh", "dash"):
        (place.outside / "bin" / name).symlink_to("/usr/bin/dash")
    start = Start(argv=("-",), env={"PATH": f"{place.workdir}/bin"}, cwd=place.workdir)
    job = await start_command(place.spawner, command, start)
    assert os.waitstatus_to_exitcode((await job.wait()).status) == code


async def test_words_are_not_tried_in_another_shell(place: Place) -> None:
    start = Start(argv=("-",), env=place.env, cwd=place.workdir)
    with pytest.raises(SandcellError) as caught:
        await start_command(place.spawner, ["no-such-program"], start)
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT
    with pytest.raises(SandcellError) as caught:
        await start_command(place.spawner, "true", Start(argv=("-",), env=place.env, cwd="/missing"))
    assert caught.value.code is ErrorCode.CWD_NOT_FOUND

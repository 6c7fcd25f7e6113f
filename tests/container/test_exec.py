"""Commands against real spawners, in both modes."""

from __future__ import annotations

import asyncio
import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from sandcell_container.end import CommandEnd
from sandcell_container.errors import ErrorCode, SandcellError
from sandcell_container.guest.exec import Exec, start_exec
from sandcell_container.guest.stdin_pipe import StdinPipe
from sandcell_container.journal import Entry, JournalReader, Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.container.conftest import Place

pytestmark = pytest.mark.short


class Run:
    """What a command left in its journal."""

    def __init__(self, entries: list[Entry]) -> None:
        self.entries = entries
        self.stdout = b"".join(entry.data for entry in entries if entry.kind == Kind.STDOUT)
        self.stderr = b"".join(entry.data for entry in entries if entry.kind == Kind.STDERR)
        self.gaps: list[dict[str, Any]] = [json.loads(e.data) for e in entries if e.kind == Kind.GAP]
        self.end = msgspec.json.decode(entries[-1].data, type=CommandEnd)
        assert entries[-1].kind == Kind.ENDED


async def start(place: Place, command: str | Sequence[str], **options: Any) -> Exec:
    settings: dict[str, Any] = {
        "exec_id": "exe_1",
        "epoch": "e",
        "cwd": place.workdir,
        "env": place.env,
        "stdin": None,
        "timeout": 20.0,
        "max_output": 2**20,
        "stream": False,
        "kill_grace": 1.0,
        "spill_dir": None,
    }
    settings |= options
    if settings["stdin"] is not None:
        settings["stdin"] = StdinPipe(settings["stdin"])
    return await start_exec(place.spawner, command, **settings)


async def run(place: Place, command: str | Sequence[str], **options: Any) -> Run:
    command_run = await start(place, command, **options)
    found = Run([entry async for batch in command_run.journal.follow() for entry in batch])
    assert await command_run.wait() == found.end
    return found


@pytest.mark.parametrize("stream", [False, True])
async def test_output_is_exact_and_apart(place: Place, stream: bool) -> None:  # noqa: FBT001 -- a parameter
    done = await run(place, r"printf 'a\0\377b\n\n'; echo err >&2; exit 3", stream=stream)
    assert (done.stdout, done.stderr) == (b"a\0\xffb\n\n", b"err\n")
    assert (done.end.exit_code, done.end.signal, done.end.end.cause) == (3, None, "exited")
    assert done.end.leftovers == 0 and not done.end.truncated
    assert done.end.duration > 0


async def test_a_list_is_the_program_and_its_arguments(place: Place) -> None:
    done = await run(place, ["printf", "%s|", "a b", "$HOME", "'"])
    assert done.stdout == b"a b|$HOME|'|"


async def test_a_text_runs_in_sh_where_there_is_no_bash(place: Place) -> None:
    (place.outside / "bin").mkdir()
    (place.outside / "bin" / "sh").symlink_to("/usr/bin/dash")
    done = await run(place, "echo ${BASH_VERSION:-none}", env={"PATH": f"{place.workdir}/bin"})
    assert done.stdout == b"none\n"


async def test_a_signal_is_told_as_one(place: Place) -> None:
    done = await run(place, "kill -9 $$")
    assert (done.end.exit_code, done.end.signal, done.end.end.cause) == (None, 9, "signaled")


async def test_stdin_is_what_was_given_or_nothing(place: Place) -> None:
    assert (await run(place, "cat")).stdout == b""
    assert (await run(place, "cat", stdin=b"in\0\xff")).stdout == b"in\0\xff"
    assert (await run(place, "cat", stdin=b"")).stdout == b""


async def test_stdin_may_be_larger_than_a_pipe_and_be_left_unread(place: Place) -> None:
    data = bytes(range(256)) * 8000
    assert (await run(place, "cat", stdin=data, max_output=2**22)).stdout == data
    assert (await run(place, "head -c 3", stdin=data)).stdout == data[:3]


async def test_streamed_output_comes_before_the_end(place: Place) -> None:
    command = await start(place, "echo first; until [ -e go ]; do :; done; echo second", stream=True)
    following = command.journal.follow()
    assert [entry.data for entry in await anext(following)] == [b"first\n"]
    (place.outside / "go").touch()
    assert next(entry.data for entry in await anext(following)) == b"second\n"


async def test_a_stream_waits_for_who_reads_it_and_loses_nothing(place: Place) -> None:
    size = 30_000_000
    command = await start(place, f"head -c {size} /dev/zero; touch done", stream=True, max_output=None)
    with JournalReader(command.journal) as reader:
        read, most = 0, 0
        while batch := await reader.next():
            await asyncio.sleep(
                0
            )  # whoever reads takes its time: the command may go on, and does not come far
            most = max(most, command.journal.backlog)
            assert read > size - 2**22 or not (place.outside / "done").exists()
            read += sum(len(entry.data) for entry in batch if entry.kind == Kind.STDOUT)
            assert all(entry.kind != Kind.GAP for entry in batch)
    assert read == size
    assert most < 2**22
    assert not (await command.wait()).truncated


async def test_a_stream_whose_reader_has_left_goes_on(place: Place) -> None:
    command = await start(place, "head -c 30000000 /dev/zero", stream=True, max_output=None)
    with JournalReader(command.journal) as reader:
        await reader.next()
    ended = await command.wait()
    assert ended.exit_code == 0


async def test_of_a_long_stream_there_is_a_file_too(place: Place) -> None:
    options = {"stream": True, "max_output": 1000, "spill_dir": str(place.outside), "spill_store": Folder()}
    done = await run(place, "seq 100000", **options)
    whole = b"".join(b"%d\n" % number for number in range(1, 100001))
    cut = done.end.truncated["stdout"]
    assert done.stdout == whole and not done.gaps
    assert cut.path is not None and content(cut.path) == whole


async def test_it_ends_with_its_process_and_not_with_the_pipe(place: Place) -> None:
    began = time.monotonic()
    done = await run(place, "sleep 50 & (setsid nohup sleep 50 &) ; trap '' TERM; echo x")
    assert time.monotonic() - began < 10
    assert done.stdout == b"x\n"
    assert (done.end.exit_code, done.end.leftovers) == (0, 2)


async def test_a_timeout_ends_the_tree_and_keeps_the_output(place: Place) -> None:
    done = await run(place, "echo begun; sleep 50 & sleep 50", timeout=0.2)
    assert done.stdout == b"begun\n"
    assert (done.end.end.cause, done.end.signal, done.end.leftovers) == ("timeout", 15, 2)


async def test_what_ignores_sigterm_is_killed_after_the_grace(place: Place) -> None:
    done = await run(place, ["bash", "-c", "trap '' TERM; while :; do :; done"], timeout=0.2, kill_grace=0.2)
    assert (done.end.end.cause, done.end.signal) == ("timeout", 9)
    assert 0.4 <= done.end.duration < 5


async def test_what_handles_sigterm_says_its_own_end(place: Place) -> None:
    done = await run(place, "trap 'echo bye; exit 7' TERM; sleep 50 & wait", timeout=0.2)
    assert (done.end.end.cause, done.end.exit_code, done.stdout) == ("timeout", 7, b"bye\n")


async def test_cancel_ends_it_and_twice_is_fine(place: Place) -> None:
    command = await start(place, "sleep 50")
    await command.cancel()
    await command.cancel()
    assert (await command.wait()).end.cause == "killed"


async def test_cancel_after_the_end_changes_nothing(place: Place) -> None:
    command = await start(place, "true")
    ended = await command.wait()
    await command.cancel()
    assert await command.wait() == ended and ended.end.cause == "exited"


async def test_long_output_keeps_head_and_tail(place: Place) -> None:
    done = await run(place, "seq 100000; seq 5 >&2", max_output=1000)
    whole = "".join(f"{number}\n" for number in range(1, 100001)).encode()
    head, _, tail = (e for e in done.entries if e.kind in (Kind.STDOUT, Kind.GAP))
    assert whole.startswith(head.data) and whole.endswith(tail.data)
    cut = done.end.truncated["stdout"]
    assert cut.bytes == len(whole) - len(head.data) - len(tail.data) and cut.total_bytes == len(whole)
    assert done.gaps == [{"stream": "stdout", "bytes": cut.bytes, "lines": cut.lines, "entries": 0}]
    assert cut.path is None and "stderr" not in done.end.truncated
    assert done.stderr == b"1\n2\n3\n4\n5\n"


class Folder:
    """A spill store in a folder of the tests."""

    def __init__(self, *, full: bool = False) -> None:
        self.full = full
        self.removed: list[str] = []

    def open_soon(self, path: str, callback: Callable[[int | None], None]) -> None:
        fd = None if self.full else os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        asyncio.get_running_loop().call_later(0.01, callback, fd)

    def remove_soon(self, path: str) -> None:
        self.removed.append(path)


def content(path: str) -> bytes:
    return Path(path).read_bytes()


async def test_the_whole_of_what_was_cut_is_in_a_file(place: Place) -> None:
    folder = str(place.outside)
    done = await run(place, "seq 100000; seq 9 >&2", max_output=1000, spill_dir=folder, spill_store=Folder())
    path = done.end.truncated["stdout"].path
    assert path is not None
    assert content(path) == b"".join(b"%d\n" % number for number in range(1, 100001))
    assert os.listdir(place.outside) == [os.path.basename(path)]


async def test_a_file_that_cannot_be_made_is_not_named(place: Place) -> None:
    store = Folder(full=True)
    done = await run(place, "seq 100000", max_output=1000, spill_dir="/nowhere", spill_store=store)
    assert done.end.truncated["stdout"].path is None


class Refusing(Folder):
    """A store that says at once that it can make nothing."""

    def open_soon(self, path: str, callback: Callable[[int | None], None]) -> None:
        callback(None)


async def test_a_store_may_answer_at_once_also_when_all_is_over(place: Place) -> None:
    for command in ("seq 100000; seq 100000 >&2", "sleep 0.1; printf '%01000d'; printf '%01000d' >&2"):
        options = {"max_output": 999, "spill_dir": "/nowhere", "spill_store": Refusing()}
        done = await run(place, command, **options)
        assert {name: cut.path for name, cut in done.end.truncated.items()} == {
            "stdout": None,
            "stderr": None,
        }


async def test_a_flood_is_counted_and_held_in_bounds(place: Place) -> None:
    done = await run(place, "head -c 50000000 /dev/zero", max_output=10000)
    assert done.end.truncated["stdout"].total_bytes == 50_000_000
    assert len(done.stdout) == 9000


async def test_bad_commands_start_nothing(place: Place) -> None:
    for command, options, code in [
        (["no-such-program"], {}, ErrorCode.INVALID_ARGUMENT),
        ("true", {"cwd": "/no/such"}, ErrorCode.CWD_NOT_FOUND),
        ("echo \0", {}, ErrorCode.INVALID_ARGUMENT),
        ([], {}, ErrorCode.INVALID_ARGUMENT),
    ]:
        before = len(os.listdir("/proc/self/fd"))
        with pytest.raises(SandcellError) as caught:
            await start(place, command, stdin=b"x", **options)
        assert caught.value.code == code
        assert len(os.listdir("/proc/self/fd")) == before


async def test_a_lost_spawner_ends_the_command_as_lost(place: Place) -> None:
    command = await start(place, "echo said; sleep 50", stream=True)
    following = command.journal.follow()
    await anext(following)
    await place.spawner.__aexit__()
    assert (await command.wait()).end.cause == "lost"


async def test_nothing_is_left_open(place: Place) -> None:
    await run(place, "true")
    before = len(os.listdir("/proc/self/fd"))
    await asyncio.gather(*(run(place, "echo x; echo y >&2", stdin=b"z") for _ in range(5)))
    assert len(os.listdir("/proc/self/fd")) == before

"""What else is done with files than reading and writing them whole, through a real worker, in both modes of the spawner."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
from typing import TYPE_CHECKING, Any

import pytest

from sandcell_container.errors import ErrorCode, SandcellError
from sandcell_container.guest.file_archive import open_folder, write_folder
from sandcell_container.guest.files import Condition, Files, ListPlan, SearchPlan
from sandcell_container.guest.start import Start
from sandcell_container.guest.user_worker import UserWorker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine

    from tests.container.conftest import Place


@pytest.fixture
async def files(place: Place) -> AsyncIterator[Files]:
    async with (
        UserWorker(place.spawner, "/usr/bin/python3", deadline_s=20.0) as worker,
        Files(worker, place.workdir) as opened,
    ):
        yield opened


async def pieces(*chunks: bytes) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


async def write(files: Files, path: str, data: bytes = b"x") -> str:
    return (await files.write(path, pieces(data))).etag


async def content(files: Files, path: str) -> bytes:
    file = await files.read(path)
    try:
        return b"".join([chunk async for chunk in file.chunks()])
    finally:
        await file.aclose()


async def failure_of(call: Coroutine[Any, Any, object]) -> SandcellError:
    with pytest.raises(SandcellError) as caught:
        await call
    return caught.value


async def code_of(call: Coroutine[Any, Any, object]) -> ErrorCode:
    return (await failure_of(call)).code


async def pages(files: Files, plan: ListPlan) -> list[list[str]]:
    found = list[list[str]]()
    while True:
        page = await files.list(".", plan)
        found.append([each.relative_path for each in page.files])
        if page.next_cursor is None:
            return found
        plan = plan._replace(cursor=page.next_cursor)


# --- lists


async def test_pages_go_on_where_the_last_one_ended_whatever_comes_and_goes(
    files: Files, place: Place
) -> None:
    for path in ["a", "b/1", "b/2", "b/x/deep", "b-", "c", "\udcff"]:
        await write(files, path)
    plan = ListPlan(recursive=True, limit=2)
    first = await files.list(".", plan)
    assert [each.relative_path for each in first.files] == ["a", "b"]
    os.unlink(place.outside / "a")
    await write(files, "a-new")
    rest = await pages(files, plan._replace(cursor=first.next_cursor))
    assert rest == [["b/1", "b/2"], ["b/x", "b/x/deep"], ["b-", "c"], ["\udcff"]]


async def test_a_place_that_is_gone_is_still_a_place(files: Files, place: Place) -> None:
    for path in ["b/1", "b/2", "c"]:
        await write(files, path)
    first = await files.list(".", ListPlan(recursive=True, limit=2))
    await files.remove("b", recursive=True)
    assert await pages(files, ListPlan(recursive=True, cursor=first.next_cursor)) == [["c"]]


async def test_the_largest_and_the_newest_come_first(files: Files, place: Place) -> None:
    for number, name in enumerate("cab"):
        await write(files, name, b"x" * (5 - number % 2))
        os.utime(place.outside / name, (number, number))
    assert await pages(files, ListPlan(sort="size", limit=2)) == [["b", "c"], ["a"]]
    assert await pages(files, ListPlan(sort="mtime", limit=1)) == [["b"], ["a"], ["c"]]


async def test_patterns_choose(files: Files) -> None:
    for path in ["a.py", "src/b.py", "src/c.txt", "src/deep/d.py", ".e.py"]:
        await write(files, path)
    assert await pages(files, ListPlan(recursive=True, hidden=False, glob=("*.py",))) == [
        ["a.py", "src/b.py", "src/deep/d.py"]
    ]
    assert await pages(files, ListPlan(recursive=True, glob=("src/*.{py,txt}",))) == [
        ["src/b.py", "src/c.txt"]
    ]
    assert await code_of(files.list(".", ListPlan(glob=("[z-a]",)))) is ErrorCode.INVALID_ARGUMENT


@pytest.mark.parametrize(
    "cursor", ["", "!", "e30", "WzEsMl0", "WzAsICJcdTAwMDAiXQ", "WzAsICJcdWQ4MDAiXQ", "x" * 99999]
)
async def test_a_cursor_that_is_none_is_refused(cursor: str, files: Files) -> None:
    plan = ListPlan(cursor=cursor or "?")
    assert await code_of(files.list(".", plan)) is ErrorCode.STALE_CURSOR


# --- conditions, tags, lines


async def test_a_file_is_replaced_only_as_it_is_known(files: Files) -> None:
    first = await write(files, "f", b"one")
    second = (await files.write("f", pieces(b"two"), condition=Condition(tags=(first,)))).etag
    assert second != first
    for refused in [
        files.write("f", pieces(b"three"), condition=Condition(tags=(first,))),
        files.append("f", pieces(b"three"), condition=Condition(tags=(first,))),
        files.replace("f", [("two", "three")], condition=Condition(tags=(first,))),
        files.insert("f", 0, "three", condition=Condition(tags=(first,))),
        files.write("gone", pieces(b""), condition=Condition(tags=("*",))),
    ]:
        assert await code_of(refused) is ErrorCode.CHANGED_SINCE
    assert await content(files, "f") == b"two"
    await files.write("f", pieces(b"any"), condition=Condition(tags=("*",)))


async def test_a_condition_holds_also_at_the_end(files: Files, place: Place) -> None:
    tag = await write(files, "f", b"one")

    async def meanwhile() -> AsyncIterator[bytes]:
        yield b"mine"
        (place.outside / "f").write_bytes(b"theirs")
        (place.outside / "g").write_bytes(b"theirs")

    known = Condition(tags=(tag,))
    assert await code_of(files.write("f", meanwhile(), condition=known)) is ErrorCode.CHANGED_SINCE
    (place.outside / "g").unlink()
    assert await code_of(files.write("g", meanwhile(), condition=Condition(is_new=True))) is ErrorCode.EXISTS
    assert [await content(files, name) for name in "fg"] == [b"theirs", b"theirs"]
    assert sorted(os.listdir(place.outside)) == ["f", "g"]


async def test_lines_are_found_in_a_file_of_many_pieces(files: Files) -> None:
    lines = [b"%d" % number * (number % 90) + b"\n" for number in range(20_000)]
    await write(files, "f", b"".join(lines) + b"no end")
    file = await files.read("f")
    for first, count in [(1, 1), (1, None), (19_999, 3), (20_001, 1), (20_002, 5), (7, 0), (5000, 10_000)]:
        place = await file.find_lines(first, count)
        data = b"".join([each async for each in file.chunks(place.start, place.end)])
        last = None if count is None else first - 1 + count
        assert data == b"".join([*lines, b"no end"][first - 1 : last])
        assert place.total == 20_001
    await file.aclose()


async def test_what_a_file_is_is_told(files: Files, place: Place) -> None:
    for name, data, mime, binary in [
        ("a.png", b"\x89PNG\r\n\x1a\n\0", "image/png", True),
        ("a.py", "é".encode(), "text/x-python", False),
        ("latin", b"\xe9t\xe9", "application/octet-stream", True),
        ("empty", b"", "text/plain", False),
        ("cut", b"x" * 8191 + "é".encode(), "text/plain", False),
        ("a.tar.gz", b"\x1f\x8b\0", "application/gzip", True),
    ]:
        info = await files.write(name, pieces(data))
        assert (info.mime, info.binary) == (mime, binary), name
        assert (await files.stat(name)).mime == mime
    assert (await files.stat(".")).mime is None


# --- names


async def test_names_are_given_and_taken(files: Files, place: Place) -> None:
    await write(files, "a", b"1")
    await files.rename("a", "deep/er/b")
    assert await code_of(files.rename("deep/er/b", "deep/er/b")) is ErrorCode.EXISTS
    await write(files, "c", b"2")
    assert await code_of(files.rename("c", "deep/er/b")) is ErrorCode.EXISTS
    assert (await files.rename("c", "deep/er/b", overwrite=True)).size == 1
    assert await content(files, "deep/er/b") == b"2"
    assert await code_of(files.rename("none", "new/x")) is ErrorCode.FILE_NOT_FOUND
    assert os.listdir(place.outside) == ["deep"]


async def test_a_file_moves_to_another_file_system(files: Files, place: Place) -> None:
    if place.mode == "keepers":
        return  # the tests have no other file system there
    await write(files, "folder/a", b"1")
    await files.rename("folder", "/tmp/folder")
    assert await content(files, "/tmp/folder/a") == b"1"
    assert os.listdir(place.outside) == []


async def test_copies_are_whole_with_modes_links_and_times(files: Files, place: Place) -> None:
    await write(files, "from/deep/a", b"1" * 100_000)
    os.chmod(place.outside / "from" / "deep" / "a", 0o751)
    os.utime(place.outside / "from" / "deep" / "a", (5, 5))
    (place.outside / "from" / "link").symlink_to("deep/a")
    os.mkfifo(place.outside / "from" / "fifo")
    await files.copy("from", "new/to")
    made = place.outside / "new" / "to"
    assert (made / "deep" / "a").read_bytes() == b"1" * 100_000
    assert stat.S_IMODE((made / "deep" / "a").stat().st_mode) == 0o751
    assert (made / "deep" / "a").stat().st_mtime == 5
    assert os.readlink(made / "link") == "deep/a"
    assert stat.S_ISFIFO((made / "fifo").stat().st_mode)
    await files.copy("from/link", "file")
    assert (place.outside / "file").read_bytes() == b"1" * 100_000
    assert await code_of(files.copy("from/link", "file")) is ErrorCode.EXISTS
    assert (await files.copy("from/link", "file", overwrite=True)).type == "file"


async def test_a_copy_that_cannot_be_whole_is_none(files: Files, place: Place) -> None:
    await write(files, "from/a")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(place.outside / "from" / "s"))
        refused = await failure_of(files.copy("from", "to"))
    assert refused.code is ErrorCode.INVALID_PATH
    assert "socket" in refused.message and refused.message.startswith(repr(f"{place.workdir}/from/s")[:-1])
    os.unlink(place.outside / "from" / "s")
    assert await code_of(files.copy("from", "from/in/itself")) is ErrorCode.INVALID_ARGUMENT
    assert await code_of(files.copy("none", "to")) is ErrorCode.FILE_NOT_FOUND
    assert os.listdir(place.outside) == ["from"]


async def test_a_folder_is_removed_only_when_told_so(files: Files) -> None:
    await write(files, "folder/a")
    refused = await failure_of(files.remove("folder"))
    assert (refused.code, "recursive" in refused.hint) == (ErrorCode.IS_A_DIRECTORY, True)
    await files.remove("folder", recursive=True)
    await write(files, "a")
    await files.remove("a", recursive=True)


# --- inside of files


async def test_all_edits_are_done_or_none_and_the_mode_stays(files: Files, place: Place) -> None:
    await write(files, "f", b"a = 1\nb = 2\n")
    os.chmod(place.outside / "f", 0o750)
    (place.outside / "link").symlink_to("f")
    await files.replace("link", [("a = 1", "a = 3"), ("b", "\udcff" * 100_000)])
    assert (place.outside / "f").read_bytes() == b"a = 3\n" + b"\xff" * 100_000 + b" = 2\n"
    assert stat.S_IMODE((place.outside / "f").stat().st_mode) == 0o750
    refused = await failure_of(files.replace("f", [("3", "4"), ("=", "-")]))
    assert (refused.code, refused.details["count"], refused.details["index"]) == (ErrorCode.MATCH_COUNT, 2, 1)
    assert (place.outside / "f").read_bytes().startswith(b"a = 3")
    assert sorted(os.listdir(place.outside)) == ["f", "link"]
    assert await code_of(files.replace("none", [("a", "b")])) is ErrorCode.FILE_NOT_FOUND
    assert await code_of(files.insert(".", 1, "a")) is ErrorCode.IS_A_DIRECTORY


async def test_what_is_searched_is_found_with_the_lines_around_it(files: Files) -> None:
    await write(files, "a.py", b"one\ntwo\nthree two\n")
    await write(files, "b/c.txt", b"nothing\nTWO \xff\n")
    await write(files, "b/binary", b"two\0")
    await write(files, ".git/x", b"two")
    found = await files.search(".", SearchPlan("two", exclude=(".git",), context=1, ignore_case=True))
    told = [(each.relative_path, each.line, each.column, each.before, each.after) for each in found.matches]
    assert told == [
        ("a.py", 2, 1, ["one"], ["three two"]),
        ("a.py", 3, 7, ["two"], []),
        ("b/c.txt", 2, 1, ["nothing"], []),
    ]
    assert found.matches[-1].text == "TWO \udcff"
    assert not found.truncated
    first = await files.search(".", SearchPlan("two|T", limit=1))
    assert (len(first.matches), first.truncated, first.timed_out) == (1, True, False)
    assert [each.path for each in (await files.search("a.py", SearchPlan("^three"))).matches] == [
        (await files.stat("a.py")).path
    ]
    assert await code_of(files.search(".", SearchPlan("("))) is ErrorCode.INVALID_ARGUMENT
    assert await code_of(files.search("none", SearchPlan("a"))) is ErrorCode.FILE_NOT_FOUND


async def test_no_expression_and_no_line_hangs_a_search(files: Files, place: Place) -> None:
    await write(files, "a", b"x\n" + b"a" * 50 + b"b\n")
    os.mkfifo(place.outside / "b")
    with (place.outside / "c").open("wb") as file:
        file.truncate(2**33)
    found = await files.search(".", SearchPlan(r"(a+)+$|x", timeout=0.5))
    assert (found.truncated, found.timed_out) == (True, True)
    assert [each.line for each in found.matches] == [1]
    long = await files.search("a", SearchPlan("a", timeout=20))
    assert long.matches[0].text == "a" * 50 + "b"


async def test_what_takes_long_keeps_nobody_waiting(files: Files) -> None:
    await write(files, "a", b"a" * 50 + b"b\n")
    searching = asyncio.ensure_future(files.search(".", SearchPlan("(a+)+$", timeout=20)))
    await asyncio.sleep(0)
    async with asyncio.timeout(10):
        assert (await files.stat("a")).size == 52
    searching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await searching


# --- folders as streams


async def streamed(files: Files, path: str, *exclude: str) -> bytes:
    async with open_folder(files, path, exclude) as stream:
        data = b"".join([chunk async for chunk in stream.chunks()])
        assert stream.report is not None
        return data


@pytest.mark.short
async def test_a_folder_goes_out_and_comes_back(files: Files, place: Place) -> None:
    await write(files, "a/deep/x", b"1" * 3_000_000)
    await write(files, "a/skip.log")
    data = await streamed(files, "a", "*.log")
    report = await write_folder(files, "b", pieces(data[:1000], data[1000:]), replace=False)
    assert (report.files, report.bytes) == (1, 3_000_000)
    assert (place.outside / "b" / "deep" / "x").stat().st_size == 3_000_000
    assert os.listdir(place.outside / "b") == ["deep"]


@pytest.mark.short
async def test_restoring_leaves_nothing_else_and_a_failure_leaves_all(files: Files, place: Place) -> None:
    await write(files, "a/x", b"old")
    data = await streamed(files, "a")
    await write(files, "a/x", b"new")
    await write(files, "a/y/z")
    for broken in (data[:600], b"junk" * 1000, b""):
        failed = write_folder(files, "a", pieces(broken), replace=True)
        assert await code_of(failed) is ErrorCode.INVALID_ARGUMENT
        assert sorted(os.listdir(place.outside / "a")) == ["x", "y"]
        assert await content(files, "a/x") == b"new"
    await write_folder(files, "a", pieces(data), replace=True)
    assert os.listdir(place.outside / "a") == ["x"]
    assert await content(files, "a/x") == b"old"


async def test_a_stream_that_is_given_up_leaves_nothing(files: Files, place: Place) -> None:
    await write(files, "a/x", bytes(5_000_000))
    before = len(os.listdir("/proc/self/fd"))
    async with open_folder(files, "a", ()) as stream:
        async for _ in stream.chunks():
            break
    assert len(os.listdir("/proc/self/fd")) == before
    assert await code_of(streamed(files, "none")) is ErrorCode.FILE_NOT_FOUND
    assert await code_of(streamed(files, "a/x")) is ErrorCode.NOT_A_DIRECTORY


# --- what hostile code does meanwhile


@pytest.mark.short
async def test_paths_that_turn_into_something_else_lead_nowhere_else(files: Files, place: Place) -> None:
    """A name flips between a file, a folder, symlinks to what is forbidden and a FIFO, while it is worked on."""
    flip = """
import os
os.chdir(WORKDIR)
def turn(make):
    for step in (lambda: os.rmdir("p"), make, lambda: os.rename("t", "p"), lambda: os.rmdir("t"), lambda: os.unlink("t")):
        try: step()
        except OSError: pass
while True:
    turn(lambda: open("t", "w").close())
    turn(lambda: os.mkdir("t"))
    turn(lambda: os.mkfifo("t"))
    for target in ("/etc/shadow", "/proc/self/root/etc/shadow", "/proc/self/fd/0", "t", "."):
        turn(lambda: os.symlink(target, "t"))
"""
    program = flip.replace("WORKDIR", repr(place.workdir))
    if place.mode == "keepers" and os.getuid() == 0:
        return  # there root is the user, and nothing is forbidden
    job = await place.spawner.start(Start(argv=("/usr/bin/python3", "-c", program), env={}, cwd="/"))
    allowed = {
        ErrorCode.FILE_NOT_FOUND,
        ErrorCode.IS_A_DIRECTORY,
        ErrorCode.NOT_A_DIRECTORY,
        ErrorCode.INVALID_PATH,
        ErrorCode.PERMISSION_DENIED,
        ErrorCode.EXISTS,
        ErrorCode.BUSY,
        ErrorCode.INVALID_ARGUMENT,  # while it is a link to the folder itself, that would be copied into itself
    }
    await write(files, "safe")
    async with asyncio.timeout(50):
        for turn in range(60):
            for call in (
                content(files, "p"),
                write(files, "p", b"mine"),
                files.stat("p"),
                files.append("p", pieces(b"x")),
                files.list("p", ListPlan()),
                files.copy("p", f"copy{turn}") if turn % 10 == 0 else files.mkdir("q"),
                files.remove("p"),
            ):
                try:
                    seen = await call
                    assert not isinstance(seen, bytes) or seen in {b"", b"mine", b"minex", b"x"}
                except SandcellError as refused:
                    assert refused.code in allowed, refused
    assert await job.kill_tree()  # it was at it until now


@pytest.mark.short
async def test_each_kind_of_name_has_its_answer_in_every_verb(files: Files, place: Place) -> None:
    os.mkfifo(place.outside / "fifo")
    (place.outside / "loop").symlink_to("loop")
    await write(files, "file")
    for path, code in [
        ("x\0y", ErrorCode.INVALID_PATH),
        ("", ErrorCode.INVALID_PATH),
        ("\ud800", ErrorCode.INVALID_PATH),
        ("n" * 4096, ErrorCode.INVALID_PATH),
        ("n" * 256, ErrorCode.INVALID_PATH),
        ("loop", ErrorCode.INVALID_PATH),
        ("file/x", ErrorCode.NOT_A_DIRECTORY),
        ("none\n", ErrorCode.FILE_NOT_FOUND),
        ("fifo", ErrorCode.INVALID_PATH),
        ("/dev/zero", ErrorCode.INVALID_PATH),
        ("/proc/self/fd/0", ErrorCode.INVALID_PATH),
    ]:
        for verb, call in {
            "read": content(files, path),
            "replace": files.replace(path, [("a", "b")]),
            "insert": files.insert(path, 0, "a"),
            "search": files.search(path, SearchPlan("a")),
        }.items():
            assert await code_of(call) is code, (verb, path)
        if code is ErrorCode.INVALID_PATH and path not in {"loop", "/proc/self/fd/0"}:
            assert await code_of(files.append(path, pieces(b""))) is code, path
    assert sorted(os.listdir(place.outside)) == ["fifo", "file", "loop"]


@pytest.mark.short
async def test_each_name_that_cannot_be_has_its_answer_where_no_file_is_opened(
    files: Files, place: Place
) -> None:
    await write(files, "file")
    for path in ("x\0y", "", "\ud800", "n" * 256, "n" * 4096, "n/" * 3000):
        for verb, call in {
            "list": files.list(path, ListPlan()),
            "stat": files.stat(path),
            "mkdir": files.mkdir(path),
            "remove": files.remove(path),
            "rename": files.rename(path, "new"),
            "rename to": files.rename("file", path),
            "copy": files.copy(path, "new"),
            "copy to": files.copy("file", path),
        }.items():
            assert await code_of(call) is ErrorCode.INVALID_PATH, (verb, path[:20])
    assert os.listdir(place.outside) == ["file"]

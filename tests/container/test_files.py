"""Files through a real worker, started by real spawners in both modes."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import socket
import stat
from typing import TYPE_CHECKING, Any

import pytest

from sandcell_container.errors import ErrorCode, SandcellError
from sandcell_container.guest.files import Files, ListPlan
from sandcell_container.guest.user_worker import UserWorker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine

    from tests.container.conftest import Place

    from sandcell_container.file_info import FileInfo

pytestmark = pytest.mark.short


@pytest.fixture
async def worker(place: Place) -> AsyncIterator[UserWorker]:
    async with UserWorker(place.spawner, "/usr/bin/python3", deadline_s=20.0) as made:
        yield made


@pytest.fixture
async def files(place: Place, worker: UserWorker) -> AsyncIterator[Files]:
    async with Files(worker, place.workdir) as opened:
        yield opened


async def pieces(*chunks: bytes) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


async def content(files: Files, path: str) -> bytes:
    file = await files.read(path)
    try:
        return b"".join([chunk async for chunk in file.chunks()])
    finally:
        await file.aclose()


async def listed(files: Files, path: str, **plan: Any) -> list[FileInfo]:
    page = await files.list(path, ListPlan(limit=10_000, **plan))
    assert page.next_cursor is None
    return page.files


async def code_of(call: Coroutine[Any, Any, object]) -> ErrorCode:
    with pytest.raises(SandcellError) as caught:
        await call
    return caught.value.code


async def test_a_file_is_written_whole_and_read_back(files: Files, place: Place) -> None:
    info = await files.write("deep/er/file.bin", pieces(b"a\0", b"\xff" * 300_000, b""))
    assert (info.name, info.type, info.size) == ("file.bin", "file", 300_002)
    assert info.path == f"{place.workdir}/deep/er/file.bin"
    assert await content(files, info.path) == b"a\0" + b"\xff" * 300_000
    assert os.listdir(place.outside / "deep" / "er") == ["file.bin"]


async def test_names_may_be_anything_a_name_may_be(files: Files) -> None:
    for name in ["sp ace", "qu'ote\"", "new\nline", "漢", "\udcff", "-n", "$HOME"]:
        await files.write(name, pieces(name.encode("utf-8", "surrogateescape")))
        assert await content(files, name) == name.encode("utf-8", "surrogateescape")
    found = await listed(files, ".")
    assert {"\udcff", "漢", "new\nline"} <= {info.name for info in found}


async def test_the_mode_is_kept_or_as_asked(files: Files, place: Place) -> None:
    await files.write("script", pieces(b"1"), mode=0o755)
    assert (await files.write("script", pieces(b"2"))).mode == 0o755
    info = await files.write("script", pieces(b"3"), mode=0o600)
    assert (info.mode, info.executable) == (0o600, os.getuid() == 0 and False)
    assert stat.S_IMODE((place.outside / "script").stat().st_mode) == 0o600


async def test_a_symlink_is_written_through(files: Files, place: Place) -> None:
    (place.outside / "link").symlink_to("real")
    await files.write("link", pieces(b"x"))
    assert (place.outside / "link").is_symlink()
    assert await content(files, "real") == b"x"


async def test_readers_see_the_old_file_until_the_new_one_is_whole(files: Files) -> None:
    await files.write("f", pieces(b"old"))

    async def slow() -> AsyncIterator[bytes]:
        yield b"new"
        assert await content(files, "f") == b"old"

    await files.write("f", slow())
    assert await content(files, "f") == b"new"


async def test_half_a_file_is_none(files: Files, place: Place) -> None:
    await files.write("f", pieces(b"old"))

    async def broken() -> AsyncIterator[bytes]:
        yield b"ne"
        raise ConnectionError("the client is gone")

    with pytest.raises(ConnectionError):
        await files.write("f", broken())
    assert await content(files, "f") == b"old"
    assert os.listdir(place.outside) == ["f"]


async def test_a_cancelled_write_leaves_nothing(files: Files, place: Place) -> None:
    begun = asyncio.Event()

    async def endless() -> AsyncIterator[bytes]:
        begun.set()
        await asyncio.get_running_loop().create_future()
        yield b""

    writing = asyncio.ensure_future(files.write("f", endless()))
    await begun.wait()
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    assert os.listdir(place.outside) == []


async def test_lists_are_by_name_and_say_what_is_what(files: Files, place: Place) -> None:
    await files.write("b/.hidden/x", pieces(b"1"))
    await files.write("b/z", pieces(b"22"))
    (place.outside / "a").symlink_to("b")
    os.mkfifo(place.outside / "c")
    found = await listed(files, ".", recursive=True)
    assert [(info.relative_path, info.type, info.target) for info in found] == [
        ("a", "symlink", "b"),
        ("b", "directory", None),
        ("b/.hidden", "directory", None),
        ("b/.hidden/x", "file", None),
        ("b/z", "file", None),
        ("c", "other", None),
    ]
    assert [info.name for info in await listed(files, "b", hidden=False)] == ["z"]
    assert [info.path for info in await listed(files, "a")] == [
        f"{place.workdir}/a/.hidden",
        f"{place.workdir}/a/z",
    ]
    assert [info.name for info in await listed(files, "b/.hidden", recursive=True)] == ["x"]


async def test_long_lists_come_whole(files: Files, place: Place) -> None:
    for number in range(1001):
        (place.outside / f"{number:04}").touch()
    assert [info.name for info in await listed(files, ".")] == [f"{number:04}" for number in range(1001)]


async def test_folders_are_made_and_removed_with_what_is_in_them(files: Files, place: Place) -> None:
    assert (await files.mkdir("a/b")).type == "directory"
    assert (await files.mkdir("a/b")).path == f"{place.workdir}/a/b"
    await files.write("a/b/c", pieces(b"x"))
    assert await code_of(files.remove("a")) == ErrorCode.IS_A_DIRECTORY
    await files.remove("a", recursive=True)
    assert os.listdir(place.outside) == []


async def test_a_symlink_speaks_of_itself(files: Files, place: Place) -> None:
    (place.outside / "gone").symlink_to("nowhere")
    info = await files.stat("gone")
    assert (info.type, info.target, info.readable) == ("symlink", "nowhere", False)
    await files.remove("gone")
    assert await code_of(files.stat("gone")) == ErrorCode.FILE_NOT_FOUND


async def test_each_problem_has_its_code(files: Files, place: Place) -> None:
    await files.write("file", pieces(b"x"))
    await files.mkdir("folder")
    (place.outside / "loop").symlink_to("loop")
    for call, code in [
        (files.read("none"), ErrorCode.FILE_NOT_FOUND),
        (listed(files, "none"), ErrorCode.FILE_NOT_FOUND),
        (files.remove("none"), ErrorCode.FILE_NOT_FOUND),
        (files.read("folder"), ErrorCode.IS_A_DIRECTORY),
        (files.write("folder", pieces(b"")), ErrorCode.IS_A_DIRECTORY),
        (listed(files, "file"), ErrorCode.NOT_A_DIRECTORY),
        (files.write("file/x", pieces(b"")), ErrorCode.NOT_A_DIRECTORY),
        (files.mkdir("file"), ErrorCode.NOT_A_DIRECTORY),
        (files.read("loop"), ErrorCode.INVALID_PATH),
        (files.read("x\0y"), ErrorCode.INVALID_PATH),
        (files.read(""), ErrorCode.INVALID_PATH),
        (files.read("\ud800"), ErrorCode.INVALID_PATH),
        (files.read("n" * 256), ErrorCode.INVALID_PATH),
        (files.write("n" * 256, pieces(b"")), ErrorCode.INVALID_PATH),
        (files.read("n/" * 3000), ErrorCode.INVALID_PATH),
    ]:
        assert await code_of(call) == code
    assert sorted(os.listdir(place.outside)) == ["file", "folder", "loop"]


async def test_what_could_block_is_refused(files: Files, place: Place) -> None:
    os.mkfifo(place.outside / "fifo")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(place.outside / "socket"))
        for path in ["fifo", "socket", "/dev/zero", "/dev/tty"]:
            assert await code_of(files.read(path)) == ErrorCode.INVALID_PATH
        for path in ["fifo", "/dev/null"]:
            assert await code_of(files.write(path, pieces(b""))) == ErrorCode.INVALID_PATH


async def test_magic_links_lead_nowhere(files: Files) -> None:
    assert await code_of(files.read("/proc/self/fd/0")) == ErrorCode.INVALID_PATH
    assert await code_of(files.read("/proc/self/root/etc/hostname")) == ErrorCode.INVALID_PATH


async def test_files_of_unknown_size_are_read_to_their_end(files: Files) -> None:
    assert b"processor" in await content(files, "/proc/cpuinfo")


async def test_the_environment_of_the_worker_is_empty(files: Files) -> None:
    try:
        assert await content(files, "/proc/self/environ") == b""  # root may read what is not dumpable
    except SandcellError as refused:
        assert refused.code == ErrorCode.PERMISSION_DENIED


async def test_no_space_is_said_and_leaves_nothing(files: Files, place: Place) -> None:
    if place.mode == "keepers":
        return  # a folder of the tests has no bound

    async def too_much() -> AsyncIterator[bytes]:
        while True:
            yield bytes(2**20)

    assert await code_of(files.write("/small/f", too_much())) == ErrorCode.NO_SPACE
    assert await listed(files, "/small") == []


async def test_a_spilled_output_is_a_file_of_the_users(files: Files, place: Place) -> None:
    opened: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
    files.open_soon(f"{place.workdir}/new/out", opened.set_result)
    fd = await opened
    assert fd is not None
    os.write(fd, b"all of it")
    os.close(fd)
    assert await content(files, "new/out") == b"all of it"
    assert (place.outside / "new" / "out").stat().st_uid == place.outside.stat().st_uid
    again: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
    files.open_soon(f"{place.workdir}/new/out", again.set_result)
    assert await again is None


async def test_long_names_are_listed(files: Files, place: Place) -> None:
    folder = place.outside / "long"
    folder.mkdir(mode=0o755)
    names = sorted("漢" * 70 + f"{number:03}" for number in range(300))
    for name in names:
        (folder / name).touch()
    assert [info.name for info in await listed(files, "long")] == names


async def test_folders_in_folders_deeper_than_descriptors_are_listed_and_removed(
    files: Files, place: Place
) -> None:
    await files.mkdir("deep")
    for _ in range(2):  # a path has at most 4095 bytes
        await files.mkdir("deep/" + "d/" * 1900)
    assert len(await listed(files, "deep", recursive=True)) == 1900
    await files.remove("deep", recursive=True)
    assert not (place.outside / "deep").exists()


async def test_a_tree_that_is_deeper_than_a_path_has_a_clear_answer(files: Files, place: Place) -> None:
    await files.mkdir("deep")
    descriptor = os.open(place.outside / "deep", os.O_RDONLY)
    owner = os.fstat(descriptor)
    for _ in range(3000):
        os.mkdir("dd", dir_fd=descriptor)
        os.chown("dd", owner.st_uid, owner.st_gid, dir_fd=descriptor)
        below = os.open("dd", os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = below
    os.close(descriptor)
    assert await code_of(listed(files, "deep", recursive=True)) == ErrorCode.INVALID_PATH
    await files.remove("deep", recursive=True)
    assert not (place.outside / "deep").exists()


async def test_a_file_under_a_lease_is_busy(files: Files, place: Place) -> None:
    await files.write("leased", pieces(b"1"))
    descriptor = os.open(place.outside / "leased", os.O_RDWR)
    held = signal.signal(signal.SIGIO, signal.SIG_IGN)
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        assert await code_of(files.read("leased")) == ErrorCode.BUSY
    finally:
        os.close(descriptor)
        signal.signal(signal.SIGIO, held)

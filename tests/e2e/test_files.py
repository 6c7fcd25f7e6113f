"""Files as programs and people use them: the SDK, bare HTTP, the command line."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, cast

import pytest
from tests.e2e.test_cli import Shell
from tests.e2e.test_http import Http

from sandcell import AsyncSandbox, ErrorCode, Sandbox, SandcellError
from sandcell_container.frames import FrameDecoder

if TYPE_CHECKING:
    from collections.abc import Callable, Generator


@pytest.fixture
def http(sandbox: Sandbox) -> Generator[Http]:
    made = Http(sandbox)
    yield made
    made.close()


def code_of(call: Callable[[], object]) -> ErrorCode:
    with pytest.raises(SandcellError) as caught:
        call()
    return caught.value.code


# --- the SDK


def test_text_bytes_and_lines_are_read(sandbox: Sandbox) -> None:
    files = sandbox.files
    files.write("t/latin", "été\r\nzwei\n".encode("latin-1"))
    assert files.read("t/latin") == "\ufffdt\ufffd\r\nzwei\n"
    assert files.read("t/latin", encoding="latin-1") == "été\r\nzwei\n"
    with pytest.raises(UnicodeDecodeError):
        files.read("t/latin", errors="strict")
    assert files.read_bytes("t/latin", start=1, end=3) == b"t\xe9"
    assert files.read_bytes("t/latin", start=1000) == b""
    lines = files.read_lines("t/latin", encoding="latin-1")
    assert (lines.lines, lines.start, lines.total) == (["été", "zwei"], 1, 2)
    assert files.read_lines("t/latin", start=3).lines == []
    assert code_of(lambda: files.read_bytes("t/latin", max_bytes=5)) is ErrorCode.TOO_LARGE


def test_paths_may_be_path_objects(sandbox: Sandbox, tmp_path: Path) -> None:
    files, folder = sandbox.files, PurePosixPath("objects")
    assert files.write(folder / "a", "one\n").path == "/workspace/objects/a"
    files.copy(folder / "a", folder / "b")
    files.rename(folder / "b", folder / "c")
    files.append(folder / "a", "two\n")
    assert files.read_lines(folder / "a").total == 2
    assert [each.name for each in files.list(folder)] == ["a", "c"]
    assert files.search("two", folder).matches
    with files.open(folder / "d", "wb") as made:
        made.write(b"four")
    assert files.exists(folder / "d") and files.stat(folder / "d").size == 4
    files.download(folder, tmp_path / "down")
    assert (tmp_path / "down" / "c").read_text() == "one\n"
    files.remove(folder, recursive=True)
    assert code_of(lambda: files.read(cast("Any", b"bytes"))) is ErrorCode.INVALID_PATH


def test_an_open_file_is_read_and_written_in_pieces(sandbox: Sandbox) -> None:
    files = sandbox.files
    with files.open("o/big", "wb", permissions=0o600) as made:
        for number in range(100):
            made.write(bytes([number]) * 10_000)
    assert made.info is not None and (made.info.size, made.info.mode) == (1_000_000, 0o600)
    with files.open("o/big", start=10_000) as opened:
        assert opened.size == 990_000
        assert opened.read(3) == b"\1\1\1"
        assert sum(map(len, opened)) == 989_997
        assert opened.read() == b""
    with pytest.raises(ZeroDivisionError), files.open("o/big", "wb") as made:
        made.write(b"half")
        raise ZeroDivisionError
    assert files.stat("o/big").size == 1_000_000

    def write_where_nobody_may() -> None:
        with files.open("/usr/no", "wb") as refused:
            for _ in range(1000):
                refused.write(bytes(2**16))

    assert code_of(write_where_nobody_may) is ErrorCode.PERMISSION_DENIED


def test_what_is_written_once_is_there_once(sandbox: Sandbox) -> None:
    files = sandbox.files
    made = files.write("once", "a", new=True)
    assert code_of(lambda: files.write("once", "b", new=True)) is ErrorCode.EXISTS
    assert files.append("once", "b", if_match=made.etag).size == 2
    assert code_of(lambda: files.append("once", "c", if_match=made.etag)) is ErrorCode.CHANGED_SINCE
    assert code_of(lambda: files.write("once", "c", if_match='a"b')) is ErrorCode.INVALID_ARGUMENT
    assert files.read("once") == "ab"


def test_a_folder_goes_up_and_down_with_progress(sandbox: Sandbox, tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "deep").mkdir(parents=True)
    (source / "deep" / "data").write_bytes(os.urandom(3_000_000))
    (source / "run").write_text("x")
    (source / "run").chmod(0o755)
    (source / "link").symlink_to("/etc")
    moved = list[int]()
    report = sandbox.files.upload(source, "folder", on_progress=lambda done, _: moved.append(done))
    assert (report.files, report.bytes, report.skipped) == (2, 3_000_001, [])
    assert moved == sorted(moved) and moved[-1] > 3_000_000
    assert sandbox.exec("stat -c %a folder/run; readlink folder/link").stdout == "755\n/etc\n"
    back = tmp_path / "back"
    report = sandbox.files.download("folder", back)
    assert (back / "deep" / "data").read_bytes() == (source / "deep" / "data").read_bytes()
    assert not (back / "link").is_symlink()
    assert report.skipped == ["link: a symlink that leads out of the folder"]

    def stop(_done: int, _total: int | None) -> None:
        raise ZeroDivisionError

    for local, remote in [(source, "other"), (source / "deep" / "data", "other.txt")]:
        with pytest.raises(ZeroDivisionError):
            sandbox.files.upload(local, remote, on_progress=stop)
    for remote, name in [("folder", "other"), ("folder/run", "run")]:
        with pytest.raises(ZeroDivisionError):
            sandbox.files.download(remote, tmp_path / name, on_progress=stop)
    assert not sandbox.files.exists("other.txt") and not (tmp_path / "run").exists()


def test_a_backup_is_restored_as_it_was(sandbox: Sandbox, tmp_path: Path) -> None:
    sandbox.exec("mkdir -p state/in; echo 1 > state/in/a; echo log > state/x.log")
    sandbox.files.backup("state", tmp_path / "tar", exclude="*.log")
    sandbox.exec("echo 2 > state/in/a; touch state/in/b; rm state/x.log")
    (tmp_path / "cut").write_bytes((tmp_path / "tar").read_bytes()[:1500])
    assert code_of(lambda: sandbox.files.restore(tmp_path / "cut", "state")) is ErrorCode.INVALID_ARGUMENT
    assert sandbox.exec("cat state/in/a; ls -A state/in").stdout == "2\na\nb\n"
    assert sandbox.files.restore(tmp_path / "tar", "state").files == 1
    assert sandbox.exec("cat state/in/a; ls -A state state/in").stdout == "1\nstate:\nin\n\nstate/in:\na\n"


def test_a_folder_that_is_not_there_is_no_backup(sandbox: Sandbox, tmp_path: Path) -> None:
    assert code_of(lambda: sandbox.files.backup("none", tmp_path / "tar")) is ErrorCode.FILE_NOT_FOUND
    assert code_of(lambda: sandbox.files.download("none", tmp_path / "x")) is ErrorCode.FILE_NOT_FOUND
    assert os.listdir(tmp_path) == []


def test_files_of_a_session_count_from_its_folder(sandbox: Sandbox, tmp_path: Path) -> None:
    session = sandbox.create_session()
    session.exec("mkdir -p of/session && cd of/session")
    session.files.write("a", "one")
    session.files.copy("a", "b")
    session.files.rename("b", "c")
    session.files.replace("c", "one", "two")
    session.files.download(".", tmp_path / "here")
    assert sorted(os.listdir(tmp_path / "here")) == ["a", "c"]
    assert sandbox.files.read("of/session/c") == "two"
    assert [each.path for each in session.files.search("two").matches] == ["/workspace/of/session/c"]


def test_a_hundred_thousand_files_are_listed_in_pages(sandbox: Sandbox) -> None:
    sandbox.exec("mkdir /tmp/many && cd /tmp/many && seq -f 'f%06g' 100000 | xargs touch", timeout=50)
    names, cursor, pages = list[str](), None, 0
    while True:
        page = sandbox.files.list_page("/tmp/many", limit=10_000, cursor=cursor)
        names += [each.name for each in page.files]
        cursor, pages = page.next_cursor, pages + 1
        if cursor is None:
            break
    assert names == [f"f{number:06}" for number in range(1, 100_001)]
    assert pages == 10
    assert len(sandbox.files.list("/tmp/many", glob="f00000*", recursive=True)) == 9
    sandbox.files.remove("/tmp/many", recursive=True)


def test_a_search_has_bounds_and_passes_over_what_nobody_means(sandbox: Sandbox) -> None:
    for folder in (".git", "node_modules", "src/.cache"):
        sandbox.files.write(f"search/{folder}/x", "needle\n")
    sandbox.files.write("search/many", "needle\n" * 201)
    found = sandbox.files.search("needle", "search")
    assert (len(found.matches), found.truncated) == (200, True)
    assert {each.relative_path for each in found.matches} == {"many"}
    found = sandbox.files.search("needle", "search", everywhere=True, limit=1000)
    assert (len(found.matches), found.truncated) == (204, False)


async def test_the_asyncio_client_does_the_same(tmp_path: Path) -> None:
    async with await AsyncSandbox.create(engine="local") as sandbox:
        files = sandbox.files
        await files.write("d/a", "one\ntwo\n")
        moved = list[int]()
        await files.download("d", tmp_path / "d", on_progress=lambda done, _: moved.append(done))
        (tmp_path / "d" / "b").write_text("x")
        await files.upload(tmp_path / "d", "e")
        assert [each.name for each in await files.list("e")] == ["a", "b"]
        async with await files.open("w", "wb") as made:
            await made.write(b"x" * 100_000)
        async with await files.open("w") as opened:
            assert await opened.read(5) == b"xxxxx"
            assert sum([len(piece) async for piece in opened]) == 99_995
        await files.backup("d", tmp_path / "tar")
        await files.remove("d/a")
        await files.restore(tmp_path / "tar", "d")
        assert (await files.read_lines("d/a", start=2)).lines == ["two"]
        assert moved


# --- watches


def test_changes_come_to_who_watches(sandbox: Sandbox) -> None:
    sandbox.exec("mkdir -p watched/.git")
    watch = sandbox.files.watch("watched", include=["*.txt", "*.md"], exclude=".git")
    assert watch.read(timeout=0) == []
    sandbox.exec("cd watched; echo 1 > a.txt; echo 1 > .git/b.txt; echo 1 > c.bin; mv a.txt d.md")
    (change,) = watch.read(timeout=20)
    assert (change.type, change.relative_path, change.path) == ("created", "d.md", "/workspace/watched/d.md")
    sandbox.exec("cd watched; mv d.md e.md; rm e.md; echo 2 > f.txt")
    seen = list[str]()
    for each in watch:
        seen.append(f"{each.type} {each.relative_path}")
        if seen[-1] == "created f.txt":
            break
    assert seen == ["deleted d.md", "created f.txt"]
    sandbox.exec("rm -r watched")
    found = [each.type for each in watch]
    assert (found[0], watch.end) == ("deleted", "deleted")
    assert watch.read() == []


def test_a_watch_goes_on_from_its_cursor_over_http(sandbox: Sandbox, http: Http) -> None:
    sandbox.exec("mkdir -p again")
    target = "/v1/files/watch?path=again&id=w1&debounce=0"
    first = http.open("GET", f"{target}&follow=false")
    (started,) = FrameDecoder().feed(first.read())
    cursor = f"{first.headers['Sandcell-Epoch']}.{started.seq}.{started.offset}"
    sandbox.files.write("again/a", "1")
    other = Http(sandbox)
    answer = other.open("GET", f"{target}&cursor={cursor}", Accept="text/event-stream")
    lines = [answer.readline().decode().strip() for _ in range(3)]
    other.close()
    assert lines[1] == "event: changed"
    assert json.loads(lines[2].removeprefix("data: "))["relative_path"] == "a"
    page = http.open("GET", f"{target}&cursor={lines[0].removeprefix('id: ')}&follow=false")
    assert page.read() == b""
    lost = http.ask("GET", target.replace("w1", "w2") + f"&cursor={cursor}")
    assert lost["error"]["code"] == "LOST"
    assert http.ask("GET", "/v1/files/watch?path=none")["error"]["code"] == "FILE_NOT_FOUND"


def test_a_watch_of_a_session_stays_where_it_was(sandbox: Sandbox) -> None:
    session = sandbox.create_session()
    session.exec("mkdir -p from/here && cd from/here")
    watch = session.files.watch()
    session.exec("touch a; cd /")
    assert [each.path for each in watch.read(timeout=20)] == ["/workspace/from/here/a"]


async def test_the_asyncio_client_watches_while_it_does_something_else() -> None:
    async with await AsyncSandbox.create(engine="local") as sandbox:
        watch = await sandbox.files.watch()
        await sandbox.files.write("a/b", "1")
        found = list[str]()
        async for change in watch:
            found.append(f"{change.type} {change.relative_path}")
            if found[-1] == "created a/b":
                break
        assert found == ["created a", "created a/b"]


# --- HTTP


def test_ranges_and_tags_over_http(sandbox: Sandbox, http: Http) -> None:
    sandbox.files.write("range.txt", "0123456789" * 200_000)
    whole = http.open("GET", "/v1/files?path=range.txt")
    assert (whole.status, len(whole.read())) == (200, 2_000_000)
    assert whole.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert (whole.headers["X-Content-Type-Options"], whole.headers["Accept-Ranges"]) == ("nosniff", "bytes")
    tag = whole.headers["ETag"]
    other = Http(sandbox)
    part = other.open("GET", "/v1/files?path=range.txt", Range="bytes=5-1000008")
    assert (part.status, part.headers["Content-Range"]) == (206, "bytes 5-1000008/2000000")
    assert part.read() == (b"0123456789" * 200_000)[5:1_000_009]
    other.close()
    last = Http(sandbox)
    for headers, status, body in [
        ({"Range": "bytes=-3"}, 206, b"789"),
        ({"Range": "bytes=2000000-"}, 416, None),
        ({"If-None-Match": tag}, 304, b""),
        ({"Range": "bytes=0-1", "If-Range": '"other"'}, 200, None),
    ]:
        answer = last.open("GET", "/v1/files?path=range.txt", **headers)
        data = answer.read()
        assert answer.status == status
        assert body is None or data == body
        if answer.will_close or len(data) > 2**20:
            last.close()
            last = Http(sandbox)
    head = last.open("HEAD", "/v1/files?path=range.txt")
    assert (head.read(), head.headers["Content-Length"], head.headers["ETag"]) == (b"", "2000000", tag)
    last.close()


def test_conditions_over_http(sandbox: Sandbox, http: Http) -> None:
    tag = http.open("PUT", "/v1/files?path=cond", b"1")
    tag = json.loads(tag.read())["etag"]
    for method, headers, status in [
        ("PUT", {"If_None_Match": "*"}, 409),
        ("PUT", {"If_Match": '"other"'}, 409),
        ("PATCH", {"If_Match": f'"{tag}"'}, 200),
        ("PATCH", {"If_Match": f'"{tag}"'}, 409),
        ("PUT", {"If_Match": "nonsense"}, 400),
        ("PUT", {"If_Match": "*"}, 201),
    ]:
        answer = http.open(method, "/v1/files?path=cond", b"22", **headers)
        assert (answer.status, bool(answer.read())) == (status, True), (method, headers)
    assert sandbox.files.read("cond") == "22"


def test_a_body_without_a_length_is_taken_too(http: Http, sandbox: Sandbox) -> None:
    http.connection.request(
        "PUT",
        "/v1/files?path=chunked",
        iter([b"a" * 70_000, b"b" * 70_000]),
        http.headers,
        encode_chunked=True,
    )
    answer = http.connection.getresponse()
    assert (answer.status, json.loads(answer.read())["size"]) == (201, 140_000)


@pytest.mark.parametrize(
    ("verb", "body", "code"),
    [
        ("list", {"path": ".", "limit": 0}, "INVALID_ARGUMENT"),
        ("list", {"path": ".", "limit": 100_000}, "INVALID_ARGUMENT"),
        ("list", {"path": ".", "sort": "colour"}, "INVALID_ARGUMENT"),
        ("replace", {"path": "x", "edits": []}, "INVALID_ARGUMENT"),
        ("replace", {"path": "x", "edits": [{"old": "", "new": "a"}]}, "INVALID_ARGUMENT"),
        ("replace", {"path": "x", "edits": [{"old": "\ud800", "new": "a"}]}, "INVALID_ARGUMENT"),
        ("insert", {"path": "x", "line": -1, "text": ""}, "INVALID_ARGUMENT"),
        ("search", {"pattern": "", "path": "."}, "INVALID_ARGUMENT"),
        ("search", {"pattern": "a", "timeout": 0}, "INVALID_ARGUMENT"),
        ("copy", {"path": "none", "to": "x"}, "FILE_NOT_FOUND"),
        ("rename", {"path": "none", "to": "\0"}, "INVALID_PATH"),
    ],
)
def test_what_cannot_be_done_is_refused(verb: str, body: dict[str, Any], code: str, http: Http) -> None:
    assert http.ask("POST", f"/v1/files/{verb}", body)["error"]["code"] == code


def test_an_archive_over_http(http: Http, sandbox: Sandbox) -> None:
    sandbox.exec("mkdir -p arch/x; echo 1 > arch/a; echo 2 > arch/x/b; echo 3 > arch/c.log")
    answer = http.open("GET", "/v1/files/archive?path=arch&exclude=*.log&exclude=x")
    assert answer.headers["Content-Type"] == "application/x-tar"
    data = answer.read()
    made = http.ask("PUT", "/v1/files/archive?path=again&replace=true", data)
    assert (made["files"], made["bytes"]) == (1, 2)
    assert (
        http.ask("PUT", "/v1/files/archive?path=again", b"no tar" * 500)["error"]["code"]
        == "INVALID_ARGUMENT"
    )
    refused = http.ask("PUT", "/v1/files/archive?path=/usr/x", data)
    assert refused["error"]["code"] == "PERMISSION_DENIED"


def test_holes_take_no_room_on_this_machine(sandbox: Sandbox, tmp_path: Path) -> None:
    sandbox.exec("mkdir holes; echo x > holes/f; truncate -s 64M holes/f; truncate -s 1T holes.bin")
    sandbox.files.download("holes", tmp_path / "holes")
    sandbox.files.backup("holes", tmp_path / "holes.tar")
    sandbox.files.download("holes.bin", tmp_path / "one")
    found = [(tmp_path / each).stat() for each in ("holes/f", "holes.tar", "one")]
    assert [each.st_size >> 26 for each in found] == [1, 1, 2**14]
    assert sum(each.st_blocks * 512 for each in found) < 2**23  # of 64 MiB twice, and a TiB
    assert sandbox.files.restore(tmp_path / "holes.tar", "again").files == 1
    assert sandbox.exec("cmp holes/f again/f && rm -r holes holes.bin again").ok


# --- the command line


@pytest.fixture(scope="module")
def shell() -> Generator[Shell]:
    with tempfile.TemporaryDirectory(prefix="sandcell-") as state:
        made = Shell(state)
        assert made("start", "--sandbox", "lab").returncode == 0
        yield made
        made("rm", "lab")


def test_files_are_copied_by_the_command_line(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "a.txt").write_text("one\n")
    assert shell("cp", str(tmp_path / "folder"), "lab:").returncode == 0
    assert shell("cp", str(tmp_path / "folder" / "a.txt"), "lab:folder/b.txt").returncode == 0
    assert shell("ls", "lab:folder").stdout == b"a.txt\nb.txt\n"
    assert shell("ls", "-R", "--sandbox", "lab", "--glob", "b*").stdout == b"folder/b.txt\n"
    assert shell("ls", "-l", "lab:folder/a.txt").stdout.split()[2] == b"4"
    assert [each["name"] for each in json.loads(shell("ls", "--json", "lab:").stdout)] == ["folder"]
    assert shell("cat", "lab:folder/a.txt", "lab:folder/b.txt").stdout == b"one\none\n"
    assert shell("cp", "lab:folder", str(tmp_path)).returncode == 0
    assert (tmp_path / "folder" / "b.txt").read_text() == "one\n"
    refused = shell("cp", "a", "b")
    assert (refused.returncode, b"INVALID_ARGUMENT" in refused.stderr) == (125, True)
    done = shell("cat", "lab:none", "lab:folder/a.txt", "lab:folder")
    assert (done.returncode, done.stdout) == (1, b"one\n")
    assert b"FILE_NOT_FOUND" in done.stderr and b"IS_A_DIRECTORY" in done.stderr


def test_what_this_machine_refuses_is_told_in_one_line(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    shell("exec", "--sandbox", "lab", "mkdir -p whole; echo 1 > whole/1")
    for code, arguments in (
        ("FILE_NOT_FOUND", (str(tmp_path / "none"), "lab:")),
        ("FILE_NOT_FOUND", ("lab:whole/1", "/proc/none/x")),
        ("EXISTS", ("lab:whole", str(tmp_path / "file"))),
    ):
        done = shell("cp", *arguments)
        assert done.returncode == 125
        assert done.stderr.decode().startswith(f"sandcell: {code}: "), done.stderr
        assert done.stderr.count(b"\n") == 1


def test_only_what_can_be_called_so_is_a_sandbox(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "A b: c").write_text("odd")
    done = shell.line("cp -r 'A b: c' lab:odd", tmp_path)
    assert (done.returncode, done.stderr) == (0, b"")
    assert shell("cat", "lab:odd").stdout == b"odd"


def test_a_file_is_edited_and_never_written_over(shell: Shell, tmp_path: Path) -> None:
    shell.environment["EDITOR"] = "sed -i s/one/two/"
    shell("exec", "--sandbox", "lab", "echo one > e.txt")
    assert shell("edit", "lab:e.txt").returncode == 0
    assert shell("cat", "lab:e.txt").stdout == b"two\n"
    assert b"nothing was changed" in shell("edit", "lab:e.txt").stderr
    editor = tmp_path / "editor"
    path = Path(sys.executable).with_name("sandcell")
    editor.write_text(f"#!/bin/sh\n{path} exec --sandbox lab 'echo theirs > e.txt' && echo mine > $1\n")
    editor.chmod(0o755)
    shell.environment["EDITOR"] = str(editor)
    refused = shell("edit", "lab:e.txt")
    assert (refused.returncode, b"CHANGED_SINCE" in refused.stderr) == (125, True)
    kept = refused.stderr.decode().split("what you wrote is in ")[1].split("\n")[0]
    assert Path(kept).read_text() == "mine\n"
    Path(kept).unlink()
    assert shell("cat", "lab:e.txt").stdout == b"theirs\n"

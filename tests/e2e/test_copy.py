"""Copies into sandboxes and out of them: streams of any length, names of any bytes, and no way out of a folder."""

from __future__ import annotations

import io
import os
import resource
import tarfile
from typing import TYPE_CHECKING

import pytest

from sandcell_container.errors import ErrorCode, SandcellError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from tests.e2e.conftest import EnginePlace

    from sandcell import Sandbox

NAMES = ("a", "with space", "new\nline", "tab\t'\"", os.fsdecode(b"\xff\xfe"), "x" * 255)
LARGE = {"podman": 2**28}  # it goes the way of docker


@pytest.fixture(scope="module")
def box(any_place: EnginePlace) -> Generator[Sandbox]:
    with any_place.create() as made:
        yield made


def packed(*members: tuple[tarfile.TarInfo, bytes]) -> list[bytes]:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT, errors="surrogateescape") as tar:
        for member, data in members:
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return [out.getvalue()]


def member(name: str, kind: bytes = tarfile.REGTYPE, *, link: str = "") -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname, made.mode = kind, link, 0o640
    return made


def unpacked(pieces: Iterator[bytes]) -> dict[str, tuple[tarfile.TarInfo, bytes]]:
    data = io.BytesIO(b"".join(pieces))
    with tarfile.open(fileobj=data, errors="surrogateescape") as tar:
        return {
            each.name: (each, content.read() if (content := tar.extractfile(each)) else b"")
            for each in tar
            if not each.issym()
        } | {each.name: (each, b"") for each in tar if each.issym()}


def test_files_of_any_name_go_in_and_come_out(any_place: EnginePlace, box: Sandbox) -> None:
    any_place.engine.copy_in(
        box.id,
        "/workspace",
        packed(*((member(f"names/{each}"), each.encode(errors="surrogateescape")) for each in NAMES)),
    )
    assert box.exec("stat -c '%U %a' names/a").stdout == "user 640\n"
    found = unpacked(any_place.engine.copy_out(box.id, "/workspace/names"))
    assert found.keys() == {"names", *(f"names/{each}" for each in NAMES)}
    assert all(found[f"names/{each}"][1] == each.encode(errors="surrogateescape") for each in NAMES)


def test_a_link_is_told_and_not_followed(any_place: EnginePlace, box: Sandbox) -> None:
    box.exec(
        "mkdir links; ln -s /etc/passwd links/a; ln -s .. links/b; mkfifo links/fifo; echo x > links/c",
        check=True,
    )
    found = unpacked(any_place.engine.copy_out(box.id, "/workspace/links"))
    assert {name: each.linkname for name, (each, _) in found.items()} == {
        "links": "", "links/a": "/etc/passwd", "links/b": "..", "links/c": "",
    }  # fmt: skip
    assert unpacked(any_place.engine.copy_out(box.id, "/workspace/links/a"))["a"][0].linkname == "/etc/passwd"


@pytest.mark.parametrize(
    "members",
    [
        [(member("../out"), b"x")],
        [(member("/tmp/out"), b"x")],
        [(member("a/../../out"), b"x")],
        [(member("link", tarfile.SYMTYPE, link="/tmp"), b""), (member("link/out"), b"x")],
        [(member("link", tarfile.SYMTYPE, link=".."), b""), (member("link/out"), b"x")],
        [(member("there/out"), b"x")],
        [(member("hard", tarfile.LNKTYPE, link="../../etc/passwd"), b"")],
        [(member("device", tarfile.CHRTYPE), b"")],
    ],
    ids=[
        "up",
        "absolute",
        "up inside",
        "by a link",
        "by a link up",
        "by a link that lay there",
        "hard",
        "device",
    ],
)
def test_nothing_leaves_the_folder(
    any_place: EnginePlace, box: Sandbox, members: list[tuple[tarfile.TarInfo, bytes]]
) -> None:
    box.exec("rm -rf in /tmp/out out; mkdir in; ln -s /tmp in/there", check=True)
    with pytest.raises(SandcellError) as refused:
        any_place.engine.copy_in(box.id, "/workspace/in", packed(*members))
    assert refused.value.code is ErrorCode.INVALID_PATH
    assert box.exec("ls /tmp/out out in/hard in/device 2>/dev/null").stdout == ""


def test_a_file_takes_the_place_of_a_link_and_not_of_what_it_leads_to(
    any_place: EnginePlace, box: Sandbox
) -> None:
    box.exec("rm -rf in; mkdir in; echo safe > safe; ln -s ../safe in/a", check=True)
    any_place.engine.copy_in(box.id, "/workspace/in", packed((member("a"), b"new")))
    assert box.exec("cat safe in/a").stdout == "safe\nnew"


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/workspace/none", ErrorCode.FILE_NOT_FOUND),
        ("/etc/passwd", ErrorCode.NOT_A_DIRECTORY),
        ("/usr", ErrorCode.PERMISSION_DENIED),
    ],
)
def test_only_what_the_user_may_write_is_written(
    any_place: EnginePlace, box: Sandbox, path: str, code: ErrorCode
) -> None:
    with pytest.raises(SandcellError) as refused:
        any_place.engine.copy_in(box.id, path, packed((member("a"), b"x")))
    assert refused.value.code is code


def test_only_what_the_user_may_read_is_read(any_place: EnginePlace, box: Sandbox) -> None:
    box.exec("touch closed; chmod 0 closed", check=True)
    with pytest.raises(SandcellError) as refused:
        list(any_place.engine.copy_out(box.id, "/workspace/closed"))
    assert refused.value.code is ErrorCode.PERMISSION_DENIED


def test_two_gibibytes_go_both_ways_in_little_memory(any_place: EnginePlace, box: Sandbox) -> None:
    length = LARGE.get(any_place.name, 2**31)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    head = member("large")
    head.size = length

    def stream() -> Iterator[bytes]:
        yield head.tobuf(tarfile.GNU_FORMAT)
        for _ in range(length // 2**20):
            yield bytes(2**20)
        yield bytes(1024)

    any_place.engine.copy_in(box.id, "/workspace", stream())
    assert box.exec("stat -c %s large").stdout == f"{length}\n"
    size = sum(map(len, any_place.engine.copy_out(box.id, "/workspace/large")))
    assert size >= length
    box.exec("rm large", check=True)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 2**10


def test_one_that_does_not_run_cannot_be_copied_to(any_place: EnginePlace) -> None:
    with any_place.create() as made:
        made.stop()
        with pytest.raises(SandcellError) as refused:
            any_place.engine.copy_in(made.id, "/workspace", packed((member("a"), b"x")))
        assert refused.value.code is ErrorCode.BUSY

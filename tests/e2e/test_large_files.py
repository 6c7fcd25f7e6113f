"""Files from 1 MiB on: whole or not at all, whichever way their bytes go, and the guest stays small."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import tempfile
import time
from contextlib import contextmanager, suppress
from socketserver import BaseRequestHandler, ThreadingUnixStreamServer
from threading import Thread
from typing import TYPE_CHECKING

import pytest
from tests.e2e.test_files import code_of
from tests.e2e.test_http import Http

from sandcell import AsyncSandbox, ErrorCode, Sandbox
from sandcell.client.blocking.files import Files
from sandcell.client.blocking.transport import Transport
from sandcell.client.host import the_host
from sandcell_container.drafts import is_draft
from sandcell_container.engine import Address

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from tests.e2e.conftest import GuestProcess


@pytest.fixture(scope="module")
def sandbox() -> Generator[Sandbox]:
    """One whose files in memory have little room."""
    with Sandbox.create(engine="local", memory="512MiB") as made:
        yield made


@contextmanager
def passing_on_bytes(sandbox: Sandbox) -> Generator[Transport]:
    """Yield a way to the guest through somebody who knows nothing of descriptors."""
    record = the_host().find(sandbox.id).record

    class Relay(BaseRequestHandler):
        def handle(self) -> None:
            with socket.socket(socket.AF_UNIX) as guest:
                guest.connect(record.address.path)
                up = Thread(target=pump, args=(self.request, guest))
                up.start()
                pump(guest, self.request)
                up.join()

    with (
        tempfile.TemporaryDirectory() as folder,
        ThreadingUnixStreamServer(f"{folder}/relay", Relay) as server,
    ):
        serving = Thread(target=server.serve_forever)
        serving.start()
        way = Address(path=f"{folder}/relay")
        transport = Transport(way, record.token, connect_timeout=20.0, reply_timeout=20.0)
        try:
            yield transport
        finally:
            transport.close()
            server.shutdown()
            serving.join()


def pump(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):  # one of both has gone, which the other direction tells as well
        while data := source.recv(2**18):
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_RDWR)


def await_no_draft(files: Files, folder: str) -> None:
    """The guest takes a draft away when it hears that its client has gone, which may be after the next request."""
    deadline = time.monotonic() + 20
    while any(is_draft(each.name.encode()) for each in files.list(folder)):
        assert time.monotonic() < deadline


@pytest.fixture(params=["lent", "carried"])
def files(request: pytest.FixtureRequest, sandbox: Sandbox) -> Generator[Files]:
    """Files as a client has them that may open them as well, and as one has them that gets bytes alone."""
    if request.param == "lent":
        yield sandbox.files
        return
    with passing_on_bytes(sandbox) as transport:
        yield Files(transport)


def test_what_is_large_goes_whole_whatever_it_meets(files: Files, tmp_path: Path) -> None:
    data = os.urandom(20_000_003)
    (tmp_path / "up").write_bytes(data)
    seen = list[tuple[int, int | None]]()
    files.upload(tmp_path / "up", "moved", on_progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (len(data), len(data)) and len(seen) > 2
    assert files.read_bytes("moved") == data
    files.download("moved", tmp_path / "down")
    assert (tmp_path / "down").read_bytes() == data
    assert files.read_bytes("moved", start=1_000_001) == data[1_000_001:]
    link = tmp_path / "link"
    link.symlink_to("target")
    files.download("moved", link)
    assert (tmp_path / "target").read_bytes() == data


def test_what_is_refused_says_why_and_leaves_nothing(files: Files, tmp_path: Path) -> None:
    large = tmp_path / "large"
    large.write_bytes(bytes(160 * 2**20))  # a fourth of the memory is the room there
    assert code_of(lambda: files.upload(large, "/usr/no")) is ErrorCode.PERMISSION_DENIED
    assert code_of(lambda: files.upload(large, ".")) is ErrorCode.IS_A_DIRECTORY
    assert code_of(lambda: files.upload(large, "/dev/shm/full")) is ErrorCode.NO_SPACE
    assert code_of(lambda: files.download("none", tmp_path / "none")) is ErrorCode.FILE_NOT_FOUND
    await_no_draft(files, "/dev/shm")
    assert list(tmp_path.iterdir()) == [large]


def test_what_is_given_up_changes_nothing_on_either_side(files: Files, tmp_path: Path) -> None:
    old, large = tmp_path / "old", tmp_path / "large"
    old.write_bytes(b"here")
    large.write_bytes(bytes(20_000_000))
    files.upload(large, "given/large")
    files.write("given/old", "there")

    def stop(_done: int, _total: int | None) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        files.upload(large, "given/old", on_progress=stop)
    with pytest.raises(ZeroDivisionError):
        files.download("given/large", old, on_progress=stop)
    assert old.read_bytes() == b"here" and files.read("given/old") == "there"
    await_no_draft(files, "given")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["large", "old"]


def test_a_file_that_is_cut_meanwhile_is_no_success(sandbox: Sandbox, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(bytes(30_000_000))
    sandbox.files.upload(source, "cut")

    def cut_there(_done: int, _total: int | None) -> None:
        sandbox.exec("truncate -s 0 cut", check=True)

    def cut_here(_done: int, _total: int | None) -> None:
        os.truncate(source, 0)

    broken = code_of(lambda: sandbox.files.download("cut", tmp_path / "back", on_progress=cut_there))
    assert broken is ErrorCode.CHANGED_SINCE
    with pytest.raises(OSError, match="shorter"):
        sandbox.files.upload(source, "other", on_progress=cut_here)
    assert not (tmp_path / "back").exists() and not sandbox.files.exists("other")


def test_a_descriptor_is_for_one_file_with_the_rights_of_user_code(sandbox: Sandbox) -> None:
    sandbox.files.write("lent", "content")
    record = the_host().find(sandbox.id).record
    head = f"Host: s\r\nAuthorization: Bearer {record.token}\r\n\r\n"
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(record.address.path)
        connection.settimeout(20)
        connection.sendall(f"GET /v1/files/descriptor?path=lent HTTP/1.1\r\n{head}".encode())
        said, (fd,), _, _ = socket.recv_fds(connection, 2**16, 1)
        with os.fdopen(fd, "rb") as file:
            assert said.startswith(b"HTTP/1.1 100 Continue\r\n\r\n") and file.read() == b"content"
            with pytest.raises(OSError, match="Bad file descriptor"):
                os.write(file.fileno(), b"x")
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(record.address.path)
        connection.settimeout(20)
        connection.sendall(f"GET /v1/files/descriptor?path=/proc/1/mem HTTP/1.1\r\n{head}".encode())
        said, fds, _, _ = socket.recv_fds(connection, 2**16, 1)
        assert said.startswith(b"HTTP/1.1 403 ") and not fds


def test_a_large_upload_that_breaks_off_changes_nothing(sandbox: Sandbox) -> None:
    sandbox.files.write("kept", "before")
    broken = Http(sandbox)
    broken.connection.putrequest("PUT", "/v1/files?path=kept")
    broken.connection.putheader("Content-Length", str(2**30))
    for name, value in broken.headers.items():
        broken.connection.putheader(name, value)
    broken.connection.endheaders(bytes(3_000_000))
    broken.close()
    http = Http(sandbox)
    for _ in range(3):
        http.ask("POST", "/v1/files/list", {"path": "."})
    assert sandbox.files.read("kept") == "before"
    second = http.open("PUT", "/v1/files?path=kept", bytes(2_000_000))
    assert json.loads(second.read())["size"] == 2_000_000
    assert http.ask("GET", "/v1/health") == {"status": "ok"}
    http.close()


def test_a_large_file_leaves_the_guest_small(
    sandbox: Sandbox, files: Files, guest: GuestProcess, tmp_path: Path
) -> None:
    with (tmp_path / "large").open("wb") as file:
        file.truncate(300 * 2**20)
    files.upload(tmp_path / "large", "first")  # what has to be loaded is
    guest.forget_peak()
    start = guest.memory
    files.upload(tmp_path / "large", "large")
    files.download("large", tmp_path / "back")
    files.backup(".", tmp_path / "tar")
    assert guest.peak - start < 32 * 2**20
    assert (tmp_path / "back").stat().st_size == 300 * 2**20
    sandbox.exec("rm -f first large")


async def test_the_asyncio_client_does_the_same(tmp_path: Path) -> None:
    async with await AsyncSandbox.create(engine="local") as sandbox:
        data = os.urandom(20_000_003)
        (tmp_path / "up").write_bytes(data)
        moved = list[int]()
        await sandbox.files.upload(tmp_path / "up", "large", on_progress=lambda done, _: moved.append(done))
        await sandbox.files.download("large", tmp_path / "down")
        assert (tmp_path / "down").read_bytes() == data and moved[-1] == len(data)
        begun = asyncio.Event()

        async def stay(_done: int, _total: int | None) -> None:
            begun.set()
            await asyncio.Event().wait()

        for move in (
            sandbox.files.download("large", tmp_path / "other", on_progress=stay),
            sandbox.files.upload(tmp_path / "up", "other", on_progress=stay),
        ):
            begun.clear()
            moving = asyncio.ensure_future(move)
            await begun.wait()
            moving.cancel()
            with pytest.raises(asyncio.CancelledError):
                await moving
        assert sorted(os.listdir(tmp_path)) == ["down", "up"]
        assert not await sandbox.files.exists("other")

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from sandcell_container.errors import ErrorCode, SandcellError
from sandcell_container.openings import (
    Mount,
    PublishedPort,
    check_targets,
    find_source,
    parse_mount,
    parse_port,
    posix_source,
)

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("given", "mount"),
    [
        ("/data:/in", Mount("/data", "/in", read_only=True)),
        ("/data:/in:ro", Mount("/data", "/in", read_only=True)),
        ("/data:/in:rw", Mount("/data", "/in", read_only=False)),
        ("/with:colon:/in", Mount("/with:colon", "/in")),
        ("./here:/workspace/here/", Mount("./here", "/workspace/here")),
        ("C:\\Users\\me:/in:rw", Mount("/mnt/c/Users/me", "/in", read_only=False)),
        (Mount("/data", "/in/../other"), Mount("/data", "/other")),
    ],
)
def test_a_mount_is_read_only_unless_said(given: str | Mount, mount: Mount) -> None:
    assert parse_mount(given) == mount


@pytest.mark.parametrize(
    "given",
    ["", "/data", ":/in", "/data:", "/data:in", "/data:/", "/data:/proc/x", "/data:/run", "/data:/opt/sandcell", 5,
     "/data:/in/../opt/sandcell/bin", "/da\0ta:/in", "\\\\server\\share:/in", "/data:/etc", "/data:/x/../usr/", "/data:/usr/lib"],
)  # fmt: skip
def test_what_is_no_mount_is_refused(given: Any) -> None:
    with pytest.raises(SandcellError) as refused:
        parse_mount(given)
    assert refused.value.code is ErrorCode.INVALID_ARGUMENT
    assert refused.value.hint


def test_below_a_folder_of_the_system_a_mount_may_be() -> None:
    assert parse_mount("/data:/usr/share/data").target == "/usr/share/data"
    assert parse_mount("/data:/etc/app.conf").target == "/etc/app.conf"


def test_a_place_has_one_mount() -> None:
    mounts = [parse_mount(each) for each in ("/a:/in", "/b:/out", "/c:/x/../in:rw")]
    check_targets(mounts[:2])
    with pytest.raises(SandcellError, match="another mount"):
        check_targets(mounts)


@pytest.mark.parametrize(
    ("windows", "here"),
    [
        (r"C:\Users\me", "/mnt/c/Users/me"),
        (r"d:/data/set 1", "/mnt/d/data/set 1"),
        (r"C:\\double\\", "/mnt/c/double"),
        ("C:\\", "/mnt/c"),
        (r"E:\with:colon", "/mnt/e/with:colon"),
        (r"\\wsl$\Debian\home\me", "/home/me"),
        (r"\\wsl.localhost\Ubuntu-24.04\home\me\x", "/home/me/x"),
        (r"\\wsl.localhost\Debian", "/"),
        ("/home/me", "/home/me"),
        ("//double/slash", "//double/slash"),
        (r"/odd\name", r"/odd\name"),
        ("c:relative", "c:relative"),
    ],
)
def test_windows_paths_are_those_of_the_linux_beside_it(windows: str, here: str) -> None:
    assert posix_source(windows) == here


def test_a_missing_source_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SandcellError, match="there is no") as refused:
        find_source(Mount(str(tmp_path / "gone"), "/in"))
    assert refused.value.details == {"field": "mounts"}


def test_a_source_is_its_real_path(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    assert find_source(Mount(str(tmp_path / "link"), "/in")).source == str(tmp_path / "real")


@pytest.mark.parametrize("source", [".", "run", "run/engine.sock", "link", "run/engine.sock/.."])
def test_what_is_closed_is_shown_by_no_way(tmp_path: Path, source: str) -> None:
    (tmp_path / "run" / "engine.sock").mkdir(parents=True)
    (tmp_path / "link").symlink_to("run")
    with pytest.raises(SandcellError, match="would open"):
        find_source(
            Mount(os.path.join(tmp_path, source), "/in"), closed=[str(tmp_path / "run" / "engine.sock")]
        )


def test_what_lies_beside_a_closed_path_is_open(tmp_path: Path) -> None:
    (tmp_path / "run2").mkdir()
    assert find_source(Mount(str(tmp_path / "run2"), "/in"), closed=[str(tmp_path / "run")])


@pytest.mark.parametrize(
    ("given", "port"),
    [
        (8000, PublishedPort(8000, 8000, "127.0.0.1")),
        ("8000", PublishedPort(8000, 8000, "127.0.0.1")),
        ("8080:80", PublishedPort(80, 8080, "127.0.0.1")),
        ("0:80", PublishedPort(80, 0, "127.0.0.1")),
        ("0.0.0.0:8080:80", PublishedPort(80, 8080, "0.0.0.0")),
        ("[::1]:8080:80", PublishedPort(80, 8080, "::1")),
    ],
)
def test_a_port_is_on_the_loopback_unless_said(given: int | str, port: PublishedPort) -> None:
    assert parse_port(given) == port


@pytest.mark.parametrize("given", [0, -1, 65536, "", "http", "x:80", "host:1:80", "80:", True, None, 1.5])
def test_what_is_no_port_is_refused(given: Any) -> None:
    with pytest.raises(SandcellError) as refused:
        parse_port(given)
    assert refused.value.code is ErrorCode.INVALID_ARGUMENT

from __future__ import annotations

import tarfile
from typing import TYPE_CHECKING

import pytest

from sandcell_container.engines.image_context import image_files, own_version, pack_context, read_bundle
from sandcell_container.errors import ErrorCode, SandcellError

if TYPE_CHECKING:
    from pathlib import Path


def test_the_context_is_this_installation() -> None:
    files = image_files(ca_bundle=b"certificate")
    assert {"Dockerfile", "entry.py", "ca.crt", "requirements.txt"} <= files.keys()
    for name in (
        "sandcell/guest/main.py",
        "sandcell_container/guest/spawner.py",
        "sandcell_runtime/launch.py",
    ):
        assert files[f"packages/{name}"]
    assert any(name.startswith("packages/sandcell_kernel/") for name in files)
    assert not [name for name in files if "__pycache__" in name or name.endswith(".pyc")]
    metadata = files[f"packages/sandcell-{own_version()}.dist-info/METADATA"].decode()
    assert f"Version: {own_version()}" in metadata


def test_the_guest_gets_what_it_needs_and_no_extra() -> None:
    needed = image_files()["requirements.txt"].decode().splitlines()
    assert any(each.startswith("tornado") for each in needed)
    assert not [each for each in needed if each.startswith("docker")]


def test_the_same_files_are_the_same_context() -> None:
    files = {"b": b"2", "a/c": b"1"}
    packed = pack_context(files)
    assert packed.getvalue() == pack_context(dict(reversed(files.items()))).getvalue()
    with tarfile.open(fileobj=packed) as tar:
        assert tar.getnames() == ["a/c", "b"]


def test_what_is_a_program_may_be_executed() -> None:
    files = image_files(ca_bundle=b"")
    with tarfile.open(fileobj=pack_context(files)) as tar:
        modes = {each.name.rpartition("/")[2]: each.mode for each in tar}
    assert (modes["sandcell-tool"], modes["spawner.py"], modes["Dockerfile"]) == (0o755, 0o644, 0o644)


def test_a_bundle_has_to_hold_certificates(tmp_path: Path) -> None:
    path = tmp_path / "ca.crt"
    path.write_bytes(b"-----BEGIN CERTIFICATE-----\n")
    assert read_bundle(str(path)) == path.read_bytes()
    assert read_bundle(None) == b""
    path.write_bytes(b"something else")
    for wrong in (path, tmp_path / "gone"):
        with pytest.raises(SandcellError) as refused:
            read_bundle(str(wrong))
        assert refused.value.code is ErrorCode.INVALID_ARGUMENT

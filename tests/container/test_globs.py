"""Patterns for names of files: pure."""

from __future__ import annotations

import pytest

from sandcell_container.guest.worker.globs import PathFilter
from sandcell_container.guest.worker.opening import Refusal


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("*.py", ["a.py", "deep/er/a.py", ".py", "new\nline.py"], ["a.pyc", "a.py/b"]),
        ("src/*.py", ["src/a.py"], ["a.py", "src/deep/a.py", "x/src/a.py"]),
        ("src/**/*.py", ["src/a.py", "src/deep/er/a.py"], ["a.py", "src/a.txt"]),
        ("**/test", ["test", "a/b/test"], ["a/test/b"]),
        ("docs/**", ["docs/a", "docs/a/b"], ["docs", "a"]),
        ("?.t[xy]t", ["a.txt", "é.tyt"], ["ab.txt", "a.tzt"]),
        ("[!a-c]", ["d", "!"], ["a", "b"]),
        ("*.{py,pyi}", ["a.py", "a.pyi"], ["a.pyc"]),
        ("a{b", ["ab"], ["a{b"]),
        ("\\*", ["*"], ["a"]),
        ("a,b", ["a,b"], ["a"]),
        ("(a+)+$", ["(a+)+$"], ["aaa"]),
        ("*\udcff", ["x\udcff"], ["x"]),
    ],
)
def test_a_pattern_matches_what_it_says(pattern: str, matching: list[str], others: list[str]) -> None:
    wanted = PathFilter([pattern])
    for path in matching:
        assert wanted.wants(path.encode("utf-8", "surrogateescape")), path
    for path in others:
        assert not wanted.wants(path.encode("utf-8", "surrogateescape")), path


def test_what_is_excluded_is_not_wanted_whatever_else_is_said() -> None:
    wanted = PathFilter(["*.py"], ["test_*"])
    assert wanted.wants(b"a.py")
    assert not wanted.wants(b"deep/test_a.py")
    assert PathFilter().wants(b"anything")


def test_a_pattern_that_is_none_is_refused() -> None:
    with pytest.raises(Refusal):
        PathFilter(["[z-a]"])

from __future__ import annotations

from typing import Any

import pytest

from sandcell_kernel.editor import Suggestions, complete_line, inspect_line, is_whole, merge_matches


def complete(code: str) -> list[str] | None:
    """Return what could stand at the `|` in `code`."""
    found = complete_line(code.replace("|", ""), code.index("|"))
    return list(found.matches) if found is not None else None


@pytest.mark.parametrize(
    ("code", "matches"),
    [
        ("%%sh|", ["%%shell"]),
        ("%%|", ["%%shell", "%%exec", "%%process", "%%context"]),
        ("\n%%ex|", ["%%exec"]),
        ("%san|", ["%sandbox"]),
        ("x = 1\n%san|", None),
        ("%process list\n%con|", ["%context"]),
        ("%time|", None),
        ("%process |", ["list", "logs", "follow", "wait", "kill"]),
        ("%process lo|", ["logs"]),
        ("%process logs job --t|", ["--tail"]),
        ("%process list |", []),
        ("%%process job --|", ["--detach"]),
        ("%sandbox f|", ["files", "follow"]),
        ("%sandbox files re|", ["read", "replace", "rename", "remove", "restore"]),
        ("%sandbox ports |", ["expose", "close"]),
        ("%sandbox ports expose 8000 --|", ["--name", "--rotate"]),
        ("%sandbox files search x --i|", ["--ignore-case"]),
        ("%sandbox files data |", []),
        ("%%shell\nl|", None),
        ("print(1)|", None),
    ],
)
def test_what_is_ours_can_be_completed(code: str, matches: list[str] | None) -> None:
    assert complete(code) == matches


def test_the_place_is_that_of_the_word() -> None:
    found = complete_line("\n%process lo", 12)
    assert found is not None
    assert (found.start, found.end, found.is_all) == (10, 12, True)


OURS = Suggestions(("%%shell",), 0, 3, is_all=False)


def test_matches_of_a_kernel_and_ours_stand_together() -> None:
    types = [{"start": 0, "end": 3, "text": "%%sx", "type": "magic"}]
    theirs: dict[str, Any] = {
        "status": "ok",
        "matches": ["%%sx"],
        "cursor_start": 0,
        "cursor_end": 3,
        "metadata": {"_jupyter_types_experimental": types},
    }
    both = merge_matches(theirs, OURS)
    assert both["matches"] == ["%%sx", "%%shell"]
    shown = both["metadata"]["_jupyter_types_experimental"]
    assert [each["text"] for each in shown] == ["%%sx", "%%shell"]


@pytest.mark.parametrize(
    ("theirs", "matches"),
    [
        ({"matches": [], "cursor_start": 9, "cursor_end": 9}, ["%%shell"]),
        ({"matches": "nonsense"}, ["%%shell"]),
        ({"matches": ["other"], "cursor_start": 2, "cursor_end": 3}, ["other"]),
        ({"matches": ["%%sx"], "cursor_start": 0, "metadata": 7}, ["%%sx", "%%shell"]),
    ],
)
def test_a_kernel_that_knows_nothing_or_speaks_of_elsewhere(
    theirs: dict[str, Any], matches: list[str]
) -> None:
    assert merge_matches(theirs, OURS)["matches"] == matches


def test_our_magics_are_explained_and_nothing_else() -> None:
    told = inspect_line("%process list", 3)
    assert told is not None
    assert "%process kill ID..." in told["data"]["text/plain"]
    assert inspect_line("print", 3) is None
    assert inspect_line("%%shell\nls", 9) is None


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("%process list", "complete"),
        ("%%exec\nls", "incomplete"),
        ("%%exec\nls\n\n", "complete"),
        ("%%shell?", "complete"),
        ("%process fly", "invalid"),
    ],
)
def test_completeness_is_as_ipython_has_it(code: str, status: str) -> None:
    told = is_whole(code)
    assert told is not None
    assert told["status"] == status


def test_completeness_of_others_is_not_ours_to_tell() -> None:
    assert is_whole("for x in y:") is None

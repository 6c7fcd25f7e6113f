"""Changes of files that come together: pure."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sandcell_container.guest.worker.changes import Changes

Step = Callable[[Changes], None]


def created(path: bytes) -> Step:
    return lambda changes: changes.note_created(path, is_folder=False)


def modified(path: bytes) -> Step:
    return lambda changes: changes.note_modified(path, is_folder=False)


def deleted(path: bytes) -> Step:
    return lambda changes: changes.note_deleted(path, is_folder=False)


def moved(old: bytes, path: bytes) -> Step:
    return lambda changes: changes.note_moved(old, path, is_folder=False)


@pytest.mark.parametrize(
    ("steps", "told"),
    [
        ([created(b"a"), modified(b"a"), modified(b"a")], ["created a"]),
        ([modified(b"a"), modified(b"a")], ["modified a"]),
        ([created(b"a"), deleted(b"a")], []),
        ([modified(b"a"), deleted(b"a")], ["deleted a"]),
        ([deleted(b"a"), created(b"a"), modified(b"a")], ["modified a"]),
        ([created(b"a"), moved(b"a", b"b")], ["created b"]),
        ([modified(b"a"), moved(b"a", b"b")], ["moved a b", "modified b"]),
        ([moved(b"a", b"b"), modified(b"b")], ["moved a b", "modified b"]),
        ([moved(b"a", b"b"), moved(b"b", b"c")], ["moved a c"]),
        ([moved(b"a", b"b"), moved(b"b", b"a")], ["modified a"]),
        ([moved(b"a", b"b"), deleted(b"b")], ["deleted a"]),
        ([modified(b"b"), moved(b"a", b"b")], ["moved a b"]),
        ([modified(b"a"), created(b"b"), modified(b"a")], ["modified a", "created b"]),
    ],
)
def test_what_comes_together_is_told_as_one(steps: list[Step], told: list[str]) -> None:
    changes = Changes()
    for step in steps:
        step(changes)
    found = [
        " ".join([each.kind, *([each.old.decode()] if each.old is not None else []), each.path.decode()])
        for each in changes.take(lambda _: True)
    ]
    assert found == told
    assert not len(changes)


def test_what_is_in_a_folder_that_moves_is_told_of_its_new_place() -> None:
    for is_new, first in [(True, "created b"), (False, "moved a b")]:
        changes = Changes()
        if is_new:
            changes.note_created(b"a", is_folder=True)
        changes.note_created(b"a/x", is_folder=False)
        changes.note_moved(b"a/y", b"a/z", is_folder=False)
        changes.note_moved(b"a", b"b", is_folder=True)
        found = [
            " ".join([each.kind, *([each.old.decode()] if each.old is not None else []), each.path.decode()])
            for each in changes.take(lambda _: True)
        ]
        assert found == [first, "created b/x", "moved b/y b/z"]


def test_what_moves_in_or_out_of_what_is_wanted_comes_or_goes() -> None:
    changes = Changes()
    for old, path in [(b"a.py", b"a.txt"), (b"b.txt", b"b.py"), (b"c.txt", b"d.txt"), (b"e.py", b"f.py")]:
        changes.note_moved(old, path, is_folder=False)
    found = [(each.kind, each.path) for each in changes.take(lambda path: path.endswith(b".py"))]
    assert found == [("deleted", b"a.py"), ("created", b"b.py"), ("moved", b"f.py")]

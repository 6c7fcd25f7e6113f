"""Changes of files that come together are told as one: a machine of names, which knows no system. Pure."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["Change", "Changes"]

CREATED, MODIFIED, DELETED, MOVED = "created", "modified", "deleted", "moved"


class Change:
    """What became of a path, relative to what is watched; `old` is where it was moved from."""

    __slots__ = ("is_folder", "is_modified", "kind", "old", "path")

    def __init__(self, kind: str, path: bytes, *, is_folder: bool, old: bytes | None = None) -> None:
        self.kind = kind
        self.path = path
        self.is_folder = is_folder
        self.old = old
        self.is_modified = False  # besides that it was moved

    def __repr__(self) -> str:
        return f"<{self.kind} {self.path!r} {self.old!r}>"


class Changes:
    """Gathers changes until `take` hands them out. Each path is told of at most once, or twice where it was moved and
    written to; the order is that of what was done to it last."""

    def __init__(self) -> None:
        self._held: dict[bytes, Change] = {}

    def __len__(self) -> int:
        return len(self._held)

    def note_created(self, path: bytes, *, is_folder: bool) -> None:
        before = self._held.pop(path, None)
        kind = MODIFIED if before is not None and before.kind == DELETED and not is_folder else CREATED
        self._put(Change(kind, path, is_folder=is_folder))

    def note_modified(self, path: bytes, *, is_folder: bool) -> None:
        before = self._held.get(path)
        if before is None or before.kind == DELETED:
            self._put(Change(MODIFIED, path, is_folder=is_folder))
        else:
            before.is_modified = before.kind == MOVED

    def note_deleted(self, path: bytes, *, is_folder: bool) -> None:
        before = self._held.pop(path, None)
        if before is not None and before.kind == CREATED:
            return  # it was never there, for who was told nothing yet
        if before is not None and before.old is not None:
            self._put(Change(DELETED, before.old, is_folder=is_folder))
        else:
            self._put(Change(DELETED, path, is_folder=is_folder))

    def note_moved(self, old: bytes, path: bytes, *, is_folder: bool) -> None:
        before = self._held.pop(old, None)
        self._held.pop(path, None)
        self._put_moved(before, old, path, is_folder=is_folder)
        if is_folder:
            self._carry(old, path)

    def _put_moved(self, before: Change | None, old: bytes, path: bytes, *, is_folder: bool) -> None:
        if before is not None and before.kind == CREATED:
            self._put(Change(CREATED, path, is_folder=is_folder))
            return
        origin = before.old if before is not None and before.old is not None else old
        if origin == path:
            self._put(Change(MODIFIED, path, is_folder=is_folder))
            return
        change = Change(MOVED, path, is_folder=is_folder, old=origin)
        change.is_modified = before is not None and (before.kind == MODIFIED or before.is_modified)
        self._put(change)

    def _carry(self, old: bytes, new: bytes) -> None:
        """What is held of things in a folder that was moved is told after that, and of their new places."""
        below = [each for each in self._held.values() if each.path.startswith(old + b"/")]
        for each in below:
            del self._held[each.path]
            each.path = new + each.path[len(old) :]
            if each.old is not None and each.old.startswith(old + b"/"):
                each.old = new + each.old[len(old) :]
            self._put(each)

    def take(self, wants: Callable[[bytes], bool]) -> Iterator[Change]:
        """Yield what there is of paths that are wanted, and forget it. What moves in or out of these is created or deleted."""
        held, self._held = self._held, {}
        for change in held.values():
            told = _seen(change, wants)
            if told is None:
                continue
            yield told
            if change.is_modified and told.kind == MOVED:
                yield Change(MODIFIED, change.path, is_folder=change.is_folder)

    def _put(self, change: Change) -> None:
        self._held.pop(change.path, None)
        self._held[change.path] = change


def _seen(change: Change, wants: Callable[[bytes], bool]) -> Change | None:
    """Return the change as it looks to who sees only paths that are wanted."""
    is_seen, was_seen = wants(change.path), change.old is not None and wants(change.old)
    if change.old is None or is_seen == was_seen:
        return change if is_seen else None
    if is_seen:
        return Change(CREATED, change.path, is_folder=change.is_folder)
    return Change(DELETED, change.old, is_folder=change.is_folder)

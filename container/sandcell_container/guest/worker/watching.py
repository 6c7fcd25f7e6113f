"""Tells what changes in a folder, by inotify: the one interface that a process without rights and without packages has."""

from __future__ import annotations

import ctypes
import errno
import os
import select
import stat
import struct
import time

from sandcell_container.drafts import is_draft
from sandcell_container.guest.worker.changes import Changes
from sandcell_container.guest.worker.globs import PathFilter
from sandcell_container.guest.worker.opening import Refusal, check_enterable, libc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from sandcell_container.guest.worker.changes import Change
    from sandcell_container.guest.worker.reply import Reply

__all__ = ["watch"]

# Source: inotify(7)
MODIFY, ATTRIB, MOVED_FROM, MOVED_TO, CREATE, DELETE = 0x2, 0x4, 0x40, 0x80, 0x100, 0x200
DELETE_SELF, MOVE_SELF, UNMOUNT, OVERFLOW, IGNORED = 0x400, 0x800, 0x2000, 0x4000, 0x8000
ONLYDIR, DONT_FOLLOW, EXCL_UNLINK, ISDIR = 0x1000000, 0x2000000, 0x4000000, 0x40000000
MASK = (
    MODIFY
    | ATTRIB
    | MOVED_FROM
    | MOVED_TO
    | CREATE
    | DELETE
    | DELETE_SELF
    | MOVE_SELF
    | ONLYDIR
    | EXCL_UNLINK
)
EVENT = struct.Struct("iIII")

MOST_HELD = 5000


def watch(reply: Reply, path: bytes, request: dict[str, Any]) -> None:
    """Send "opened" when all folders are watched, then changes as they come; end when what is watched has gone."""
    only = b""
    if not stat.S_ISDIR(os.stat(path).st_mode):
        path, only = os.path.split(
            path
        )  # a file is watched from its folder: an editor puts another one in its place
    check_enterable(path)
    wanted = PathFilter([os.fsdecode(only)] if only else request["include"], request["exclude"])
    watcher = Watcher(path, wanted, is_recursive=request["recursive"] and not only)
    try:
        watcher.add(b"", is_first=True)
        reply.send({"opened": None})
        why = _tell(reply, watcher, request["debounce"])
    finally:
        watcher.close()
    reply.done({"why": why})


def _tell(reply: Reply, watcher: Watcher, debounce: float) -> str:
    """Send changes, those of `debounce` seconds together, until the end; returns why that came."""
    poll = select.poll()
    poll.register(watcher.fd, select.POLLIN)
    poll.register(reply.fileno(), select.POLLIN)  # which is closed when nobody watches any more
    due = None
    while True:
        ready = poll.poll(None if due is None else max(0.0, due - time.monotonic()) * 1000)
        if any(fd == reply.fileno() for fd, _ in ready):
            return "closed"
        if ready:
            watcher.read()
            if due is None and watcher.has_news:
                due = time.monotonic() + debounce
        is_full = len(watcher.changes) > MOST_HELD
        if watcher.why or is_full or (due is not None and time.monotonic() >= due):
            due = None
            for each in watcher.take():
                reply.part(each)
            reply.flush()
        if watcher.why:
            return watcher.why


class Watcher:
    """An inotify instance, and what it watches: each folder by its number, with the names that are known to be in it."""

    def __init__(self, top: bytes, wanted: PathFilter, *, is_recursive: bool) -> None:
        self.fd: int = libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
        if self.fd < 0:
            raise _no_more(ctypes.get_errno())
        self.changes = Changes()
        self.why = ""
        self._top = top
        self._wanted = wanted
        self._is_recursive = is_recursive
        self._folders: dict[int, bytes] = {}
        self._names: dict[bytes, set[bytes]] = {}
        self._left: dict[
            int, tuple[bytes, bool, bool]
        ] = {}  # by cookie, what was moved away: path, folder, ours
        self._lost: list[str] = []

    @property
    def has_news(self) -> bool:
        return bool(len(self.changes) or self._left or self._lost)

    def close(self) -> None:
        os.close(self.fd)

    def take(self) -> list[dict[str, object]]:
        """Return what is to be told, and forget it."""
        for path, is_folder, is_ours in self._left.values():
            if not is_ours:
                self._gone(path, is_folder=is_folder)
        self._left.clear()
        told: list[dict[str, object]] = [{"type": "lost", "why": why} for why in dict.fromkeys(self._lost)]
        self._lost.clear()
        return told + [self._describe(each) for each in self.changes.take(self._wants)]

    # folders

    def add(self, relative: bytes, *, is_first: bool = False) -> None:
        """Watch a folder and, where that is asked for, those below. What is found in it is news, but not the first time."""
        todo = [relative]
        while todo:
            folder = todo.pop()
            if not self._watch(folder):
                continue
            known = self._names.setdefault(folder, set())
            for name, is_folder in self._scan(folder):
                path = os.path.join(folder, name)
                if name not in known and not is_first:
                    self.changes.note_created(path, is_folder=is_folder)
                known.add(name)
                if is_folder and self._is_recursive and not self._wanted.excludes(path):
                    todo.append(path)

    def _watch(self, folder: bytes) -> bool:
        path = os.path.join(self._top, folder) if folder else self._top
        number: int = libc.inotify_add_watch(self.fd, path, MASK | (DONT_FOLLOW if folder else 0))
        if number >= 0:
            self._folders[number] = folder
            return True
        problem = ctypes.get_errno()
        if not folder:
            raise _no_more(problem)
        if problem in (errno.ENOSPC, errno.ENOMEM):
            self._lost.append("the system lets no more folders be watched: fs.inotify.max_user_watches")
        return False  # it has gone, or may not be read: then nothing of what is in it is told

    def _scan(self, folder: bytes) -> list[tuple[bytes, bool]]:
        try:
            with os.scandir(os.path.join(self._top, folder) if folder else self._top) as found:
                return [
                    (each.name, each.is_dir(follow_symlinks=False))
                    for each in found
                    if not is_draft(each.name)
                ]
        except OSError:
            return []

    def _forget(self, folder: bytes) -> None:
        """Watch a folder that went away, and those below it, no more."""
        for number, each in list(self._folders.items()):
            if each == folder or each.startswith(folder + b"/"):
                libc.inotify_rm_watch(self.fd, number)
                del self._folders[number]
                self._names.pop(each, None)

    def _carry(self, old: bytes, new: bytes) -> None:
        """What is watched in a folder has another name from now on."""
        for number, each in list(self._folders.items()):
            if each == old or each.startswith(old + b"/"):
                place = new + each[len(old) :]
                self._folders[number] = place
                self._names[place] = self._names.pop(each, set())

    def _begin_again(self) -> None:
        """Some was lost, perhaps that folders came and went: look at all of them again."""
        self._lost.append("more changed at once than the system keeps")
        self._folders.clear()
        self._names.clear()
        self._left.clear()
        self.changes = Changes()
        self.add(b"", is_first=True)

    # events

    def read(self) -> None:
        """Take what the system has to tell."""
        try:
            data = os.read(self.fd, 2**16)
        except BlockingIOError:
            return
        at = 0
        while at < len(data):
            number, mask, cookie, size = EVENT.unpack_from(data, at)
            at += EVENT.size
            name = data[at : at + size].rstrip(b"\0")
            at += size
            self._note(number, mask, cookie, name)

    def _note(self, number: int, mask: int, cookie: int, name: bytes) -> None:
        if mask & OVERFLOW:
            self._begin_again()
            return
        folder = self._folders.get(number)
        if folder is None:
            return
        if mask & (DELETE_SELF | MOVE_SELF | UNMOUNT | IGNORED):
            if not folder:
                self.why = "moved" if mask & MOVE_SELF else "deleted"
            elif mask & IGNORED:
                self._names.pop(self._folders.pop(number), None)
            return
        if not name:
            return  # of a folder itself: the one above tells of it
        path, is_folder = os.path.join(folder, name), bool(mask & ISDIR)
        if is_draft(name):
            if mask & MOVED_FROM:
                self._left[cookie] = (path, is_folder, True)
        elif mask & MOVED_FROM:
            self._names[folder].discard(name)
            self._left[cookie] = (path, is_folder, False)
        elif mask & MOVED_TO:
            self._arrive(self._left.pop(cookie, None), folder, name, is_folder=is_folder)
        elif mask & CREATE:
            self._appear(folder, name, is_folder=is_folder)
        elif mask & DELETE:
            self._names[folder].discard(name)
            self._gone(path, is_folder=is_folder)
        else:
            self.changes.note_modified(path, is_folder=is_folder)

    def _arrive(
        self, left: tuple[bytes, bool, bool] | None, folder: bytes, name: bytes, *, is_folder: bool
    ) -> None:
        """Something has got this name by a rename."""
        path = os.path.join(folder, name)
        is_known = name in self._names[folder]
        self._names[folder].add(name)
        if left is not None and not left[2]:
            self.changes.note_moved(left[0], path, is_folder=is_folder)
            if is_folder:
                self._carry(left[0], path)
        elif is_known and not is_folder:
            self.changes.note_modified(path, is_folder=False)
        else:
            self._appear(folder, name, is_folder=is_folder)

    def _appear(self, folder: bytes, name: bytes, *, is_folder: bool) -> None:
        path = os.path.join(folder, name)
        self._names[folder].add(name)
        self.changes.note_created(path, is_folder=is_folder)
        if is_folder and self._is_recursive and not self._wanted.excludes(path):
            self.add(path)

    def _gone(self, path: bytes, *, is_folder: bool) -> None:
        if is_folder:
            self._forget(path)
        self.changes.note_deleted(path, is_folder=is_folder)

    # what is told

    def _wants(self, path: bytes) -> bool:
        if not self._wanted.wants(path):
            return False
        return not any(self._wanted.excludes(each) for each in _above(path))

    def _describe(self, change: Change) -> dict[str, object]:
        return {
            "type": change.kind,
            "path": os.fsdecode(os.path.join(self._top, change.path)),
            "relative_path": os.fsdecode(change.path),
            "old_path": None if change.old is None else os.fsdecode(os.path.join(self._top, change.old)),
            "directory": change.is_folder,
        }


def _above(path: bytes) -> list[bytes]:
    """Return the folders that a path is in."""
    parts = path.split(b"/")
    return [b"/".join(parts[:count]) for count in range(1, len(parts))]


def _no_more(number: int) -> Exception:
    if number in (errno.EMFILE, errno.ENOSPC):
        return Refusal(
            "QUOTA_EXCEEDED",
            "the system lets this user watch no more: fs.inotify.max_user_instances or max_user_watches",
        )
    return OSError(number, os.strerror(number))

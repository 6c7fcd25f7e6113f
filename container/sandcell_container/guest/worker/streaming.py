"""Folders as streams: one end of a pipe goes to the guest, which moves the bytes."""

from __future__ import annotations

import fcntl
import os

from sandcell_container.drafts import draft_name
from sandcell_container.guest.worker.folders import remove_tree
from sandcell_container.guest.worker.globs import PathFilter
from sandcell_container.guest.worker.opening import Refusal, check_enterable, make_folder
from sandcell_container.tar_folder import FolderMaker
from sandcell_container.tar_reader import InvalidArchive, TarReader
from sandcell_container.tar_writer import FolderPacker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from sandcell_container.guest.worker.reply import Reply

__all__ = ["pack", "unpack"]

PIPE = 2**20
F_SETPIPE_SZ = 1031  # named in fcntl from Python 3.10 on, and this may be another


def pack(reply: Reply, path: bytes, request: dict[str, Any]) -> None:
    """Write the folder to a pipe."""
    check_enterable(path)
    names = PathFilter(exclude=request["exclude"])
    packer = FolderPacker(path, wants=lambda relative: not names.excludes(relative))
    given, made = _pipe()
    try:
        reply.send({"opened": None}, given)
        os.close(given)
        given = -1
        for chunk in packer.chunks():
            view = memoryview(chunk)
            while view:
                view = view[os.write(made, view) :]
    finally:
        _close(given, made)
    reply.done({"files": packer.files, "bytes": packer.bytes, "skipped": packer.skipped[:100]})


def unpack(reply: Reply, path: bytes, request: dict[str, Any]) -> None:
    """Make in the folder what comes from a pipe; with `replace` that, and nothing else, is in it afterwards."""
    make_folder(path)
    check_enterable(path)
    into = os.path.join(path, draft_name(b".sandcell-new")) if request["replace"] else path
    if request["replace"]:
        os.mkdir(into, 0o700)
    try:
        maker = FolderMaker(into, any_links=True)
        try:
            _receive(reply, maker)
        finally:
            maker.close()
        if request["replace"]:
            _swap(path, into, os.path.join(path, draft_name(b".sandcell-old")))
    finally:
        if request["replace"] and os.path.isdir(into):
            remove_tree(into)
    reply.done({"files": maker.files, "bytes": maker.bytes, "skipped": maker.left_out[:100]})


def _receive(reply: Reply, maker: FolderMaker) -> None:
    given, made = _pipe()
    try:
        reply.send({"opened": None}, made)
        os.close(made)
        made = -1
        reader = TarReader(maker)
        while data := os.read(given, PIPE):
            reader.feed(data)
        reader.close()
        maker.finish()
    except InvalidArchive as problem:
        raise Refusal("INVALID_ARGUMENT", str(problem)) from None
    finally:
        _close(given, made)


def _swap(folder: bytes, new: bytes, old: bytes) -> None:
    """Let what is in `new` take the place of what is in `folder`: one by one, as that may be a mount itself."""
    kept = (os.path.basename(new), os.path.basename(old))
    os.mkdir(old, 0o700)
    try:
        _move_all(folder, old, kept)
        try:
            _move_all(new, folder, ())
        except BaseException:
            _move_all(folder, new, kept)
            raise
    except BaseException:
        _move_all(old, folder, ())
        os.rmdir(old)
        raise
    remove_tree(old)


def _move_all(source: bytes, target: bytes, kept: tuple[bytes, ...]) -> None:
    for name in os.listdir(source):
        if name not in kept:
            os.rename(os.path.join(source, name), os.path.join(target, name))


def _pipe() -> tuple[int, int]:
    given, made = os.pipe()
    try:
        fcntl.fcntl(made, F_SETPIPE_SZ, PIPE)
    except OSError:
        pass  # the system grants less: it is only slower
    return given, made


def _close(*fds: int) -> None:
    for fd in fds:
        if fd >= 0:
            os.close(fd)

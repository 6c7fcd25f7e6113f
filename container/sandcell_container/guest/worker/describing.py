"""What is known of a file: the fields of `FileInfo`."""

from __future__ import annotations

import functools
import os
import stat

from sandcell_container.file_tag import tag_of
from sandcell_container.guest.worker.opening import open_regular

__all__ = ["SNIFFED", "describe", "describe_one", "is_binary", "owner_of"]

SNIFFED = 2**13
_TYPES = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "symlink"}


@functools.lru_cache(
    maxsize=256
)  # who has which uid changes seldom, and reading the table costs as much as all else
def owner_of(uid: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def describe(path: bytes, relative: bytes, status: os.stat_result) -> dict[str, object]:
    """Return the fields of FileInfo; whether it is binary is not looked at."""
    mode = status.st_mode
    return {
        "name": os.fsdecode(os.path.basename(path)),
        "path": os.fsdecode(path),
        "relative_path": os.fsdecode(relative),
        "type": _TYPES.get(stat.S_IFMT(mode), "other"),
        "size": status.st_size,
        "mtime": status.st_mtime,
        "mode": stat.S_IMODE(mode),
        "owner": owner_of(status.st_uid),
        "target": os.fsdecode(os.readlink(path)) if stat.S_ISLNK(mode) else None,
        "readable": os.access(path, os.R_OK),
        "writable": os.access(path, os.W_OK),
        "executable": os.access(path, os.X_OK),
        "etag": tag_of(status),
    }


def describe_one(path: bytes, status: os.stat_result | None = None) -> dict[str, object]:
    """Return the fields of FileInfo, for a regular file that may be read also whether it is binary."""
    status = os.lstat(path) if status is None else status
    fields = describe(path, os.path.basename(path), status)
    if stat.S_ISREG(status.st_mode) and fields["readable"]:
        try:
            fd = open_regular(path)
        except Exception:  # noqa: BLE001 -- it has become something else, or may not be opened: then it is not known
            return fields
        try:
            fields["binary"] = is_binary(os.pread(fd, SNIFFED, 0))
        except OSError:
            pass  # some files of /proc and /sys say no when they are read
        finally:
            os.close(fd)
    return fields


def is_binary(head: bytes) -> bool:
    """Tell whether this is the beginning of something that is no text: it has a NUL, or is no UTF-8."""
    if b"\0" in head:
        return True
    try:
        head.decode()
    except UnicodeDecodeError as problem:
        # the last character may be cut
        return not (len(head) == SNIFFED and problem.start > len(head) - 4)
    return False

"""Packs and unpacks files of a sandbox as a tar stream, as its user: a program of the standard library, given to `python -c`.

    archive.py pack PATH      reads a line, then writes a tar of PATH, whose first member is its last name
    archive.py unpack PATH    reads a tar to its end, and makes what is in it in the folder PATH

No symlink is followed, neither while packing nor while unpacking: not one that the archive makes, nor one that lay there
or is put there meanwhile. Names are bytes. What is neither file, folder nor link is left out when packing and refused when
unpacking. It ends with 1 and a line on standard error where something cannot be done, what was made before stays.
"""

import os
import stat
import sys
import tarfile
from collections.abc import Callable
from typing import IO

PIECE = 2**18
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
ENCODING, ERRORS = "utf-8", "surrogateescape"


class Refused(Exception):
    """Something that cannot be; the text says what."""


def pack(path: str, out: IO[bytes]) -> None:
    """Write a tar of `path`, itself not followed."""
    parent, name = os.path.split(os.path.abspath(path))
    handle = os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    with tarfile.open(
        fileobj=out, mode="w|", format=tarfile.GNU_FORMAT, encoding=ENCODING, errors=ERRORS
    ) as tar:
        add(tar, handle, name or ".", name or ".")
    os.close(handle)


def add(tar: tarfile.TarFile, folder: int, name: str, shown: str) -> None:
    found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    member = tarfile.TarInfo(shown)
    member.mode, member.mtime = stat.S_IMODE(found.st_mode), int(found.st_mtime)
    if stat.S_ISLNK(found.st_mode):
        member.type, member.linkname = tarfile.SYMTYPE, os.readlink(name, dir_fd=folder)
        tar.addfile(member)
    elif stat.S_ISDIR(found.st_mode):
        member.type = tarfile.DIRTYPE
        tar.addfile(member)
        handle = os.open(name, FOLDER, dir_fd=folder)
        for each in sorted(os.listdir(handle)):
            add(tar, handle, each, f"{shown}/{each}")
        os.close(handle)
    elif stat.S_ISREG(found.st_mode):
        add_file(tar, folder, name, member)


def add_file(tar: tarfile.TarFile, folder: int, name: str, member: tarfile.TarInfo) -> None:
    handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    with open(handle, "rb") as file:
        member.size = os.fstat(handle).st_size
        tar.addfile(member, Exactly(file, member.size))


class Exactly:
    """A file that has `size` bytes, whatever becomes of it: cut, or filled with zeros, as its head is written already."""

    def __init__(self, file: IO[bytes], size: int) -> None:
        self.file = file
        self.left = size

    def read(self, count: int = -1, /) -> bytes:
        wanted = self.left if count < 0 else min(count, self.left)
        data = self.file.read(wanted)
        data += bytes(wanted - len(data))
        self.left -= len(data)
        return data


def unpack(path: str, archive: IO[bytes]) -> None:
    """Make what is in the tar in the folder `path`."""
    root = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    with tarfile.open(fileobj=archive, mode="r|", encoding=ENCODING, errors=ERRORS) as tar:
        for member in tar:
            make(tar, member, root)
    while archive.read(PIECE):
        pass  # the padding of its end, so that who writes is not cut off


def make(tar: tarfile.TarFile, member: tarfile.TarInfo, root: int) -> None:
    parts = parts_of(member.name)
    if not parts:
        return  # the folder itself
    folder = open_folder(root, parts[:-1])
    try:
        if member.isdir():
            handle = open_folder(folder, parts[-1:])
            os.fchmod(handle, member.mode & 0o777 | 0o700)  # what follows goes into it
            os.close(handle)
        elif member.isreg():
            make_file(tar, member, folder, parts[-1])
        elif member.issym():
            replace(folder, parts[-1], lambda draft: os.symlink(member.linkname, draft, dir_fd=folder))
        elif member.islnk():
            make_link(root, parts_of(member.linkname), folder, parts[-1])
        else:
            raise Refused(f"{member.name!r} is no file, folder or link")
    finally:
        os.close(folder)


def parts_of(name: str) -> list[str]:
    parts = [each for each in name.split("/") if each not in ("", ".")]
    if name.startswith("/") or ".." in parts or "\0" in name:
        raise Refused(f"{name!r} leads out of the folder")
    return parts


def open_folder(root: int, parts: list[str]) -> int:
    """Return the folder `parts` below `root`, made where it is not there; a symlink on the way is refused."""
    handle = os.dup(root)
    for each in parts:
        try:
            os.mkdir(each, dir_fd=handle)
        except FileExistsError:
            pass
        try:
            inner = os.open(each, FOLDER, dir_fd=handle)
        except OSError as problem:
            raise Refused(f"{each!r} is no folder: {problem.strerror}") from problem
        finally:
            os.close(handle)
        handle = inner
    return handle


def make_file(tar: tarfile.TarFile, member: tarfile.TarInfo, folder: int, name: str) -> None:
    content = tar.extractfile(member)
    assert content is not None

    def write(draft: str) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(draft, flags, 0o600, dir_fd=folder), "wb") as file:
            while data := content.read(PIECE):
                file.write(data)
            os.fchmod(file.fileno(), member.mode & 0o777)
            file.flush()
            os.utime(file.fileno(), (member.mtime, member.mtime))

    replace(folder, name, write)


def make_link(root: int, target: list[str], folder: int, name: str) -> None:
    if not target:
        raise Refused("a link to the folder itself")
    source = open_folder(root, target[:-1])
    try:
        replace(
            folder,
            name,
            lambda draft: os.link(
                target[-1], draft, src_dir_fd=source, dst_dir_fd=folder, follow_symlinks=False
            ),
        )
    finally:
        os.close(source)


def replace(folder: int, name: str, write: Callable[[str], object]) -> None:
    """Have `write` make something under another name, and give it this one: whole, or not at all."""
    draft = f".{os.getpid()}.{os.urandom(4).hex()}"
    try:
        write(draft)
        os.rename(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        try:
            os.unlink(draft, dir_fd=folder)
        except FileNotFoundError:
            pass
        raise


def main(verb: str, path: str) -> int:
    try:
        if verb == "pack":
            sys.stdin.buffer.readline()
            pack(path, sys.stdout.buffer)
            sys.stdout.buffer.flush()
        else:
            unpack(path, sys.stdin.buffer)
    except (Refused, OSError, tarfile.TarError) as problem:
        text = str(problem).encode(errors="backslashreplace")
        os.write(2, type(problem).__name__.encode() + b": " + text + b"\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))

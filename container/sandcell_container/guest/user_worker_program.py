"""The worker: does with the user's rights what has to be done by the user, and passes what it opens to the guest.

Standard library only; `user_worker` starts its text by `PYTHON -I -S -c TEXT` as the user, without an environment, with
one end of a SEQPACKET socket pair as its standard input. It holds nothing that user code must not have, and what it
says counts as untrusted. One JSON object a record:
  {"do": VERB, ...}                    of a file also "path", which is absolute
  {"errno": NUMBER, "is"?}             it failed; `is` names what a path is that is no regular file
  {"ok": ...}                          and, where the verb opens something, its descriptors by SCM_RIGHTS
  {"part": [...]}                      some entries of a list; `ok` ends it
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import socket
import stat
import struct
import sys
import time

TYPE_CHECKING = False  # importing typing would cost 5 ms
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

PR_SET_DUMPABLE = 4
OPENAT2, AT_FDCWD, RESOLVE_NO_MAGICLINKS = 437, -100, 2  # the number is the same on every architecture
LONGEST_RECORD = 2**16
PART_BYTES = 2**15  # with one entry more, of at most three paths, still half of what a socket takes at once
MOST_ENTRIES = 100_000
PROCESSES_A_PART = 4  # with 6 bytes of JSON for each of their commands, half of what a socket takes at once
LONGEST_COMMAND = 2**12
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

libc = ctypes.CDLL(None, use_errno=True)


class NotRegular(Exception):
    """The path leads to something that reading or writing may block on, or that acts when it is opened."""

    def __init__(self, kind: str) -> None:
        self.kind = kind


def open_without_magic(path: bytes, flags: int) -> int:
    """Open `path`, refusing what only looks like a symlink (/proc/PID/fd, root, cwd) where the kernel can."""
    flags |= os.O_CLOEXEC
    how = struct.pack("QQQ", flags, 0, RESOLVE_NO_MAGICLINKS)
    fd: int = libc.syscall(OPENAT2, AT_FDCWD, path, how, len(how))
    if fd >= 0:
        return fd
    number = ctypes.get_errno()
    if number in (errno.ENOSYS, errno.EPERM):  # an old kernel, or a seccomp filter that does not know it
        return os.open(path, flags)
    raise OSError(number, os.strerror(number))


def kind_of(mode: int) -> str:
    names: dict[int, str] = {
        stat.S_IFIFO: "a FIFO",
        stat.S_IFSOCK: "a socket",
        stat.S_IFCHR: "a device",
        stat.S_IFBLK: "a device",
    }
    return names.get(stat.S_IFMT(mode), "no regular file")


def check_regular(status: os.stat_result) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, "is a directory")
    if not stat.S_ISREG(status.st_mode):
        raise NotRegular(kind_of(status.st_mode))


# --- what is known of a file


def owner_of(uid: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def describe(path: bytes, relative: bytes, status: os.stat_result) -> dict[str, object]:
    """Return the fields of FileInfo."""
    mode = status.st_mode
    is_link = stat.S_ISLNK(mode)
    kind = (
        "file"
        if stat.S_ISREG(mode)
        else "directory"
        if stat.S_ISDIR(mode)
        else "symlink"
        if is_link
        else "other"
    )
    return {
        "name": os.fsdecode(os.path.basename(path)),
        "path": os.fsdecode(path),
        "relative_path": os.fsdecode(relative),
        "type": kind,
        "size": status.st_size,
        "mtime": status.st_mtime,
        "mode": stat.S_IMODE(mode),
        "owner": owner_of(status.st_uid),
        "target": os.fsdecode(os.readlink(path)) if is_link else None,
        "readable": os.access(path, os.R_OK),
        "writable": os.access(path, os.W_OK),
        "executable": os.access(path, os.X_OK),
    }


def describe_one(path: bytes) -> dict[str, object]:
    return describe(path, os.path.basename(path), os.lstat(path))


def walk(folder: bytes, relative: bytes, *, recursive: bool, hidden: bool) -> Iterator[dict[str, object]]:
    """Yield what is in `folder`, by name, each folder before what is in it. Symlinks are not followed; what goes
    away meanwhile is left out, and so is what is in a folder that the user may not read."""
    for name in sorted(os.listdir(folder)):
        if name.startswith(b".") and not hidden:
            continue
        path, below = os.path.join(folder, name), os.path.join(relative, name)
        try:
            status = os.lstat(path)
            entry = describe(path, below, status)
        except FileNotFoundError:
            continue
        yield entry
        if recursive and stat.S_ISDIR(status.st_mode):
            try:
                yield from walk(path, below, recursive=True, hidden=hidden)
            except (FileNotFoundError, PermissionError):
                continue


# --- verbs


class Worker:
    """Does one request after another."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.verbs: dict[str, Callable[[bytes, dict[str, Any]], None]] = {
            "read": self.read,
            "begin": self.begin,
            "commit": self.commit,
            "new": self.new,
            "stat": self.stat,
            "list": self.list,
            "mkdir": self.mkdir,
            "remove": self.remove,
            "terminal": self.terminal,
            "processes": self.processes,
        }

    def serve(self) -> None:
        while message := self.sock.recv(LONGEST_RECORD):
            request = json.loads(message)
            path = os.fsencode(request.get("path", ""))
            try:
                self.verbs[request["do"]](path, request)
            except NotRegular as problem:
                self.send({"errno": errno.EINVAL, "is": problem.kind})
            except OSError as problem:
                self.send({"errno": problem.errno or errno.EIO})

    def send(self, answer: dict[str, object], *fds: int) -> None:
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack(f"{len(fds)}i", *fds))] if fds else []
        self.sock.sendmsg([json.dumps(answer).encode()], rights)

    def read(self, path: bytes, _: dict[str, Any]) -> None:
        # without O_NONBLOCK the open of a FIFO waits for a writer
        fd = open_without_magic(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
        try:
            status = os.fstat(fd)
            check_regular(status)
            self.send({"ok": describe(path, os.path.basename(path), status)}, fd)
        finally:
            os.close(fd)

    def begin(self, path: bytes, _: dict[str, Any]) -> None:
        """Open a new file beside the one that is to be written; a symlink is followed, as an editor does."""
        target = os.path.realpath(path)
        make_folder(os.path.dirname(target))
        mode = None
        try:
            status = os.lstat(target)
            check_regular(status)
            mode = stat.S_IMODE(status.st_mode)
        except FileNotFoundError:
            pass  # a new file: the umask says its mode
        temporary = os.path.join(os.path.dirname(target), b".sandcell-" + os.urandom(8).hex().encode())
        self.open_new(
            temporary, {"temporary": os.fsdecode(temporary), "target": os.fsdecode(target), "mode": mode}
        )

    def commit(self, temporary: bytes, request: dict[str, Any]) -> None:
        target = os.fsencode(request["target"])
        if request["mode"] is not None:
            os.chmod(temporary, request["mode"])
        os.rename(temporary, target)
        self.send({"ok": describe_one(target)})

    def new(self, path: bytes, _: dict[str, Any]) -> None:
        make_folder(os.path.dirname(path))
        self.open_new(path, {})

    def open_new(self, path: bytes, answer: dict[str, object]) -> None:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        try:
            self.send({"ok": answer}, fd)
        finally:
            os.close(fd)

    def stat(self, path: bytes, _: dict[str, Any]) -> None:
        self.send({"ok": describe_one(path)})

    def list(self, path: bytes, request: dict[str, Any]) -> None:
        part: list[dict[str, object]] = []
        count = size = 0
        for entry in walk(path, b"", recursive=request["recursive"], hidden=request["hidden"]):
            count += 1
            if count > MOST_ENTRIES:
                raise OSError(errno.EFBIG, "too many entries")
            part.append(entry)
            size += len(json.dumps(entry))
            if size > PART_BYTES:
                self.send({"part": part})
                part, size = [], 0
        self.send({"part": part})
        self.send({"ok": count})

    def mkdir(self, path: bytes, _: dict[str, Any]) -> None:
        make_folder(path)
        self.send({"ok": describe_one(path)})

    def remove(self, path: bytes, _: dict[str, Any]) -> None:
        if stat.S_ISDIR(os.lstat(path).st_mode):
            remove_tree(path)
        else:
            os.unlink(path)
        self.send({"ok": None})

    def terminal(self, _path: bytes, _: dict[str, Any]) -> None:
        """Open a PTY: its slave belongs to whoever opens it, and the user's programs open theirs again."""
        master, slave = os.openpty()
        try:
            self.send({"ok": os.ttyname(slave)}, master, slave)
        finally:
            os.close(master)
            os.close(slave)

    def processes(self, _path: bytes, request: dict[str, Any]) -> None:
        part: list[dict[str, object]] = []
        for pid in request["pids"]:
            row = describe_process(pid, command_of(pid), owner_of)
            if row is not None:
                part.append(row)
            if len(part) == PROCESSES_A_PART:
                self.send({"part": part})
                part = []
        self.send({"part": part})
        self.send({"ok": len(request["pids"])})


def command_of(pid: int) -> bytes:
    """Return the beginning of a process's command line. Takes a lock of that process, and so may hang."""
    try:
        return read_start(f"/proc/{pid}/cmdline").rstrip(b"\0").replace(b"\0", b" ")
    except (FileNotFoundError, ProcessLookupError):
        return b""


def describe_process(pid: int, command: bytes, name_of: Callable[[int], str]) -> dict[str, object] | None:
    """Return what /proc says of a process, None where it is gone or only waits to be reaped. Source: proc(5).

    Without a `command` it has its name, in brackets. `name_of` makes a name of its user's number. Never hangs.
    """
    try:
        head, _, rest = read_start(f"/proc/{pid}/stat").rpartition(b")")
        uid = read_start(f"/proc/{pid}/status").partition(b"\nUid:\t")[2].split()[1]
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = rest.split()
    if fields[0] in (b"Z", b"X"):
        return None
    ticks = os.sysconf("SC_CLK_TCK")
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / ticks
    return {
        "pid": pid,
        "user": name_of(int(uid)),
        "cpu": (int(fields[11]) + int(fields[12])) / ticks,
        "memory": int(fields[21]) * os.sysconf("SC_PAGE_SIZE"),
        "started": time.time() - age,
        "command": os.fsdecode(command) or f"[{os.fsdecode(head.partition(b'(')[2])}]",
    }


def read_start(path: str) -> bytes:
    with open(path, "rb", buffering=0) as file:
        return file.read(LONGEST_COMMAND)


def remove_tree(path: bytes) -> None:
    """Remove a folder and what is in it, however deep: one descriptor is open at a time, and no path grows.

    The way back up is `..`, which has to be the folder it came from: nothing else is touched when code moves folders.
    """
    above: list[tuple[os.stat_result, str, list[str]]] = []
    folder = os.open(path, FOLDER)
    try:
        left = remove_files(folder)
        while left or above:
            if left:
                name = left.pop()
                above.append((os.fstat(folder), name, left))
                folder = step(folder, name)
                left = remove_files(folder)
            else:
                status, name, left = above.pop()
                folder = step(folder, "..")
                if not os.path.samestat(os.fstat(folder), status):
                    raise OSError(errno.EBUSY, "was moved meanwhile")
                os.rmdir(name, dir_fd=folder)
    finally:
        os.close(folder)
    os.rmdir(path)


def remove_files(folder: int) -> list[str]:
    """Remove what is in `folder` and no folder; return the names of those."""
    with os.scandir(folder) as found:
        entries = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in found]
    for name, is_folder in entries:
        if not is_folder:
            os.unlink(name, dir_fd=folder)
    return [name for name, is_folder in entries if is_folder]


def step(folder: int, name: str) -> int:
    """Open what `name` is from `folder`, and close that."""
    there = os.open(name, FOLDER, dir_fd=folder)
    os.close(folder)
    return there


def make_folder(path: bytes) -> None:
    try:
        os.makedirs(path, exist_ok=True)
    except FileExistsError:
        raise NotADirectoryError(errno.ENOTDIR, "a file is in the way") from None


def main() -> None:
    """See the module. Undumpable: user code of the same uid must not get at the socket."""
    libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    sys.setrecursionlimit(20000)  # folders in folders, as deep as a path can be
    with socket.socket(fileno=0) as sock:
        Worker(sock).serve()


if __name__ == "__main__":
    main()

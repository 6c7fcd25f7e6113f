"""Linux namespaces and privileges, by way of libc: what a process takes on and gives up before it serves a sandbox."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import platform
import select
import signal
import stat
from typing import NamedTuple

__all__ = [
    "OwnedNetwork",
    "adopt_orphans",
    "bind_all",
    "drop_privileges",
    "enter",
    "enter_network",
    "hide_from_peers",
    "leave_keyring",
    "open_network",
    "own_device",
    "own_mounts",
    "owned_network",
    "tie_to_parent",
]

_LIBC = ctypes.CDLL(None, use_errno=True)

_MS_NOSUID, _MS_NODEV, _MS_BIND, _MS_REC, _MS_PRIVATE = 0x2, 0x4, 0x1000, 0x4000, 0x40000
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 1, 4, 24, 38
_PR_SET_CHILD_SUBREAPER, _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 36, 47, 4
_NS_GET_USERNS = 0xB701  # ioctl_ns(2)
_CAP_VERSION_3 = 0x20080522
_KEYCTL_JOIN_SESSION_KEYRING = 1
# Python 3.11 has no os.CLONE_NEW*. The order is the one in which they are entered.
_FLAGS = {"ipc": 0x08000000, "uts": 0x04000000, "net": 0x40000000, "cgroup": 0x02000000, "mnt": 0x00020000}
_CLONE_NEWNS, _CLONE_NEWUSER = 0x00020000, 0x10000000
# glibc has no keyctl. Source: the kernel's syscall tables.
_SYS_KEYCTL = {
    "x86_64": 250,
    "aarch64": 219,
    "riscv64": 219,
    "ppc64le": 271,
    "s390x": 280,
    "i686": 288,
    "armv7l": 311,
}


def _call(name: str, *arguments: object) -> int:
    result = int(getattr(_LIBC, name)(*arguments))
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return result


def _prctl(option: int, *arguments: int) -> None:
    padded = (*arguments, 0, 0, 0, 0)[:4]
    _call("prctl", ctypes.c_int(option), *(ctypes.c_ulong(argument) for argument in padded))


def tie_to_parent(parent: int) -> None:
    """End with the thread that forked this process, `parent` its pid; exits at once if that one is gone already.

    A change of uid or of the user namespace loosens the tie: call it again after each.
    """
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def adopt_orphans() -> None:
    """Make this process the parent of every orphan below it, so that none is left to somebody who reaps nothing."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def hide_from_peers() -> None:
    """Let no process of the same user trace this one or read its memory and environment."""
    _prctl(_PR_SET_DUMPABLE, 0)


def leave_keyring() -> None:
    """Take a new, empty session keyring: bubblewrap would hand the caller's on to user code.

    Where the kernel has no keys or a filter refuses the call, user code is refused it just the same.
    """
    number = _SYS_KEYCTL.get(platform.machine())
    if number is None:
        raise OSError(errno.ENOSYS, f"no number for keyctl on {platform.machine()}")
    try:
        _call("syscall", ctypes.c_long(number), ctypes.c_long(_KEYCTL_JOIN_SESSION_KEYRING), None)
    except OSError as failed:
        if failed.errno not in (errno.ENOSYS, errno.EPERM):
            raise


def own_mounts() -> None:
    """Enter a mount namespace of this process's own, where nothing it mounts is seen by anyone else (root only)."""
    _call("unshare", ctypes.c_int(_CLONE_NEWNS))
    _mount(None, "/", None, _MS_REC | _MS_PRIVATE)


def bind_all(sources: tuple[str, ...], place: str) -> None:
    """Bind each of `sources` at `place/0`, `place/1`, ..., on a tmpfs of its own, where any user reaches them.

    Their own parents may be closed to the user that this process is about to become. Call `own_mounts` before.
    """
    handles = [os.open(source, os.O_PATH | os.O_CLOEXEC) for source in sources]  # before `place` hides them
    _mount("tmpfs", place, "tmpfs", _MS_NOSUID | _MS_NODEV, "mode=0755,size=64k")
    for number, handle in enumerate(handles):
        target = f"{place}/{number}"
        os.mkdir(target)
        _mount(f"/proc/self/fd/{handle}", target, None, _MS_BIND | _MS_REC)
        os.close(handle)


def _mount(source: str | None, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    encoded = [None if text is None else os.fsencode(text) for text in (source, target, kind, data)]
    try:
        _call("mount", *encoded[:3], ctypes.c_ulong(flags), encoded[3])
    except OSError as failed:
        raise OSError(failed.errno, f"mount {source} at {target}: {os.strerror(failed.errno or 0)}") from None


def own_device(path: str, number: int) -> None:
    """Show at `path` a device node of this process's own that any user may open. Call `own_mounts` before."""
    folder = os.path.dirname(path)
    _mount("tmpfs", folder, "tmpfs", _MS_NOSUID, "mode=0755,size=64k")
    os.mknod(path, 0o666 | stat.S_IFCHR, number)
    os.chmod(path, 0o666)  # whatever the umask


def enter(pid: int) -> dict[str, bool]:
    """Enter the namespaces of the process `pid`, the init of a sandbox, but not its PID namespace.

    To be called when that process runs the program it was made for: earlier, its last user namespace does not
    exist yet. Needs a single thread, and the identity that made the namespaces. Returns of each kind of namespace
    whether the sandbox has one of its own.

    Raises:
        ProcessLookupError: the process ended meanwhile.
    """
    alive = os.pidfd_open(pid)
    opened = {name: _open_namespace(pid, name) for name in ("user", "pid", *_FLAGS)}
    if select.select([alive], [], [], 0)[0]:
        raise ProcessLookupError(f"the process {pid} ended")  # the number may be another's by now
    own = {name: not _is_mine(name, handle) for name, handle in opened.items()}
    # bubblewrap made a second user namespace below the one that owns the mounts.
    owner = fcntl.ioctl(opened["mnt"], _NS_GET_USERNS)
    _set_namespace(owner, _CLONE_NEWUSER)
    for name, flag in _FLAGS.items():
        _set_namespace(opened[name], flag)
    if not os.path.sameopenfile(owner, opened["user"]):
        _set_namespace(opened["user"], _CLONE_NEWUSER)
    os.chdir("/")
    for handle in (alive, owner, *opened.values()):
        os.close(handle)
    return own


class OwnedNetwork(NamedTuple):
    """Descriptors of a network namespace and of the user namespace that owns it."""

    network: int
    owner: int


def open_network(pid: int) -> OwnedNetwork:
    """Open the network namespace of the process `pid`, which runs. Raises ProcessLookupError: it ended."""
    alive = os.pidfd_open(pid)
    network = _open_namespace(pid, "net")
    if select.select([alive], [], [], 0)[0]:
        raise ProcessLookupError(f"the process {pid} ended")  # the number may be another's by now
    os.close(alive)
    return owned_network(network)


def owned_network(network: int) -> OwnedNetwork:
    """Return the network namespace that `network` is open on, with its owner. Raises OSError: it is no namespace."""
    return OwnedNetwork(network, fcntl.ioctl(network, _NS_GET_USERNS))


def enter_network(opened: OwnedNetwork, *, owner_alone: bool = False) -> None:
    """Enter a network namespace with all rights in it, or its `owner_alone`, where it can be entered from: which is this
    process's own, that has to be root then, with a container of a daemon of root's."""
    if not _is_mine("user", opened.owner):  # which cannot be entered again
        _set_namespace(opened.owner, _CLONE_NEWUSER)
    if not owner_alone:
        _set_namespace(opened.network, _FLAGS["net"])


def _open_namespace(pid: int, name: str) -> int:
    return os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC)


def _set_namespace(handle: int, flag: int) -> None:
    _call("setns", ctypes.c_int(handle), ctypes.c_int(flag))


def _is_mine(name: str, handle: int) -> bool:
    return os.path.samestat(os.fstat(handle), os.stat(f"/proc/self/ns/{name}"))


def drop_privileges() -> None:
    """Give up every capability for good, also those that an exec could give back."""
    _prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)
    for capability in range(64):
        try:
            _prctl(_PR_CAPBSET_DROP, capability)
        except OSError as failed:
            if failed.errno != errno.EINVAL:  # EINVAL: this kernel has no more capabilities
                raise
            break
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    header = (ctypes.c_uint32 * 2)(_CAP_VERSION_3, 0)
    nothing = (ctypes.c_uint32 * 6)()
    _call("capset", header, nothing)

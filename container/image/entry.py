"""PID 1 of a Sandcell container: starts the guest, then becomes the spawner and is the user for good.

Runs as root with no capability but SETUID and SETGID, by the system's Python with the standard library alone, and
holds root for as long as it takes to become the others. With arguments own=USER:PLACE it has CHOWN too, and gives these
places, which are fresh ones in memory, away before anything else. What must never happen here: anything of the user's
environment is imported or executed before the identity has changed.
"""

from __future__ import annotations

import ctypes
import json
import os
import pwd
import socket
import sys
from typing import Any, NamedTuple, NoReturn

_MOUNT = "/run/sandcell/host"  # the host's folder: boot.json comes from it, all else goes to it
_GUEST_PYTHON = "/opt/sandcell/bin/python"
_SPAWNER = "/opt/sandcell/spawner.py"
_FILTER = "/opt/sandcell/filter"  # a seccomp program; empty for a machine of which there is none
_SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"
_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 38, 22, 2
_BACKLOG = 128
_RELAYED = "relayed"  # there, the guest is reached through the daemon
_WAY = "way.sock"  # where the proxy waits for its listening socket
_WAY_INSIDE = (
    "/var/lib/sandcell/way.sock"  # where it is given to who comes for it, when the proxy cannot be reached
)
_WORD_S = 10.0
_MESSAGE = 4096
_PROXY = ("127.0.0.1", 3128)
_SOCKET_INSIDE = "/var/lib/sandcell/guest.sock"
_NAMES = {"mnt": "mount"}  # what others call it than the system


class HostFiles(NamedTuple):
    """Descriptors of what the host's folder gives and gets. `way` is the guest's connection to what is its way out, where it has
    one, `refusals` a log of what a packet filter refused. `is_inside`: the socket is not there, but the guest's own."""

    boot: int
    listener: int
    log: int
    memo: int
    way: int | None
    refusals: int | None
    is_inside: bool


def main() -> NoReturn:
    give_places(sys.argv[1:])
    files = open_host_files(_MOUNT)
    complete_boot(files)
    os.dup2(files.log, 2)  # whatever fails from here on, the engine can read it
    guest_end, spawner_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork() == 0:
        become_guest(files, guest_end.detach())
    os.write(1, b"listening inside\n" if files.is_inside else b"listening\n")  # what the engine waits for
    become_spawner(spawner_end.detach())


def give_places(arguments: list[str]) -> None:
    """Do what each argument own=USER:PLACE says."""
    for each in arguments:
        name, _, place = each.removeprefix("own=").partition(":")
        user = pwd.getpwnam(name)
        os.chown(place, user.pw_uid, user.pw_gid, follow_symlinks=False)


def open_host_files(folder: str) -> HostFiles:
    """Read, bind and open in the host's folder as the one who owns it there.

    Root without DAC_OVERRIDE may not enter a 0700 folder of somebody else, and its owner may not walk the path to
    it; so it is opened by the first and entered by the second.
    """
    handle = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    owner = os.fstat(handle).st_uid
    os.seteuid(owner)
    try:
        os.fchdir(handle)
        log, memo = _append_to("guest.log"), _append_to("memo")
        boot = _copy_of("boot.json")
        way_out = _open_way_out(_facts(boot)["network"])
        sockets = _open_there(way_out)
    finally:
        os.seteuid(0)
        os.chdir("/")
        os.close(handle)
    is_inside = sockets is None
    listener, way, refusals = sockets or (*_open_inside(way_out), None)
    if way_out is not None:
        os.close(way_out)
    return HostFiles(boot, listener, log, memo, way, refusals, is_inside)


def complete_boot(files: HostFiles) -> None:
    """Have the guest told what is known only here: what is really isolated, and where its memo and its proxy are."""
    facts = _facts(files.boot)
    isolation = probe_isolation(facts["isolation"])
    facts |= {
        "isolation": isolation,
        "memo_fd": files.memo,
        "way_fd": files.way,
        "refusals_fd": files.refusals,
    }
    _fill(files.boot, json.dumps(facts).encode())


def probe_isolation(isolation: dict[str, Any]) -> dict[str, Any]:
    """Return what is really so of what the engine says: it sends the numbers of its own namespaces as `outside`, and what
    has another number here is isolated. `uid` becomes the user's as the machine knows it."""
    found = dict(isolation)
    outside: dict[str, int] = found.pop("outside", {})
    for name, number in outside.items():
        found[_NAMES.get(name, name)] = os.stat(f"/proc/self/ns/{name}").st_ino != number
    found["uid"] = _uid_outside(pwd.getpwnam("user").pw_uid)
    with open("/proc/self/status") as status:
        found["seccomp"] = "Seccomp:\t2\n" in status.read()
    return found


def _uid_outside(uid: int) -> int:
    with open("/proc/self/uid_map") as lines:
        for inside, outside, count in (map(int, line.split()) for line in lines):
            if inside <= uid < inside + count:
                return outside + uid - inside
    return uid


def become_guest(files: HostFiles, spawner_fd: int) -> NoReturn:
    """Turn into the guest, in an environment that user code can neither write nor read."""
    guest = pwd.getpwnam("guest")
    _become(guest)
    given = (files.boot, files.listener, files.memo, spawner_fd)
    for fd in (*given, files.way, files.refusals):
        if fd is not None:
            os.set_inheritable(fd, True)
    environment = {"PATH": _SYSTEM_PATH, "LANG": "C.UTF-8", "HOME": guest.pw_dir, "TMPDIR": guest.pw_dir}
    options = [f"--boot-fd={files.boot}", f"--listen-fd={files.listener}", f"--spawner-fd={spawner_fd}"]
    os.execve(_GUEST_PYTHON, [_GUEST_PYTHON, "-I", "-m", "sandcell.guest", *options], environment)


def become_spawner(socket_fd: int) -> NoReturn:
    """Turn into the spawner: PID 1 for the container's life, with the user's identity and no way back."""
    user = pwd.getpwnam("user")
    _become(user)
    refuse_calls(_FILTER)
    os.set_inheritable(socket_fd, True)
    argv = [sys.executable, "-I", "-S", _SPAWNER, str(socket_fd), "keepers", '{"limits": {}}']
    os.execve(sys.executable, argv, {"PATH": _SYSTEM_PATH, "LANG": "C.UTF-8", "HOME": user.pw_dir})


def refuse_calls(path: str) -> None:
    """Have the system calls refused that the program in the file `path` names, to this process and all that come of it."""
    with open(path, "rb") as file:
        program = file.read()
    if not program:
        return
    held = ctypes.create_string_buffer(program, len(program))
    described = _FilterProgram(len(program) // 8, ctypes.addressof(held))
    if ctypes.CDLL(None, use_errno=True).prctl(
        _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(described), 0, 0
    ):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_SECCOMP)")


class _FilterProgram(ctypes.Structure):
    """struct sock_fprog. Source: linux/filter.h"""

    _fields_ = [("length", ctypes.c_ushort), ("program", ctypes.c_void_p)]  # as ctypes has it


def _become(identity: pwd.struct_passwd) -> None:
    os.setgroups([])
    os.setresgid(identity.pw_gid, identity.pw_gid, identity.pw_gid)
    os.setresuid(identity.pw_uid, identity.pw_uid, identity.pw_uid)
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_NO_NEW_PRIVS)")


def _copy_of(name: str) -> int:
    """Return a descriptor at the start of a copy, so that the guest needs no right to the file."""
    copy = os.memfd_create(name)
    with open(name, "rb") as source:
        _fill(copy, source.read())
    return copy


def _facts(boot: int) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads(os.pread(boot, os.fstat(boot).st_size, 0))
    return facts


def _open_way_out(network: str | list[str]) -> int | None:
    """Return what the process outside needs that is the way out of here: for a list of hosts the listening socket of its proxy, for
    an open network this one. Nobody else can have the port, as nothing of the user's runs yet."""
    if network == "none":
        return None
    if "open" in network:
        return os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.bind(_PROXY)
    listener.listen(_BACKLOG)
    return listener.detach()


def _fill(file: int, text: bytes) -> None:
    os.ftruncate(file, 0)
    os.pwrite(file, text, 0)
    os.lseek(file, 0, os.SEEK_SET)


def _open_there(way_out: int | None) -> tuple[int, int | None, int | None] | None:
    """Listen in the host's folder, and give `way_out` to the process that waits there; returns both descriptors, and one of what
    that refuses. None where that cannot be, or is of no use, as in a folder of another kernel's."""
    if os.path.lexists(_RELAYED):
        return None
    try:
        way, refusals = (None, None) if way_out is None else _hand_over(way_out)
        return _listen_on("guest.sock"), way, refusals
    except OSError:
        return None


def _hand_over(way_out: int) -> tuple[int, int | None]:
    """Give it away, and wait until it was taken: a packet filter is there then, before anything of the user's runs. Returns the
    connection, and the log of that filter where there is one."""
    way = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    way.connect(_WAY)
    socket.send_fds(way, [b"way out"], [way_out])
    log = None
    while True:
        _, descriptors, _, _ = socket.recv_fds(way, _MESSAGE, 1)
        if not descriptors:  # its last word, or its end, of which the engine hears
            return way.detach(), log
        log = descriptors[0]
        os.set_inheritable(log, False)


def _open_inside(way_out: int | None) -> tuple[int, int | None]:
    """Do the same where the guest alone can go: who may run a program in there as the guest comes for it."""
    guest = pwd.getpwnam("guest")
    os.setegid(guest.pw_gid)
    os.seteuid(guest.pw_uid)
    try:
        listener = _listen_on(_SOCKET_INSIDE)
        entrance = None if way_out is None else _listen_on(_WAY_INSIDE, socket.SOCK_SEQPACKET)
    finally:
        os.seteuid(0)
        os.setegid(0)
    if way_out is None or entrance is None:
        return listener, None
    guest_end, porter_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork() == 0:
        guest_end.close()
        os.close(listener)
        _be_porter(socket.socket(fileno=entrance), way_out, porter_end)
    os.close(entrance)
    porter_end.close()
    return listener, guest_end.detach()


def _be_porter(entrance: socket.socket, way_out: int, guest: socket.socket) -> NoReturn:
    """Serve programs of the guest's for the container's life: who says "listener" is given the proxy's, and every other word
    is for the guest."""
    _become(pwd.getpwnam("guest"))
    while True:
        visitor, _ = entrance.accept()
        with visitor:
            visitor.settimeout(_WORD_S)
            try:
                word = visitor.recv(_MESSAGE)
                if word == b"listener":
                    socket.send_fds(visitor, [word], [way_out])
                elif word:
                    guest.send(word, socket.MSG_DONTWAIT)
            except OSError:
                pass  # it has gone, or the guest does not listen: nobody else is to suffer from it


def _listen_on(name: str, kind: socket.SocketKind = socket.SOCK_STREAM) -> int:
    listener = socket.socket(socket.AF_UNIX, kind)
    if os.path.lexists(name):  # of the container's last start
        os.unlink(name)
    old = os.umask(0o177)
    listener.bind(name)
    os.umask(old)
    listener.listen(_BACKLOG)
    return listener.detach()


def _append_to(name: str) -> int:
    return os.open(name, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)


if __name__ == "__main__":
    main()

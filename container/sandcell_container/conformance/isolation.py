"""Checks that what runs in a sandbox reaches nothing that it was not given. Each raises AssertionError where it does.

They run on the machine from which the host would be reached; against an engine elsewhere they hold trivially in part.
"""

from __future__ import annotations

import os
import secrets
import socket
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sandcell_container.conformance.subject import Subject

__all__ = ["ISOLATION_CHECKS"]

_NOWHERE = "0" * 16


def is_somebody_without_rights(subject: Subject) -> None:
    """User code is no root, has no capability and cannot get any."""
    with subject.shared() as box:
        assert box.output("id", "-u") != "0"
        status = dict(
            line.split(":\t") for line in box.output("cat", "/proc/self/status").splitlines() if ":\t" in line
        )
        assert {status[name] for name in ("CapPrm", "CapEff", "CapAmb", "CapInh")} == {_NOWHERE}, status
        assert status["NoNewPrivs"] == "1"
        assert box.python(_SETUID) == "[]"


# A setuid program of root's that gives root away would be one too many; whatever there is must not help.
_SETUID = """
import os, subprocess
gained = []
for call in (lambda: os.setuid(0), lambda: os.setgid(0), lambda: os.setgroups([0]), lambda: os.chroot('/tmp')):
    try:
        call(); gained.append(call.__code__.co_names)
    except OSError:
        pass
for folder in ('/usr/bin', '/bin', '/usr/sbin', '/usr/lib'):
    for name in os.listdir(folder) if os.path.isdir(folder) else ():
        path = os.path.join(folder, name)
        mode = os.lstat(path).st_mode
        if mode & 0o6000 and os.access(path, os.X_OK) and os.path.isfile(path) and not os.path.islink(path):
            if name in ('su', 'sudo', 'pkexec') and subprocess.run([path, '--version'], capture_output=True).returncode == 0:
                done = subprocess.run([path, '-c', 'id -u'] if name == 'su' else [path, '-n', 'id', '-u'],
                                      capture_output=True, stdin=subprocess.DEVNULL)
                if done.stdout.strip() == b'0': gained.append(path)
print(gained)
"""


def sees_nothing_of_the_host(subject: Subject) -> None:
    """No file, process, variable or host name of the host's is seen inside."""
    word = f"conformance-{secrets.token_hex(8)}"
    with tempfile.TemporaryDirectory(prefix=word) as folder, subject.shared() as box:
        Path(folder, "secret").write_text(word)
        assert box.run("cat", f"{folder}/secret").code != 0
        assert box.run("ls", folder).code != 0
        assert (
            word
            not in box.run("sh", "-c", "cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2> /dev/null").output
        )
        assert (
            not Path(f"/proc/{os.getpid()}/cmdline")
            .read_bytes()
            .startswith(box.run("cat", f"/proc/{os.getpid()}/cmdline").output.encode() or b"nothing")
        )
        assert box.output("cat", "/proc/sys/kernel/hostname") != socket.gethostname()


def finds_no_way_to_its_guest(subject: Subject) -> None:
    """The guest's token, socket and processes are out of reach."""
    with subject.shared() as box:
        token, path = box.record.token, box.record.address.path
        everything = "cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline /proc/net/unix /proc/mounts 2> /dev/null"
        assert token not in box.run("sh", "-c", everything).output
        if path:
            assert box.run("sh", "-c", f"test -e '{path}'").code != 0
        assert box.python(_TOUCH_OTHERS) == "[]"
        assert (
            box.python(
                f"import os; print({token!r} in os.popen('grep -rs ^ /run /tmp /var/run 2>/dev/null').read())"
            )
            == "False"
        )


# Every process but this one: none of them may be read, traced, or ended for good.
_TOUCH_OTHERS = """
import ctypes, os, resource, signal
libc = ctypes.CDLL(None, use_errno=True)
worked, own = [], os.stat('/proc/self').st_uid
for pid in [int(name) for name in os.listdir('/proc') if name.isdigit() and int(name) not in (os.getpid(), os.getppid())]:
    for request in (16, 0x4206):          # PTRACE_ATTACH, PTRACE_SEIZE
        if libc.ptrace(request, pid, 0, 0) != -1: worked.append(('ptrace', pid))
    for name in ('environ', 'mem', 'maps'):
        try:
            if open(f'/proc/{pid}/{name}', 'rb').read(1): worked.append((name, pid))
        except OSError:
            pass
for number in (signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM, signal.SIGINT, signal.SIGSEGV, signal.SIGUSR1):
    try:
        os.kill(1, number)                # accepted or not, what follows still has to get answers
    except OSError:
        pass
print(worked)
"""


def reaches_no_network_of_the_host(subject: Subject) -> None:
    """Without a network nothing of the host's is reached, by any family of sockets."""
    with socket.create_server(("127.0.0.1", 0)) as listener, subject.shared() as box:
        port = listener.getsockname()[1]
        assert (
            box.python(f"import socket; print(socket.socket().connect_ex(('127.0.0.1', {port})) != 0)")
            == "True"
        )
        assert box.python(_OUTSIDE) == "[]"
        assert box.python(_RAW) == "[]"


_OUTSIDE = """
import socket
reached = []
for place in (('192.0.2.1', 80), ('169.254.169.254', 80), ('1.1.1.1', 53), ('172.17.0.1', 22)):
    with socket.socket() as one:
        one.settimeout(0.5)
        if one.connect_ex(place) == 0: reached.append(place)
print(reached + [name for _, name in socket.if_nameindex() if not name.startswith(('lo', 'tunl', 'sit', 'ip6tnl', 'gre', 'erspan', 'ip_vti', 'ip6_vti', 'ip6gre'))])
"""
_RAW = """
import socket
opened = []
for family, kind, protocol in ((socket.AF_INET, socket.SOCK_RAW, 1), (socket.AF_PACKET, socket.SOCK_RAW, 0x300)):
    try:
        socket.socket(family, kind, protocol).close(); opened.append(family)
    except OSError:
        pass
print(opened)
"""


def finds_no_way_out(subject: Subject) -> None:
    """Mounting, namespaces with rights, devices and settings of the kernel are refused."""
    with subject.shared() as box:
        for line in (
            "mount -t tmpfs x /tmp",
            "mount --bind / /tmp",
            "unshare -Urm mount -t tmpfs x /tmp",
            "umount /proc",
            "nsenter -t 1 -m true",
            "mknod /tmp/memory c 1 1",
            "head -c 1 /dev/mem",
            "echo x > /proc/sys/kernel/core_pattern",
            "echo b > /proc/sysrq-trigger",
            "echo x > /sys/fs/cgroup/cgroup.procs",
            "date -s 2000-01-01",
            "hostname changed",
        ):
            assert box.run("sh", "-c", f"{line} 2> /dev/null").code != 0, line
        assert box.python(_KEYS) == "-1"
        assert (
            box.run("sh", "-c", "ls /var/run/docker.sock /run/docker.sock /run/podman 2> /dev/null").output
            == ""
        )


_KEYS = "import ctypes; print(ctypes.CDLL(None).syscall(249, b'user', b'sandcell-conformance', None, 0))"


def cannot_write_what_is_not_its_own(subject: Subject) -> None:
    """The system, the guest and what it imports are read-only or somebody else's."""
    with subject.shared() as box:
        for path in ("/x", "/usr/x", "/etc/passwd", "/usr/bin/env", "/bin/x", "/lib/x", "/dev/x"):
            assert box.run("sh", "-c", f"echo x >> {path}").code != 0, path
        writable = box.python(
            "import os, sys; print([p for p in ('/run/sandcell', '/opt/sandcell') if os.access(p, os.W_OK)])"
        )
        assert writable == "[]"


def inherits_nothing(subject: Subject) -> None:
    """A program has its three streams and no other descriptor."""
    with subject.shared() as box:
        assert box.python("import os; print(sorted(os.listdir('/proc/self/fd')))") == "['0', '1', '2', '3']"


def keeps_sandboxes_apart(subject: Subject) -> None:
    """What one sandbox writes, starts and binds is not in another."""
    with subject.shared() as one, subject.sandbox() as other:
        one.output(
            "sh",
            "-c",
            "echo mine > file; echo mine > /tmp/conformance-file; (setsid sleep 601 > /dev/null 2>&1 &)",
        )
        assert other.output("sh", "-c", "ls file /tmp/conformance-file 2> /dev/null; echo over") == "over"
        assert "601" not in other.run("sh", "-c", "cat /proc/[0-9]*/cmdline 2> /dev/null").output.replace(
            "cat", ""
        )
        assert one.record.token != other.record.token


ISOLATION_CHECKS = (
    is_somebody_without_rights,
    sees_nothing_of_the_host,
    finds_no_way_to_its_guest,
    reaches_no_network_of_the_host,
    finds_no_way_out,
    cannot_write_what_is_not_its_own,
    inherits_nothing,
    keeps_sandboxes_apart,
)

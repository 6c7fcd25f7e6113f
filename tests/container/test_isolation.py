"""What user code tries against its sandbox, its guest and the host, and what it gets. Real sandboxes, as root and not."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sandcell_container.conformance import Asker, command
from sandcell_container.engines.local import LocalEngine
from sandcell_container.engines.settings import EngineSettings
from sandcell_container.ids import new_id
from sandcell_container.spec import SandboxSpec

if TYPE_CHECKING:
    from collections.abc import Iterator

GUEST = command(str(Path(__file__).parents[2] / "kernel" / "sandcell_runtime"))


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Asker]:
    settings = EngineSettings(state=tmp_path, first_uid=61200, uid_count=1000, guest=GUEST, guest_settings={})
    engine = LocalEngine(settings)
    yield Asker(engine.create(SandboxSpec(id=new_id("sbx"), name="box")))
    engine.close()


@pytest.mark.short
def test_user_code_is_somebody_without_rights_in_a_place_of_its_own(box: Asker) -> None:
    ran = box.run("bash", "-c", "id -u; whoami; hostname; pwd; grep -h ^Cap /proc/self/status")
    assert ran.output.split("\n")[:4] == ["1000", "user", "sandbox", "/workspace"]
    inheritable, permitted, effective, bounding, ambient = ran.output.split("\n")[4:9]
    assert {line.split()[1] for line in (inheritable, permitted, effective, ambient)} == {"0" * 16}
    assert bounding


@pytest.mark.short
def test_nothing_of_the_host_is_visible(box: Asker) -> None:
    assert box.python("import os; print(sorted(os.environ))") == str(
        ["HOME", "LANG", "PATH", "SHELL", "TERM", "TMPDIR", "USER"]
    )
    assert (
        box.python(f"import os; print(os.path.exists({str(Path(__file__).parents[2] / 'tests')!r}))")
        == "False"
    )
    assert set(box.run("ls", "/home", "/tmp", "/workspace").output.split()) <= {
        "/home:",
        "/tmp:",
        "/workspace:",
        "user",
        sys.prefix.split("/")[2],
    }
    assert box.run("cat", "/proc/1/environ").output.endswith("Permission denied\n")
    assert "state" not in box.run("cat", "/proc/1/cmdline").output


@pytest.mark.short
def test_the_guest_sees_the_sandbox_and_is_not_seen(box: Asker) -> None:
    guest = box.process()
    assert guest["uids"] == [1000, 1000, 1000]
    assert guest["threads"] == 1
    assert set(guest["environ"]) <= {"PATH", "LANG", "LC_CTYPE"}
    assert box.see("/workspace") == []
    box.run("touch", "/workspace/made")
    assert box.see("/workspace") == ["made"]
    listing = box.python("import os; print(sorted(int(p) for p in os.listdir('/proc') if p.isdigit()))")
    assert listing.startswith("[1, ") and listing.count(",") == 1
    status = Path(f"/proc/{guest['pid']}/status").read_text()
    for line in ("CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert f"{line}:\t{'0' * 16}" in status
    assert "NoNewPrivs:\t1" in status


def test_the_guest_imports_nothing_that_user_code_can_write(box: Asker) -> None:
    for folder in box.process()["path"]:
        assert box.run("test", "-w", folder).code != 0
        assert folder.startswith(("/usr", sys.prefix, sys.base_prefix))


@pytest.mark.short
@pytest.mark.parametrize(
    "path",
    [
        "/x",
        "/dev/x",
        "/usr/x",
        "/etc/passwd",
        "/run/sandcell/runtime/x",
        "/run/sandcell/spawner.pyc",
        f"{sys.prefix}/x",
        "/proc/sys/kernel/core_pattern",
    ],
)
def test_what_is_not_the_users_cannot_be_written(box: Asker, path: str) -> None:
    ran = box.run("bash", "-c", 'echo x >> "$0"', path)
    assert ran.code != 0
    assert any(word in ran.output for word in ("Read-only", "denied", "not permitted")), ran.output


@pytest.mark.short
def test_the_spawner_cannot_be_touched(box: Asker) -> None:
    report = box.python(_TOUCH_INIT)
    assert report == "[]", report


# Each attempt on PID 1 that succeeds is printed. Source: the list of a prototype's attacks.
_TOUCH_INIT = """
import ctypes, os, resource, signal
libc = ctypes.CDLL(None, use_errno=True)
worked = []
for number in (signal.SIGKILL, signal.SIGSTOP, signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT,
               signal.SIGSEGV, signal.SIGUSR1, signal.SIGCHLD, signal.SIGPIPE):
    os.kill(1, number)                    # accepted, without effect: what follows still gets answers
for request in (16, 0x4206):              # PTRACE_ATTACH, PTRACE_SEIZE
    if libc.ptrace(request, 1, 0, 0) != -1: worked.append(('ptrace', request))
handle = os.pidfd_open(1)
for number in range(8):
    if libc.syscall(438, handle, number, 0) != -1: worked.append(('pidfd_getfd', number))
for name in ('environ', 'mem', 'maps', 'fd', 'ns/user', 'cwd', 'root', 'exe', 'oom_score_adj'):
    path = '/proc/1/' + name
    try:
        os.listdir(path) if name == 'fd' else os.readlink(path) if name in ('ns/user', 'cwd', 'root', 'exe') else \\
            open(path, 'r+b' if name == 'oom_score_adj' else 'rb').read(1)
        worked.append(name)
    except OSError:
        pass
for attempt in (lambda: resource.prlimit(1, resource.RLIMIT_NOFILE, (5, 5)), lambda: os.setpriority(os.PRIO_PROCESS, 1, 19),
                lambda: os.sched_setaffinity(1, {0})):
    try:
        attempt()
        worked.append(attempt.__code__.co_names)
    except OSError:
        pass
print(worked)
"""


@pytest.mark.short
def test_no_way_out_by_namespaces_or_mounts(box: Asker) -> None:
    for argv in (
        ("unshare", "-U", "true"),
        ("unshare", "-Urm", "true"),
        ("unshare", "-u", "true"),
        ("mount", "-t", "tmpfs", "x", "/tmp"),
    ):
        assert box.run(*argv).code != 0, argv
    assert box.run("nsenter", "-t", "1", "-m", "true").code != 0
    assert box.run("umount", "/home/user").code != 0


@pytest.mark.short
def test_nothing_listens_and_nothing_is_reached(box: Asker) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        refused = box.python(f"import socket; print(socket.socket().connect_ex(('127.0.0.1', {port})))")
    assert refused == "111"
    named = "[line for line in open('/proc/net/unix').read().split('\\n')[1:] if '@' in line or '/' in line]"
    assert box.python(f"print({named})") == "[]"
    assert len(box.python("print(open('/proc/net/tcp').read())").splitlines()) == 1


@pytest.mark.short
def test_sockets_that_no_network_namespace_holds_are_refused(box: Asker) -> None:
    assert box.python(_TRY_FAMILIES) == "[1, 2, 10, 16] {'EAFNOSUPPORT'} ['lo']"


# The families that open, how the others are refused (AF_VSOCK reaches the machine's own host), and what netlink tells.
_TRY_FAMILIES = """
import errno, socket
opened, refusals = [], set()
for family in range(1, 64):
    try:
        socket.socket(family, socket.SOCK_DGRAM).close()
        opened.append(family)
    except OSError as refused:
        refusals.add(errno.errorcode[refused.errno])
try:
    socket.socketpair(socket.AF_VSOCK, socket.SOCK_STREAM)
except OSError as refused:
    refusals.add(errno.errorcode[refused.errno])
print(opened, refusals, [name for _, name in socket.if_nameindex()])
"""


@pytest.mark.short
def test_the_session_keyring_is_an_empty_one(tmp_path: Path) -> None:
    """With a key in the host program's session: in a child, so that this one keeps its own keyring."""
    done = subprocess.run(
        [sys.executable, "-c", _KEYRING, str(tmp_path), GUEST.runtime_dir],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split("\n") == ["key added", "-1", ""], done.stdout + done.stderr


_KEYRING = """
import ctypes, pathlib, sys
from sandcell_container.conformance import Asker, command
from sandcell_container.engines.local import LocalEngine
from sandcell_container.engines.settings import EngineSettings
from sandcell_container.ids import new_id
from sandcell_container.spec import SandboxSpec
libc = ctypes.CDLL(None)
libc.syscall(250, 1, None)                                            # a session keyring of its own
key = libc.syscall(248, b"user", b"sandcell-test", b"secret", 6, -3)  # a key in it
print("key added" if key > 0 else "no keys here", flush=True)
guest = command(sys.argv[2])
engine = LocalEngine(EngineSettings(state=pathlib.Path(sys.argv[1]), first_uid=61200, uid_count=100, guest=guest, guest_settings={}))
box = Asker(engine.create(SandboxSpec(id=new_id("sbx"), name="key")))
find = "import ctypes; print(ctypes.CDLL(None).syscall(249, b'user', b'sandcell-test', None, 0))"
print(box.run("python", "-c", find).output.strip())
engine.close()
"""


def test_a_command_inherits_nothing_but_its_streams(box: Asker) -> None:
    assert box.python("import os; print(sorted(os.listdir('/proc/self/fd')))") == "['0', '1', '2', '3']"
    assert box.run("cat").output == ""

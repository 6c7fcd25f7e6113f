"""Abuse of a container, and ways out of it: what it costs others, what is said of it, what is refused."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from sandcell_container.errors import ErrorCode, SandcellError

if TYPE_CHECKING:
    from collections.abc import Generator

    from tests.e2e.conftest import Place

    from sandcell import Sandbox

pytestmark = pytest.mark.docker

PATIENCE = 2.0  # seconds in which everybody else is answered
LIMITS = {"memory": "512MiB", "pids": 100, "cpus": 0.5}

FORK_BOMB = """
import os, time
while True:
    try:
        os.fork()
    except OSError:
        time.sleep(0.01)
"""
EATER = "held = []\nwhile True: held.append(bytearray(2**24))"
STUBBORN = """
import signal, time
for number in range(1, 65):
    try:
        signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError):
        pass
while True:
    try:
        print('here', flush=True); time.sleep(60)
    except BaseException:
        pass
"""


@pytest.fixture(scope="module")
def other(place: Place) -> Generator[Sandbox]:
    """Somebody who wants to be served meanwhile."""
    with place.create() as made:
        yield made


def are_others_served(place: Place, other: Sandbox) -> None:
    for ask in (lambda: other.exec("true").ok, lambda: place.engine.list()):
        begun = time.monotonic()
        assert ask()
        assert time.monotonic() - begun < PATIENCE


def test_a_fork_bomb_ends_with_its_sandbox(place: Place, other: Sandbox) -> None:
    with place.create(memory="512MiB", pids=100, cpus=0.5) as made:
        made.start_process(["/opt/user/bin/python", "-c", FORK_BOMB])
        stats = place.engine.stats(made.id)
        while (stats.pids.used or 0) < 90:
            stats = place.engine.stats(made.id)
        are_others_served(place, other)
        with pytest.raises(SandcellError) as refused:
            made.exec("true", timeout=5, check=True)
        assert refused.value.code in {ErrorCode.START_FAILED, ErrorCode.COMMAND_FAILED}
    assert place.containers(made.id) == []


def test_a_memory_bomb_ends_its_interpreter_and_is_called_so(place: Place, other: Sandbox) -> None:
    with place.create(memory="512MiB", cpus=0.5) as made:
        run = made.run_code(EATER, timeout=40)
        assert (run.end.cause, run.end.limit) == ("oom", "memory")
        are_others_served(place, other)
        assert made.run_code("1 + 1").value == 2


def test_a_disk_is_filled_to_its_limit(place: Place, other: Sandbox) -> None:
    with place.create(read_only=True, disk="32MiB", memory="512MiB") as made:
        assert "No space left" in made.exec("cat /dev/zero > /workspace/a").stderr
        assert "No space left" in made.exec("cat /dev/zero > /tmp/a").stderr
        are_others_served(place, other)
        assert made.exec("rm /workspace/a /tmp/a").ok
        assert made.files.write("a", "fits").size == 4


def test_a_gigabyte_of_output_is_cut_and_costs_the_daemon_nothing(place: Place, other: Sandbox) -> None:
    with place.create(memory="512MiB") as made:
        done = made.exec("head -c 1G /dev/zero | tr '\\0' x", timeout=50)
        assert done.truncated["stdout"].total_bytes == 2**30
        assert len(done.stdout) < 2**21
        are_others_served(place, other)
        assert place.containers(made.id)[0].attrs["HostConfig"]["LogConfig"]["Type"] == "none"


def test_a_process_that_ignores_every_signal_ends(place: Place, other: Sandbox) -> None:
    with place.create() as made:
        done = made.exec(["/opt/user/bin/python", "-c", STUBBORN], timeout=1)
        assert done.end.cause == "timeout"
        made.start_process(["/opt/user/bin/python", "-c", STUBBORN]).wait_for_log("here", timeout=20)
        are_others_served(place, other)
        begun = time.monotonic()
        made.stop()
        assert time.monotonic() - begun < 20
    assert place.containers(made.id) == []


# --- ways out


@pytest.mark.parametrize(
    ("what", "program"),
    [
        ("mount", "libc.mount(b'none', b'/tmp', b'tmpfs', 0, None)"),
        ("umount", "libc.umount2(b'/proc', 2)"),
        ("unshare a user namespace", "libc.unshare(0x10000000)"),
        ("unshare a mount namespace", "libc.unshare(0x20000)"),
        ("become root", "libc.setuid(0)"),
        ("set the host's name", "libc.sethostname(b'x', 1)"),
        ("load a module", "libc.syscall(175, b'x', 1, b'')"),
        ("read the kernel's log", "libc.klogctl(3, ctypes.create_string_buffer(99), 99)"),
        ("open by handle", "libc.open_by_handle_at(-100, ctypes.create_string_buffer(99), 0)"),
        ("take another root", "libc.chroot(b'/tmp')"),
    ],
)
def test_a_system_call_that_leads_out_is_refused(other: Sandbox, what: str, program: str) -> None:
    code = f"import ctypes, errno; libc = ctypes.CDLL(None, use_errno=True)\n[{program}, errno.errorcode[ctypes.get_errno()]]"
    found = other.run_code(code, check=True).value
    assert found in ([-1, "EPERM"], [-1, "ENOSYS"], [-1, "EACCES"]), what


def test_there_is_no_raw_socket_and_no_device(other: Sandbox) -> None:
    code = """
import os, socket, stat
def refused(attempt):
    try:
        attempt()
    except OSError:
        return True
    return False
[refused(lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)),
 refused(lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW)),
 refused(lambda: os.mknod("/tmp/disk", stat.S_IFBLK | 0o666, os.makedev(8, 0))),
 sorted(each for each in os.listdir("/dev") if stat.S_ISBLK(os.lstat(f"/dev/{each}").st_mode))]
"""
    assert other.run_code(code, check=True).value == [True, True, True, []]


def test_a_setuid_program_gives_nothing(other: Sandbox) -> None:
    found = other.exec("find / -xdev -perm -4000 -type f 2>/dev/null").stdout.split()
    assert found  # a distribution has some
    assert other.exec("su -c id root < /dev/null").exit_code != 0
    assert other.exec("cp /usr/bin/id /tmp/id && chmod u+s /tmp/id && /tmp/id -u").stdout == "1000\n"


def test_no_engine_is_inside_and_nothing_of_the_machine(other: Sandbox) -> None:
    done = other.exec(
        "find / -xdev -name '*.sock' 2>/dev/null; ls -A /home /root /mnt /media /srv 2>/dev/null; env"
    )
    assert "docker" not in done.stdout
    assert "podman" not in done.stdout
    assert other.exec("ls /var/run/docker.sock /run/podman /run/docker.sock 2>/dev/null").stdout == ""


def test_nothing_inherits_a_descriptor(other: Sandbox) -> None:
    assert other.exec(["ls", "/proc/self/fd"]).stdout.split() == [
        "0",
        "1",
        "2",
        "3",
    ]  # the fourth is its look

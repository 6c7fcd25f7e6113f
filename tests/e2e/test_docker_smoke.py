"""The same guest in a real container: what it does, and what user code in it cannot do.

Once on Docker and once on Podman, as all tests with the fixture `place`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sandcell import Sandbox
from sandcell.client.host import guest_command, the_host
from sandcell_container.engines.detect import EngineSettings, open_engine
from sandcell_container.errors import ErrorCode, SandcellError

if TYPE_CHECKING:
    from collections.abc import Generator

    from tests.e2e.conftest import Place


pytestmark = pytest.mark.docker

USER_UID = 1000


@pytest.fixture(scope="module")
def sandbox(place: Place) -> Generator[Sandbox]:
    with Sandbox.create(engine=place.name) as made:
        yield made


# --- what it does


def test_code_runs_with_state(sandbox: Sandbox) -> None:
    sandbox.run_code("x = 20")
    run = sandbox.run_code("import sys; print('out'); print('err', file=sys.stderr); x * 2 + 2")
    assert (run.value, run.stdout, run.stderr) == (42, "out\n", "err\n")


def test_a_command_that_kills_what_keeps_it_harms_itself_alone(sandbox: Sandbox) -> None:
    assert sandbox.exec("kill -9 $PPID; sleep 60", timeout=20).end.cause in ("signaled", "killed")
    assert sandbox.exec("echo on").stdout == "on\n"


def test_an_error_of_the_code_is_data(sandbox: Sandbox) -> None:
    error = sandbox.run_code("1 / 0").error
    assert error is not None
    assert error.name == "ZeroDivisionError"


def test_host_tools_are_called_by_the_user(sandbox: Sandbox) -> None:
    def add(a: int, b: int) -> int:
        return a + b

    code = "import subprocess\nline = 'sandcell-tool add \\'{\"a\": 20, \"b\": 1}\\'; id -u'\n"
    code += "(tools.add(1, 2), subprocess.check_output(line, shell=True, text=True))"
    run = sandbox.run_code(code, tools=[add])
    assert run.value == [3, f"21\n{USER_UID}\n"]


def test_commands_run_as_the_user(sandbox: Sandbox) -> None:
    done = sandbox.exec("id -u; id -un; pwd; echo $HOME; exit 3")
    assert done.stdout.split() == [str(USER_UID), "user", "/workspace", "/home/user"]
    assert done.exit_code == 3


def test_a_session_and_its_process_are_the_users(sandbox: Sandbox) -> None:
    session = sandbox.create_session("steps")
    session.exec("cd /tmp; x=1; f() { echo f $x $(id -u) $PWD; }")
    assert session.exec("f; cat", stdin="typed").stdout == f"f 1 {USER_UID} /tmp\ntyped"
    cut = session.exec("seq 10000", max_output=500).truncated["stdout"]
    assert cut.path is not None and sandbox.files.read(cut.path).endswith("\n10000\n")
    job = session.start_process("f")
    assert (job.wait(20).code, job.output()) == (0, f"f 1 {USER_UID} /tmp\n")
    assert session.exec("sleep 50", timeout=0.3).end.state == "kept"
    session.delete()


def test_files_go_both_ways_and_are_the_users(sandbox: Sandbox) -> None:
    content = bytes(range(256))
    sandbox.files.write("data/bytes.bin", content)
    assert sandbox.files.read_bytes("data/bytes.bin") == content
    assert [each.name for each in sandbox.files.list("data")] == ["bytes.bin"]
    assert sandbox.exec("stat -c %u data/bytes.bin").stdout == f"{USER_UID}\n"


def test_user_code_may_install_into_its_environment_only(sandbox: Sandbox) -> None:
    done = sandbox.exec(
        "test -w /opt/user/lib/python3*/site-packages && ! test -w /opt/sandcell && ! test -w /opt/sandcell/bin/python"
    )
    assert done.exit_code == 0, done.stderr


def test_a_terminal_is_the_users(sandbox: Sandbox) -> None:
    terminal = sandbox.create_terminal("screen", command="stat -c %u $(tty); echo again >$(tty); exec cat")
    shown = ""
    while "again\r\n" not in shown:
        shown += terminal.read(timeout=20)
    assert shown == f"{USER_UID}\r\nagain\r\n"
    terminal.write("x\n")
    assert terminal.read(timeout=20).startswith("x\r\n")
    terminal.write("\x03")
    assert terminal.wait(timeout=20).signal == 2


def test_top_shows_nothing_of_what_serves_the_sandbox(sandbox: Sandbox) -> None:
    terminal = sandbox.create_terminal("shown", command=["cat"])
    sandbox.run_code("1")
    found = sandbox.top()
    assert {"shown", "python"} <= {each.owner for each in found}
    assert {each.user for each in found} == {"user"}
    assert not [each for each in found if "spawner.py" in each.command or "sandcell.guest" in each.command]
    terminal.delete()
    assert "shown" not in {each.owner for each in sandbox.top()}


def test_it_says_what_it_is(sandbox: Sandbox, place: Place) -> None:
    info = sandbox.info()
    assert (info.engine, info.image, info.user) == (place.name, "sandcell-runtime:slim", "user")
    assert info.isolation["net"] is True


# --- what user code cannot do

LOOK = """
import ctypes, os, signal, stat

def refused(attempt):
    try:
        attempt()
    except (PermissionError, FileNotFoundError):
        return True
    return False

def uid_of(pid):
    return os.stat(f"/proc/{pid}").st_uid

def line_of(pid):
    with open(f"/proc/{pid}/cmdline", "rb") as file:
        return file.read().replace(b"\\0", b" ").decode()

pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
guest = next(pid for pid in pids if "sandcell.guest" in line_of(pid))
"""


@pytest.fixture(scope="module")
def look(sandbox: Sandbox) -> Sandbox:
    sandbox.run_code(LOOK, check=True)
    return sandbox


def test_guest_and_user_code_are_different_users(look: Sandbox) -> None:
    uids = look.run_code("[os.getuid(), uid_of(guest)]", check=True).value
    assert uids[0] == USER_UID
    assert uids[1] not in {0, USER_UID}


def test_nothing_in_the_container_is_root(look: Sandbox) -> None:
    code = """
found = set()
for pid in pids:
    try:
        if "Uid:\\t0" in open(f"/proc/{pid}/status").read():
            found.add(line_of(pid))
    except FileNotFoundError:
        pass  # it has ended since
sorted(found)
"""
    assert look.run_code(code, check=True).value == []


def test_the_guest_cannot_be_signalled(look: Sandbox) -> None:
    code = "[n for n in (0, 2, 9, 15, 19) if not refused(lambda: os.kill(guest, n))]"
    assert look.run_code(code, check=True).value == []


@pytest.mark.parametrize("name", ["environ", "mem", "maps", "fd", "cwd", "root", "ns/net"])
@pytest.mark.parametrize("whom", ["guest", "1"])
def test_neither_guest_nor_spawner_can_be_read(look: Sandbox, whom: str, name: str) -> None:
    code = f"""
path = f"/proc/{{{whom}}}/{name}"
def attempt():
    os.listdir(path) if path.endswith(("fd", "cwd", "root")) else os.readlink(path) if "ns" in path else open(path, "rb").read(1)
refused(attempt)
"""
    assert look.run_code(code, check=True).value is True


def test_neither_guest_nor_spawner_can_be_traced(look: Sandbox) -> None:
    code = "libc = ctypes.CDLL(None); [libc.ptrace(16, pid, 0, 0) for pid in (guest, 1)]"
    assert look.run_code(code, check=True).value == [-1, -1]


def test_the_spawner_does_not_mind_signals(look: Sandbox) -> None:
    look.run_code("for n in (2, 9, 15, 19, 1, 3, 10): os.kill(1, n)", check=True)
    assert look.exec("echo alive").stdout == "alive\n"


def test_the_socket_is_out_of_reach(look: Sandbox) -> None:
    code = """
[path for path in ("/run/sandcell", "/run/sandcell/host", "/run/sandcell/host/boot.json", "/var/lib/sandcell")
 if not refused(lambda: os.listdir(path)) or not refused(lambda: open(path).read())]
"""
    assert look.run_code(code, check=True).value == []


def test_no_capability_and_no_way_to_one(look: Sandbox) -> None:
    code = """
lines = dict(line.split(":\\t", 1) for line in open("/proc/self/status").read().splitlines() if ":\\t" in line)
[int(lines["CapEff"], 16), int(lines["CapPrm"], 16), int(lines["NoNewPrivs"])]
"""
    assert look.run_code(code, check=True).value == [0, 0, 1]


def test_there_is_no_network(look: Sandbox) -> None:
    code = """
import socket
try:
    socket.create_connection(("192.0.2.1", 80), timeout=5)
except OSError as refusal:
    answer = type(refusal).__name__
[os.listdir("/sys/class/net"), answer]
"""
    assert look.run_code(code, check=True).value == [["lo"], "OSError"]


# --- how it ends


def test_nothing_is_left_of_a_removed_sandbox(place: Place) -> None:
    with Sandbox.create(engine=place.name) as sandbox:
        folder = Path(_socket(sandbox.id)).parent
        assert folder.stat().st_mode & 0o777 == 0o700
    assert not folder.exists()
    assert place.containers(sandbox.id) == []


def test_an_image_that_is_not_there_is_named(place: Place) -> None:
    with pytest.raises(SandcellError) as refused:
        Sandbox.create("no-such-image:1", engine=place.name)
    assert refused.value.code == ErrorCode.IMAGE_NOT_FOUND


def test_it_is_found_by_who_has_another_daemon_in_mind(place: Place, sandbox: Sandbox) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for variable in ("DOCKER_HOST", "CONTAINER_HOST"):
            patch.setenv(variable, "unix:///nobody.sock")
        engine = open_engine(place.name, _settings())[0]
        assert sandbox.id in {each.id for each in engine.list()}


def _socket(sandbox_id: str) -> str:
    return next(each.record.address.path for each in the_host().records() if each.record.id == sandbox_id)


def _settings() -> EngineSettings:
    state = the_host().config.state_path
    return EngineSettings(state=state, first_uid=0, uid_count=0, guest=guest_command(), guest_settings={})

"""Kernels by fork, in both kinds of sandbox: where trees are told apart by marks (bwrap), and by keepers."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import sandcell_runtime
from sandcell.api import CreateContext, CreateExecution
from sandcell.config import Config
from sandcell.context import Contexts, Executions
from sandcell.events import event_of
from sandcell.fork_server import ServerPlan
from sandcell.fork_starter import ForkStarter, early_env
from sandcell.results import RunBuilder, RunResult
from sandcell.starter import PlainStarter
from sandcell_container.engines import bwrap
from sandcell_container.engines.boot import spawner_bytecode
from sandcell_container.engines.drawing import make_program
from sandcell_container.engines.environment import (
    PythonEnvironment,
    base_environment,
    calling_environment,
    make_venv,
    minimal_cover,
)
from sandcell_container.engines.launch import PLACE
from sandcell_container.engines.zygote_process import memory_file
from sandcell_container.errors import ErrorCode, SandcellError
from sandcell_container.guest import spawner as spawner_file
from sandcell_container.guest.boot import GuestBoot
from sandcell_container.guest.spawn import Spawner
from sandcell_container.guest.start import Start
from sandcell_runtime.surroundings import process_start

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator

    from sandcell.context import Context
    from sandcell.starter import KernelRequest, StartedKernel

RUNTIME = Path(sandcell_runtime.__file__).parent
SPAWNER = Path(spawner_file.__file__)
IDENTITY = 61998 if os.geteuid() == 0 else None  # root must not run bwrap as uid 0
LAUNCH = "from sandcell_container.engines.launcher import main; main()"
DEADLINE_S = 20.0
CONFIG = Config(kill_grace=0.2, max_records=60)


# --- two sandboxes without a guest


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A sandbox: its spawner's socket, its facts, and its home and workspace as the test finds them."""

    mode: str
    sock: socket.socket
    boot: GuestBoot
    home: Path
    workspace: Path

    @property
    def packages(self) -> Path:
        """Where the user's own packages are, as the test finds them."""
        (folder,) = self.home.glob(".venv/lib/python*/site-packages")
        return folder

    def write(self, path: Path, text: str) -> None:
        """Write as the user would."""
        owner = -1 if IDENTITY is None or self.mode == "keepers" else IDENTITY
        missing = [folder for folder in path.parents if not folder.exists()]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        for made in (path, *missing):
            os.chown(made, owner, owner)


def facts(environment: PythonEnvironment, folders: dict[str, str], *, trusted: bool) -> GuestBoot:
    venv = f"{folders['home']}/.venv"
    env = base_environment(
        venv=venv, environment=environment, home=folders["home"], user="user", temp=folders["tmp"]
    )
    return GuestBoot(
        sandbox_id="sbx",
        name="sbx",
        engine="local",
        token="",
        epoch="epoch",
        created_at=0.0,
        on_release="remove",
        grace=0.0,
        idle_timeout=None,
        default_timeout=None,
        python=f"{venv}/bin/python",
        runtime_dir=folders["runtime"],
        workdir=folders["workspace"],
        home=folders["home"],
        base_env=env,
        trusted_python=environment.executable if trusted else None,
        trusted_site=environment.site_dirs if trusted else (),
    )


def make_folders(base: Path, environment: PythonEnvironment, home: str) -> None:
    for name in ("home", "workspace", "tmp"):
        (base / name).mkdir()
    make_venv(base / "home" / ".venv", environment, inside=f"{home}/.venv")


@contextmanager
def with_marks(base: Path) -> Generator[Place]:
    environment = calling_environment()
    folders = {"home": bwrap.HOME, "workspace": bwrap.WORKDIR, "tmp": "/tmp", "runtime": bwrap.RUNTIME_DIR}
    make_folders(base, environment, bwrap.HOME)
    if IDENTITY is not None:
        for path in (base, *base.rglob("*")):
            os.chown(path, IDENTITY, IDENTITY, follow_symlinks=False)
    view = bwrap.View(
        roots=tuple(minimal_cover(environment.roots, covered=("/usr",))),
        workspace=str(base / "workspace"),
        home=str(base / "home"),
        runtime_dir=str(RUNTIME),
        spawner=spawner_bytecode(),
        hostname="sandbox",
        tmpfs_size=2**28,
        path="/usr/bin:/bin",
        seccomp=None,
    )
    line = bwrap.build_line(view, place=PLACE if IDENTITY else None)
    line.add("--share-net")  # abstract sockets belong to it, and this process stays outside
    command = (environment.executable, "-I", "-S", bwrap.SPAWNER, "3", "marks", "{}")
    program = make_program(bwrap.find_bwrap(), line, command, identity=IDENTITY)
    with ExitStack() as held, open(os.devnull, "wb") as status:
        files = [memory_file(text) for text in (line.encode(), *line.extras)]
        for descriptor in files:
            held.callback(os.close, descriptor)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        descriptors = [theirs.fileno(), status.fileno(), *files]
        options = [json.dumps(part) for part in (asdict(program), descriptors)]
        process = subprocess.Popen([sys.executable, "-c", LAUNCH, "", *options], pass_fds=descriptors)
        theirs.close()
        held.callback(process.wait, DEADLINE_S)
        held.callback(ours.close)
        yield Place(
            mode="marks",
            sock=ours,
            boot=facts(environment, folders, trusted=True),
            home=base / "home",
            workspace=base / "workspace",
        )


@contextmanager
def with_keepers(base: Path) -> Generator[Place]:
    environment = calling_environment()
    folders = {name: str(base / name) for name in ("home", "workspace", "tmp")} | {"runtime": str(RUNTIME)}
    make_folders(base, environment, folders["home"])
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    command = [environment.executable, "-I", "-S", str(SPAWNER), str(theirs.fileno()), "keepers", "{}"]
    with subprocess.Popen(command, pass_fds=[theirs.fileno()], start_new_session=True):
        theirs.close()
        yield Place(
            mode="keepers",
            sock=ours,
            boot=facts(environment, folders, trusted=False),
            home=base / "home",
            workspace=base / "workspace",
        )
        ours.close()


PLACES: dict[str, Callable[[Path], Any]] = {"marks": with_marks, "keepers": with_keepers}


@pytest.fixture(params=["marks", "keepers"])
def place(request: pytest.FixtureRequest) -> Generator[Place]:
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        with PLACES[request.param](Path(folder)) as made:
            yield made


# --- contexts over a fork server


class Counted:
    """A plain starter that counts its starts: those that were no forks."""

    warnings = ()

    def __init__(self, plain: PlainStarter) -> None:
        self._plain = plain
        self.starts = 0

    async def start(self, request: KernelRequest) -> StartedKernel:
        self.starts += 1
        return await self._plain.start(request)


class House:
    """A sandbox with contexts in it."""

    def __init__(
        self, place: Place, spawner: Spawner, plain: Counted, starter: ForkStarter, contexts: Contexts
    ) -> None:
        self.place = place
        self.spawner = spawner
        self.plain = plain
        self.starter = starter
        self.contexts = contexts
        workdir = place.boot.workdir
        self.executions = Executions(
            contexts, config=CONFIG, epoch="epoch", workdir=workdir, default_timeout=DEADLINE_S
        )

    async def context(self, name: str | None = None, **options: Any) -> Context:
        cwd = options.pop("cwd", self.place.boot.workdir)
        return await self.contexts.create(CreateContext(id=name, cwd=cwd, **options))

    async def run(self, code: str, context: Context) -> RunResult:
        execution = self.executions.start(CreateExecution(code=code, context=context.id))
        builder = RunBuilder(execution.id, execution.context_id, execution.origin)
        async with asyncio.timeout(DEADLINE_S):
            async for batch in execution.journal.follow():
                for entry in batch:
                    event = event_of(entry, "epoch")
                    assert event is not None
                    builder.add(event)
        return builder.result()

    async def value(self, code: str, context: Context | None = None) -> Any:
        """Return the value of `code` in `context`, default a new one."""
        result = await self.run(code, context or await self.context())
        assert result.error is None, result.error
        assert result.value is not None, (result.text, result.stdout)
        return result.value

    async def command(self, command: str) -> str:
        """Return what a shell command of the user says."""
        read_end, write_end = os.pipe()
        argv = ("sh", "-c", command)
        start = Start(argv=argv, env=self.place.boot.base_env, cwd="/", stdout=write_end, stderr=write_end)
        job = await self.spawner.start(start)
        os.close(write_end)
        await job.wait()
        said = bytearray()
        while piece := os.read(read_end, 2**16):  # all is there, and its writers have ended
            said += piece
        os.close(read_end)
        return said.decode()

    async def are_there(self, *pids: int) -> bool:
        """Tell whether one of `pids` is a process of the sandbox that lives."""
        said = await self.command("; ".join(f"grep State /proc/{pid}/status" for pid in pids))
        return any(line.startswith("State:") and "Z" not in line for line in said.splitlines())


@asynccontextmanager
async def a_house(
    place: Place, *, preload: tuple[str, ...] = (), linger: float = 60.0
) -> AsyncGenerator[House]:
    boot = place.boot
    async with Spawner(place.sock) as spawner:
        plain = Counted(
            PlainStarter(spawner, python=boot.python, runtime_dir=boot.runtime_dir, timeout=DEADLINE_S)
        )
        plan = ServerPlan.of(boot, str(SPAWNER))
        async with (
            ForkStarter(spawner, plan, plain, preload=preload, linger=linger) as starter,
            Contexts(starter, config=CONFIG, env=boot.base_env, workdir=boot.workdir) as contexts,
        ):
            house = House(place, spawner, plain, starter, contexts)
            yield house
            house.executions.close()


@pytest.fixture
async def house(place: Place) -> AsyncGenerator[House]:
    async with a_house(place) as house:
        yield house


# --- what a forked kernel is


@pytest.mark.short
async def test_contexts_are_forked_and_live_apart(house: House) -> None:
    contexts = await asyncio.gather(*(house.context(f"c{number}") for number in range(20)))
    for number, context in enumerate(contexts):
        await house.run(f"import os; x = {number}; os.environ['MINE'] = '{number}'", context)
    values = [await house.value("x, os.environ['MINE'], os.getpid()", each) for each in contexts]
    assert [value[:2] for value in values] == [[number, str(number)] for number in range(20)]
    assert len({value[2] for value in values}) == 20
    assert house.plain.starts == 0


@pytest.mark.short
async def test_a_forked_interpreter_is_what_a_plain_one_is(house: House) -> None:
    code = (
        "import sys, site, sysconfig, os, signal, locale, multiprocessing.spawn as spawn\n"
        "names = [n for n in sorted(os.environ) if not n.startswith('PYDEVD')]\n"
        "(sys.executable, sys.prefix, sys.base_prefix, sys.path, site.ENABLE_USER_SITE, site.getsitepackages(),"
        " sysconfig.get_path('purelib'), sysconfig.get_config_var('prefix'), names, os.getcwd(), sys.argv,"
        " str(sys.flags), str(spawn.get_executable()), os.getsid(0) == os.getpid(), locale.getpreferredencoding(),"
        " [str(signal.getsignal(n)) for n in (2, 13, 17)], str(_dh), os.umask(18))"
    )
    forked = await house.value(code)
    plain = await house.value(code, await house.context(env={"PYTHONUNUSED": "1"}))
    plain[8].remove("PYTHONUNUSED")
    assert house.plain.starts == 1
    assert forked == plain


@pytest.mark.short
async def test_it_has_no_rights_and_no_descriptors_of_the_server(house: House) -> None:
    context = await house.context()
    code = (
        "import os; lines = open('/proc/self/status').read().splitlines()\n"
        "kinds = sorted({os.readlink(f'/proc/self/fd/{n}').split(':')[0] for n in os.listdir('/proc/self/fd')\n"
        "    if os.path.lexists(f'/proc/self/fd/{n}')})\n"
        "dict(line.split(':\\t') for line in lines if line.startswith('Cap')), kinds"
    )
    capabilities, kinds = await house.value(code, context)
    if house.place.mode == "marks":
        assert {capabilities[name] for name in ("CapEff", "CapPrm", "CapInh", "CapAmb")} == {"0" * 16}
    own = f"/proc/{context.info().pid}/clear_refs"  # by which the peak of memory is reset
    assert set(kinds) - {own} <= {"/dev/null", "anon_inode", "pipe", "socket"}
    assert await house.value("os.stat('/proc/self/environ').st_uid == os.getuid()", context)


async def test_random_numbers_differ(place: Place) -> None:
    async with a_house(place, preload=("numpy", "numpy.random")) as house:
        await grown(house)
        code = "import random, secrets, uuid, numpy; [random.random(), numpy.random.random(), secrets.token_hex(), str(uuid.uuid4())]"
        drawn = [await house.value(code) for _ in range(3)]
        assert all(len(set(column)) == 3 for column in zip(*drawn, strict=True))


GROW_S = 45.0  # science libraries are imported, their fonts looked for, and what fails is left out in another attempt


async def grown(house: House) -> None:
    """Return when the server has grown, and a child of it is ready."""
    await house.context()
    async with asyncio.timeout(GROW_S):
        await house.starter.prepared()


async def test_what_is_preloaded_is_there_and_works(place: Place) -> None:
    preload = CONFIG.preloaded
    async with a_house(place, preload=preload) as house:
        await grown(house)
        context = await house.context()
        code = "import sys; [name in sys.modules for name in ('numpy', 'pandas', 'matplotlib.pyplot')]"
        assert await house.value(code, context) == [True, True, True]
        result = await house.run(
            "import numpy, pandas, matplotlib.pyplot as plt; plt.plot([1, 2]); print(pandas.Series([1]).sum())",
            context,
        )
        assert result.stdout == "1\n"
        assert [each.formats() for each in result.results] == [["png", "text", "chart"]]
        threads = "import os; len(os.sched_getaffinity(0)), float((numpy.ones((300, 300)) @ numpy.ones((300, 300)))[0, 0])"
        assert (await house.value(threads, context))[1] == 300.0
        assert house.plain.starts == 0


async def test_variables_that_come_too_late_for_a_fork_mean_a_plain_start(house: House) -> None:
    assert await house.value("1", await house.context(env={"ANY": "1"})) == 1
    assert house.plain.starts == 0
    context = await house.context(env={"PYTHONPATH": "/tmp"})
    assert await house.value("import sys; '/tmp' in sys.path", context) is True
    assert house.plain.starts == 1


def test_early_variables_are_told_from_others() -> None:
    env = {"PYTHONPATH": "1", "LD_PRELOAD": "2", "HOME": "3", "PATH": "4", "MINE": "5", "MPLBACKEND": "6"}
    assert set(early_env(env)) == {"PYTHONPATH", "LD_PRELOAD", "HOME", "MPLBACKEND"}


async def test_folder_and_variables_may_differ_from_what_the_idle_one_was_born_with(house: House) -> None:
    await house.context(env={"ONE": "1", "BOTH": "1"})
    await house.starter.prepared()
    context = await house.context(cwd="/usr", env={"TWO": "2", "BOTH": "2"})
    code = "import os; [os.getcwd(), str(_dh[0]), *map(os.environ.get, ('ONE', 'TWO', 'BOTH', 'MPLBACKEND'))]"
    inline = "module://matplotlib_inline.backend_inline"
    assert await house.value(code, context) == ["/usr", "/usr", None, "2", "2", inline]


async def test_a_missing_folder_is_told_as_ever(house: House) -> None:
    for _ in range(2):
        with pytest.raises(SandcellError) as caught:
            await house.context(cwd="/nowhere")
        assert caught.value.code is ErrorCode.CWD_NOT_FOUND
        await house.context()
        await house.starter.prepared()


# --- ends


@pytest.mark.parametrize(
    ("code", "cause", "number"),
    [
        ("import os; os._exit(3)", "exited", 3),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "signaled", signal.SIGKILL),
        ("import ctypes; ctypes.string_at(0)", "signaled", signal.SIGSEGV),
    ],
)
async def test_how_a_forked_context_ended_is_known(house: House, code: str, cause: str, number: int) -> None:
    for _ in range(2):  # from the server, and the one that was kept ready
        context = await house.context()
        await house.run(code, context)
        end = context.info().end
        assert end is not None
        assert (end.cause, end.code if cause == "exited" else end.signal) == (cause, number)
        await house.starter.prepared()
    assert house.plain.starts == 0


DAEMON = """
import os, subprocess
if os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
    os.execvp("sleep", ["sleep", "{0}"])
os.wait()
subprocess.Popen(["env", "-i", "setsid", "sleep", "{0}"]); None
"""


@pytest.mark.short
async def test_the_end_of_a_context_takes_its_daemons_and_no_neighbours(house: House) -> None:
    doomed, neighbour = await house.context("doomed"), await house.context("neighbour")
    await house.run(DAEMON.format(1111), doomed)
    await house.run(DAEMON.format(2222), neighbour)
    count = "pgrep -cx -f 'sleep {0}'"
    assert [int(await house.command(count.format(n))) for n in (1111, 2222)] == [2, 2]
    await house.contexts.delete("doomed")
    assert [int(await house.command(count.format(n))) for n in (1111, 2222)] == [0, 2]
    assert await house.value("1", neighbour) == 1


@pytest.mark.short
async def test_the_end_of_the_server_ends_no_context(house: House) -> None:
    first = await house.context()
    await house.run("x = 1", first)
    await house.starter.prepared()
    await end_kept(house)
    assert await house.value("x", first) == 1
    second = await house.context()
    assert await house.value("2", second) == 2
    await house.run("import os; os._exit(4)", first)
    end = first.info().end
    assert end is not None
    assert end.code == 4
    await house.contexts.delete(second.id)
    assert house.plain.starts == 0


async def test_a_server_that_is_killed_again_and_again_is_given_a_rest(house: House) -> None:
    for _ in range(2):
        assert await house.value("1") == 1
        await house.starter.prepared()
        assert house.starter.warnings == ()
        await end_kept(house)
    assert await house.value("1") == 1
    assert house.plain.starts == 1
    assert "the fork server has ended" in house.starter.warnings[0]


async def test_a_server_that_is_stopped_is_done_without(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sandcell.fork_server._ANSWER_S", 0.3)
    await house.context()
    await house.starter.prepared()
    server, _ = house.starter.kept
    assert server
    await house.command(f"kill -STOP {server}")
    await house.context()  # the one that was kept ready
    await house.starter.prepared()
    assert await house.value("1") == 1
    assert not await house.are_there(server)


async def end_kept(house: House) -> None:
    """Kill the server and the child that is kept ready, as user code can."""
    server, idle = house.starter.kept
    assert server
    assert idle
    await house.command(
        f"kill -9 {server} {idle}; while kill -0 {server} || kill -0 {idle}; do :; done 2> /dev/null"
    )


async def test_what_is_not_used_is_given_back(place: Place) -> None:
    async with a_house(place, linger=0.2) as house:
        context = await house.context()
        await house.starter.prepared()
        server, idle = house.starter.kept
        assert server
        assert idle
        await house.command(f"while kill -0 {server} || kill -0 {idle}; do :; done 2> /dev/null")
        assert await house.value("1", context) == 1
        assert await house.value("1") == 1
        assert house.plain.starts == 0


async def test_a_server_that_was_started_ahead_makes_the_first_kernel(place: Place) -> None:
    async with a_house(place) as house:
        house.starter.start_soon()
        await house.starter.prepared()
        server, idle = house.starter.kept
        assert server
        assert idle is None, "it is like nothing that was asked for yet"
        assert await house.value("1") == 1
        assert house.starter.kept[0] == server
        assert house.plain.starts == 0


async def test_a_server_that_was_started_ahead_for_nothing_is_given_back(place: Place) -> None:
    async with a_house(place, linger=0.2) as house:
        house.starter.start_soon()
        await house.starter.prepared()
        server, _ = house.starter.kept
        await house.command(f"while kill -0 {server}; do :; done 2> /dev/null")
        assert await house.value("1") == 1


async def test_a_house_is_left_while_its_server_starts(place: Place) -> None:
    async with a_house(place) as house:
        house.starter.start_soon()
    assert house.starter.kept == (None, None)


async def test_what_is_made_ready_too_late_is_given_back_too(place: Place) -> None:
    """The time is over while a child is still being made: that is not to be there for ever."""
    async with a_house(place, linger=0.0) as house:
        await house.context()
        await house.starter.prepared()
        for _ in range(5):
            await asyncio.sleep(0)  # a turn of the loop, in which a timer of no time is due
        assert house.starter.kept == (None, None)
        assert await house.value("1") == 1
        assert house.plain.starts == 0


def test_the_start_of_a_process_is_told_not_too_late_and_hardly_too_early() -> None:
    code = "import time; from sandcell_runtime.surroundings import process_start; print(process_start())"
    before = time.time()
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert before - 0.05 < float(told) < time.time()
    assert process_start() < before


# --- the user's environment changes


async def test_a_package_that_was_installed_meanwhile_is_there(house: House) -> None:
    await house.context()
    await house.starter.prepared()
    house.place.write(house.place.packages / "freshly_installed" / "__init__.py", "value = 7")
    assert await house.value("import freshly_installed; freshly_installed.value") == 7
    house.place.write(house.place.packages / "more.pth", "/usr/more\nimport sys; sys.seen_by_pth = True\n")
    assert await house.value("import sys; sys.seen_by_pth") is True


@pytest.mark.parametrize(
    ("name", "plain_starts"),
    [("jedi", {0, 1}), ("packaging", {3})],
    ids=["preloaded", "needed by every kernel"],
)
async def test_a_library_of_the_users_own_is_used_instead_of_the_one_in_memory(
    place: Place, name: str, plain_starts: set[int]
) -> None:
    async with a_house(place, preload=("jedi",)) as house:
        await grown(house)
        old = f"{calling_environment().site_dirs[0]}/{name}/__init__.py"
        code = f"import {name}; {name}.__file__"
        assert await house.value(code) == old
        own = place.packages / name
        await asyncio.to_thread(shutil.copytree, os.path.dirname(old), own)
        await house.starter.prepared()
        for _ in range(3):
            assert (await house.value(code)).startswith(place.boot.home)
            await house.starter.prepared()
        if (
            place.mode == "marks"
        ):  # elsewhere the server itself is of the user's environment, and started again
            assert house.plain.starts in plain_starts


@pytest.mark.short
async def test_a_bad_pth_file_breaks_nothing_and_has_no_rights(house: House) -> None:
    told = f"{house.place.boot.workdir}/told"
    line = (
        f"import os; open({told!r}, 'a').write(open('/proc/self/status').read()); raise RuntimeError('bad')\n"
    )
    house.place.write(house.place.packages / "aaa_bad.pth", line)
    house.place.write(house.place.packages / "zzz_good.pth", "import sys; sys.good = 1\n")
    assert await house.value("import sys; sys.good") == 1
    status = (house.place.workspace / "told").read_text()
    if house.place.mode == "marks":
        held = {line.split()[1] for line in status.splitlines() if line.startswith("CapEff")}
        assert held == {"0" * 16}


async def test_a_pth_file_that_ends_the_interpreter_is_told_as_ever(house: House) -> None:
    house.place.write(house.place.packages / "end.pth", "import os; os._exit(9)\n")
    with pytest.raises(SandcellError) as caught:
        await house.context()
    assert caught.value.code is ErrorCode.START_FAILED
    (house.place.packages / "end.pth").unlink()
    assert await house.value("1") == 1


# --- what user code tries


TRIES = """
import ctypes, os, signal
libc = ctypes.CDLL(None, use_errno=True)
def attempt(call, *args):
    try:
        return call(*args) and "done"
    except OSError as problem:
        return type(problem).__name__
[
    libc.ptrace(16, {0}, 0, 0), libc.ptrace(0x4206, {0}, 0, 0),
    *(attempt(open, f"/proc/{0}/{{name}}", "rb") for name in ("mem", "environ", "maps")),
    *(attempt(os.listdir, f"/proc/{0}/{{name}}") for name in ("fd", "map_files")),
    attempt(os.readlink, "/proc/{0}/ns/uts"), attempt(os.readlink, "/proc/{0}/fd/3"),
    libc.syscall(438, os.pidfd_open({0}), 3, 0), libc.unshare(0x04000000), libc.unshare(0x10000000),
]
"""


@pytest.mark.short
@pytest.mark.parametrize("place", ["marks"], indirect=True)
async def test_user_code_gets_nothing_of_the_servers(house: House) -> None:
    context = await house.context()
    await house.starter.prepared()
    server, _ = house.starter.kept
    refused = "PermissionError"
    tried = await house.value(TRIES.format(server), context)
    assert tried == [-1, -1, *[refused] * 7, -1, -1, -1]
    assert await house.value("1") == 1


@pytest.mark.parametrize("place", ["marks"], indirect=True)
@pytest.mark.parametrize(
    ("name", "use", "is_preloaded"),
    [("stylelib/mine.mplstyle", "plt.style.use('mine')", True), ("matplotlibrc", "None", False)],
)
async def test_a_server_with_rights_reads_no_configuration_of_the_users(
    place: Place,
    name: str,
    use: str,
    is_preloaded: bool,  # noqa: FBT001
) -> None:
    place.write(place.home / ".config" / "matplotlib" / name, "lines.linewidth: 7\n")
    async with a_house(place, preload=("matplotlib.pyplot",)) as house:
        await grown(house)
        context = await house.context()
        assert await house.value("import sys; 'matplotlib' in sys.modules", context) is is_preloaded
        code = f"import matplotlib.pyplot as plt; {use}; plt.rcParams['lines.linewidth']"
        assert await house.value(code, context) == 7.0
        assert house.plain.starts == 0


async def test_settings_of_libraries_are_those_of_the_moment(place: Place) -> None:
    async with a_house(place, preload=("matplotlib.pyplot",)) as house:
        await grown(house)
        place.write(place.workspace / "matplotlibrc", "lines.linewidth: 9\n")
        context = await house.context()
        code = "import sys; loaded = 'matplotlib.pyplot' in sys.modules; import matplotlib.pyplot as plt\n"
        wanted = [True, 9.0, "module://matplotlib_inline.backend_inline"]
        assert (
            await house.value(code + "[loaded, plt.rcParams['lines.linewidth'], plt.get_backend()]", context)
            == wanted
        )


@pytest.mark.parametrize("place", ["marks"], indirect=True)
@pytest.mark.parametrize("variable", ["PYTHONPATH", "LD_PRELOAD", "PYTHONSTARTUP"])
async def test_a_server_with_rights_takes_no_code_from_variables(place: Place, variable: str) -> None:
    plan = ServerPlan.of(replace(place.boot, base_env={**place.boot.base_env, variable: "/workspace"}), "")
    assert variable not in plan.env
    assert plan.env["HOME"] != place.boot.home


@pytest.mark.parametrize("place", ["marks"], indirect=True)
async def test_a_server_with_rights_imports_from_nowhere_that_can_be_written(place: Place) -> None:
    boot = replace(place.boot, trusted_site=(*place.boot.trusted_site, place.boot.workdir))
    async with a_house(replace(place, boot=boot)) as house:
        assert await house.value("1") == 1
        assert house.plain.starts == 1


@pytest.mark.parametrize("place", ["keepers"], indirect=True)
async def test_a_killed_keeper_costs_its_own_context_alone(house: House) -> None:
    doomed, neighbour = await house.context("doomed"), await house.context("neighbour")
    await house.run("x = 5", neighbour)
    await house.run(DAEMON.format(3333), doomed)
    await house.run("import os, signal; os.kill(os.getppid(), signal.SIGKILL); signal.pause()", doomed)
    end = doomed.info().end
    assert end is not None
    assert end.signal == signal.SIGKILL
    assert await house.value("x", neighbour) == 5
    async with asyncio.timeout(DEADLINE_S):
        await house.contexts.delete("doomed")
    assert int(await house.command("pgrep -cx -f 'sleep 3333'")) == 0
    assert await house.value("1") == 1
    assert house.plain.starts == 0

"""Real spawners for the tests of what runs commands: in a real bwrap (mode marks), and as a plain process (keepers)."""

from __future__ import annotations

import os
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sandcell_container.guest import spawner as spawner_module
from sandcell_container.guest.spawn import Spawner

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Generator

SPAWNER_FILE = Path(spawner_module.__file__)
UNPRIVILEGED = 61999  # root must not run bwrap as uid 0
PYTHON = os.path.realpath(sys.executable)  # the one that is seen inside
BASE_ENV = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/tmp", "LANG": "C.UTF-8", "USER": "user"}


def bwrap_line(prefix: str, spawner: str, workdir: str, fd: int, settings: str) -> list[str]:
    """Return the line of a small sandbox: the system and Python read-only, /tmp and /workspace to write."""
    links = [
        item for name in ("bin", "lib", "lib64", "sbin") for item in ("--symlink", f"usr/{name}", f"/{name}")
    ]
    return [
        *("bwrap", "--unshare-user", "--unshare-all", "--disable-userns", "--die-with-parent", "--as-pid-1"),
        *("--new-session", "--cap-add", "CAP_SYS_ADMIN", "--cap-add", "CAP_SYS_PTRACE", "--clearenv"),
        *(
            "--uid",
            "1000",
            "--gid",
            "1000",
            "--ro-bind",
            "/usr",
            "/usr",
            *links,
            "--proc",
            "/proc",
            "--dev",
            "/dev",
        ),
        *("--tmpfs", "/tmp", "--bind", workdir, "/workspace", "--ro-bind", prefix, sys.base_prefix),
        *("--ro-bind", spawner, "/run/spawner.py", "--size", str(2**20), "--tmpfs", "/small"),
        *("--remount-ro", "/dev", "--remount-ro", "/", "--"),
        *(PYTHON, "-I", "-S", "/run/spawner.py", str(fd), "marks", settings),
    ]


@contextmanager
def in_bwrap(settings: str = "{}") -> Generator[tuple[socket.socket, Path]]:
    """Start a spawner as PID 1 of a bwrap; yield its socket, and the folder that is /workspace inside."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs, tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        base.chmod(0o755)
        workdir, prefix, spawner = base / "work", base / "prefix", base / "spawner.py"
        workdir.mkdir()
        prefix.mkdir()
        shutil.copy(SPAWNER_FILE, spawner)
        line = bwrap_line(sys.base_prefix, str(spawner), str(workdir), theirs.fileno(), settings)
        if os.getuid() == 0:
            os.chown(workdir, UNPRIVILEGED, UNPRIVILEGED)
            line = bwrap_line(str(prefix), str(spawner), str(workdir), theirs.fileno(), settings)
            drop = ["setpriv", f"--reuid={UNPRIVILEGED}", f"--regid={UNPRIVILEGED}", "--clear-groups"]
            mount = f"mount --bind {shlex.quote(sys.base_prefix)} {shlex.quote(str(prefix))}"
            line = ["unshare", "-m", "sh", "-c", f"{mount} && exec {shlex.join([*drop, *line])}"]
        with subprocess.Popen(line, pass_fds=[theirs.fileno()], env={"PATH": os.environ["PATH"]}) as process:
            theirs.close()
            yield ours, workdir
            ours.close()
            process.wait(10)


@contextmanager
def in_plain_process(settings: str = "{}") -> Generator[tuple[socket.socket, Path]]:
    """Start a spawner with keepers; yield its socket, and a folder that is the user's to write."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs, tempfile.TemporaryDirectory() as folder:
        line = [sys.executable, "-I", "-S", str(SPAWNER_FILE), str(theirs.fileno()), "keepers", settings]
        with subprocess.Popen(line, pass_fds=[theirs.fileno()], start_new_session=True) as process:
            theirs.close()
            yield ours, Path(folder)
            ours.close()
            process.wait(10)


MODES = {"marks": in_bwrap, "keepers": in_plain_process}


class Place:
    """A running spawner: `workdir` is the folder as user code names it, `outside` as the tests do."""

    def __init__(self, mode: str, spawner: Spawner, outside: Path) -> None:
        self.mode = mode
        self.spawner = spawner
        self.outside = outside
        self.workdir = "/workspace" if mode == "marks" else str(outside)
        self.env = BASE_ENV


@pytest.fixture(params=["marks", "keepers"])
async def place(request: pytest.FixtureRequest) -> AsyncIterator[Place]:
    mode: str = request.param
    with MODES[mode]() as (sock, outside):
        async with Spawner(sock) as spawner:
            yield Place(mode, spawner, outside)

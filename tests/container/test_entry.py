"""The entry of a container, as far as it goes outside one: it enters the host's folder as the folder's owner."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="the entry is root's, it becomes others")

ENTRY = Path(__file__).parents[2] / "container" / "image" / "entry.py"
OWNER = 61234
# In a process of its own: it changes identities and folders.
BOOT = '{"network": "none"}'
PROGRAM = """
import importlib.util, json, os, sys
spec = importlib.util.spec_from_file_location("entry", sys.argv[1])
entry = importlib.util.module_from_spec(spec)
spec.loader.exec_module(entry)
files = entry.open_host_files(sys.argv[2])
os.write(files.log, b"a word\\n")
print(json.dumps({"boot": os.read(files.boot, 100).decode(), "cwd": os.getcwd(), "euid": os.geteuid()}))
sys.stdout.flush()
sys.stdin.read()
"""


def _open(folder: Path) -> subprocess.Popen[bytes]:
    argv = [sys.executable, "-I", "-S", "-c", PROGRAM, str(ENTRY), str(folder)]
    return subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def _facts(process: subprocess.Popen[bytes]) -> dict[str, Any]:
    assert process.stdout is not None
    facts: dict[str, Any] = json.loads(process.stdout.readline())
    return facts


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Somebody else's, closed to all others, as a host program makes it."""
    made = tmp_path / "host"
    made.mkdir(mode=0o700)
    (made / "boot.json").write_text(BOOT)
    for path in (made, made / "boot.json"):
        os.chown(path, OWNER, OWNER)
    return made


def test_it_reads_binds_and_logs_as_the_owner_and_is_root_again(folder: Path) -> None:
    with _open(folder) as process:
        assert _facts(process) == {"boot": BOOT, "cwd": "/", "euid": 0}
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(folder / "guest.sock"))
        assert (folder / "guest.log").read_text() == "a word\n"
        stats = [(folder / name).stat() for name in ("guest.sock", "guest.log")]
        assert [(each.st_uid, each.st_mode & 0o777) for each in stats] == [(OWNER, 0o600)] * 2


def test_the_socket_of_an_earlier_start_is_replaced(folder: Path) -> None:
    with socket.socket(socket.AF_UNIX) as old:
        old.bind(str(folder / "guest.sock"))
    with _open(folder) as process:
        assert _facts(process)["euid"] == 0
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(folder / "guest.sock"))

"""The host program's end of a zygote: starts it, asks it for sandboxes, ends it."""

from __future__ import annotations

import array
import json
import os
import socket
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Literal

from sandcell_container.errors import ErrorCode, error

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sandcell_container.engines.launch import Launch
    from sandcell_container.errors import SandcellError

__all__ = ["ZygoteProcess", "import_path", "memory_file"]

# Constant code; what varies is in argv. -I keeps the environment and the working folder out, so the folders that this
# program imports from are handed over, after the interpreter's own. Looking for garbage while it imports would find next to
# nothing, and take an eighth of its time.
_PROGRAM = (
    "import gc, json, sys; gc.disable(); sys.path += [each for each in json.loads(sys.argv[2])['path'] if each not in sys.path];"
    "from sandcell_container.engines.zygote import main; main()"
)
_ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}
_MESSAGE = 65536
_END_TIMEOUT = 10.0  # seconds; everything in it is killed, so only a stuck kernel needs them


class ZygoteProcess:
    """One running zygote. Thread-safe. Give it back with `close()`, which ends all that it has forked."""

    def __init__(
        self, modules: Sequence[str], *, runtime: str, tie: Literal["host", "sandbox"], timeout: float
    ) -> None:
        """Start it. It can be asked at once, and begins with what it can while it still imports `modules`, what guests need.
        `runtime` is the folder of what runs in interpreters, see `compile_folder`.

        Tied to "host" it ends with this program; tied to "sandbox", once released, with the one sandbox that it made; such a
        one is waited for until it has forked itself off, `timeout` seconds at most.
        """
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._failure: str | None = None
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._words = os.fdopen(os.memfd_create("zygote"), "rb")
        with theirs:
            options = {"preload": list(modules), "runtime": runtime, "path": import_path()}
            self._process = _start(options, theirs.fileno(), tie=tie, words=self._words.fileno())
        try:
            if tie == "sandbox":
                self._process.wait(timeout)
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        """That of what was started; one that is tied to a sandbox has another one afterwards."""
        return self._process.pid

    @property
    def usable(self) -> bool:
        """Whether it can still be asked: it lives, and this process is the one that started it and no fork of that."""
        return self._pid == os.getpid() and self._failure is None and self._process.poll() is None

    def failure(self) -> SandcellError | None:
        """Return why it could not go on, None where it has said nothing of the kind. Who waits for an answer and sees the end
        of that asks here.

        The error: Unavailable (START_FAILED), what its imports or its loop died of in `details["words"]`.
        """
        with self._lock:
            self._failure = self._failure or self._read_failure()
        if self._failure is None:
            return None
        last = self._failure.strip().rpartition("\n")[2]
        return error(
            ErrorCode.START_FAILED,
            f"the process that sandboxes are forked from did not start: {last}",
            details={"words": self._failure},
        )

    def launch(self, launch: Launch, descriptors: Sequence[int]) -> None:
        """Ask for one sandbox; `descriptors` are those of GUEST_DESCRIPTORS but the plan, then the launcher's.

        The answer comes on the reply socket among them, which closes when both processes have been reaped.

        Raises:
            Unavailable (START_FAILED): the zygote has ended.
        """
        plan = memory_file(launch.encode())
        try:
            self._send({"do": "launch"}, [plan, *descriptors])
        finally:
            os.close(plan)

    def end(self, sandbox_id: str) -> None:
        """Ask it to kill both processes of a sandbox."""
        self._send({"do": "end", "id": sandbox_id})

    def release(self) -> None:
        """Let it go its own way: it ends when its sandboxes have ended. Nothing can be asked afterwards."""
        self._send({"do": "release"})
        self.close()

    def close(self) -> None:
        """End it with all that it has forked, and wait for that. A released one goes on."""
        with self._lock:
            self._control.close()
            self._words.close()
        if self._pid == os.getpid():
            try:
                self._process.wait(_END_TIMEOUT)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def _read_failure(self) -> str | None:
        try:
            said = self._control.recv(_MESSAGE, socket.MSG_DONTWAIT)
        except ConnectionResetError:  # it ended with requests unread, which is told once, before what it said
            return self._read_failure()
        except OSError:  # nothing is there to be read, or it was closed here
            return None
        return str(json.loads(said)["failed"]) if said else None

    def _send(self, message: dict[str, str], descriptors: Iterable[int] = ()) -> None:
        text = json.dumps(message).encode()
        rights = array.array("i", descriptors)
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)] if rights else []
        try:
            with self._lock:
                self._control.sendmsg([text], ancillary, socket.MSG_NOSIGNAL)
        except OSError as failed:
            raise self.failure() or error(
                ErrorCode.START_FAILED,
                "the process that sandboxes are forked from has ended",
                details={"words": self._last_words()},
                retryable=True,
            ) from failed

    def _last_words(self) -> str:
        with self._lock:
            if self._words.closed:
                return ""
            return os.pread(self._words.fileno(), _MESSAGE, 0).decode(errors="replace")


def _start(
    options: Mapping[str, object], control: int, *, tie: Literal["host", "sandbox"], words: int
) -> subprocess.Popen[bytes]:
    """Start the program with a pidfd of this one: the control socket's end alone is not enough, because a child
    that this program has forked may hold it open."""
    host = os.pidfd_open(os.getpid()) if tie == "host" else None
    try:
        return subprocess.Popen(
            [sys.executable, "-I", "-c", _PROGRAM, str(control), json.dumps({**options, "host": host})],
            env=_ENVIRONMENT,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=words,
            stderr=words,
            pass_fds=[control] if host is None else [control, host],
            start_new_session=True,  # a ^C in the terminal is for the host program
        )
    finally:
        if host is not None:
            os.close(host)


def memory_file(content: bytes) -> int:
    """Return a descriptor, at its start, of a nameless file that holds `content`. The caller closes it."""
    descriptor = os.memfd_create("sandcell")
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def import_path() -> list[str]:
    """Return the folders that this program imports from, for programs of ours that start with -I."""
    return [folder for folder in sys.path if os.path.isabs(folder)]

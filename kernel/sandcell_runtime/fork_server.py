"""The fork server: one process that has imported what every kernel needs, and forks them in milliseconds.

Started as `PYTHON launch.py fork-server`; stdin is its end of a SEQPACKET socket to the guest, whose end of file ends
it. It has one thread, no loop and no ZMQ context. The first message is its options, JSON:
  home     the user's home
  python   the interpreter that children appear as, or null: the one that runs this
  site     folders of packages, which user code cannot write; they and the standard library are then the whole
           path, nothing else is read, and children find the user's own packages; or null: the path as it is
  spawner  the file of the spawner, or null
Requests, JSON, with descriptors by SCM_RIGHTS:
  {"fork": N}                  + channel, errors[, keeper]: fork a kernel; see `newborn` for what it is told
  {"grow": N, "preload": [..]} + control, errors[, keeper]: fork another server, which imports these too
Answers:
  {"ready": true, "missing": [modules]}           first of all, on the control socket of each server
  {"forked": N, "pid": P}      + pidfd[, mark]; with a keeper its own pid and pidfd
  {"failed": N, "reason": text, "module": name}   N null: the server itself is of no use, and ends; where the import of
                                                  a module was to blame it is named

A child is no child of the server but an orphan from its birth, so that the spawner reaps it and the death of the server
touches none. Where the server may, each child has a mark of its own, a UTS namespace, and the server is undumpable.
Elsewhere, told by `keeper`, a socket, it has a keeper as its parent, which speaks to the spawner there.

It is not started with -I, whose flags Python programs hand on to the Pythons that they start: the guest gives it
an environment without variables of Python's, a home that is not there, and `/` to start from.
"""

from __future__ import annotations

import gc
import importlib.util
import json
import os
import signal
import socket
import struct
import sys
import traceback
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from sandcell_runtime import rights, surroundings
from sandcell_runtime.late_client import put_off_client
from sandcell_runtime.newborn import Heritage, Newborn
from sandcell_runtime.preload import KERNEL, ImportFailed, ReadGuard, import_all, library_env, native_threads

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

__all__ = ["main"]

_LONGEST_REQUEST = 2**16
_MOST_DESCRIPTORS = 8


class Role(Protocol):
    """What a process of this program is for. Returns the role that comes after, None at its end."""

    def run(self) -> Role | None: ...


class Options(NamedTuple):
    home: str
    python: str | None
    site: list[str] | None
    spawner: str | None

    @property
    def marks(self) -> bool:
        """Whether this process has rights of its own, for the marks of its children."""
        return self.spawner is None and rights.may_mark()


def main() -> None:
    """Serve on the socket at descriptor 0 until its end. In a forked child this returns when its kernel has ended."""
    control = _take_over_stdin()
    # Looking for garbage would slow the imports by an eighth, and find next to nothing; later it would copy pages.
    gc.disable()
    told = control.recv(_LONGEST_REQUEST)
    role: Role | None = _Beginning(control, Options(**json.loads(told))) if told else None
    while role is not None:
        role = role.run()


def _take_over_stdin() -> socket.socket:
    """Return the socket that stdin was: no program that a library starts may have it."""
    control = socket.socket(fileno=os.dup(0))
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    return control


@dataclass(frozen=True, slots=True)
class _Fixed:
    """What stays the same for a server and those that grow from it."""

    options: Options
    guard: ReadGuard | None
    state: surroundings.State | None
    core: dict[str, str]
    keep: Callable[[int, int], None]


class _Beginning:
    """Imports what every kernel needs."""

    def __init__(self, control: socket.socket, options: Options) -> None:
        self._control = control
        self._options = options

    def run(self) -> Role:
        options = self._options
        if options.marks:
            rights.keep_to_self()
        guard = None
        if options.site is not None:
            sys.path[:] = surroundings.trusted_path(options.site)
            self._check_trust()
            guard = ReadGuard([sys.base_prefix, *options.site, os.path.dirname(__file__)])
        os.environ["HOME"] = options.home
        state = None if guard else surroundings.observe_path(since=surroundings.process_start())
        put_off_client()
        missing = _import(KERNEL, guard, self._control)
        keep = _load_keep(options.spawner) if options.spawner else _no_keep
        fixed = _Fixed(options, guard, state, surroundings.loaded_names(), keep)
        return _Server(self._control, fixed, extra={}, missing=missing)

    def _check_trust(self) -> None:
        """Refuse to go on with rights of its own where user code could change what is imported."""
        for folder in (os.path.dirname(__file__), *sys.path):
            if self._options.marks and os.path.isdir(folder) and not surroundings.is_read_only(folder):
                _say(self._control, {"failed": None, "reason": f"{folder} can be written"})
                sys.exit(1)


class _Growth:
    """A forked server before it serves: imports what not every kernel needs."""

    def __init__(self, control: int, errors: int, fixed: _Fixed, preload: Iterable[str]) -> None:
        self._control = control
        self._errors = errors
        self._fixed = fixed
        self._preload = preload

    def run(self) -> Role:
        os.setsid()
        os.dup2(self._errors, 2)
        os.close(self._errors)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # libraries start programs, and wait for them
        os.environ.update(library_env())
        control = socket.socket(fileno=self._control)
        missing = _import(self._preload, self._fixed.guard, control)
        gc.collect()
        core = self._fixed.core
        extra = {name: folder for name, folder in surroundings.loaded_names().items() if name not in core}
        return _Server(control, self._fixed, extra=extra, missing=missing)


def _import(names: Iterable[str], guard: ReadGuard | None, control: socket.socket) -> list[str]:
    """Import; return those that are not there. Where one fails, say so and end."""
    try:
        with guard.active() if guard else nullcontext():
            return import_all(names)
    except ImportFailed as problem:
        _say(control, {"failed": None, "reason": str(problem), "module": problem.module})
        sys.exit(1)


class _Server:
    """Answers requests until the guest's end is closed."""

    def __init__(
        self, control: socket.socket, fixed: _Fixed, *, extra: dict[str, str], missing: list[str]
    ) -> None:
        self._control = control
        self._fixed = fixed
        options = fixed.options
        self._marks = options.marks
        self._heritage = Heritage(options.python, fixed.state, fixed.core, extra, privileged=self._marks)
        self._missing = missing

    def run(self) -> Role | None:
        """Serve. Returns None at the end, and in a forked child what it is to be."""
        threads = native_threads()
        if threads != 1:
            _say(self._control, {"failed": None, "reason": f"{threads} threads"})
            return None
        # Those in between end at once, and nobody wants to hear of it.
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        gc.freeze()
        _say(self._control, {"ready": True, "missing": self._missing})
        for request, descriptors in _requests(self._control):
            role = self._fork(request, descriptors)
            if role is not None:
                self._control.close()
                return role
            for descriptor in descriptors:
                os.close(descriptor)
        return None

    def _fork(self, request: dict[str, Any], descriptors: list[int]) -> Role | None:
        """Fork a child, and one in between to make it an orphan. Returns its role in the child, here None."""
        number = request.get("fork", request.get("grow"))
        sys.stderr.flush()
        try:
            if os.fork() != 0:
                return None
        except OSError as problem:
            _say(self._control, {"failed": number, "reason": f"fork: {problem}"})
            return None
        keeper = descriptors[2] if len(descriptors) > 2 else None
        try:
            if keeper is not None:
                rights.become_subreaper()
                os.setsid()
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            mark = [rights.take_mark()] if self._marks else []
            child = os.fork()
            if child == 0:
                return self._role(request, descriptors, mark)
            owned = child if keeper is None else os.getpid()
            _say(self._control, {"forked": number, "pid": owned}, [os.pidfd_open(owned), *mark])
            if keeper is not None:
                self._control.close()
                for descriptor in descriptors[:2]:
                    os.close(descriptor)
                self._fixed.keep(keeper, child)
        except BaseException as problem:  # noqa: BLE001 -- this process must not go on as a second server
            traceback.print_exc()
            _say(self._control, {"failed": number, "reason": f"{type(problem).__name__}: {problem}"})
        os._exit(0)

    def _role(self, request: dict[str, Any], descriptors: list[int], unwanted: list[int]) -> Role:
        channel, errors, *keeper = descriptors
        for descriptor in (*keeper, *unwanted):
            os.close(descriptor)
        if "grow" in request:
            return _Growth(channel, errors, self._fixed, request["preload"])
        return Newborn(channel, errors, self._heritage)


def _no_keep(_channel: int, _child: int) -> None:
    raise ValueError("a keeper was asked for, and no spawner named")


def _load_keep(spawner: str) -> Callable[[int, int], None]:
    """Return what makes a process the keeper of another: the spawner's own code for it."""
    spec = importlib.util.spec_from_file_location("sandcell_spawner", spawner)
    if spec is None or spec.loader is None:
        raise ImportError(f"{spawner} is no spawner")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    keep: Callable[[int, int], None] = module.keep
    return keep


def _requests(control: socket.socket) -> Generator[tuple[dict[str, Any], list[int]]]:
    """Yield each request with its descriptors, which the consumer closes, until the other end is closed."""
    while True:
        message, ancillary, _, _ = control.recvmsg(
            _LONGEST_REQUEST, socket.CMSG_SPACE(4 * _MOST_DESCRIPTORS), socket.MSG_CMSG_CLOEXEC
        )
        if not message:
            return
        descriptors = list[int]()
        for level, kind, data in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                descriptors += struct.unpack(f"{len(data) // 4}i", data[: len(data) // 4 * 4])
        yield json.loads(message), descriptors


def _say(control: socket.socket, answer: dict[str, Any], descriptors: Iterable[int] = ()) -> None:
    rights_ = struct.pack(f"{len(list(descriptors))}i", *descriptors)
    ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights_)] if rights_ else []
    try:
        control.sendmsg([json.dumps(answer).encode()], ancillary)
    except (BrokenPipeError, ConnectionResetError):
        pass  # the next receive says that the guest is gone

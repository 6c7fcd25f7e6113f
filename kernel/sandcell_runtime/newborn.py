"""The life of a forked child until it is a kernel: it is told what to be by a socket, in two steps.

On the socket, lines of JSON. First it hears a Birth, binds its sockets and says `{"ready": true}`; it may then wait
for long, idle. Then it hears an Attachment, takes it on and says `{"attached": true}`. Instead it may say
`{"stale": "core" | "extra" | "files", "names": [...]}`, when what is in memory is not what a fresh interpreter would
have, or `{"failed": reason}`; and end. An end of file means that nobody wants it any more.
"""

from __future__ import annotations

import faulthandler
import gc
import json
import math
import os
import signal
import socket
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypedDict

from sandcell_runtime import rights, surroundings
from sandcell_runtime.preload import adapt_libraries

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Self

    from sandcell_runtime.surroundings import State

__all__ = ["Birth", "Heritage", "Newborn"]


_SERVER, _KERNEL = b"\0fork-server\0", b"\0interpreter\0"


class Birth(TypedDict):
    """What is told first. `connection` and `settings` as `launch.py` takes them."""

    env: dict[str, str]
    cwd: str
    connection: dict[str, Any]
    settings: dict[str, Any]


class Attachment(TypedDict):
    """What is told when it is put to use: this may have changed since its birth."""

    env: dict[str, str]
    cwd: str


class Heritage(NamedTuple):
    """What a child knows from its parent. `python` is the interpreter it is to appear as, None as it is; `state` is
    what the parent saw of the path it imports from, None where user code cannot change that. `core` and `extra` are
    the modules in memory, those that every kernel needs and the others, with the folders they came from; `privileged`
    says that it has rights which no kernel may have."""

    python: str | None
    state: State | None
    core: Mapping[str, str]
    extra: Mapping[str, str]
    privileged: bool


class _Stale(Exception):
    """What is in memory is not what a fresh interpreter would have: modules of the core, others, or what files said."""

    def __init__(self, kind: Literal["core", "extra", "files"], names: list[str]) -> None:
        super().__init__(kind)
        self.kind = kind
        self.names = names


class Newborn:
    """One forked child. It owns `channel`, the socket, and `errors`, which becomes its standard error."""

    def __init__(self, channel: int, errors: int, heritage: Heritage) -> None:
        self._channel = channel
        self._errors = errors
        self._heritage = heritage

    def run(self) -> None:
        """Become a kernel and serve until its end."""
        self._come_to_life()
        with _Talk(self._channel) as talk:
            try:
                app = self._be_born(talk.hear())
                talk.say(ready=True)
                self._attach(app, talk.hear())
            except _Stale as stale:
                talk.say(stale=stale.kind, names=stale.names)
                sys.exit(1)
            except OSError as problem:
                talk.say(failed=str(problem))
                sys.exit(1)
            talk.say(attached=True)
        app.start()

    def _come_to_life(self) -> None:
        """Be an ordinary process of the user, with nothing of the parent's."""
        if self._heritage.privileged:
            rights.drop_all()
        _take_name()
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for number, descriptor in enumerate((null, null, self._errors)):
            os.dup2(descriptor, number)
        for descriptor in (null, self._errors):
            os.close(descriptor)
        faulthandler.enable(
            os.dup(2), all_threads=False
        )  # 2 itself becomes a pipe that dies with this process
        gc.enable()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)

    def _be_born(self, birth: Birth) -> Any:
        surroundings.enter(birth["env"], birth["cwd"])
        self._take_on_path()
        from sandcell_runtime.app import make_app

        app = make_app(birth["connection"], birth["settings"])
        self._birth, self._profile = birth, surroundings.observe_profile()
        return app

    def _take_on_path(self) -> None:
        python, state, core, extra, _ = self._heritage
        since = math.inf
        if python is not None:
            since = time.time()
            surroundings.become_python(python)
        self._path = surroundings.observe_path(since=since)
        if state is not None and state != self._path:
            raise _Stale("files", surroundings.changes(state, self._path))
        if wrong := surroundings.replaced(core):
            raise _Stale("core", wrong)
        if wrong := surroundings.replaced(extra):
            raise _Stale("extra", wrong)

    def _attach(self, app: Any, attachment: Attachment) -> None:
        before, now = self._birth["env"], attachment["env"]
        for name in before.keys() - now.keys():
            os.environ.pop(name, None)
        # Not all of them: the kernel's own start has set some others.
        os.environ.update({name: value for name, value in now.items() if before.get(name) != value})
        os.chdir(attachment["cwd"])
        app.shell.history_manager.dir_hist[:] = [Path.cwd()]
        seen = {**surroundings.observe_path(), **surroundings.observe_profile()}
        if changed := surroundings.changes({**self._path, **self._profile}, seen):
            raise _Stale("files", changed)
        adapt_libraries()


def _take_name() -> None:
    """Be an interpreter, and no fork server, in lists of processes: a fork has the command line of its parent.

    Source: proc(5), arg_end of /proc/self/stat. Both words have the same length: there is no more room.
    """
    try:
        with open("/proc/self/cmdline", "rb") as line:
            if not line.read().endswith(_SERVER):
                return
        with open("/proc/self/stat", "rb") as stat:
            end = int(stat.read().rpartition(b")")[2].split()[46])
        with open("/proc/self/mem", "r+b", buffering=0) as memory:
            memory.seek(end - len(_SERVER))
            memory.write(_KERNEL)
    except OSError:
        pass  # a kernel that forbids it: only the name is wrong


class _Talk:
    """The socket to the guest. A context manager, which closes it."""

    def __init__(self, descriptor: int) -> None:
        self._socket = socket.socket(fileno=descriptor)
        self._lines = self._socket.makefile("rb")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._lines.close()
        self._socket.close()

    def hear(self) -> Any:
        """Return what the next line says; ends this process when there is none."""
        line = self._lines.readline()
        if not line:
            os._exit(0)  # no kernel yet: nothing of the user's has run that would want to hear of the end
        return json.loads(line)

    def say(self, **fields: object) -> None:
        self._socket.sendall(json.dumps(fields).encode() + b"\n")

"""The program that every process of this machine's sandboxes is a child of: imports once, forks fast, reaps all.

It runs beside its host program as a process of its own, because bubblewrap is tied to the thread that started it and
setns needs a single thread: here is one thread, for good. It ends with its host program, whatever way that ends,
and everything it has forked ends with it. Started detached it is for one sandbox, and ends with that one.
"""

from __future__ import annotations

import gc
import importlib
import json
import mmap
import os
import select
import signal
import socket
import sys
import time
import traceback
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from sandcell_container.engines import entrance, launcher, namespaces
from sandcell_container.engines.bytecode import compile_folder
from sandcell_container.engines.egress import ProxySide, become_proxy
from sandcell_container.engines.launch import GUEST_DESCRIPTORS, Launch
from sandcell_container.engines.tunnel import become_tunnel
from sandcell_container.memo import note_exit

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["main"]

_MOST_DESCRIPTORS = 253  # SCM_MAX_FD
_REQUEST = 4096
_LAST_WORDS = 1.0  # seconds that a guest has left when its sandbox ended


class _Unborn(NamedTuple):
    """A launch whose launcher runs already, and whose guest is forked once what guests need is imported."""

    launch: Launch
    side: entrance.GuestSide
    launcher: int


@dataclass(slots=True)
class _Pair:
    """The children that make one sandbox, None where already reaped, or where it has no proxy. `reply` stays open as long as one is left, and
    so does `memo`, where their ends are noted."""

    launcher: int | None
    guest: int | None
    reply: int
    memo: int
    proxy: int | None = None
    kill_at: float | None = None

    @property
    def pids(self) -> list[int]:
        return [pid for pid in (self.launcher, self.guest, self.proxy) if pid is not None]


class _Zygote:
    """The loop: requests of the host program in, ends of children in, nothing else."""

    def __init__(self, control: socket.socket, host: int | None) -> None:
        self._control = control
        self._host = host
        self._pairs: dict[str, _Pair] = {}
        self._unborn: list[_Unborn] = []
        self._is_prepared = False
        self._released = False
        self._pid = os.getpid()
        self._wakeup_in, self._wakeup_out = socket.socketpair()
        for end in (self._wakeup_in, self._wakeup_out):
            end.settimeout(0)

    def run(self, preload: Sequence[str]) -> None:
        """Import `preload`, then serve until the host program has gone, or, once released, until no sandbox is left; at last,
        however it comes to that, end all children."""
        signal.signal(signal.SIGCHLD, _note)
        signal.set_wakeup_fd(self._wakeup_in.fileno(), warn_on_full_buffer=False)
        try:
            if self._prepare(preload):
                self._serve_host()
        finally:
            self._end_all()

    def _prepare(self, preload: Sequence[str]) -> bool:
        """Import what guests need, once for all of them. What is asked for in between is begun: a launcher needs none of it,
        and comes up meanwhile. Returns False when the host program has gone."""
        asked = select.poll()
        asked.register(self._control, select.POLLIN)
        for name in preload:
            if asked.poll(0) and not (self._take_request() or self._released):
                return False
            importlib.import_module(name)
        threads = os.listdir("/proc/self/task")
        if len(threads) != 1:
            raise RuntimeError(
                f"an import has started {len(threads) - 1} threads, none can enter a sandbox then"
            )
        gc.freeze()  # so that children do not copy every page that holds an object
        gc.enable()
        self._is_prepared = True
        self._bear()
        return True

    def _serve_host(self) -> None:
        poll = select.poll()
        watched = [self._control.fileno(), self._wakeup_out.fileno()]
        for descriptor in [*watched, *([] if self._host is None else [self._host])]:
            poll.register(descriptor, select.POLLIN)
        while not self._released or self._pairs:
            ready = {descriptor for descriptor, _ in poll.poll(self._patience())}
            if self._host in ready:
                break
            if self._wakeup_out.fileno() in ready:
                self._wakeup_out.recv(_REQUEST)
                self._reap()
            self._end_overdue()
            if self._control.fileno() in ready and not self._take_request():
                if not self._released:
                    break
                poll.unregister(self._control.fileno())

    def _take_request(self) -> bool:
        """Do what the host program asks; returns False when it has closed its end."""
        try:
            request, descriptors, _, _ = socket.recv_fds(self._control, _REQUEST, _MOST_DESCRIPTORS)
        except ConnectionResetError:
            return False
        if not request:
            return False
        message: dict[str, Any] = json.loads(request)
        match message["do"]:
            case "launch":
                self._launch(descriptors)
            case "end":
                self._end(message["id"])
            case "release":
                self._released = True
            case other:
                raise ValueError(f"no such request: {other!r}")
        return True

    def _launch(self, descriptors: Sequence[int]) -> None:
        plan, *guests = descriptors[: len(GUEST_DESCRIPTORS)]
        launchers = descriptors[len(GUEST_DESCRIPTORS) :]
        side = entrance.GuestSide(*guests)
        with mmap.mmap(plan, 0, access=mmap.ACCESS_READ) as text:
            launch = Launch.decode(text[:])
        pair = self._pairs[launch.boot.sandbox_id] = _Pair(None, None, side.reply, side.memo)
        try:
            pair.launcher = bubblewrap = _fork(lambda: self._become(launch, launchers, side))
        except OSError as failed:
            self._give_up(launch, side, failed)
        else:
            self._unborn.append(_Unborn(launch, side, bubblewrap))
        for descriptor in (*launchers, plan):
            os.close(descriptor)
        if self._is_prepared:
            self._bear()

    def _end(self, sandbox_id: str) -> None:
        """Kill both processes of a sandbox; one that is not born yet never will be."""
        for one in [each for each in self._unborn if each.launch.boot.sandbox_id == sandbox_id]:
            self._unborn.remove(one)
            _close_given(one.side)
        if (pair := self._pairs.get(sandbox_id)) is not None:
            _kill(pair.pids)

    def _bear(self) -> None:
        """Fork the guests of launches whose launchers run."""
        while self._unborn:
            one = self._unborn.pop(0)
            try:
                self._fork_guest(one, self._pairs[one.launch.boot.sandbox_id])
            except OSError as failed:
                self._give_up(one.launch, one.side, failed)
            else:
                _close_given(one.side)

    def _give_up(self, launch: Launch, side: entrance.GuestSide, failed: OSError) -> None:
        """There are no more processes: one sandbox does not start, the others stay."""
        os.write(side.log, f"sandcell: fork: {failed.strerror}\n".encode())
        sandbox_id = launch.boot.sandbox_id
        self._forget_pair(sandbox_id, self._pairs[sandbox_id])
        _close_given(side)

    def _become(self, launch: Launch, descriptors: Sequence[int], side: entrance.GuestSide) -> NoReturn:
        """Go on as the launcher: all other descriptors are closed on the way."""
        _forget_signals()
        launcher.become(launch.program, descriptors, log=side.log, parent=self._pid)

    def _fork_guest(self, one: _Unborn, pair: _Pair) -> None:
        """Fork the guest, and before it the proxy or the tunnel where there is to be one, with a pair of sockets between both."""
        with ExitStack() as held:
            ways: tuple[int, int] | None = None
            if one.launch.filtered or one.launch.tunnel is not None:
                ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                held.enter_context(ours)
                held.enter_context(theirs)
                proxy = ProxySide(theirs.fileno(), one.side.policy, one.side.log)
                pair.proxy = _fork(lambda: self._be_way(proxy, one.launch))
                ways = ours.fileno(), theirs.fileno()
            pair.guest = _fork(lambda: self._serve(one, ways))

    def _be_way(self, side: ProxySide, launch: Launch) -> NoReturn:
        """Go on as proxy or tunnel: all other descriptors are closed on the way."""
        _forget_signals()
        identity = launch.program.identity
        if launch.tunnel is not None:
            become_tunnel(side, launch.tunnel, identity=identity, parent=self._pid)
        become_proxy(side, identity=identity, parent=self._pid)

    def _serve(self, one: _Unborn, ways: tuple[int, int] | None) -> NoReturn:
        """Go on as the guest, without what belongs to the zygote or to other sandboxes. `ways` is its end of the pair with the
        proxy, and the other one."""
        _forget_signals()
        for held in (self._control, self._wakeup_in, self._wakeup_out):
            held.close()
        others = [pair for pair in self._pairs.values() if pair.reply != one.side.reply]
        unwanted = [each for pair in others for each in (pair.reply, pair.memo)]
        for descriptor in (*unwanted, *([] if self._host is None else [self._host])):
            os.close(descriptor)
        for other in self._unborn:
            _close_given(other.side)
        way = None
        if ways is not None:
            way, theirs = ways
            os.close(theirs)
        entrance.serve(one.launch, one.side, launcher=one.launcher, parent=self._pid, way=way)

    def _forget_pair(self, sandbox_id: str, pair: _Pair) -> None:
        """Forget a pair, which tells the host program; a launcher that is left ends as a stranger does."""
        _kill(pair.pids)
        for descriptor in (pair.memo, pair.reply):
            os.close(descriptor)
        del self._pairs[sandbox_id]

    def _reap(self) -> None:
        while (ended := _reap_one(os.WNOHANG)) is not None:
            for sandbox_id, pair in list(self._pairs.items()):
                self._settle(sandbox_id, pair, *ended)
        _kill(_strangers({pid for pair in self._pairs.values() for pid in pair.pids}))

    def _settle(self, sandbox_id: str, pair: _Pair, pid: int, status: int) -> None:
        if pid == pair.guest:
            note_exit(pair.memo, "guest", status)
            pair.guest = None
            _kill(pair.pids)
        elif pid == pair.launcher:
            note_exit(pair.memo, "spawner", status)
            # The guest has seen its spawner's end close. It may still tell its clients why they lose it.
            pair.launcher = None
            pair.kill_at = time.monotonic() + _LAST_WORDS
        elif pid == pair.proxy:
            pair.proxy = None  # it never ends before its guest but by a fault: then there is no network
        if not pair.pids:
            self._forget_pair(sandbox_id, pair)

    def _patience(self) -> float | None:
        """Return the milliseconds until a guest is overdue, None where none is awaited."""
        due = [pair.kill_at for pair in self._pairs.values() if pair.kill_at is not None]
        return max(0.0, min(due) - time.monotonic()) * 1000 + 1 if due else None

    def _end_overdue(self) -> None:
        now = time.monotonic()
        for pair in self._pairs.values():
            if pair.kill_at is not None and pair.kill_at <= now:
                pair.kill_at = None
                _kill(pair.pids)

    def _end_all(self) -> None:
        """Kill and reap until no child is left, those that arrive as orphans meanwhile included."""
        _kill(_strangers(set()))
        while _reap_one(0) is not None:
            _kill(_strangers(set()))


def _fork(child: Callable[[], NoReturn]) -> int:
    """Fork, and return the pid of the process that goes on as `child`, which never comes back, whatever happens in it."""
    pid = os.fork()
    if pid:
        return pid
    try:
        child()
    finally:
        os._exit(127)


def _forget_signals() -> None:
    """Undo, in a child, what `run` has set."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def _reap_one(options: int) -> tuple[int, int] | None:
    """Return pid and wait status of one child that ended, None where none has, or there is none."""
    try:
        pid, status = os.waitpid(-1, options)
    except ChildProcessError:
        return None
    return (pid, status) if pid else None


def _strangers(known: set[int]) -> list[int]:
    """Return the children of this process but `known`: orphans of sandboxes whose own reaper is gone."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/children") as listed:
            return [int(pid) for pid in listed.read().split() if int(pid) not in known]
    except FileNotFoundError:
        return list[int]()  # a kernel without CONFIG_PROC_CHILDREN: the PID namespaces end their own


def _kill(pids: Sequence[int]) -> None:
    for pid in pids:
        # Not reaped yet by this one thread, so the number is still that child's.
        try:
            os.kill(pid, signal.SIGKILL)
        except PermissionError:
            pass  # without isolation user code may run a setuid program, which only its own user can end


def _note(_number: int, _frame: object) -> None:
    """Exist: without a Python handler the wakeup descriptor stays silent."""


def _close_given(side: entrance.GuestSide) -> None:
    """Close what was given for a guest, but what a pair keeps."""
    for descriptor in side:
        if descriptor not in (side.reply, side.memo):
            os.close(descriptor)


def main() -> None:
    """Be a zygote: argv[1] is the control socket's descriptor, argv[2] options as JSON.

    Options: `host`, a pidfd of the host program or None for a detached one; `preload`, modules to import; `runtime`, a folder
    whose modules are to be there as bytecode. Requests are taken from the first. {"failed": words} on the control socket says
    that an import failed, and that this is the end.
    """
    options = json.loads(sys.argv[2])
    if options["host"] is None and os.fork():
        os._exit(0)  # so that the host program need not reap it
    control = socket.socket(fileno=int(sys.argv[1]))
    namespaces.hide_from_peers()
    namespaces.adopt_orphans()
    os.umask(0o022)
    try:
        compile_folder(options["runtime"])
        _Zygote(control, options["host"]).run(options["preload"])
    except Exception:  # noqa: BLE001 -- whatever a module does when it is imported: the host program has to hear of it
        control.send(json.dumps({"failed": traceback.format_exc()[-3000:]}).encode())

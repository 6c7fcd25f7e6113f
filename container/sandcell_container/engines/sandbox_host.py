"""Life and death of sandboxes whose processes are children of a zygote: what the engines `local` and `process` share."""

from __future__ import annotations

import errno
import json
import logging
import os
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from sandcell_container.engines.launch import Launch
from sandcell_container.engines.zygote_process import ZygoteProcess, memory_file
from sandcell_container.entry import LOG
from sandcell_container.errors import ErrorCode, SandcellError, error
from sandcell_container.memo import note_start
from sandcell_container.os_process import OsProcess, end_processes
from sandcell_container.policy import open_policy
from sandcell_container.registry import Claim, Registry
from sandcell_container.unix_address import listen_at

if TYPE_CHECKING:
    from sandcell_container.cgroup import ControlGroup
    from sandcell_container.end import End
    from sandcell_container.engine import Pruned, Record
    from sandcell_container.engines.settings import EngineSettings
    from sandcell_container.registry import Entry
    from sandcell_container.spec import SandboxSpec

__all__ = ["Blueprint", "Draw", "SandboxHost"]

Draw = Callable[["Entry"], "Blueprint"]
PlanGroup = Callable[[str], "ControlGroup | None"]

_log = logging.getLogger(__name__)
_MESSAGE = 65536
_END_TIMEOUT = 10.0  # seconds; everything is killed, so only a stuck kernel needs them
_MOST_WORDS = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Blueprint:
    """One sandbox about to be started. The launcher finds the spawner's socket at descriptor 3, then, where `status` is
    wanted, a pipe to report to, then a file for each of `memory`. `python` is what a later start has to know of the Python
    that the sandbox stands on."""

    launch: Launch
    status: bool
    memory: tuple[bytes, ...] = ()
    python: dict[str, Any]


class SandboxHost:
    """Starts, finds and ends the sandboxes of one engine. `plan_group` says where the control group of one is to be; `draw`
    prepares its files, in its entry's folder where it never ran, and says what to start. Thread-safe."""

    def __init__(
        self,
        engine: str,
        settings: EngineSettings,
        draw: Draw,
        *,
        plan_group: PlanGroup,
        uids: range = range(0),
    ) -> None:
        self._engine = engine
        self._guest = settings.guest
        self._registry = Registry(settings.state / "sandboxes")
        self._draw = draw
        self._plan_group = plan_group
        self._uids = uids
        self._lock = threading.Lock()
        self._zygote: ZygoteProcess | None = None

    def adopt(self, zygote: ZygoteProcess) -> None:
        """Use and own a zygote, tied to "host", that was started before this object was there."""
        with self._lock:
            if self._zygote is None:
                self._zygote = zygote
                return
        zygote.close()

    def create(self, spec: SandboxSpec) -> Record:
        """Make the sandbox of `spec`.

        A failure, a timeout or an exception of any kind leaves nothing behind. Errors: see `Engine.create`; those of a
        start that failed carry what the programs said in `details["words"]`.
        """
        deadline = time.monotonic() + spec.start_timeout
        try:
            claim = self._registry.claim(spec, engine=self._engine, uids=self._uids)
        except OSError as failed:
            raise _unprepared(spec, failed) from failed
        return self._run(claim, deadline)

    def start(self, sandbox_id: str) -> Record:
        """Start a stopped sandbox again. Source: `Engine.start`."""
        asked = self._registry.entry(sandbox_id).spec
        deadline = time.monotonic() + asked.start_timeout
        found = self._registry.claim_again(sandbox_id, deadline=deadline)
        return self._run(found, deadline) if isinstance(found, Claim) else found.record

    def stop(self, sandbox_id: str) -> None:
        self._registry.rest(sandbox_id)

    def pythons(self) -> list[dict[str, Any]]:
        """Return what the Pythons of all sandboxes of this machine stand on, whatever engine they are of."""
        return [entry.python for entry in self._registry.entries()]

    def list(self) -> list[Record]:
        return [entry.record for entry in self._registry.entries() if entry.record.engine == self._engine]

    def entry(self, sandbox_id: str) -> Entry:
        """Return what is known of a sandbox of this engine. Raises NotFound (NOT_FOUND)."""
        return self._registry.entry(sandbox_id)

    def respecify(self, sandbox_id: str, change: Callable[[SandboxSpec], SandboxSpec]) -> tuple[Entry, Entry]:
        """Change the spec of a sandbox; errors: `Registry.respecify`."""
        return self._registry.respecify(sandbox_id, change)

    def remove(self, sandbox_id: str) -> None:
        self._registry.remove(sandbox_id)

    def prune(self) -> Pruned:
        return self._registry.reap()

    def await_end(self, sandbox_id: str, *, timeout: float | None) -> End | None:
        return self._registry.await_end(sandbox_id, timeout=timeout)

    def last_words(self, sandbox_id: str) -> str:
        return self._registry.last_words(sandbox_id)

    def close(self) -> None:
        """End the sandboxes that end with this program, and remove the files of those that leave none."""
        with self._lock:
            zygote, self._zygote = self._zygote, None
        if zygote is not None:
            zygote.close()
            self._registry.reap(leaving=OsProcess.of(os.getpid()))

    def _run(self, claim: Claim, deadline: float) -> Record:
        """Start what was claimed; a failure leaves it as it was."""
        spec, ends_with_us = claim.entry.spec, claim.entry.is_mine and claim.entry.spec.on_release != "keep"
        try:
            zygote = self._zygote_of_ours(deadline) if ends_with_us else self._zygote_of_its_own(deadline)
            with ExitStack() as held:
                if not ends_with_us:
                    held.callback(zygote.close)  # undone, like the next one, when all has gone well
                claim.plan(self._plan_group(claim.entry.record.id))
                blueprint = self._draw(claim.entry)  # while the zygote comes up
                processes = _start(claim, blueprint, zygote, deadline)
                held.callback(end_processes, processes, timeout=_END_TIMEOUT)
                record = claim.publish(processes, python=blueprint.python).record
                if not ends_with_us:
                    zygote.release()
                held.pop_all()
            return record
        except BaseException as failed:
            claim.abandon()
            with self._lock:
                self._drop_useless_zygote()
            if isinstance(failed, OSError):
                raise _unprepared(spec, failed) from failed
            raise
        finally:
            claim.close()

    def _zygote_of_its_own(self, deadline: float) -> ZygoteProcess:
        return self._new_zygote("sandbox", deadline)

    def _zygote_of_ours(self, deadline: float) -> ZygoteProcess:
        with self._lock:
            self._drop_useless_zygote()
            if self._zygote is None:
                self._zygote = self._new_zygote("host", deadline)
            return self._zygote

    def _drop_useless_zygote(self) -> None:
        if self._zygote is not None and not self._zygote.usable:
            self._zygote.close()
            self._zygote = None

    def _new_zygote(self, tie: Literal["host", "sandbox"], deadline: float) -> ZygoteProcess:
        modules = [*self._guest.preload, self._guest.module]
        try:
            return ZygoteProcess(modules, runtime=self._guest.runtime_dir, tie=tie, timeout=_rest(deadline))
        except subprocess.TimeoutExpired as problem:
            raise _late("", "the process that it is forked from did not come up") from problem


def _unprepared(spec: SandboxSpec, failed: OSError) -> SandcellError:
    code = ErrorCode.NO_SPACE if failed.errno in (errno.ENOSPC, errno.EDQUOT) else ErrorCode.START_FAILED
    return error(code, f"the sandbox {spec.name!r} could not be prepared: {failed}")


def _start(claim: Claim, blueprint: Blueprint, zygote: ZygoteProcess, deadline: float) -> list[OsProcess]:
    """Have both processes forked and wait until the guest serves; returns those that stand for the sandbox."""
    with ExitStack() as held:
        Path(claim.entry.record.address.path).unlink(missing_ok=True)  # of its last start
        reply, reply_end = _pair(held)
        guest_end, spawner_end = _pair(held)
        status_in, status_out = os.pipe()
        listener = held.enter_context(listen_at(claim.entry.record.address.path))
        log, memo = (_append_to(claim.entry.folder / name) for name in (LOG, "memo"))
        note_start(memo, claim.entry.record.starts + 1)
        policy = open_policy(claim.entry.folder, claim.entry.spec.network)
        memory = [memory_file(content) for content in blueprint.memory]
        for descriptor in (status_in, status_out, log, memo, policy, *memory):
            held.callback(os.close, descriptor)
        told = [reply_end.fileno(), listener.fileno(), claim.lock, log, memo]
        for_guest = [*told, guest_end.fileno(), status_in, policy]
        for_launcher = [spawner_end.fileno(), *([status_out] if blueprint.status else []), *memory]
        try:
            zygote.launch(blueprint.launch, [*for_guest, *for_launcher])
            for ours in (reply_end, guest_end, spawner_end):
                ours.close()  # so that their ends are seen when the other processes end
            return _await_running(zygote, reply, log, deadline)
        except BaseException:
            reply_end.close()
            _end(zygote, claim.entry.record.id, reply)
            raise


def _append_to(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)


def _pair(held: ExitStack) -> tuple[socket.socket, socket.socket]:
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    return held.enter_context(one), held.enter_context(other)


def _await_running(zygote: ZygoteProcess, reply: socket.socket, log: int, deadline: float) -> list[OsProcess]:
    reply.settimeout(_rest(deadline))
    try:
        said = reply.recv(_MESSAGE)
    except TimeoutError:
        raise _late(_words(log)) from None
    if not said and (failure := zygote.failure()) is not None:
        raise failure
    answer: dict[str, Any] = json.loads(said) if said else {"failed": "it ended at once"}
    if "failed" in answer:
        raise _failed(answer, _words(log))
    return [OsProcess(*process) for process in answer["running"]]


def _failed(answer: dict[str, Any], words: str) -> SandcellError:
    reason: str = answer["failed"]
    if answer.get("late"):
        return _late(words, reason)
    last = words.strip().rpartition("\n")[2] or reason
    return error(
        ErrorCode.START_FAILED,
        f"the sandbox did not come up: {last[:300]}",
        details={"words": words, "reason": reason},
    )


def _late(words: str, reason: str = "") -> SandcellError:
    return error(
        ErrorCode.START_TIMEOUT,
        "the sandbox did not come up in time",
        hint="give it longer: start_timeout=",
        details={"words": words, "reason": reason},
    )


def _end(zygote: ZygoteProcess, sandbox_id: str, reply: socket.socket) -> None:
    """Have what was started killed, and wait until the zygote has reaped it: it closes the reply socket then."""
    try:
        zygote.end(sandbox_id)
        reply.settimeout(_END_TIMEOUT)
        while reply.recv(_MESSAGE):
            pass
    except (SandcellError, ConnectionResetError):
        return  # the zygote has gone, and with it all that it had forked
    except TimeoutError:
        _log.warning("processes of a sandbox do not end sandbox=%s", sandbox_id)


def _words(log: int) -> str:
    size = os.fstat(log).st_size
    return os.pread(log, _MOST_WORDS, max(0, size - _MOST_WORDS)).decode(errors="replace")


def _rest(deadline: float) -> float:
    return max(deadline - time.monotonic(), 0.001)

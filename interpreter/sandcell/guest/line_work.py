"""The line magics: `%process`, `%context`, `%terminal` and `%sandbox`, each verb a row of one table."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from sandcell.guest.cell_work import show_process
from sandcell.guest.facts import isolation_in_words, limits_in_words
from sandcell.guest.follow_work import follow_activity, pull_history
from sandcell.guest.measure import measure
from sandcell.guest.pages import PageQuery, read_page
from sandcell.guest.sandbox import describe
from sandcell.guest.stage import Outcome
from sandcell.guest.terminals import plan_of
from sandcell.guest.waits import within
from sandcell.job_bodies import CreateTerminal
from sandcell.ports.rules import port_in
from sandcell_container.errors import ErrorCode, error
from sandcell_container.frames import Kind
from sandcell_kernel.cells import is_errand
from sandcell_kernel.tables import Table, describe_age, describe_bytes

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from sandcell.guest.desk import Desk
    from sandcell.guest.file_work import FileWork
    from sandcell.guest.stage import Stage
    from sandcell_container.end import End
    from sandcell_container.usage import Amount
    from sandcell_kernel.cells import LineOrder

__all__ = ["LineWork"]

_NOTHING = Outcome()
_WAIT_S = 300.0
_MOST_LINES = 1000
_NO_HOST = "a front end that comes by HTTP has none: use the SDK, or the command sandcell"
_COMMON = ("HOME", "LANG", "PATH", "SHELL", "TERM", "TMPDIR", "USER")


class LineWork:
    """See the module."""

    def __init__(self, desk: Desk, files: FileWork) -> None:
        self._desk = desk
        self._verbs: dict[tuple[str, str], Callable[[Stage, LineOrder], Awaitable[Outcome]]] = {
            ("%process", "list"): self._list_processes,
            ("%process", "logs"): self._show_logs,
            ("%process", "follow"): self._follow_process,
            ("%process", "wait"): self._wait_for_process,
            ("%process", "kill"): self._kill_processes,
            ("%context", "list"): self._list_contexts,
            ("%context", "restart"): self._restart_context,
            ("%context", "delete"): self._delete_context,
            ("%terminal", ""): self._open_terminal,
            ("%sandbox", "info"): self._show_info,
            ("%sandbox", "stats"): self._show_stats,
            ("%sandbox", "top"): self._show_top,
            ("%sandbox", "env"): self._show_env,
            ("%sandbox", "ports"): self._list_ports,
            ("%sandbox", "ports close"): self._close_port,
            ("%sandbox", "network"): self._show_network,
            ("%sandbox", "restart"): self._restart,
            ("%sandbox", "follow"): self._follow,
            ("%sandbox", "pull-history"): self._pull,
            **{("%sandbox", name): work for name, work in files.verbs.items()},
        }

    @property
    def verbs(self) -> frozenset[tuple[str, str]]:
        """The magics and verbs that are served."""
        return frozenset(self._verbs)

    async def perform(self, stage: Stage, orders: Sequence[LineOrder]) -> Outcome:
        """Do one after another, up to the first that fails. Raises what the rooms raise, and Stopped."""
        payload = list[dict[str, object]]()
        for number, order in enumerate(orders):
            outcome = await self._do(stage, number, order)
            payload += outcome.payload
            if outcome.problem is not None:
                return outcome
        return Outcome(payload=payload)

    async def _do(self, stage: Stage, number: int, order: LineOrder) -> Outcome:
        """Have a line done where that is possible: on the host, or else here."""
        if is_errand(order) and stage.has_host and not _needs_no_host(order):
            return await stage.send_out(number)
        work = self._verbs.get((order.magic, order.verb))
        if work is None:
            words = f"{order.magic} {order.verb}".strip()
            raise error(
                ErrorCode.UNSUPPORTED,
                f"{words} is done by the kernel process, and there is none",
                hint=_NO_HOST,
            )
        return await work(stage, order)

    # --- processes

    async def _list_processes(self, stage: Stage, _: LineOrder) -> Outcome:
        processes = self._desk.processes
        now = time.time()
        rows = [
            (
                each.id,
                _how(each.end),
                describe_age(now - each.started_at),
                each.session_id,
                _words(each.command),
            )
            for each in map(processes.describe, processes.list())
        ]
        stage.show(Table.of("Processes", ("ID", "STATUS", "AGE", "SESSION", "COMMAND"), rows))
        return _NOTHING

    async def _show_logs(self, stage: Stage, order: LineOrder) -> Outcome:
        process = self._desk.processes.get(order.operands[0])
        lines = order.number("--tail")
        with process.read() as journal:
            page = read_page(journal, PageQuery(tail=math.ceil(lines) if lines is not None else _MOST_LINES))
        if page.is_truncated and lines is None:
            stage.say(f"only the last {_MOST_LINES} lines are shown")
        for entry in page.entries:
            if entry.kind in (Kind.STDOUT, Kind.STDERR):
                stage.write("stdout" if entry.kind == Kind.STDOUT else "stderr", entry.data)
        return _NOTHING

    async def _follow_process(self, stage: Stage, order: LineOrder) -> Outcome:
        return await show_process(stage, self._desk.processes.get(order.operands[0]))

    async def _wait_for_process(self, stage: Stage, order: LineOrder) -> Outcome:
        (process_id,) = order.operands
        waiting = within(
            self._desk.processes.wait(process_id), order.number("--timeout") or _WAIT_S, process_id
        )
        end = await stage.unless_stopped(waiting)
        stage.show(Table.of("Process", (), [("id", process_id), ("end", _how(end))]))
        return _NOTHING

    async def _kill_processes(self, stage: Stage, order: LineOrder) -> Outcome:
        rows = list[tuple[str, str]]()
        for process_id in order.operands:
            await self._desk.processes.kill(process_id, None, who=stage.origin)
            rows.append((process_id, _how(self._desk.processes.get(process_id).end)))
        stage.show(Table.of("Ended", ("ID", "STATUS"), rows))
        return _NOTHING

    # --- contexts and terminals

    async def _list_contexts(self, stage: Stage, _: LineOrder) -> Outcome:
        rows = [
            (each.id, each.language, each.status, each.execution_count, each.queued)
            for each in (context.info() for context in self._desk.contexts.list())
        ]
        stage.show(Table.of("Contexts", ("NAME", "LANGUAGE", "STATUS", "RUNS", "WAITING"), rows))
        return _NOTHING

    async def _restart_context(self, stage: Stage, order: LineOrder) -> Outcome:
        context = self._desk.contexts.get(order.operands[0])
        await stage.unless_stopped(context.restart(who=stage.origin))
        stage.say(f"the context {context.id} was started anew")
        return _NOTHING

    async def _delete_context(self, stage: Stage, order: LineOrder) -> Outcome:
        if order.operands[0] == stage.context_id:
            message = f"the context {stage.context_id} is that of this notebook"
            hint = f"%context restart {stage.context_id} starts it anew"
            raise error(ErrorCode.INVALID_ARGUMENT, message, hint=hint)
        await self._desk.contexts.delete(order.operands[0], who=stage.origin)
        stage.say(f"the context {order.operands[0]} has ended")
        return _NOTHING

    async def _open_terminal(self, stage: Stage, order: LineOrder) -> Outcome:
        """Make a terminal, and say with what it is opened: a guest has no address that a browser could open."""
        desk = self._desk
        body = CreateTerminal(id=order.operands[0] if order.operands else None)
        terminal = await desk.terminals.create(body.id, plan_of(body, desk.boot))
        desk.note_made("terminal", terminal.id)
        command = f"sandcell shell --sandbox {desk.boot.name} --id {terminal.id}"
        rows = [("id", terminal.id), ("open it with", command)]
        stage.show(Table.of("Terminal", (), rows))
        return _NOTHING

    # --- the sandbox

    async def _show_info(self, stage: Stage, _: LineOrder) -> Outcome:
        info = describe(self._desk, await measure(self._desk))
        rows = [
            ("name", info.name),
            ("id", info.id),
            ("engine", info.engine),
            ("image", info.image),
            ("network", _network(info.network)),
            ("limits", limits_in_words(info.limits)),
            ("isolation", isolation_in_words(info.isolation)),
            ("system", f"{info.os}, {info.arch}"),
            ("python", info.python),
            ("user", info.user),
            ("folder", info.workdir),
            ("tools", " ".join(info.tools)),
            *(("warning", each) for each in info.warnings),
        ]
        stage.show(Table.of("Sandbox", (), [row for row in rows if row[1]]))
        return _NOTHING

    async def _show_stats(self, stage: Stage, _: LineOrder) -> Outcome:
        stats = await measure(self._desk)
        rows = [
            ("memory", *_amounts(stats.memory, describe_bytes)),
            ("disk", *_amounts(stats.disk, describe_bytes)),
            ("processes", *_amounts(stats.pids, _plain)),
            ("cpus", *_amounts(stats.cpus, _plain)),
            ("cpu time", "" if stats.cpu_time is None else f"{stats.cpu_time:.2f} s", "", ""),
            ("killed for memory", _plain(stats.oom_kills), "", ""),
        ]
        stage.show(Table.of("Use", ("WHAT", "USED", "LIMIT", "PEAK"), rows))
        return _NOTHING

    async def _show_top(self, stage: Stage, _: LineOrder) -> Outcome:
        now = time.time()
        rows = [
            (
                each.pid,
                each.user,
                f"{each.cpu:.2f} s",
                describe_bytes(each.memory),
                describe_age(now - each.started),
                each.owner,
                each.command,
            )
            for each in await self._desk.table.read()
        ]
        head = ("PID", "USER", "CPU", "MEMORY", "AGE", "OWNER", "COMMAND")
        stage.show(Table.of("Processes of the sandbox", head, rows))
        return _NOTHING

    async def _show_env(self, stage: Stage, order: LineOrder) -> Outcome:
        """Show the names, and the values of those that are the same everywhere: a notebook is saved, and shown to others."""
        changes = _unset_in(order) if "--unset" in order.options else _set_in(order)
        if changes:
            self._desk.env.change(changes)
        rows = [
            (name, value if name in _COMMON else "(set)")
            for name, value in sorted(self._desk.env.whole().items())
        ]
        stage.show(Table.of("Variables", ("NAME", "VALUE"), rows))
        return _NOTHING

    async def _list_ports(self, stage: Stage, _: LineOrder) -> Outcome:
        """Show the exposed ports without their tokens, which open them: a notebook is saved, and shown to others."""
        rows = [(each.port, each.name, "yes" if each.listening else "no") for each in self._desk.ports.list()]
        stage.show(Table.of("Exposed ports", ("PORT", "NAME", "LISTENING"), rows))
        return _NOTHING

    async def _close_port(self, stage: Stage, order: LineOrder) -> Outcome:
        port = port_in(order.operands[0])
        self._desk.ports.close(port)
        stage.say(f"port {port} is exposed no more: its links and URLs are worth nothing")
        return _NOTHING

    async def _show_network(self, stage: Stage, order: LineOrder) -> Outcome:
        """Show it; what changes it is on the host."""
        if order.operands:
            raise error(
                ErrorCode.UNSUPPORTED,
                "the network is changed by the kernel process, and there is none",
                hint=_NO_HOST,
            )
        stage.show(Table.of("Network", (), [("network", _network(self._desk.way_out.network))]))
        return _NOTHING

    async def _restart(self, stage: Stage, _: LineOrder) -> Outcome:
        desk = self._desk
        await desk.processes.kill_all(who=stage.origin)
        for terminal in desk.terminals.list():
            await desk.terminals.delete(terminal.id, who=stage.origin)
        for session in desk.shells.list():
            await session.restart()
        for context in desk.contexts.list():
            await context.restart(who=stage.origin)
        stage.say(
            "everything that ran has ended, interpreters and sessions begin anew; files are as they were"
        )
        return _NOTHING

    async def _follow(self, stage: Stage, order: LineOrder) -> Outcome:
        await follow_activity(stage, self._desk.activity, with_notebooks="--all" in order.options)
        return _NOTHING

    async def _pull(self, stage: Stage, order: LineOrder) -> Outcome:
        last = order.number("--last")
        return pull_history(stage, self._desk.activity, last=None if last is None else math.ceil(last))


def _needs_no_host(order: LineOrder) -> bool:
    """Whether a link that holds the file, or a look at the network, is all that is wanted."""
    return (order.verb == "download" and len(order.operands) == 1) or (
        order.verb == "network" and not order.operands
    )


def _set_in(order: LineOrder) -> dict[str, str | None]:
    for each in order.operands:
        if "=" not in each:
            raise error(
                ErrorCode.INVALID_ARGUMENT,
                f"there is no value for {each[:80]!r}",
                hint="%sandbox env NAME=VALUE sets a variable, %sandbox env --unset NAME takes it away",
            )
    return {name: value for name, _, value in (each.partition("=") for each in order.operands)}


def _unset_in(order: LineOrder) -> dict[str, str | None]:
    if not order.operands:
        raise error(ErrorCode.INVALID_ARGUMENT, "no variable is named", hint="%sandbox env --unset NAME")
    return dict.fromkeys(order.operands)


def _how(end: End | None) -> str:
    """Return how something ended, as few words as tell it."""
    if end is None:
        return "running"
    if end.cause == "exited":
        return f"exited with {end.code}"
    return end.cause if end.signal is None else f"{end.cause} by signal {end.signal}"


def _network(network: str | tuple[str, ...]) -> str:
    return network if isinstance(network, str) else " ".join(network)


def _words(command: str | tuple[str, ...]) -> str:
    return command.strip() if isinstance(command, str) else " ".join(command)


def _amounts(amount: Amount, show: Callable[[float | None], str]) -> tuple[str, str, str]:
    return show(amount.used), show(amount.limit), show(amount.peak)


def _plain(number: float | None) -> str:
    return "" if number is None else f"{number:g}"

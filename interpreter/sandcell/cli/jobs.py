"""`sandcell start`, `logs`, `follow`, `kill` and `ps NAME`: processes and terminals of a sandbox that has a name. Output byte for byte."""

from __future__ import annotations

import math
import re
import shlex
import sys
import time
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from sandcell.cli.command import exit_code_of
from sandcell.cli.options import OWN_FAILURE
from sandcell.cli.output import table, write_stderr, write_stdout
from sandcell.cli.place import open_known, open_place, place_name
from sandcell.cli.variables import variables_of
from sandcell.client.blocking.follow import Follower
from sandcell.client.blocking.pages import fetch_page
from sandcell.client.blocking.process import Process
from sandcell.client.process_options import page_query
from sandcell.client.protocol import Request, path_of
from sandcell_container.end import CommandEnd
from sandcell_container.errors import ErrorCode, NotFound, SandcellError, error
from sandcell_container.frames import Cursor, Kind
from sandcell_kernel.tables import describe_age

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Generator, Iterable

    from sandcell.client.blocking.pages import EntryPage
    from sandcell.client.blocking.sandbox import Sandbox
    from sandcell.client.blocking.terminal import Terminal
    from sandcell.client.blocking.transport import Transport
    from sandcell.config import Config
    from sandcell.job_bodies import ProcessInfo, TerminalInfo
    from sandcell_container.frames import Entry

__all__ = ["Stamps", "end_processes", "follow_process", "list_processes", "show_logs", "start_process"]

_LONGEST_COMMAND = 60
_LINE = re.compile(rb"[^\n]*\n|[^\n]+")


def start_process(options: argparse.Namespace, config: Config) -> int:
    """Start what the options name and print its id; without a command, the sandbox itself."""
    place_name(options, config)
    words = [*options.command, *options.rest]
    if not words:
        return _start_sandbox(options, config)
    env = variables_of(options)
    with open_place(options, config, label="starting") as place:
        job = place.sandbox.start_process(
            words[0] if len(words) == 1 else words,
            id=options.id,
            cwd=options.cwd,
            env=env,
            timeout=None if options.timeout == math.inf else options.timeout,
            memory=options.memory,
        )
        place.progress.hush()
    for warning in job.warnings:
        print(f"sandcell: {warning}", file=sys.stderr)
    write_stdout(f"{job.id}\n")
    return 0


def _start_sandbox(options: argparse.Namespace, config: Config) -> int:
    """Start the sandbox alone, and print its name."""
    with open_place(options, config, label="starting") as place:
        place.progress.hush()
    write_stdout(f"{place.sandbox.name}\n")
    return 0


def show_logs(options: argparse.Namespace, config: Config) -> int:
    """Write what a process has written; with `follow` until its end."""
    with _entries_of(options, config, follow=options.follow) as entries:
        _write(entries, options)
    return 0


def follow_process(options: argparse.Namespace, config: Config) -> int:
    """Write what a process writes until its end and return the exit code that tells how that was."""
    with _entries_of(options, config, follow=True) as entries:
        end = _write(entries, options)
    if end is None:
        raise AssertionError("a follower ends with ENDED or raises")
    if end.end.cause not in {"exited", "signaled"}:
        print(f"sandcell: the process ended: {end.end.cause}", file=sys.stderr)
    return exit_code_of(end)


def end_processes(options: argparse.Namespace, config: Config) -> int:
    """End the processes and terminals that the options name, or send processes a signal; one that is not there does not
    keep the others."""
    if bool(options.ids) == options.all:
        raise error(
            ErrorCode.INVALID_ARGUMENT, "name processes, or give --all", hint="sandcell ps SANDBOX lists them"
        )
    code = 0
    with open_known(options, config) as place:
        ids = options.ids or [each.id for each in place.sandbox.processes(status="running")]
        for name in ids:
            try:
                _end(_find(place.sandbox, name), options)
                write_stdout(f"{name}\n")
            except SandcellError as problem:
                print(f"sandcell: {problem}", file=sys.stderr)
                code = OWN_FAILURE
    return code


def list_processes(options: argparse.Namespace, config: Config) -> int:
    """Print the processes of the sandbox that the options name, oldest first, and then its terminals."""
    with open_known(options, config) as place:
        processes = [each.refresh() for each in place.sandbox.processes()]
        terminals = [each.refresh() for each in place.sandbox.terminals()]
    if options.json:
        rows = [{"kind": "process", **msgspec.to_builtins(each)} for each in processes]
        rows += [{"kind": "terminal", **msgspec.to_builtins(each)} for each in terminals]
        write_stdout(msgspec.json.encode(rows) + b"\n")
        return 0
    head = ("ID", "KIND", "STATUS", "PID", "AGE", "COMMAND")
    lines = [_row("process", each, each.started_at) for each in processes]
    lines += [_row("terminal", each, each.created_at) for each in terminals]
    write_stdout(table([head, *lines]) + "\n")
    return 0


@contextmanager
def _entries_of(options: argparse.Namespace, config: Config, *, follow: bool) -> Generator[Generator[Entry]]:
    with (
        open_known(options, config) as place,
        closing(place.transport(config)) as transport,
        closing(_read(transport, options, follow=follow)) as entries,
    ):
        yield entries


def _read(transport: Transport, options: argparse.Namespace, *, follow: bool) -> Generator[Entry]:
    """Yield what was written, from the last lines on where so many are asked for; with `follow` also what comes."""
    path = path_of("processes", options.id, "events")

    def page(cursor: str | None, tail: int | None = None) -> EntryPage:
        query = page_query(cursor, limit=None, stream=options.stream, tail=tail)
        return fetch_page(transport, Request(method="GET", path=path, query=query))

    cursor: str | None = None
    if options.tail is not None:
        last = page(None, options.tail)
        yield from last.entries
        if last.is_done or not follow:
            return
        cursor = last.cursor
    elif not follow:
        yield from _written_by_now(page)
        return
    asked = {"cursor": cursor, "stream": options.stream}
    request = Request(method="GET", path=path, query={name: text for name, text in asked.items() if text})
    with closing(Follower(transport, request, request).entries()) as found:
        for followed in found:
            yield followed.entry


def _written_by_now(page: Callable[[str | None, int | None], EntryPage]) -> Generator[Entry]:
    """Yield the entries there are when the first is asked for, page by page: who writes on is not run after."""
    last = page(None, 0)
    end, at, cursor = Cursor.parse(last.cursor, epoch=last.epoch).seq, 0, None
    while at < end:
        found = page(cursor, None)
        yield from (each for each in found.entries if each.seq <= end or each.kind == Kind.GAP)
        cursor = found.cursor
        at = Cursor.parse(cursor, epoch=found.epoch).seq


def _write(entries: Iterable[Entry], options: argparse.Namespace) -> CommandEnd | None:
    """Write output where it belongs; returns how the process ended, where that has come."""
    stamped = Stamps() if options.timestamps else None
    end = None
    for entry in entries:
        match entry.kind:
            case Kind.STDOUT:
                write_stdout(entry.data if stamped is None else stamped.put_on(entry))
            case Kind.STDERR:
                write_stderr(entry.data if stamped is None else stamped.put_on(entry))
            case Kind.GAP:
                lost = msgspec.json.decode(entry.data, type=dict[str, int])["bytes"]
                print(f"sandcell: {lost} bytes are no longer kept", file=sys.stderr)
            case Kind.ENDED:
                end = msgspec.json.decode(entry.data, type=CommandEnd)
            case _:
                pass  # STARTED, and news of a later version
    return end


class Stamps:
    """Puts the time in front of each line, when its first piece came."""

    def __init__(self) -> None:
        self._open = set[int]()  # streams in the middle of a line

    def put_on(self, entry: Entry) -> bytes:
        moment = datetime.fromtimestamp(entry.time, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ ").encode()
        lines: list[bytes] = _LINE.findall(entry.data)
        first = b"" if entry.kind in self._open else moment
        (self._open.discard if entry.data.endswith(b"\n") else self._open.add)(entry.kind)
        return first + moment.join(lines)


def _find(sandbox: Sandbox, name: str) -> Process | Terminal:
    """Return what has this id; a process before a terminal, as each kind has names of its own."""
    try:
        return sandbox.process(name)
    except NotFound:
        with suppress(NotFound):
            return sandbox.terminal(name)
        raise


def _end(job: Process | Terminal, options: argparse.Namespace) -> None:
    if not isinstance(job, Process):
        _hang_up(job, options)
    elif options.signal is not None:
        job.signal(options.signal)
    elif survived := job.kill(options.grace).survived:
        raise error(ErrorCode.BUSY, f"{survived} of the processes of {job.id} cannot be ended now")


def _hang_up(terminal: Terminal, options: argparse.Namespace) -> None:
    if options.signal is not None:
        what = f"{terminal.id} is a terminal: a signal goes to a process"
        raise error(ErrorCode.INVALID_ARGUMENT, what, hint="without --signal all that runs on it is ended")
    terminal.delete()


def _row(kind: str, info: ProcessInfo | TerminalInfo, began: float) -> tuple[str, ...]:
    command = "bash" if info.command is None else info.command
    return (info.id, kind, _status(info), str(info.pid), describe_age(time.time() - began), _shown(command))


def _status(info: ProcessInfo | TerminalInfo) -> str:
    end = info.end
    if end is None:
        return info.status
    how = f"code {end.code}" if end.code is not None else f"signal {end.signal}"
    return f"{end.cause}, {how}" if end.code is not None or end.signal is not None else end.cause


def _shown(command: str | tuple[str, ...]) -> str:
    text = command if isinstance(command, str) else shlex.join(command)
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST_COMMAND else f"{line[: _LONGEST_COMMAND - 3]}..."

"""`sandcell shell`: the terminal that this program runs on becomes one of a sandbox, until that ends or is left."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from sandcell.cli.command import exit_code_of
from sandcell.cli.detach import DetachKeys, parse_keys
from sandcell.cli.own_terminal import open_terminal
from sandcell.cli.place import open_place
from sandcell.cli.replayed import Replayed
from sandcell.cli.variables import variables_of
from sandcell.guest_address import GuestAddress
from sandcell.terminal_link import LOST_HINT, TerminalLink
from sandcell_container.errors import ErrorCode, SandcellError, error

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Generator

    from sandcell.cli.own_terminal import OwnTerminal
    from sandcell.cli.place import Place
    from sandcell.client.blocking.terminal import Terminal
    from sandcell.config import Config
    from sandcell_container.end import CommandEnd

__all__ = ["run_shell"]

_ENDING = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)
_MOST_PENDING = 2**20  # bytes that were typed and that the sandbox has not taken
_DETACHED = 0


class _Left(NamedTuple):
    """The person is gone: by the keys that detach, or this program by a signal."""

    exit_code: int


def run_shell(options: argparse.Namespace, config: Config) -> int:
    """Show the terminal that the options name, made where there is none, and return the exit code."""
    keys = parse_keys(options.detach_keys or config.detach_keys)
    with open_terminal() as own, open_place(options, config, label="opening a terminal") as place:
        is_kept = bool(options.sandbox or config.sandbox)
        terminal = _open(place, options, own)
        place.progress.hush()
        # A sandbox without a name ends with this program: there would be nothing to come back to.
        visit = _Visit(own, place, terminal.id, config, DetachKeys(keys if is_kept else b""))
        outcome = asyncio.run(visit.run())
        if isinstance(outcome, _Left):
            if is_kept:
                _tell_left(place, terminal)
            return outcome.exit_code
    return _tell_end(outcome)


def _open(place: Place, options: argparse.Namespace, own: OwnTerminal) -> Terminal:
    """Return the terminal of this id where there is one, whatever runs on it; else a new one."""
    if options.id is not None:
        try:
            return place.sandbox.terminal(options.id)
        except SandcellError as problem:
            if problem.code not in {ErrorCode.NOT_FOUND, ErrorCode.LOST}:
                raise
    words = [*options.command, *options.rest]
    size = own.size
    return place.sandbox.create_terminal(
        options.id,
        command=words[0] if len(words) == 1 else words or None,
        cwd=options.cwd,
        # What kind of terminal it is, only this side knows.
        env={name: os.environ[name] for name in ("TERM", "COLORTERM") if name in os.environ}
        | (variables_of(options) or {}),
        cols=size.cols,
        rows=size.rows,
    )


def _tell_end(ended: CommandEnd) -> int:
    cause = ended.end.cause
    if cause == "lost":
        raise error(ErrorCode.SANDBOX_GONE, "the sandbox has ended, and the terminal with it", hint=LOST_HINT)
    if cause not in {"exited", "signaled"}:
        print(f"sandcell: the terminal ended: {cause}", file=sys.stderr)
    return exit_code_of(ended)


def _tell_left(place: Place, terminal: Terminal) -> None:
    again = f"sandcell shell --sandbox {place.sandbox.name} --id {terminal.id}"
    with suppress(OSError):  # the terminal may be what has gone
        print(f"sandcell: detached; {again} comes back", file=sys.stderr)


class _Visit:
    """A person at a terminal of a sandbox: keys go there, what it shows comes here."""

    def __init__(
        self, own: OwnTerminal, place: Place, terminal_id: str, config: Config, keys: DetachKeys
    ) -> None:
        record = place.record
        self._own = own
        self._keys = keys
        self._link = TerminalLink(
            GuestAddress(record.address, record.token, config.connect_timeout),
            terminal_id,
            show=self._show,
            tell=own.tell,
        )
        self._replayed = Replayed()
        self._pending = bytearray()
        self._news = asyncio.Event()
        self._outcome: asyncio.Future[CommandEnd | _Left | SandcellError]

    async def run(self) -> CommandEnd | _Left:
        """Return how the terminal ended, or that it was left. Raises SandcellError: the sandbox is gone."""
        loop = asyncio.get_running_loop()
        self._outcome = loop.create_future()
        with self._signals(loop), self._own.raw():
            self._fit()
            loop.add_reader(self._own.fd, self._on_key)
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._look()), group.create_task(self._type())]
                outcome = await self._outcome
                loop.remove_reader(self._own.fd)
                for task in tasks:
                    task.cancel()
        if isinstance(outcome, SandcellError):
            raise outcome
        return outcome

    async def _look(self) -> None:
        try:
            ended = await self._link.run()
            await self._own.write(self._replayed.rest())
            self._settle(ended)
        except SandcellError as problem:
            self._settle(problem)

    async def _show(self, data: bytes, is_replayed: bool) -> None:  # noqa: FBT001 -- as the link calls it
        await self._own.write(self._replayed.feed(data) if is_replayed else self._replayed.rest() + data)

    async def _type(self) -> None:
        while True:
            while not self._pending:
                self._news.clear()
                await self._news.wait()
            data = bytes(self._pending)
            self._pending.clear()
            await self._link.type(data)

    def _on_key(self) -> None:
        """Take what was typed at once, so that the keys that detach are heard whatever the sandbox does."""
        data = self._own.read()
        if data is None:
            return
        if not data:
            self._leave(signal.SIGHUP)
            return
        typed = self._keys.feed(data)
        if typed.is_detached:
            self._settle(_Left(_DETACHED))
        elif len(self._pending) + len(typed.data) > _MOST_PENDING:
            self._own.tell(f"{len(typed.data)} bytes that were typed are dropped: the sandbox takes no more")
        else:
            self._pending += typed.data
            self._news.set()

    @contextmanager
    def _signals(self, loop: asyncio.AbstractEventLoop) -> Generator[None]:
        """Have signals handled inside the block by the loop, where nothing is half done."""
        handled: dict[signal.Signals, Callable[[], None]] = {
            signal.SIGWINCH: self._fit,
            signal.SIGCONT: self._on_continue,
            **{number: partial(self._leave, number) for number in _ENDING},
        }
        before = {number: signal.getsignal(number) for number in handled}
        for number, handler in handled.items():
            loop.add_signal_handler(number, handler)
        try:
            yield
        finally:
            for number, previous in before.items():
                loop.remove_signal_handler(number)
                signal.signal(number, previous)

    def _fit(self) -> None:
        """Make the other terminal as large as this one."""
        self._link.resize(*self._own.size)

    def _on_continue(self) -> None:
        self._own.make_raw()
        self._fit()

    def _leave(self, number: signal.Signals) -> None:
        self._settle(_Left(128 + number))

    def _settle(self, outcome: CommandEnd | _Left | SandcellError) -> None:
        if not self._outcome.done():
            self._outcome.set_result(outcome)

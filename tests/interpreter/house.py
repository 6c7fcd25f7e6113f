"""A spawner with contexts and executions over it, and a front that listens: what tests of runs share."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import tempfile
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sandcell_runtime
from sandcell.api import CreateContext, CreateExecution
from sandcell.config import Config
from sandcell.context import Contexts, Execution, Executions
from sandcell.events import Event, Stderr, Stdout, event_of
from sandcell.results import RunBuilder, RunResult
from sandcell.starter import PlainStarter
from sandcell_container.frames import Cursor
from sandcell_container.guest import spawner as spawner_file
from sandcell_container.guest.spawn import Spawner
from sandcell_kernel.wire import Message, new_message

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator

    from sandcell.context import Context, RunEnded
    from sandcell_kernel.wire import Channel

RUNTIME = str(Path(sandcell_runtime.__file__).parent)
CONFIG = Config(interrupt_grace=0.5, kill_grace=1.0, max_queue=5, max_records=40)
DEADLINE_S = 20


class House:
    """A spawner, and the contexts and executions over it. `run` is what the SDK's `run_code` comes down to."""

    def __init__(self, contexts: Contexts, executions: Executions, folder: str) -> None:
        self.contexts = contexts
        self.executions = executions
        self.folder = folder

    def start(self, code: str, **options: Any) -> Execution:
        return self.executions.start(CreateExecution(code=code, **options))

    async def run(self, code: str, **options: Any) -> RunResult:
        return await self.result(self.start(code, **options))

    async def result(self, execution: Execution) -> RunResult:
        builder = RunBuilder(execution.id, execution.context_id, execution.origin)
        async with asyncio.timeout(DEADLINE_S):
            async for event in events_of(execution):
                builder.add(event)
        return builder.result()

    async def context(self, name: str) -> Context:
        return await self.contexts.create(CreateContext(id=name, cwd=self.folder))


async def events_of(execution: Execution) -> AsyncGenerator[Event]:
    async for batch in execution.journal.follow():
        for entry in batch:
            event = event_of(entry, "epoch")
            assert event is not None
            yield event


async def seen(execution: Execution, kind: type[Event]) -> Event:
    """Return its first event of a kind."""
    async with asyncio.timeout(DEADLINE_S):
        async for event in events_of(execution):
            if isinstance(event, kind):
                return event
    raise AssertionError(f"it ended without {kind.__name__}")


async def late_text(
    execution: Execution, *, stream: type[Stdout | Stderr] = Stdout, ending: str = "\n"
) -> str:
    """Return what came late, as soon as it ends so."""
    journal, after, found = execution.journal, execution.journal.start, ""
    async with asyncio.timeout(DEADLINE_S):
        while not found.endswith(ending) or not found:
            batch = journal.read(after)
            for entry in batch:
                after = Cursor(journal.epoch, entry.seq, entry.offset)
                event = event_of(entry, journal.epoch)
                if isinstance(event, stream) and event.late:
                    found += event.text
            if not batch:
                await journal.changed()
    return found


@contextmanager
def a_spawner() -> Generator[socket.socket]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    line = [sys.executable, "-I", "-S", spawner_file.__file__, str(theirs.fileno()), "keepers", "{}"]
    with theirs, subprocess.Popen(line, pass_fds=[theirs.fileno()], start_new_session=True) as process:
        theirs.close()
        yield ours
        ours.close()
        process.wait(10)


@asynccontextmanager
async def a_house(
    config: Config = CONFIG, *, python: str = sys.executable, start_timeout: float = 20
) -> AsyncGenerator[House]:
    with tempfile.TemporaryDirectory() as folder, a_spawner() as sock:
        async with Spawner(sock) as spawner:
            starter = PlainStarter(spawner, python=python, runtime_dir=RUNTIME, timeout=start_timeout)
            env = {"PATH": os.environ["PATH"], "HOME": folder, "LANG": "C.UTF-8"}
            async with Contexts(starter, config=config, env=env, workdir=folder) as contexts:
                executions = Executions(
                    contexts, config=config, epoch="epoch", workdir=folder, default_timeout=30
                )
                yield House(contexts, executions, folder)
                executions.close()


class Listener:
    """A front, as a context knows it."""

    def __init__(self) -> None:
        self.messages: list[tuple[Channel, Message]] = []
        self.ends: list[tuple[str, RunEnded]] = []
        self._news = asyncio.Event()

    def on_message(self, channel: Channel, message: Message) -> None:
        assert not self.ends or channel == "iopub", "something else than late output came after the end"
        self.messages.append((channel, message))
        self._news.set()

    def on_run_end(self, msg_id: str, ended: RunEnded) -> None:
        self.ends.append((msg_id, ended))
        self._news.set()

    async def until(self, condition: Any) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while not condition():
                self._news.clear()
                await self._news.wait()

    def kinds(self, channel: Channel) -> list[str]:
        return [message.msg_type for where, message in self.messages if where == channel]


def cell(code: str, **content: Any) -> Message:
    return new_message("execute_request", {"code": code, "allow_stdin": False, **content}, session="front")


def submit(
    house: House, context: Context, message: Message, listener: Listener, *, origin: str = "front"
) -> Execution:
    request = CreateExecution(code=message.body()["code"], context=context.id, origin=origin, timeout=None)
    execution = house.executions.create(request)
    context.submit(message, execution, listener=listener)
    return execution

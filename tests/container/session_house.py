"""What the tests of sessions share: rooms with real bashes, and commands run to their end."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from sandcell_container.end import CommandEnd
from sandcell_container.guest.boot import GuestBoot
from sandcell_container.guest.files import Files
from sandcell_container.guest.session import Session, Sessions
from sandcell_container.guest.session_command import CommandOrder, SessionCommand
from sandcell_container.guest.user_worker import UserWorker
from sandcell_container.journal import Kind

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from tests.container.conftest import Place


@dataclass
class Settings:
    interrupt_grace: float = 5.0
    kill_grace: float = 0.3
    max_queue: int = 4
    max_records: int = 2
    journal_memory: int = 2**20
    journal_disk: int = 2**20


def boot(place: Place, env: dict[str, str] | None = None) -> GuestBoot:
    return GuestBoot(
        sandbox_id="sbx",
        name="name",
        engine="test",
        token="t",
        epoch="e",
        created_at=0.0,
        on_release="remove",
        grace=0.0,
        idle_timeout=None,
        default_timeout=None,
        python="/usr/bin/python3",
        runtime_dir="/nowhere",
        workdir=place.workdir,
        home=place.workdir,
        base_env=(place.env if env is None else env) | {"HOME": place.workdir},
    )


@asynccontextmanager
async def open_files(place: Place) -> AsyncGenerator[Files]:
    async with (
        UserWorker(place.spawner, "/usr/bin/python3", deadline_s=20.0) as worker,
        Files(worker, place.workdir) as files,
    ):
        yield files


@asynccontextmanager
async def open_sessions(
    place: Place, settings: Settings | None = None, booted: GuestBoot | None = None
) -> AsyncGenerator[Sessions]:
    there = booted or boot(place)
    async with (
        open_files(place) as files,
        Sessions(place.spawner, there, settings or Settings(), files) as opened,
    ):
        yield opened


class Done:
    """What a command said, and how it ended."""

    def __init__(self, stdout: bytes, stderr: bytes, end: CommandEnd) -> None:
        self.out, self.err, self.end = stdout, stderr, end

    @property
    def code(self) -> int | None:
        return self.end.exit_code


async def outcome(command: SessionCommand) -> Done:
    entries = [entry async for batch in command.journal.follow() for entry in batch]
    said = {kind: b"".join(e.data for e in entries if e.kind == kind) for kind in (Kind.STDOUT, Kind.STDERR)}
    if command.refusal is not None:
        raise command.refusal
    ended = next(e for e in entries if e.kind == Kind.ENDED)
    end = msgspec.json.decode(ended.data, type=CommandEnd)
    assert await command.wait() == end
    return Done(said[Kind.STDOUT], said[Kind.STDERR], end)


async def run(session: Session, text: str, *, timeout: float | None = 20.0, **more: Any) -> Done:
    command = session.run(CommandOrder(text=text, timeout=timeout, **more))
    try:
        return await outcome(command)
    finally:
        command.journal.close()


async def begun(command: SessionCommand, word: bytes) -> None:
    """Return when the command has said `word`."""
    said = b""
    async for batch in command.journal.follow():
        said += b"".join(entry.data for entry in batch)
        if word in said:
            return
    raise AssertionError(f"it ended without {word!r}: {said!r}")

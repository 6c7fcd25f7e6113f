"""The sandbox that a verb works in: one of its own, or one with a name, which is kept."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sandcell.cli.progress import Progress
from sandcell.client.blocking.sandbox import Sandbox
from sandcell.client.blocking.transport import Transport
from sandcell.client.host import the_host
from sandcell_container.errors import ErrorCode, error

if TYPE_CHECKING:
    import argparse
    from collections.abc import Generator

    from sandcell.config import Config
    from sandcell_container.engine import Record

__all__ = ["Place", "open_known", "open_place", "place_name"]


class Place:
    """An open sandbox, and the line that tells the person at the terminal to be patient."""

    def __init__(self, sandbox: Sandbox, progress: Progress) -> None:
        self.sandbox = sandbox
        self.progress = progress

    @property
    def record(self) -> Record:
        """Where its guest listens, for what the SDK does not hand on."""
        engine = the_host().engine(self.sandbox.engine).engine
        return next(each for each in engine.list() if each.id == self.sandbox.id)

    def transport(self, config: Config) -> Transport:
        """Return another way to its guest. Close it."""
        record = self.record
        return Transport(
            record.address,
            record.token,
            connect_timeout=config.connect_timeout,
            reply_timeout=config.reply_timeout,
        )


@contextmanager
def open_place(options: argparse.Namespace, config: Config, *, label: str) -> Generator[Place]:
    """Yield the sandbox that `options` and `config` name; a nameless one ends with the block.

    `label` says on a terminal what goes on once the sandbox is there.
    """
    engine = options.engine or config.engine
    network = options.network or "none"
    name = options.sandbox or config.sandbox
    with Progress("starting a sandbox", sys.stderr) as progress:
        if name:
            opened = Sandbox.get_or_create(name=name, engine=engine, network=network, on_release="keep")
        else:
            opened = Sandbox.create(engine=engine, network=network)
        with opened as sandbox:
            progress.label(label)
            yield Place(sandbox, progress)


def place_name(options: argparse.Namespace, config: Config) -> str:
    """Return the name of the sandbox for a verb that needs one which lasts.

    Raises:
        InvalidRequest (INVALID_ARGUMENT): none is named.
    """
    name: str | None = options.sandbox or config.sandbox
    if not name:
        raise error(
            ErrorCode.INVALID_ARGUMENT,
            f"sandcell {options.verb} has to be told which sandbox",
            hint="--sandbox NAME, or SANDCELL_SANDBOX=NAME",
        )
    return name


@contextmanager
def open_known(options: argparse.Namespace, config: Config) -> Generator[Place]:
    """Yield the sandbox that `options` and `config` name, which exists.

    Raises:
        NotFound (NOT_FOUND): there is none of this name or id.
    """
    name = place_name(options, config)
    with Progress("looking for the sandbox", sys.stderr) as progress, Sandbox.connect(name) as sandbox:
        progress.hush()
        yield Place(sandbox, progress)

"""What is checked: an engine, and a way to run programs in what it makes."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from sandcell_container.ids import new_id
from sandcell_container.spec import SandboxSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from sandcell_container.conformance.asking import Ran
    from sandcell_container.engine import Engine, Record

__all__ = ["Box", "Runner", "Subject"]


class Runner(Protocol):
    """Runs programs as user code of one sandbox, whatever guest that has."""

    def run(self, *argv: str) -> Ran:
        """Run a program and wait until it ended. The output is that of both streams."""
        ...


class Box:
    """One sandbox of a check."""

    def __init__(self, record: Record, runner: Runner) -> None:
        self.record = record
        self._runner = runner

    @property
    def id(self) -> str:
        return self.record.id

    def run(self, *argv: str) -> Ran:
        """Run a program as user code and wait until it ended."""
        return self._runner.run(*argv)

    def output(self, *argv: str) -> str:
        """Run a program that has to succeed, and return what it wrote without blanks around."""
        ran = self.run(*argv)
        assert ran.code == 0, f"{argv[0]} ended with {ran.code}: {ran.output[-2000:]}"
        return ran.output.strip()

    def python(self, program: str) -> str:
        """Run a program of the user's Python that has to succeed, and return what it wrote."""
        return self.output("python", "-c", program)


class Subject:
    """An engine under check. `open_runner` returns a way into a sandbox that runs; `image` is what sandboxes start from,
    None for the engine's own."""

    def __init__(
        self, engine: Engine, open_runner: Callable[[Record], Runner], *, image: str | None = None
    ) -> None:
        self.engine = engine
        self._open_runner = open_runner
        self._image = image
        self._shared: Box | None = None

    def close(self) -> None:
        """Remove what checks have shared; `engine` is its maker's to close."""
        if self._shared is not None:
            self.engine.remove(self._shared.id)
            self._shared = None

    def spec(self, **fields: Any) -> SandboxSpec:
        """Return a spec with a name of its own, and `fields`."""
        sandbox_id = new_id("sbx")
        return replace(SandboxSpec(id=sandbox_id, name=sandbox_id, image=self._image), **fields)

    def box_of(self, record: Record) -> Box:
        """Return a sandbox that runs as checks use it."""
        return Box(record, self._open_runner(record))

    @contextmanager
    def sandbox(self, **fields: Any) -> Generator[Box]:
        """Make a sandbox for the block, and remove it at its end."""
        spec = self.spec(**fields)
        try:
            yield self.box_of(self.engine.create(spec))
        finally:
            self.engine.remove(spec.id)

    @contextmanager
    def shared(self) -> Generator[Box]:
        """Lend the block a sandbox with nothing special, which others had before and will have after it, as containers cost
        seconds. One that a check failed in is nobody's after that."""
        if self._shared is None:
            self._shared = self.box_of(self.engine.create(self.spec()))
        try:
            yield self._shared
        except BaseException:
            self.close()
            raise

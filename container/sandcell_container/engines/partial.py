"""What an engine answers to what it cannot do: for engines to inherit from, and to replace one by one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, NoReturn

from sandcell_container.engine import Pruned, Record, pick_record
from sandcell_container.errors import ErrorCode, SandcellError, error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from sandcell_container.engine import Snapshot, Updated
    from sandcell_container.spec import SandboxSpec
    from sandcell_container.usage import Stats

__all__ = ["PartialEngine", "unsupported"]


def unsupported(engine: str, what: str, *, hint: str) -> SandcellError:
    """Return the error of what `engine` cannot do."""
    return error(
        ErrorCode.UNSUPPORTED, f"the engine {engine} cannot {what}", hint=hint, details={"engine": engine}
    )


class PartialEngine(ABC):
    """The part of `Engine` that not every engine has. Each method raises InvalidRequest (UNSUPPORTED)."""

    @property
    @abstractmethod
    def name(self) -> str: ...

    @abstractmethod
    def list(self) -> list[Record]: ...

    def find(self, name_or_id: str) -> Record | None:
        return pick_record(self.list(), name_or_id)

    def prune(self) -> Pruned:
        found = self.list()
        live = tuple(each.id for each in found if each.status in {"running", "creating"})
        return Pruned(live=live, stopped=tuple(each.id for each in found if each.id not in live))

    def remove_unused(self, older_than: float) -> Sequence[str]:
        return ()

    def start(self, sandbox_id: str) -> Record:
        self._refuse("start a sandbox again", hint="create a new one")

    def stop(self, sandbox_id: str) -> None:
        self._refuse("stop a sandbox and keep its files", hint="remove it")

    def restart(self, sandbox_id: str) -> Record:
        self._refuse("restart a sandbox", hint="create a new one")

    def is_paused(self, sandbox_id: str) -> bool:
        return False

    def stats(self, sandbox_id: str) -> Stats:
        self._refuse("tell what a sandbox uses", hint="look inside: sandbox.exec('ps aux')")

    def update(self, sandbox_id: str, change: Callable[[SandboxSpec], SandboxSpec]) -> Updated:
        self._refuse("change a sandbox", hint="create a new one")

    def snapshot(self, sandbox_id: str, name: str) -> Snapshot:
        self._refuse("make snapshots", hint="copy the files: sandbox.files.download()")

    def snapshots(self) -> Sequence[Snapshot]:
        return ()

    def remove_snapshot(self, name: str) -> None:
        self._refuse("make snapshots, so it has none", hint="nothing is to be done")

    def last_words(self, sandbox_id: str) -> str:
        return ""

    def copy_in(self, sandbox_id: str, path: str, archive: Iterable[bytes]) -> None:
        self._refuse("take an archive", hint="sandbox.files writes files")

    def copy_out(self, sandbox_id: str, path: str) -> Iterator[bytes]:
        self._refuse("give an archive", hint="sandbox.files reads files")

    def _refuse(self, what: str, *, hint: str) -> NoReturn:
        raise unsupported(self.name, what, hint=hint)

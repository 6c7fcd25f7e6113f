"""Commands by id: one for each id, however often it is asked for; ended with the last client that follows it; kept for a
while after its end, so that a repeated request finds it."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from msgspec import UnsetType

from sandcell_container.errors import ErrorCode, error

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping

    from sandcell.config import Config
    from sandcell_container.end import Truncation
    from sandcell_container.guest.spill import SpillStore
    from sandcell_container.journal import Journal

__all__ = ["CommandRecords", "Recorded", "max_output_of", "timeout_of"]

MAX_KEPT_BYTES = 32 * 2**20  # output of ended commands, in memory
MAX_SPILLED_BYTES = 2**30  # and in files
MAX_FORGOTTEN = 10_000  # ids of commands that ran and whose output is gone


class Recorded(Protocol):
    """A command that was started. `cuts` are known when it has ended."""

    @property
    def journal(self) -> Journal: ...
    @property
    def cuts(self) -> Mapping[str, Truncation]: ...
    async def cancel(self) -> None: ...


C = TypeVar("C", bound=Recorded)


class _Known(Generic[C]):
    """One command that was asked for. `starting` is over when it runs, has failed to, or its starter gave up."""

    def __init__(self, asked: object) -> None:
        self.asked = asked
        self.starting: asyncio.Future[C] = asyncio.get_running_loop().create_future()
        self.followers = 1
        self.size = 0  # bytes of its output in memory, when it was last looked at
        self.files = dict[str, int]()  # those that hold an output whole, and their bytes

    @property
    def has_started(self) -> bool:
        starting = self.starting
        return starting.done() and not starting.cancelled() and starting.exception() is None


class CommandRecords(Generic[C]):
    """See the module. At most `config.max_records` of those that have ended are kept, and their files in `store`."""

    def __init__(self, config: Config, store: SpillStore) -> None:
        self._config = config
        self._store = store
        self._known: OrderedDict[str, _Known[C]] = OrderedDict()
        self._kept_bytes = 0
        self._spilled_bytes = 0
        self._forgotten: OrderedDict[str, None] = OrderedDict()

    @asynccontextmanager
    async def follow(
        self,
        command_id: str,
        asked: object,
        start: Callable[[], Awaitable[C]],
        *,
        is_torn: Callable[[], bool] = lambda: False,
    ) -> AsyncGenerator[C]:
        """Yield the command of this id, started where it is new. With its last follower it ends.

        `asked` is all that makes it the same command. Who has started it ends it alone when `is_torn` says so as the
        block is left.

        Raises what `start` raises, and:
            Conflict (EXISTS): the id is that of another command.
            Gone (LOST): it ran, and its output is kept no more.
        """
        known, began = await self._join(command_id, asked), False
        if known is None:
            known, began = await self._begin(command_id, asked, start), True
        try:
            yield known.starting.result()
        finally:
            await self._leave(known, is_torn=began and is_torn())

    async def _join(self, command_id: str, asked: object) -> _Known[C] | None:
        """Return a command that is there, when it has started; None where there is none, or its starter gave up."""
        while (known := self._known.get(command_id)) is not None:
            if known.asked != asked:
                raise error(
                    ErrorCode.EXISTS,
                    f"the command {command_id} exists, and is another",
                    hint="give each command an id of its own, or none",
                )
            known.followers += 1
            try:
                await asyncio.wait({known.starting})
            except BaseException:
                await self._leave(known)
                raise
            if not known.starting.cancelled():
                known.starting.result()
                return known
        return None

    async def _begin(self, command_id: str, asked: object, start: Callable[[], Awaitable[C]]) -> _Known[C]:
        if command_id in self._forgotten:
            raise error(
                ErrorCode.LOST,
                f"the command {command_id} has run, its output is kept no more",
                hint="run it again with another id, if it may run twice",
            )
        known = self._known[command_id] = _Known[C](asked)
        try:
            known.starting.set_result(await start())
        except BaseException as problem:
            # Nothing was started, so nothing is remembered: the same id may be tried again.
            del self._known[command_id]
            if isinstance(problem, Exception):
                known.starting.set_exception(problem)
                known.starting.exception()  # it is raised here; nobody else need ask
            else:
                known.starting.cancel()
            raise
        return known

    async def _leave(self, known: _Known[C], *, is_torn: bool = False) -> None:
        known.followers -= 1
        if (known.followers and not is_torn) or not known.has_started:
            return
        command = known.starting.result()
        if not command.journal.ended:
            await command.cancel()
        size = command.journal.memory
        self._kept_bytes += size - known.size
        known.size = size
        if not known.files:
            known.files = {cut.path: cut.total_bytes for cut in command.cuts.values() if cut.path}
            self._spilled_bytes += sum(known.files.values())
        self._forget_old()

    def _forget_old(self) -> None:
        """Keep the newest ended commands within bounds, with their files, and of older ones that they ran.

        From the oldest on, and no further than one in use: a look at all would cost each command.
        """
        while (
            len(self._known) > self._config.max_records
            or self._kept_bytes > MAX_KEPT_BYTES
            or self._spilled_bytes > MAX_SPILLED_BYTES
        ):
            command_id, oldest = next(iter(self._known.items()))
            if oldest.followers or not oldest.has_started:
                return
            oldest.starting.result().journal.close()
            self._kept_bytes -= oldest.size
            self._spilled_bytes -= sum(oldest.files.values())
            for path in oldest.files:
                self._store.remove_soon(path)
            del self._known[command_id]
            self._forgotten[command_id] = None
            if len(self._forgotten) > MAX_FORGOTTEN:
                self._forgotten.popitem(last=False)


def timeout_of(asked: float | UnsetType | None, default: float | None) -> float | None:
    """Return the seconds that a command may run, None for no limit.

    Raises:
        InvalidRequest (INVALID_ARGUMENT): it is 0 or less.
    """
    if isinstance(asked, UnsetType):
        return default
    if asked is not None and not asked > 0:
        raise error(
            ErrorCode.INVALID_ARGUMENT,
            f"timeout={asked} has to be above 0",
            hint="null is no limit",
            details={"field": "timeout"},
        )
    return asked


def max_output_of(asked: int | None, config: Config, *, stream: bool) -> int | None:
    """Return how many bytes of each stream are kept; None, of a stream alone, keeps nothing beside it.

    Raises:
        InvalidRequest (INVALID_ARGUMENT): it is out of bounds.
    """
    limit = config.max_output_limit
    if asked is not None and not 0 < asked <= limit:
        raise error(
            ErrorCode.INVALID_ARGUMENT,
            f"max_output={asked} is not between 1 and {limit}",
            details={"field": "max_output"},
        )
    return config.max_output if asked is None and not stream else asked

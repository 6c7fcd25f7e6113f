"""One program's hold of a sandbox: the lease, what is known of its life, and its start where a call finds it stopped."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from sandcell.client.aio.channel import in_thread
from sandcell.client.aio.lease import AsyncLease
from sandcell.client.protocol import gone
from sandcell_container.errors import Gone, NotFound, SandcellError

if TYPE_CHECKING:
    from typing import Literal

    from sandcell.client.aio.transport import AsyncTransport
    from sandcell_container.end import End
    from sandcell_container.engine import Engine, Record
    from sandcell_container.spec import Status

__all__ = ["AsyncHold"]

_TRIES = 3
_DOWN_S = 2.0  # from a guest's last answer to the end of its sandbox: what it ends has a grace


class AsyncHold:
    """See the module. It is the waker of its transport. Usable from several threads: what it has is only replaced whole."""

    def __init__(
        self, record: Record, engine: Engine, transport: AsyncTransport, kind: Literal["owner", "attached"]
    ) -> None:
        self.record = record
        self.engine = engine
        self._transport = transport
        self._kind: Literal["owner", "attached"] = kind
        self._lease: AsyncLease | None = None
        self._end: End | None = None
        self._status: Status = "running"
        self._is_open = True
        transport.waker = self

    @property
    def status(self) -> Status:
        """What was last heard."""
        if self._status == "running" and self._transport.paused:
            return "stopped"
        if self._status == "running" and self._transport.ended:
            return "removed" if self.record.on_release == "remove" and self.record.starts == 1 else "stopped"
        return self._status

    @property
    def is_holding(self) -> bool:
        """Whether it has a lease, or is not to have one any more. A sandbox that was stopped had to be let go."""
        return self._lease is not None or not self._is_open

    @property
    def is_released(self) -> bool:
        """Whether it was let go for good."""
        return not self._is_open

    async def take(self) -> None:
        """Have the lease. Raises what the guest or its absence says."""
        taken = await AsyncLease.take(self._transport, self._kind)
        old, self._lease = self._lease, taken
        if old is not None:
            old.release()

    async def wake(self) -> None:
        """Start the sandbox, by whomever it was stopped, and hold it; one that runs is held. All at once share one start.

        Raises:
            Gone (SANDBOX_GONE): it was removed, or is held no more.
            Unavailable: as `Engine.start`.
        """
        if not self._is_open:
            raise gone(
                self._transport.address,
                admitted=False,
                handle="removed" if self._status == "removed" else "closed",
            )
        for _ in range(_TRIES - 1):
            await self._start()
            try:
                await self.take()
            except Gone:
                continue  # it was just ending
            break
        else:
            await self._start()
            await self.take()
        self._status, self._end, self._transport.paused = "running", None, False

    async def _start(self) -> None:
        end = await self.ended() if self._transport.ended else None
        try:
            self.record = await in_thread(self.engine.start, self.record.id)
        except (Gone, NotFound) as problem:
            self._status = "removed"
            raise gone(self._transport.address, admitted=False, end=end, handle="removed") from problem

    async def ended(self, timeout: float = _DOWN_S) -> End | None:
        """Return how the sandbox ended, None where it did not within so many seconds or nobody can tell."""
        try:
            end = await in_thread(partial(self.engine.await_end, self.record.id, timeout=timeout))
        except SandcellError:
            return self._end
        if end is not None and (self._end is None or end.cause != "lost"):
            self._end = end  # who looks later may find nothing left of it
        return self._end

    async def is_paused(self) -> bool:
        """Tell whether its engine knows that somebody holds it still from outside."""
        try:
            return await in_thread(self.engine.is_paused, self.record.id)
        except SandcellError:
            return False  # nobody can tell: what its guest did not answer is told

    async def stop(self) -> None:
        """End all that runs in it; the next call starts it."""
        await in_thread(self.engine.stop, self.record.id)
        self._status = "stopped"
        self._let_go()

    async def restart(self) -> None:
        """Stop and start it."""
        self.record = await in_thread(self.engine.restart, self.record.id)
        await self.take()
        self._status = "running"

    async def remove(self) -> None:
        """End it for good."""
        await in_thread(self.engine.remove, self.record.id)
        self._status = "removed"
        self.release()

    def release(self) -> None:
        """Let go for good. Twice is fine."""
        self._is_open = False
        self._let_go()

    def _let_go(self) -> None:
        lease, self._lease = self._lease, None
        if lease is not None:
            lease.release()
        self._transport.close()

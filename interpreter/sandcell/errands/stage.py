"""Where an errand is shown: what it displays, says and asks goes to the cell that it is of."""

from __future__ import annotations

import asyncio
import html
import time
import uuid
from typing import TYPE_CHECKING, Any

from sandcell_kernel.tables import describe_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

    from sandcell_kernel.outer import Errand, OuterAction, OuterKernel
    from sandcell_kernel.tables import Table

__all__ = ["Bar", "HostStage"]

_SHOW_EVERY_S = 0.25


class HostStage:
    """One errand's. `may_ask`: somebody answers questions. `is_last`: nothing follows in its cell."""

    def __init__(
        self, errand: Errand, machine: OuterKernel, act: Callable[[list[OuterAction]], None]
    ) -> None:
        self.may_ask = errand.may_ask
        self.is_last = errand.is_last
        self._key = errand.key
        self._machine = machine
        self._act = act
        self._answer: asyncio.Future[str] | None = None

    def show(self, what: Table) -> None:
        self._act(self._machine.show(self._key, dict(what.bundle())))

    def say(self, text: str) -> None:
        """Say a line of ours."""
        self._act(self._machine.say(self._key, text))

    async def ask(self, prompt: str) -> str:
        """Return the line that whoever runs the cell types."""
        self._answer = asyncio.get_running_loop().create_future()
        self._act(self._machine.ask(self._key, prompt))
        try:
            return await self._answer
        finally:
            self._answer = None

    def answer(self, text: str) -> None:
        """For the desk: a line was typed."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(text)

    def bar(self, what: str) -> Bar:
        """Return a bar that fills, which is shown from its first call on."""
        return Bar(what, self._draw)

    def _draw(self, data: dict[str, Any], display_id: str, *, is_update: bool) -> None:
        self._act(self._machine.show(self._key, data, display_id=display_id, is_update=is_update))


class Bar:
    """How much of a copy is done. Called as the SDK's `on_progress`; `finish` shows its end."""

    def __init__(self, what: str, draw: Callable[..., None]) -> None:
        self._what = what
        self._draw = draw
        self._display_id = uuid.uuid4().hex
        self._is_shown = False
        self._next = time.monotonic() + _SHOW_EVERY_S  # what is quicker needs none

    def __call__(self, done: int, total: int | None) -> None:
        now = time.monotonic()
        if now >= self._next:
            self._next = now + _SHOW_EVERY_S
            self._show(done, total)

    def finish(self, done: int) -> None:
        if self._is_shown:
            self._show(done, done)

    def _show(self, done: int, total: int | None) -> None:
        share = describe_bytes(done) + (f" of {describe_bytes(total)}" if total is not None else "")
        bar = f'<progress value="{done}" max="{total}"></progress>' if total else "<progress></progress>"
        data = {
            "text/plain": f"{self._what}: {share}",
            "text/html": f"{html.escape(self._what)} {bar} {html.escape(share)}",
        }
        self._draw(data, self._display_id, is_update=self._is_shown)
        self._is_shown = True

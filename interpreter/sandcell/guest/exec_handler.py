"""The route of stateless commands."""

from __future__ import annotations

from sandcell.api import ExecRequest
from sandcell.guest.request import ApiHandler
from sandcell.guest.stream import send_journal

__all__ = ["ExecHandler"]


class ExecHandler(ApiHandler):
    """POST /v1/exec"""

    async def post(self) -> None:
        body = self.body(ExecRequest, lone="surrogateescape")
        self.cancel_when_client_goes()
        with self.guest.leases.work():
            async with self.guest.commands.follow(body) as command:
                self.set_header("Sandcell-Id", command.id)
                await send_journal(self, command.journal)

"""Contexts: the live interpreters of the sandbox."""

from __future__ import annotations

from sandcell.api import CreateContext
from sandcell.guest.request import ApiHandler

__all__ = ["ContextHandler", "ContextInterruptHandler", "ContextRestartHandler", "ContextsHandler"]

SDK = "sdk"


class ContextsHandler(ApiHandler):
    """POST, GET /v1/contexts"""

    async def post(self) -> None:
        context = await self.guest.contexts.create(self.body(CreateContext))
        self.reply(context.info(), status=201)

    def get(self) -> None:
        self.reply([each.info() for each in self.guest.contexts.list()])


class ContextHandler(ApiHandler):
    """GET, DELETE /v1/contexts/{id}"""

    def get(self, context_id: str) -> None:
        self.reply(self.guest.contexts.get(context_id).info())

    async def delete(self, context_id: str) -> None:
        await self.guest.contexts.delete(context_id, who=SDK)
        self.reply({"id": context_id})


class ContextInterruptHandler(ApiHandler):
    """POST /v1/contexts/{id}/interrupt"""

    async def post(self, context_id: str) -> None:
        context = self.guest.contexts.get(context_id)
        await context.interrupt(who=SDK)
        self.reply(context.info())


class ContextRestartHandler(ApiHandler):
    """POST /v1/contexts/{id}/restart"""

    async def post(self, context_id: str) -> None:
        context = self.guest.contexts.get(context_id)
        await context.restart(who=SDK)
        self.reply(context.info())

"""Contexts: the live interpreters of the sandbox."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from msgspec import structs
from tornado.iostream import StreamClosedError

from sandcell.api import AskComplete, AskInspect, CreateContext, ObjectInfo, Ticket
from sandcell.exchange import FORMS, check_variable, load_object, new_exchange_path, save_object
from sandcell.guest.births import id_of
from sandcell.guest.request import ApiHandler
from sandcell.guest.upload import FileIntake, UploadHandler
from sandcell_container.errors import ErrorCode, error

if TYPE_CHECKING:
    from sandcell.guest.upload import Intake

__all__ = [
    "CompleteHandler",
    "ContextHandler",
    "ContextInterruptHandler",
    "ContextRestartHandler",
    "ContextTicketHandler",
    "ContextsHandler",
    "InspectHandler",
    "ObjectHandler",
    "VariablesHandler",
]

SDK = "sdk"


class ContextsHandler(ApiHandler):
    """POST, GET /v1/contexts"""

    async def post(self) -> None:
        contexts, body = self.guest.contexts, self.body(CreateContext, lone="surrogateescape")
        body = structs.replace(body, id=id_of(body.id, "ctx"))
        take_back = partial(contexts.delete, who=SDK)
        async with self.guest.births.making(
            self, ("context", str(body.id)), find=contexts.get, take_back=take_back
        ):
            context = await contexts.create(body)
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


class ContextTicketHandler(ApiHandler):
    """POST /v1/contexts/{id}/ticket"""

    async def post(self, context_id: str) -> None:
        count = await self.guest.contexts.get(context_id).take_ticket(SDK)
        self.reply(Ticket(execution_count=count))


class CompleteHandler(ApiHandler):
    """POST /v1/contexts/{id}/complete"""

    async def post(self, context_id: str) -> None:
        context = self.guest.contexts.get(context_id)
        self.reply(await context.questions.complete(self.body(AskComplete)))


class InspectHandler(ApiHandler):
    """POST /v1/contexts/{id}/inspect"""

    async def post(self, context_id: str) -> None:
        context = self.guest.contexts.get(context_id)
        self.reply(await context.questions.inspect(self.body(AskInspect)))


class VariablesHandler(ApiHandler):
    """GET /v1/contexts/{id}/variables"""

    async def get(self, context_id: str) -> None:
        self.reply(await self.guest.contexts.get(context_id).questions.variables())


class ObjectHandler(UploadHandler):
    """PUT, GET /v1/contexts/{id}/objects/{name}"""

    def intake(self) -> Intake:
        context = self.guest.contexts.get(self.path_args[0])
        self.guest.executions.check_turn(context.id, self.inside)
        check_variable(self.path_args[1])
        self._form()
        files, self._file = self.guest.files, new_exchange_path()
        made = files.replacing(self._file, mode=0o600)
        return FileIntake(self.guest.group, made, self._file)

    async def put(self, context_id: str, name: str) -> None:
        guest = self.guest
        await self.uploaded()
        try:
            form, timeout = self._form(), guest.config.default_timeout
            await load_object(guest.contexts.get(context_id), name, self._file, form, timeout=timeout)
        finally:
            guest.files.remove_soon(self._file)
        self.reply(ObjectInfo(name=name, form=form), status=201)

    async def get(self, context_id: str, name: str) -> None:
        guest, path = self.guest, new_exchange_path()
        context = guest.contexts.get(context_id)
        guest.executions.check_turn(context.id, self.inside)
        try:
            timeout = guest.config.default_timeout
            form = await save_object(context, check_variable(name), path, timeout=timeout)
            file = await guest.files.read(path)
        finally:
            guest.files.remove_soon(path)
        self.set_header("Content-Type", form)
        self.set_header("Content-Length", file.info.size)
        try:
            self.cancel_when_client_goes()
            async for chunk in file.chunks():
                self.write(chunk)
                await self.flush()
            self.finish()
        except (asyncio.CancelledError, StreamClosedError):
            if not self.client_gone:
                raise
        finally:
            await file.aclose()

    def _form(self) -> str:
        form = self.request.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        if form not in FORMS:
            raise error(
                ErrorCode.UNSUPPORTED,
                f"an object of the form {form[:80]!r} cannot be taken",
                hint=f"Content-Type is one of {', '.join(FORMS)}",
            )
        return form

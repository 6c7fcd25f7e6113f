"""Sessions over HTTP: persistent shells, their commands, their processes, their environment."""

from __future__ import annotations

from functools import partial

from msgspec import structs

from sandcell.guest.births import id_of
from sandcell.guest.request import ApiHandler
from sandcell.guest.stream import HEAD_AFTER_S, send_journal
from sandcell.job_bodies import ChangeEnv, CreateProcess, CreateSession, EnvInfo, SessionExec

__all__ = [
    "EnvHandler",
    "SessionExecHandler",
    "SessionHandler",
    "SessionInterruptHandler",
    "SessionProcessesHandler",
    "SessionRestartHandler",
    "SessionsHandler",
]

SDK = "sdk"


class SessionsHandler(ApiHandler):
    """POST, GET /v1/sessions"""

    async def post(self) -> None:
        sessions, body = self.guest.sessions, self.body(CreateSession, lone="surrogateescape")
        body = structs.replace(body, id=id_of(body.id, "ses"))
        take_back = partial(sessions.delete, keep_processes=False, who=SDK)
        async with self.guest.births.making(
            self, ("session", str(body.id)), find=sessions.get, take_back=take_back
        ):
            session = await sessions.create(body)
        self.set_header("Sandcell-Id", session.id)
        self.reply(sessions.describe(session), status=201)

    def get(self) -> None:
        sessions = self.guest.sessions
        self.reply([sessions.describe(each) for each in sessions.list()])


class SessionHandler(ApiHandler):
    """GET, DELETE /v1/sessions/{id}"""

    def get(self, session_id: str) -> None:
        sessions = self.guest.sessions
        self.reply(sessions.describe(sessions.get(session_id)))

    async def delete(self, session_id: str) -> None:
        keep = self.flag("keep_processes", default=False)
        await self.guest.sessions.delete(session_id, keep_processes=keep, who=SDK)
        self.reply({"id": session_id})


class SessionExecHandler(ApiHandler):
    """POST /v1/sessions/{id}/exec"""

    async def post(self, session_id: str) -> None:
        body = self.body(SessionExec, lone="surrogateescape")
        self.guest.executions.check_turn(session_id, self.inside, is_session=True)
        self.cancel_when_client_goes()
        with self.guest.leases.work():
            async with self.guest.sessions.follow(session_id, body) as command:
                self.set_header("Sandcell-Id", command.id)
                await command.decided(
                    HEAD_AFTER_S
                )  # one that is refused by then is an error, later an ERROR frame
                await send_journal(self, command.journal)


class SessionProcessesHandler(ApiHandler):
    """POST /v1/sessions/{id}/processes"""

    async def post(self, session_id: str) -> None:
        body = self.body(CreateProcess, lone="surrogateescape")
        self.guest.executions.check_turn(session_id, self.inside, is_session=True)
        body = structs.replace(body, id=id_of(body.id, "prc"))
        processes = self.guest.processes
        take_back = partial(processes.remove, who=SDK)
        async with self.guest.births.making(
            self, ("process", str(body.id)), find=processes.get, take_back=take_back
        ):
            process = await self.guest.sessions.start_process(session_id, body)
        self.set_header("Sandcell-Id", process.id)
        self.reply(self.guest.processes.describe(process), status=201)


class SessionRestartHandler(ApiHandler):
    """POST /v1/sessions/{id}/restart"""

    async def post(self, session_id: str) -> None:
        sessions = self.guest.sessions
        session = sessions.get(session_id)
        await session.restart()
        self.reply(sessions.describe(session))


class SessionInterruptHandler(ApiHandler):
    """POST /v1/sessions/{id}/interrupt"""

    async def post(self, session_id: str) -> None:
        sessions = self.guest.sessions
        session = sessions.get(session_id)
        await session.interrupt()
        self.reply(sessions.describe(session))


class EnvHandler(ApiHandler):
    """GET, PATCH /v1/env, and PATCH /v1/env?session="""

    def get(self) -> None:
        self.reply(EnvInfo(env=self.guest.env.whole()))

    async def patch(self) -> None:
        session_id = self.get_query_argument("session", "")
        body = self.body(ChangeEnv, lone="surrogateescape")
        if session_id:
            sessions = self.guest.sessions
            self.reply(sessions.describe(await sessions.change_env(session_id, body)))
        else:
            self.guest.env.change(body.env)
            self.get()

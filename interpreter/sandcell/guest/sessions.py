"""Sessions over HTTP: persistent shells, their commands, their processes, their environment."""

from __future__ import annotations

from sandcell.api import ChangeEnv, CreateProcess, CreateSession, EnvInfo, SessionExec
from sandcell.guest.request import ApiHandler
from sandcell.guest.stream import HEAD_AFTER_S, send_journal

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
        sessions = self.guest.sessions
        session = await sessions.create(self.body(CreateSession, lone="surrogateescape"))
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

    def patch(self) -> None:
        session_id = self.get_query_argument("session", "")
        body = self.body(ChangeEnv, lone="surrogateescape")
        if session_id:
            sessions = self.guest.sessions
            self.reply(sessions.describe(sessions.change_env(session_id, body)))
        else:
            self.guest.env.change(body.env)
            self.get()

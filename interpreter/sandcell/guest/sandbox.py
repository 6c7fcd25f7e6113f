"""The sandbox itself: is it well, what is it, what is new."""

from __future__ import annotations

import os
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import UnsetType

from sandcell.api import OsProcess, SandboxInfo, UpdateSandbox
from sandcell.guest.measure import measure
from sandcell.guest.request import ApiHandler
from sandcell.guest.stream import send_journal
from sandcell.version import VERSION
from sandcell_container.errors import ErrorCode, error
from sandcell_container.frames import Cursor
from sandcell_container.guest.masks import warnings_of

if TYPE_CHECKING:
    from sandcell.guest.desk import Desk
    from sandcell_container.usage import Stats

__all__ = ["EventsHandler", "HealthHandler", "InfoHandler", "StatsHandler", "TopHandler", "describe"]

_LONGEST_CLIENT = 64
_TOOLS = ("bash", "curl", "deno", "gcc", "git", "make", "node", "npm", "pip", "python3", "rg", "uv", "wget")
_LEASES = ("owner", "attached")


class HealthHandler(ApiHandler):
    """GET /v1/health"""

    def get(self) -> None:
        self.reply({"status": "ok"})


class InfoHandler(ApiHandler):
    """GET, PATCH /v1/info"""

    async def get(self) -> None:
        self.reply(describe(self.guest, await measure(self.guest)))

    async def patch(self) -> None:
        body = self.body(UpdateSandbox)
        if not isinstance(body.limits, UnsetType):
            self.guest.meter.limits.update(body.limits)
        if not isinstance(body.idle_timeout, UnsetType):
            self.guest.leases.set_idle_timeout(body.idle_timeout)
        if not isinstance(body.network, UnsetType):
            self.guest.way_out.network = body.network
        self.reply(describe(self.guest, await measure(self.guest)))


class StatsHandler(ApiHandler):
    """GET /v1/stats"""

    async def get(self) -> None:
        self.reply(await measure(self.guest))


class TopHandler(ApiHandler):
    """GET /v1/top: the processes of the sandbox but for what serves it."""

    async def get(self) -> None:
        self.reply([OsProcess(**asdict(each)) for each in await self.guest.table.read()])


class EventsHandler(ApiHandler):
    """GET /v1/events: news of the sandbox; with `lease` the connection is one while it is open."""

    async def get(self) -> None:
        lease = self.get_query_argument("lease", "")
        if lease and lease not in _LEASES:
            raise error(
                ErrorCode.INVALID_ARGUMENT,
                f"lease={lease[:40]!r} is none of {', '.join(_LEASES)}",
                details={"field": "lease"},
            )
        news = self.guest.leases.news
        cursor = self.get_query_argument("cursor", "")
        after = Cursor.parse(cursor, epoch=news.epoch) if cursor else None
        client = self.get_query_argument("client", "")[:_LONGEST_CLIENT] if lease else ""
        with (
            self.guest.leases.listen(),
            self.guest.leases.hold() if lease else nullcontext(),
            self.guest.tools.present(client) if client else nullcontext(),
        ):
            await send_journal(self, news, after=after)


def describe(guest: Desk, stats: Stats) -> SandboxInfo:
    """Return what is known of the sandbox, as user code would find it."""
    boot, system = guest.boot, os.uname()
    return SandboxInfo(
        id=boot.sandbox_id,
        name=boot.name,
        status="running",
        engine=boot.engine,
        created_at=boot.created_at,
        started_at=guest.started_at,
        starts=boot.starts,
        version=VERSION,
        image=boot.image,
        network=guest.way_out.network,
        limits=guest.meter.limits,
        isolation=boot.isolation,
        os=_os_name(),
        kernel=system.release,
        arch=system.machine,
        hostname=boot.hostname,
        user=boot.user,
        workdir=boot.workdir,
        python=boot.python,
        node=_find("node", boot.base_env),
        tools=tuple(name for name in _TOOLS if _find(name, boot.base_env)),
        memory={"limit": stats.memory.limit, "used": stats.memory.used},
        disk={"limit": stats.disk.limit, "used": stats.disk.used},
        ports=tuple(sorted(guest.memo.exposures)),
        warnings=(*boot.warnings, *guest.contexts.warnings, *warnings_of(boot.secrets)),
    )


def _os_name() -> str:
    for place in ("/etc/os-release", "/usr/lib/os-release"):
        try:
            lines = Path(place).read_text().splitlines()
        except OSError:
            continue  # not every image has one
        names = [line.removeprefix("PRETTY_NAME=") for line in lines if line.startswith("PRETTY_NAME=")]
        if names:
            return names[0].strip('"')
    return "Linux"


def _find(name: str, env: dict[str, str]) -> str | None:
    folders = env.get("PATH", "").split(":")
    paths = [os.path.join(folder, name) for folder in folders if folder]
    return next((path for path in paths if os.access(path, os.X_OK)), None)

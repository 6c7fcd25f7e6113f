# Made from ../aio/lossy.py by `python -m sandcell.client.generate`: change that file, not this one.
"""What a restart of a sandbox ends, as far as clients know it by an id."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandcell.api import ContextInfo
from sandcell.client.changes import Lost
from sandcell.client.protocol import Request, path_of
from sandcell.job_bodies import ProcessInfo, SessionInfo, TerminalInfo

if TYPE_CHECKING:
    from sandcell.client.blocking.transport import Transport

__all__ = ["list_lossy"]


def list_lossy(transport: Transport) -> tuple[Lost, ...]:
    """Return all of it that there is now."""

    def asking(noun: str) -> Request:
        return Request(method="GET", path=path_of(noun), wakes=False)

    contexts = transport.call(asking("contexts"), list[ContextInfo])
    sessions = transport.call(asking("sessions"), list[SessionInfo])
    processes = transport.call(asking("processes"), list[ProcessInfo])
    terminals = transport.call(asking("terminals"), list[TerminalInfo])
    return (
        *(Lost("context", each.id) for each in contexts),
        *(Lost("session", each.id) for each in sessions),
        *(Lost("process", each.id) for each in processes if each.status == "running"),
        *(Lost("terminal", each.id) for each in terminals),
    )

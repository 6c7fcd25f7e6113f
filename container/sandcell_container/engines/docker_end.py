"""How a container came to its end, from what the daemon knows of it afterwards."""

from __future__ import annotations

import signal
import time
from contextlib import closing
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from sandcell_container.end import End

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from docker.models.containers import Container

    from sandcell_container.engines.docker_address import Kind
    from sandcell_container.engines.docker_folder import Folder

__all__ = ["judge_end", "read_end"]

_KILLED = 128 + signal.SIGKILL


class _State(msgspec.Struct, frozen=True):
    """Source: Engine API, GET /containers/{id}/json; Podman answers the same."""

    exit_code: int = msgspec.field(name="ExitCode", default=0)
    oom_killed: bool = msgspec.field(name="OOMKilled", default=False)
    finished_at: str = msgspec.field(name="FinishedAt", default="")
    started_at: str = msgspec.field(name="StartedAt", default="")


class _Event(msgspec.Struct, frozen=True):
    """Source: Engine API, GET /events."""

    action: str = msgspec.field(name="Action", default="")
    time_ns: int = msgspec.field(name="timeNano", default=0)


def read_end(container: Container, kind: Kind, folder: Folder) -> End:
    """Return the end of a container that does not run: its guest's last word, else what the daemon knows of it."""
    container.reload()
    state = msgspec.convert(container.attrs["State"], _State)
    memory: int = container.attrs.get("HostConfig", {}).get("Memory") or 0
    return judge_end(
        state.exit_code,
        oom_killed=state.oom_killed,
        happened=_happened(container, _seconds(state.started_at)),
        silent_oom=kind == "podman" and memory > 0,
        said=folder.last_word(),
        at=_seconds(state.finished_at) or time.time(),
    )


def judge_end(
    exit_code: int,
    *,
    oom_killed: bool,
    happened: AbstractSet[str],
    silent_oom: bool,
    said: End | None,
    at: float,
) -> End:
    """Return the end of a container with `exit_code`, of which the daemon tells `happened`, the names of its events, and
    the guest what it `said` at its end.

    The container ends with its guest, and with 0. A guest that said nothing was killed.

    `silent_oom`: the daemon neither marks a container that was killed for want of memory nor tells an event of it, as
    Podman with control groups of version 1. SIGKILL that nobody is known to have sent is taken for that then.
    """
    if said is not None and said.cause != "lost" and exit_code == 0:
        return said
    if exit_code not in (0, _KILLED):
        return End(cause="exited", code=exit_code, at=at, state="lost")
    if exit_code == 0 and "oom" not in happened:
        return End(cause="lost", at=at, state="lost")
    if oom_killed or "oom" in happened or (silent_oom and "kill" not in happened):
        return End(cause="oom", signal=signal.SIGKILL, limit="memory", at=at, state="lost")
    return End(cause="killed", signal=signal.SIGKILL, at=at, state="lost")


def _happened(container: Container, started_at: float) -> set[str]:
    """Return the names of what happened to the container from its last start to its end; both daemons remember that for a
    while, and tell it as a stream, which need not be read further than that end."""
    client: Any = container.client
    names = set[str]()
    until = int(time.time()) + 1  # Podman reads whole seconds only
    wanted = {"container": [container.id]}
    with closing(
        client.api.events(since=int(started_at), until=until, filters=wanted, decode=True)
    ) as stream:
        for fields in stream:
            event = msgspec.convert(fields, _Event)
            if event.time_ns < started_at * 1e9:
                continue  # of a start before, in the same second
            names.add(event.action)
            if event.action == "die":
                break
    return names


def _seconds(text: str) -> float:
    """Return a time of the daemon's in seconds since the epoch, 0 for what never was, which it tells as the year 1."""
    try:
        return max(datetime.fromisoformat(text).timestamp(), 0)
    except ValueError:
        return 0

"""All sandboxes of one daemon as they are found, and what a crash of a host program has left of them, cleaned up."""

from __future__ import annotations

import logging
import time
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import docker
import msgspec
from docker.models.containers import Container

from sandcell_container.end import End
from sandcell_container.engine import Record
from sandcell_container.engines.docker_address import Kind
from sandcell_container.engines.docker_end import read_end
from sandcell_container.engines.docker_folder import folders_in
from sandcell_container.engines.docker_life import remove_all
from sandcell_container.engines.docker_options import ID, STATE
from sandcell_container.errors import SandcellError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sandcell_container.engines.docker_folder import Folder, Kept
    from sandcell_container.spec import Status

__all__ = ["Found", "look"]

_log = logging.getLogger(__name__)
_ALIVE: dict[str, Status] = {
    "running": "running",
    "restarting": "running",
    "paused": "stopped",  # a start lets it go on as it was
}
_STATUS: dict[str, Status] = {
    "created": "stopped",
    "initialized": "stopped",  # podman
    "exited": "stopped",
    "stopped": "stopped",  # podman
    "stopping": "stopped",  # podman
}


@dataclass(slots=True)
class Found:
    """What a look found: the sandboxes that there are, and the ids of those of which nothing is left now."""

    records: list[Record] = field(default_factory=list["Record"])
    removed: list[str] = field(default_factory=list[str])


@dataclass(frozen=True, slots=True)
class _Place:
    kind: Kind
    client: docker.DockerClient
    state: Path

    def containers(self, label: str, value: str) -> list[Container]:
        return self.client.containers.list(
            all=True, filters={"label": f"{label}={value}"}, ignore_removed=True, sparse=True
        )


def look(kind: Kind, client: docker.DockerClient, state: Path, folders: Sequence[Folder]) -> Found:
    """Return the sandboxes of `folders`, whose containers this daemon has; what is dead and to be removed is.

    One call to the daemon where nothing is dead. Containers of ours without a folder are rubbish, as the folder is made
    first, and so are folders without a container.
    """
    place, found = _Place(kind, client, state), Found()
    by_id = dict[str, list[Container]]()
    for container in place.containers(STATE, str(state)):
        by_id.setdefault(str(container.attrs["Labels"][ID]), []).append(container)
    for folder in folders:
        record = _find(place, folder, by_id.pop(folder.id, []))
        if record is None:
            found.removed.append(folder.id)
        else:
            found.records.append(record)
    known = {each.id for each in folders_in(state)}  # some may be new since `folders` were listed
    for sandbox_id in by_id.keys() - known:
        remove_all(client, sandbox_id, by_id[sandbox_id])
        found.removed.append(sandbox_id)
    return found


def _find(place: _Place, folder: Folder, containers: Sequence[Container]) -> Record | None:
    """Return one sandbox, None where there is none any more."""
    kept = folder.read()
    if (alive := _alive(kept, containers)) is not None:
        return alive
    if kept is not None and containers and kept.record.end is not None and kept.keeps_files:
        return replace(kept.record, status=_STATUS.get(containers[0].status, "failed"))
    with ExitStack() as held:
        try:
            is_free = held.enter_context(folder.locked_nowait())
        except SandcellError:
            return None  # somebody else was faster
        if not is_free:  # it is just being made or changed
            return None if kept is None else replace(kept.record, status="creating")
        return _settle(place, folder)


def _alive(kept: Kept | None, containers: Sequence[Container]) -> Record | None:
    """Return one whose container has not ended, None for others."""
    status = next((_ALIVE[each.status] for each in containers if each.status in _ALIVE), None)
    if kept is None or status is None or not kept.record.starts:
        return None
    return replace(kept.record, status=status, end=None)


def _settle(place: _Place, folder: Folder) -> Record | None:
    """Look again at one that nobody changes now: write down how it ended, or bury it."""
    kept, containers = folder.read(), place.containers(ID, folder.id)
    if (alive := _alive(kept, containers)) is not None:
        return alive
    end = read_end(containers[0], place.kind, folder) if containers else End(cause="lost", at=time.time())
    if kept is not None and containers and kept.keeps_files:
        record = replace(
            kept.record, status=_STATUS.get(containers[0].status, "failed"), end=kept.record.end or end
        )
        folder.write(msgspec.structs.replace(kept, record=record))
        return record
    _log.info("a dead sandbox is removed sandbox=%s cause=%s", folder.id, end.cause)
    remove_all(place.client, folder.id, containers)
    folder.bury(end)
    return None

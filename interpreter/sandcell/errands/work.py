"""The errands: each verb a row of one table."""

from __future__ import annotations

import asyncio
import os
import posixpath
from typing import TYPE_CHECKING, TypeVar

from sandcell.client.container_options import network_of
from sandcell.client.records import not_yours
from sandcell.errands.permission import ask_for
from sandcell.errands.tickets import Target
from sandcell.kernel_sandbox import change_own
from sandcell.ports.rules import port_in
from sandcell_container.errors import ErrorCode, SandcellError, error
from sandcell_container.network import kind_of
from sandcell_kernel.tables import Link, Table, describe_bytes, printable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sandcell.errands.lobby import Lobby
    from sandcell.errands.place import Place
    from sandcell.errands.stage import HostStage
    from sandcell_container.engine import Updated
    from sandcell_container.file_info import TransferReport
    from sandcell_kernel.cells import LineOrder

__all__ = ["ErrandWork"]

T = TypeVar("T")

_MOST_SKIPPED = 10


class ErrandWork:
    """What is done in one place. `lobby` returns what links lead to, and opens it where it is not open yet. `update` awaits a
    change that may start the sandbox anew."""

    def __init__(
        self,
        place: Place,
        lobby: Callable[[], Lobby],
        update: Callable[[Awaitable[Updated]], Awaitable[Updated]],
    ) -> None:
        self._place = place
        self._sandbox = place.sandbox
        self._permission = place.permission
        self._lobby = lobby
        self._update = update
        self._verbs: dict[tuple[str, str], Callable[[HostStage, LineOrder], Awaitable[None]]] = {
            ("%terminal", ""): self._open_terminal,
            ("%sandbox", "upload"): self._upload,
            ("%sandbox", "download"): self._download,
            ("%sandbox", "files backup"): self._backup,
            ("%sandbox", "files restore"): self._restore,
            ("%sandbox", "ports"): self._list_ports,
            ("%sandbox", "ports expose"): self._expose_port,
            ("%sandbox", "network"): self._change_network,
            ("%sandbox", "snapshot"): self._snapshot,
        }

    @property
    def verbs(self) -> frozenset[tuple[str, str]]:
        """The magics and verbs that are served."""
        return frozenset(self._verbs)

    async def perform(self, stage: HostStage, order: LineOrder) -> None:
        """Do a line. Cancelling gives it up: what was copied whole stays.

        Raises:
            SandcellError: it could not be done, or was not allowed.
        """
        await self._verbs[order.magic, order.verb](stage, order)

    # --- files

    async def _upload(self, stage: HostStage, order: LineOrder) -> None:
        local, target = order.operands[0], order.operands[1] if len(order.operands) > 1 else "."
        path = await self._may_read(stage, local)
        remote = await self._into(target, os.path.basename(path))
        bar = stage.bar(f"upload of {os.path.basename(path)}")
        report = await _local(self._sandbox.files.upload(path, remote, on_progress=bar))
        bar.finish(report.bytes)
        _tell(stage, report, f"{printable(remote)} in the sandbox")

    async def _download(self, stage: HostStage, order: LineOrder) -> None:
        remote, local = order.operands
        path = self._permission.local_path(local)
        if local.endswith("/") or await asyncio.to_thread(os.path.isdir, path):
            path = self._permission.local_path(
                os.path.join(path, posixpath.basename(posixpath.normpath(remote)))
            )
        await self._may_write(stage, path)
        bar = stage.bar(f"download of {posixpath.basename(remote)}")
        report = await _local(self._sandbox.files.download(remote, path, on_progress=bar))
        bar.finish(report.bytes)
        _tell(stage, report, f"{printable(path)} on your machine")

    async def _backup(self, stage: HostStage, order: LineOrder) -> None:
        folder, local = order.operands
        path = self._permission.local_path(local)
        await self._may_write(stage, path)
        await _local(self._sandbox.files.backup(folder, path, on_progress=stage.bar(f"backup of {folder}")))
        stage.say(f"{printable(path)} on your machine holds {printable(folder)}")

    async def _restore(self, stage: HostStage, order: LineOrder) -> None:
        local, folder = order.operands
        path = await self._may_read(stage, local)
        bar = stage.bar(f"restore of {folder}")
        report = await _local(self._sandbox.files.restore(path, folder, on_progress=bar))
        _tell(stage, report, f"{printable(folder)} in the sandbox")

    async def _may_read(self, stage: HostStage, local: str) -> str:
        """Return the file of this machine that is meant, when it may be read."""
        path = self._permission.local_path(local)
        if not self._permission.covers(path):
            what = f"copy {await asyncio.to_thread(_describe, path)} from your machine into the sandbox"
            await ask_for(what, "--transfers FOLDER", stage.ask if stage.may_ask else None)
        return path

    async def _may_write(self, stage: HostStage, path: str) -> None:
        if not self._permission.covers(path):
            is_there = await asyncio.to_thread(os.path.lexists, path)
            what = f"write {path} on your machine" + (", and replace what is there" if is_there else "")
            await ask_for(what, "--transfers FOLDER", stage.ask if stage.may_ask else None)

    async def _into(self, target: str, name: str) -> str:
        """Return where in the sandbox a copy goes: into a folder that is there, or else to this very name."""
        if target.endswith("/"):
            return posixpath.join(target, name)
        try:
            await self._sandbox.files.list_page(target, limit=1)
        except SandcellError as problem:
            if problem.code not in {ErrorCode.FILE_NOT_FOUND, ErrorCode.NOT_A_DIRECTORY}:
                raise
            return target
        return posixpath.normpath(posixpath.join(target, name))

    # --- links

    async def _open_terminal(self, stage: HostStage, order: LineOrder) -> None:
        terminal_id = await self._terminal(order.operands[0] if order.operands else None)
        command = f"sandcell shell --sandbox {self._sandbox.name} --id {terminal_id}"
        link = Link("open in the browser", self._lobby().link(Target(terminal=terminal_id)))
        rows = [("id", terminal_id), ("link", link), ("or in a terminal", command)]
        stage.show(Table.of("Terminal", (), rows))

    async def _terminal(self, terminal_id: str | None) -> str:
        """Return the id of the terminal of this id where there is one, else of a new one."""
        if terminal_id is not None:
            try:
                return (await self._sandbox.terminal(terminal_id)).id
            except SandcellError as problem:
                if problem.code not in {ErrorCode.NOT_FOUND, ErrorCode.LOST}:
                    raise
        return (await self._sandbox.create_terminal(terminal_id)).id

    async def _list_ports(self, stage: HostStage, _: LineOrder) -> None:
        rows = [
            (each.port, each.name, "yes" if each.listening else "no", self._link_to(each.url))
            for each in await self._sandbox.ports.list()
        ]
        stage.show(Table.of("Exposed ports", ("PORT", "NAME", "LISTENING", "LINK"), rows))

    async def _expose_port(self, stage: HostStage, order: LineOrder) -> None:
        port = await self._sandbox.ports.expose(
            port_in(order.operands[0]),
            order.options.get("--name"),
            rotate="--rotate" in order.options,
        )
        is_listening = any(
            each.listening for each in await self._sandbox.ports.list() if each.port == port.port
        )
        row = (port.port, port.name, "yes" if is_listening else "not yet", self._link_to(port.url))
        stage.show(Table.of("Exposed port", ("PORT", "NAME", "LISTENING", "LINK"), [row]))

    def _link_to(self, url: str | None) -> Link | None:
        return None if url is None else Link("open in the browser", self._lobby().link(Target(url=url)))

    # --- the sandbox

    async def _change_network(self, stage: HostStage, order: LineOrder) -> None:
        asked = list(order.operands)
        network = network_of(asked[0] if len(asked) == 1 and asked[0] in {"none", "open"} else asked)
        before = network_of((await self._sandbox.info()).network)
        restarts = before != network and {kind_of(before), kind_of(network)} != {"list"}
        if not self._place.is_own:
            raise not_yours(self._sandbox.name, "update")
        if restarts and not stage.is_last:
            raise error(
                ErrorCode.INVALID_ARGUMENT, "this starts the sandbox anew: it stands last in its cell"
            )
        if network != "none" and not self._permission.network_changes:
            what = f"let the sandbox reach {'the internet' if network == 'open' else ', '.join(asked)}"
            loss = ", and start it anew, without its variables and processes" if restarts else ""
            await ask_for(what + loss, "--network-changes", stage.ask if stage.may_ask else None)
        done = await self._update(change_own(self._sandbox, network=network))
        if done.restarted:
            stage.say("the sandbox was started anew: files are there, variables and processes are not")
        for each in done.warnings:
            stage.say(each)
        stage.show(Table.of("Network", (), [("network", " ".join(asked))]))

    async def _snapshot(self, stage: HostStage, order: LineOrder) -> None:
        made = await self._sandbox.snapshot(order.operands[0])
        rows = [
            ("name", made),
            ("in a program", f"Sandbox.create({made!r}, engine={self._sandbox.engine!r})"),
            ("for notebooks", f"sandcell kernel install --image {made} --engine {self._sandbox.engine}"),
            ("remove it", f"sandcell snapshots --rm {made}"),
        ]
        stage.show(Table.of("Snapshot", (), rows))


async def _local(work: Awaitable[T]) -> T:
    """Return what `work` does; what is wrong on this machine is told as our errors."""
    try:
        return await work
    except FileNotFoundError as problem:
        raise error(ErrorCode.FILE_NOT_FOUND, f"your machine has no {problem.filename}") from problem
    except PermissionError as problem:
        what = f"you may not use {problem.filename} on your machine"
        raise error(ErrorCode.PERMISSION_DENIED, what) from problem
    except OSError as problem:
        raise error(ErrorCode.INVALID_ARGUMENT, f"not on your machine: {problem}"[:300]) from problem


def _describe(path: str) -> str:
    if os.path.isdir(path):
        return f"the folder {path} and all that is in it"
    try:
        return f"{path} ({describe_bytes(os.path.getsize(path))})"
    except OSError:
        return path


def _tell(stage: HostStage, report: TransferReport, where: str) -> None:
    files = "1 file" if report.files == 1 else f"{report.files} files"
    stage.say(f"{files}, {describe_bytes(report.bytes)}: {where}")
    for each in report.skipped[:_MOST_SKIPPED]:
        stage.say(f"left out: {printable(each)}")
    if len(report.skipped) > _MOST_SKIPPED:
        stage.say(f"{len(report.skipped) - _MOST_SKIPPED} or more others were left out")

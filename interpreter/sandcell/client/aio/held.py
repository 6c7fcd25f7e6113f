"""How one comes by a sandbox, what it is, and how its life goes on and ends: what a handle has besides code and commands."""

from __future__ import annotations

import os
from contextlib import aclosing
from typing import TYPE_CHECKING, Self, Unpack

import msgspec

from sandcell.api import SandboxInfo
from sandcell.client.aio.channel import in_thread
from sandcell.client.aio.hold import AsyncHold
from sandcell.client.aio.lossy import list_lossy
from sandcell.client.aio.news import follow_status
from sandcell.client.aio.transport import AsyncTransport
from sandcell.client.changes import Change, ChangeOptions, Update
from sandcell.client.checks import check_text
from sandcell.client.container_options import engine_for, fit_engine
from sandcell.client.host import Creation, Host, the_host
from sandcell.client.options import CreateOptions, make_spec
from sandcell.client.protocol import Request, path_of
from sandcell.client.records import born_dead, info_of_record, not_yours
from sandcell.client.signature import show_options
from sandcell.client.tool_offer import toolset_of
from sandcell_container.errors import ErrorCode, Gone, NotFound, SandcellError
from sandcell_container.ids import check_id
from sandcell_container.usage import Stats

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from types import TracebackType
    from typing import Literal

    from sandcell.client.host import OpenEngine
    from sandcell.events import StatusChanged
    from sandcell.tools import Toolset
    from sandcell_container.engine import Engine, Probe, Record
    from sandcell_container.spec import SandboxSpec, Status

__all__ = ["AsyncHeld"]

_TRIES = 3  # for a name whose sandbox fails to start, or goes, between two looks


class AsyncHeld:
    """See the module. Times in seconds, sizes in bytes."""

    def __init__(self, hold: AsyncHold, transport: AsyncTransport, *, owner: bool) -> None:
        """Not for callers: use `create` or `connect`."""
        self._hold = hold
        self._transport = transport
        self._owner_pid = os.getpid() if owner else None
        self._notes: tuple[str, ...] = ()
        self._tools: Toolset | None = None

    # --- how one comes by a sandbox

    @classmethod
    @show_options()
    async def create(cls, image: str | None = None, **options: Unpack[CreateOptions]) -> Self:
        """Make a sandbox and return it when it answers.

        `name` and `reuse`: a taken name is EXISTS, or with `reuse` the sandbox that has it, started where it is
        stopped. `engine`: "auto", "docker", "podman", "local" or "process". `cpus` in cores, `memory` and `disk` as
        "512MiB" or bytes, `pids`; one that cannot be applied is in `info().warnings`, an error with `strict`. `env` for
        all user code; `secrets`: the same, and masked in all that is shown. `mounts`: folders of this machine,
        "SOURCE:TARGET", read-only unless ":rw" follows. `publish`: ports on the loopback, 8000 or "8080:80". `read_only`: user code writes to memory alone, in `/workspace`, its
        home and `/tmp`. `network`: "none", the hosts that it may reach, such as ["pypi.org", "*.example.org"], or "open", every
        public one; see docs/network.md. `dns`, `hostname`, and `runtime`, what runs a container. What an engine cannot do it refuses.
        `packages` of Python, `apt` packages of Debian and a `preset` ("node", "build", "data", "full") are put into an
        image (engine `local`: an environment, without `apt`) of their own, built once for all who ask for the same.
        `python`: the interpreter whose environment user code gets, by default this one. `default_timeout` for
        runs and commands, `idle_timeout`, `start_timeout` in seconds. `on_release`: what becomes of it when its owner
        closes it or dies: "remove", "stop" or "keep". `tools`: functions of this program that the code of this handle's runs may
        call, or `Tool`s; see docs/tools.md.

        Raises:
            InvalidRequest: INVALID_ARGUMENT, INVALID_NAME, INVALID_ENV_NAME; UNSUPPORTED: an option of a later
                version.
            Conflict (EXISTS): the name is taken.
            Unavailable: ENGINE_UNAVAILABLE, START_FAILED, START_TIMEOUT, each with its cause and what to do.
        """
        tools = toolset_of(options.get("tools"))
        host = await in_thread(the_host)
        spec = make_spec(host.config, image, options)
        asked = engine_for(spec, options.get("engine") or host.config.engine, image)
        opened = await in_thread(host.engine, asked)
        spec = fit_engine(spec, opened.engine.name, image)
        made = await cls._make_or_find(host, opened, spec, reuse=options.get("reuse", False))
        made._tools = tools
        return made

    @classmethod
    async def connect(cls, name_or_id: str) -> Self:
        """Return a sandbox that exists on this machine, started where it is stopped. Closing what this returns leaves
        the sandbox alone.

        Raises:
            NotFound (NOT_FOUND): no sandbox has this name or id.
            Unavailable (START_FAILED, START_TIMEOUT): it was stopped, and does not start.
        """
        host = await in_thread(the_host)
        found = await in_thread(host.find, check_text(name_or_id, what="name_or_id"))
        record = found.record
        if record.status != "running":
            record = await in_thread(found.engine.start, record.id)
        return await cls._attach(host, found.engine, record, "attached")

    @classmethod
    @show_options(required=("name",))
    async def get_or_create(cls, **options: Unpack[CreateOptions]) -> Self:
        """Return the sandbox `name`, made by `create` with the other options where there is none."""
        check_id(options.get("name") or "", what="name of a sandbox")
        options["reuse"] = True
        return await cls.create(**options)

    @classmethod
    async def list(cls) -> list[SandboxInfo]:
        """Return the sandboxes of this machine."""
        host = await in_thread(the_host)
        return [info_of_record(found.record) for found in await in_thread(host.records)]

    @classmethod
    async def _make_or_find(cls, host: Host, opened: OpenEngine, spec: SandboxSpec, *, reuse: bool) -> Self:
        """Make a sandbox, or with `reuse` return the one that has its name."""
        for _ in range(_TRIES - 1):
            try:
                return await cls._make(host, opened.engine, spec, opened.passed_over)
            except SandcellError as problem:
                if problem.code is not ErrorCode.EXISTS or not reuse:
                    raise
            try:
                return await cls.connect(spec.name)
            except NotFound:
                pass  # its maker has failed, or it was removed meanwhile
        return await cls._make(host, opened.engine, spec, opened.passed_over)

    @classmethod
    async def _make(
        cls, host: Host, engine: Engine, spec: SandboxSpec, passed_over: tuple[Probe, ...]
    ) -> Self:
        creation = Creation(engine.create, engine.remove)
        try:
            record = await in_thread(creation.run, spec)
        except SandcellError:
            raise
        except BaseException:
            creation.give_up()
            raise
        try:
            made = await cls._attach(host, engine, record, "owner")
        except BaseException:
            await in_thread(engine.remove, record.id)
            raise
        made._notes = tuple(f"passed over engine {each.engine}: {each.reason}" for each in passed_over)
        return made

    @classmethod
    async def _attach(
        cls, host: Host, engine: Engine, record: Record, kind: Literal["owner", "attached"]
    ) -> Self:
        transport = AsyncTransport(
            record.address,
            record.token,
            connect_timeout=host.config.connect_timeout,
            reply_timeout=host.config.reply_timeout,
        )
        hold = AsyncHold(record, engine, transport, kind)
        try:
            await hold.take()
        except SandcellError as problem:
            if problem.code is not ErrorCode.SANDBOX_GONE:
                raise
            if kind == "owner":
                words = await in_thread(engine.last_words, record.id)
                raise born_dead(problem, words) from problem
            await hold.wake()  # it ended between two looks
        return cls(hold, transport, owner=kind == "owner")

    # --- what it is

    @property
    def id(self) -> str:
        return self._hold.record.id

    @property
    def name(self) -> str:
        return self._hold.record.name

    @property
    def engine(self) -> str:
        return self._hold.record.engine

    @property
    def status(self) -> Status:
        """What was last heard: running, stopped or removed."""
        return self._hold.status

    async def info(self) -> SandboxInfo:
        """Return what is known of it: engine, limits, isolation, versions, warnings.

        The warnings also say which engines `engine="auto"` passed over, and why.
        """
        info = await self._transport.call(Request(method="GET", path=path_of("info")), SandboxInfo)
        return msgspec.structs.replace(info, warnings=(*info.warnings, *self._notes))

    async def stats(self) -> Stats:
        """Return what it uses of its limits: memory and disk in bytes, processes, CPU seconds since its start."""
        return await self._transport.call(Request(method="GET", path=path_of("stats")), Stats)

    async def events(self, cursor: str | None = None) -> AsyncGenerator[StatusChanged]:
        """Yield what becomes of it, from its start on or after `cursor`, and then as it comes: "running", and "stopping"
        with the reason, 30 s before it is culled and whenever it is stopped; "refused" with the reason, once for each host that it
        tried to reach and may not. Ends with this start of the sandbox.

        Raises:
            Gone (SANDBOX_GONE): it ended without a word, as by a death from outside.
            InvalidRequest (STALE_CURSOR): the cursor is of an earlier start.
        """
        query = {} if cursor is None else {"cursor": check_text(cursor, what="cursor")}
        request = Request(method="GET", path=path_of("events"), query=query)
        async with aclosing(follow_status(self._transport, request)) as events:
            async for event in events:
                yield event

    # --- its life

    async def stop(self) -> None:
        """End all that runs in it, and keep its files, environment and secrets. Twice is fine.

        Contexts, sessions, processes and terminals of before are LOST from then on. The next call starts it again.

        Raises:
            Refused (FORBIDDEN): this handle did not create it.
        """
        self._check_owner("stop")
        await self._end_watching()
        await self._hold.stop()

    async def start(self) -> None:
        """Start it where it is stopped, as any call does; all who do so at once share one start.

        Raises:
            Gone (SANDBOX_GONE): it was removed.
            Unavailable (START_FAILED, START_TIMEOUT): it stays stopped, with its files.
        """
        await self._hold.wake()

    async def restart(self) -> None:
        """Stop and start it. Errors: those of both."""
        self._check_owner("restart")
        await self._end_watching()
        await self._hold.restart()

    async def update(self, **options: Unpack[ChangeOptions]) -> Update:
        """Change what it may use and how it lives: `cpus`, `memory`, `disk`, `pids` (None: no limit), `idle_timeout`,
        `on_release`, `network`. What is not given stays. Files, environment and secrets stay in any case.

        What cannot be changed while it runs takes a restart: `restarted` says so, and `lost` what that has ended.

        Raises:
            InvalidRequest: INVALID_ARGUMENT; UNSUPPORTED: the engine cannot do it, and nothing was changed.
            Unavailable (ENGINE_UNAVAILABLE): its engine has no such network.
            Refused (FORBIDDEN): this handle did not create it.
        """
        self._check_owner("update")
        change = Change(options)
        found = await in_thread(self._hold.engine.find, self.id)
        is_up = found is not None and found.status == "running"
        there = await list_lossy(self._transport) if is_up else ()
        done = await in_thread(self._hold.engine.update, self.id, change)
        if done.restarted:
            await self._hold.wake()
        elif is_up:
            request = Request(method="PATCH", path=path_of("info"), body=change.body, wakes=False)
            await self._transport.call(request, SandboxInfo)
        lost = there if done.restarted else ()
        return Update(restarted=done.restarted, lost=lost, warnings=done.warnings)

    async def snapshot(self, name: str) -> str:
        """Keep a copy of its files as `name`, and return what `create(image=...)` takes for it on the same engine.

        Raises:
            Conflict (EXISTS): there is one of that name. Limited (NO_SPACE): nothing was kept.
            InvalidRequest (INVALID_NAME).
        """
        made = await in_thread(self._hold.engine.snapshot, self.id, check_text(name, what="name"))
        return made.name

    async def remove(self) -> None:
        """End it and all that is in it, now, and remove its files.

        Raises:
            Refused (FORBIDDEN): this handle did not create it.
        """
        self._check_owner("rm")
        await self._end_watching()
        await self._end_serving()
        await self._hold.remove()

    async def close(self) -> None:
        """Give it back. What its owner's `on_release` says happens: removed, stopped or left running.

        A handle that did not create it only lets go. Twice is fine, and so is one that somebody else has removed.
        """
        ends = self._is_owner() and self.status in {"running", "stopped"} and not self._hold.is_released
        on_release = self._hold.record.on_release
        await self._end_watching()
        await self._end_serving()
        try:
            if ends and on_release == "remove":
                await self._hold.remove()
            elif ends and on_release == "stop":
                await self._hold.stop()
        except (Gone, NotFound):
            pass  # there is nothing left to stop
        finally:
            self._hold.release()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} ({self.engine}, {self.status})>"

    async def _end_watching(self) -> None:
        """End what this handle follows by itself, before it lets go."""

    async def _end_serving(self) -> None:
        """End what this handle serves to others, before it lets go for good."""

    def _is_owner(self) -> bool:
        return self._owner_pid == os.getpid()

    def _check_owner(self, verb: str) -> None:
        if not self._is_owner():
            raise not_yours(self.name, verb)

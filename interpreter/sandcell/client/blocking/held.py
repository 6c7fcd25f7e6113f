# Made from ../aio/held.py by `python -m sandcell.client.generate`: change that file, not this one.
"""How one comes by a sandbox, what it is, and how its life goes on and ends: what a handle has besides code and commands."""

from __future__ import annotations

import os
from contextlib import closing
from typing import TYPE_CHECKING, Self, Unpack

import msgspec

from sandcell.api import SandboxInfo
from sandcell.client.blocking.channel import in_thread
from sandcell.client.blocking.hold import Hold
from sandcell.client.blocking.lossy import list_lossy
from sandcell.client.blocking.news import follow_status
from sandcell.client.blocking.transport import Transport
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
    from collections.abc import Generator
    from types import TracebackType
    from typing import Literal

    from sandcell.client.host import OpenEngine
    from sandcell.events import StatusChanged
    from sandcell.tools import Toolset
    from sandcell_container.engine import Engine, Probe, Record
    from sandcell_container.spec import SandboxSpec, Status

__all__ = ["Held"]

_TRIES = 3  # for a name whose sandbox fails to start, or goes, between two looks


class Held:
    """See the module. Times in seconds, sizes in bytes."""

    def __init__(self, hold: Hold, transport: Transport, *, owner: bool) -> None:
        """Not for callers: use `create` or `connect`."""
        self._hold = hold
        self._transport = transport
        self._owner_pid = os.getpid() if owner else None
        self._notes: tuple[str, ...] = ()
        self._tools: Toolset | None = None

    # --- how one comes by a sandbox

    @classmethod
    @show_options()
    def create(cls, image: str | None = None, **options: Unpack[CreateOptions]) -> Self:
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
        host = in_thread(the_host)
        spec = make_spec(host.config, image, options)
        asked = engine_for(spec, options.get("engine") or host.config.engine, image)
        opened = in_thread(host.engine, asked)
        spec = fit_engine(spec, opened.engine.name, image)
        made = cls._make_or_find(host, opened, spec, reuse=options.get("reuse", False))
        made._tools = tools
        return made

    @classmethod
    def connect(cls, name_or_id: str) -> Self:
        """Return a sandbox that exists on this machine, started where it is stopped. Closing what this returns leaves
        the sandbox alone.

        Raises:
            NotFound (NOT_FOUND): no sandbox has this name or id.
            Unavailable (START_FAILED, START_TIMEOUT): it was stopped, and does not start.
        """
        host = in_thread(the_host)
        found = in_thread(host.find, check_text(name_or_id, what="name_or_id"))
        record = found.record
        if record.status != "running":
            record = in_thread(found.engine.start, record.id)
        return cls._attach(host, found.engine, record, "attached")

    @classmethod
    @show_options(required=("name",))
    def get_or_create(cls, **options: Unpack[CreateOptions]) -> Self:
        """Return the sandbox `name`, made by `create` with the other options where there is none."""
        check_id(options.get("name") or "", what="name of a sandbox")
        options["reuse"] = True
        return cls.create(**options)

    @classmethod
    def list(cls) -> list[SandboxInfo]:
        """Return the sandboxes of this machine."""
        host = in_thread(the_host)
        return [info_of_record(found.record) for found in in_thread(host.records)]

    @classmethod
    def _make_or_find(cls, host: Host, opened: OpenEngine, spec: SandboxSpec, *, reuse: bool) -> Self:
        """Make a sandbox, or with `reuse` return the one that has its name."""
        for _ in range(_TRIES - 1):
            try:
                return cls._make(host, opened.engine, spec, opened.passed_over)
            except SandcellError as problem:
                if problem.code is not ErrorCode.EXISTS or not reuse:
                    raise
            try:
                return cls.connect(spec.name)
            except NotFound:
                pass  # its maker has failed, or it was removed meanwhile
        return cls._make(host, opened.engine, spec, opened.passed_over)

    @classmethod
    def _make(cls, host: Host, engine: Engine, spec: SandboxSpec, passed_over: tuple[Probe, ...]) -> Self:
        creation = Creation(engine.create, engine.remove)
        try:
            record = in_thread(creation.run, spec)
        except SandcellError:
            raise
        except BaseException:
            creation.give_up()
            raise
        try:
            made = cls._attach(host, engine, record, "owner")
        except BaseException:
            in_thread(engine.remove, record.id)
            raise
        made._notes = tuple(f"passed over engine {each.engine}: {each.reason}" for each in passed_over)
        return made

    @classmethod
    def _attach(cls, host: Host, engine: Engine, record: Record, kind: Literal["owner", "attached"]) -> Self:
        transport = Transport(
            record.address,
            record.token,
            connect_timeout=host.config.connect_timeout,
            reply_timeout=host.config.reply_timeout,
        )
        hold = Hold(record, engine, transport, kind)
        try:
            hold.take()
        except SandcellError as problem:
            if problem.code is not ErrorCode.SANDBOX_GONE:
                raise
            if kind == "owner":
                words = in_thread(engine.last_words, record.id)
                raise born_dead(problem, words) from problem
            hold.wake()  # it ended between two looks
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

    def info(self) -> SandboxInfo:
        """Return what is known of it: engine, limits, isolation, versions, warnings.

        The warnings also say which engines `engine="auto"` passed over, and why.
        """
        info = self._transport.call(Request(method="GET", path=path_of("info")), SandboxInfo)
        return msgspec.structs.replace(info, warnings=(*info.warnings, *self._notes))

    def stats(self) -> Stats:
        """Return what it uses of its limits: memory and disk in bytes, processes, CPU seconds since its start."""
        return self._transport.call(Request(method="GET", path=path_of("stats")), Stats)

    def events(self, cursor: str | None = None) -> Generator[StatusChanged]:
        """Yield what becomes of it, from its start on or after `cursor`, and then as it comes: "running", and "stopping"
        with the reason, 30 s before it is culled and whenever it is stopped; "refused" with the reason, once for each host that it
        tried to reach and may not. Ends with this start of the sandbox.

        Raises:
            Gone (SANDBOX_GONE): it ended without a word, as by a death from outside.
            InvalidRequest (STALE_CURSOR): the cursor is of an earlier start.
        """
        query = {} if cursor is None else {"cursor": check_text(cursor, what="cursor")}
        request = Request(method="GET", path=path_of("events"), query=query)
        with closing(follow_status(self._transport, request)) as events:
            for event in events:
                yield event

    # --- its life

    def stop(self) -> None:
        """End all that runs in it, and keep its files, environment and secrets. Twice is fine.

        Contexts, sessions, processes and terminals of before are LOST from then on. The next call starts it again.

        Raises:
            Refused (FORBIDDEN): this handle did not create it.
        """
        self._check_owner("stop")
        self._end_watching()
        self._hold.stop()

    def start(self) -> None:
        """Start it where it is stopped, as any call does; all who do so at once share one start.

        Raises:
            Gone (SANDBOX_GONE): it was removed.
            Unavailable (START_FAILED, START_TIMEOUT): it stays stopped, with its files.
        """
        self._hold.wake()

    def restart(self) -> None:
        """Stop and start it. Errors: those of both."""
        self._check_owner("restart")
        self._end_watching()
        self._hold.restart()

    def update(self, **options: Unpack[ChangeOptions]) -> Update:
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
        found = in_thread(self._hold.engine.find, self.id)
        is_up = found is not None and found.status == "running"
        there = list_lossy(self._transport) if is_up else ()
        done = in_thread(self._hold.engine.update, self.id, change)
        if done.restarted:
            self._hold.wake()
        elif is_up:
            request = Request(method="PATCH", path=path_of("info"), body=change.body, wakes=False)
            self._transport.call(request, SandboxInfo)
        lost = there if done.restarted else ()
        return Update(restarted=done.restarted, lost=lost, warnings=done.warnings)

    def snapshot(self, name: str) -> str:
        """Keep a copy of its files as `name`, and return what `create(image=...)` takes for it on the same engine.

        Raises:
            Conflict (EXISTS): there is one of that name. Limited (NO_SPACE): nothing was kept.
            InvalidRequest (INVALID_NAME).
        """
        made = in_thread(self._hold.engine.snapshot, self.id, check_text(name, what="name"))
        return made.name

    def remove(self) -> None:
        """End it and all that is in it, now, and remove its files.

        Raises:
            Refused (FORBIDDEN): this handle did not create it.
        """
        self._check_owner("rm")
        self._end_watching()
        self._end_serving()
        self._hold.remove()

    def close(self) -> None:
        """Give it back. What its owner's `on_release` says happens: removed, stopped or left running.

        A handle that did not create it only lets go. Twice is fine, and so is one that somebody else has removed.
        """
        ends = self._is_owner() and self.status in {"running", "stopped"} and not self._hold.is_released
        on_release = self._hold.record.on_release
        self._end_watching()
        self._end_serving()
        try:
            if ends and on_release == "remove":
                self._hold.remove()
            elif ends and on_release == "stop":
                self._hold.stop()
        except (Gone, NotFound):
            pass  # there is nothing left to stop
        finally:
            self._hold.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} ({self.engine}, {self.status})>"

    def _end_watching(self) -> None:
        """End what this handle follows by itself, before it lets go."""

    def _end_serving(self) -> None:
        """End what this handle serves to others, before it lets go for good."""

    def _is_owner(self) -> bool:
        return self._owner_pid == os.getpid()

    def _check_owner(self, verb: str) -> None:
        if not self._is_owner():
            raise not_yours(self.name, verb)

"""The life of one container: made, started, stopped, made anew from its files, removed. Called under its folder's lock."""

from __future__ import annotations

import logging
import time
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import docker
import docker.errors
import msgspec
import requests.exceptions

from sandcell_container.engine import Deadlines
from sandcell_container.engines.docker_address import Kind
from sandcell_container.engines.docker_boot import GUEST_USER, boot_of
from sandcell_container.engines.docker_carrier import start_carrier
from sandcell_container.engines.docker_create import create_container
from sandcell_container.engines.docker_daemon import Facts
from sandcell_container.engines.docker_end import read_end
from sandcell_container.engines.docker_folder import Folder
from sandcell_container.engines.docker_image import commit_files, drop_image, kept_name
from sandcell_container.engines.docker_options import (
    ID,
    container_name,
    container_options,
    host_options,
    refuse_warnings,
    warnings_of,
)
from sandcell_container.engines.docker_start import start_container
from sandcell_container.engines.docker_way import open_way, write_resolver
from sandcell_container.errors import ErrorCode, SandcellError, error
from sandcell_container.network import kind_of

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from docker.models.containers import Container

    from sandcell_container.engine import Record
    from sandcell_container.engines.docker_folder import Kept

__all__ = ["Life", "remove_all"]

_log = logging.getLogger(__name__)
_DEADLINES = Deadlines()
# The shell's own kill: in a container at its limit of processes nothing more can be started. It signals all that has the
# guest's identity but the shell itself.
_GOODBYE = ["/bin/sh", "-c", "kill -TERM -1"]
_OLD = "-old"
_MADE_ANEW = "its container would not start again and was made anew from its files"


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """What is done to one sandbox. `guest_settings` goes to its guest. Raises what the SDK raises, and SandcellError."""

    kind: Kind
    client: docker.DockerClient
    facts: Facts
    folder: Folder
    guest_settings: dict[str, str]

    def containers(self) -> list[Container]:
        """Return its container; two where a rebuild was cut short, first the one that counts."""
        found = self.client.containers.list(
            all=True, filters={"label": f"{ID}={self.folder.id}"}, ignore_removed=True
        )
        return sorted(found, key=lambda each: str(each.name).endswith(_OLD))

    def container(self) -> Container:
        """Return its container.

        Raises:
            Gone (SANDBOX_GONE): somebody has removed it, with all its files.
        """
        found = self.containers()
        if not found:
            raise error(
                ErrorCode.SANDBOX_GONE,
                f"the container of the sandbox {self.folder.id} was removed",
                hint="make another; sandcell prune forgets this one",
            )
        return found[0]

    def make(self, kept: Kept, image: str) -> Kept:
        """Make the container of `kept.spec` from `image`, an id; returns what is kept of it, with its warnings.

        Raises:
            InvalidRequest (UNSUPPORTED): the spec is strict and something does not hold; nothing was made.
        """
        spec = kept.spec
        if kind_of(spec.network) == "open":
            write_resolver(self.folder, spec.dns)
        options = container_options(spec, self.folder)
        created = create_container(self.client, image, options, host_options(spec, self.folder))
        unmet = (*warnings_of(spec, self.facts), *created.warnings)
        if spec.strict and unmet:
            created.container.remove(force=True)
            raise refuse_warnings(unmet, self.kind)
        runtime = spec.runtime or self.facts.default_runtime
        return msgspec.structs.replace(kept, warnings=unmet, runtime=runtime)

    def run(self, kept: Kept, deadline: float) -> Record:
        """Start its container; returns when its guest answers. `deadline` is of time.monotonic().

        Raises:
            Unavailable (START_FAILED, START_TIMEOUT): nothing of it runs, its files are as they were.
        """
        starts, now = kept.record.starts + 1, time.time()
        record = replace(kept.record, status="running", starts=starts, started_at=now, end=None)
        boot = boot_of(
            kept.spec,
            kept.record,
            runtime=kept.runtime,
            warnings=(*kept.notes, *kept.warnings),
            settings=self.guest_settings,
        )
        self.folder.write_boot(boot)
        self.folder.note_start(starts)
        container = self.container()
        try:
            with open_way(self.folder, kept.spec, deadline):
                start_container(container, self.folder, deadline)
            if self.folder.is_relayed and kept.spec.network != "none":
                start_carrier(container, self.folder, kept.spec.network)
        except BaseException:
            self._kill(container)
            raise
        self.folder.write(msgspec.structs.replace(kept, record=record, resting=False))
        return record

    def run_again(self, kept: Kept, deadline: float) -> Record:
        """Do what `run` does; a container that will not start is made anew from its files, once, and a warning says so."""
        try:
            return self.run(kept, deadline)
        except (SandcellError, docker.errors.APIError) as problem:
            if time.monotonic() > deadline:
                raise
            _log.warning("a container does not start sandbox=%s: %s", self.folder.id, problem)
        anew = msgspec.structs.replace(kept, notes=(*kept.notes, _MADE_ANEW))
        return self.rebuild(anew, deadline) or kept.record

    def rebuild(self, kept: Kept, deadline: float | None) -> Record | None:
        """Make its container anew for `kept.spec`, with its files, and run it where there is a deadline to run it by.

        A failure leaves the old container as it was, stopped.
        """
        old = self.container()
        name = container_name(kept.spec)
        with ExitStack() as undo:
            files = commit_files(old, kept_name(self.folder.id), {"sandcell.kept": self.folder.id})
            if not str(old.name).endswith(_OLD):
                old.rename(name + _OLD)
            undo.callback(self._take_back, old, name)
            made = self.make(kept, files)
            self.folder.write(made)
            record = None if deadline is None else self.run(made, deadline)
            undo.pop_all()
        old.remove(force=True)
        return record

    def bury(self, container: Container) -> None:
        """Remove all of one that has ended, and keep how it did."""
        end = read_end(container, self.kind, self.folder)
        remove_all(self.client, self.folder.id, self.containers())
        self.folder.bury(end)

    def stop(self) -> None:
        """End what runs in it: its guest politely, then all.

        Raises:
            WaitTimeout (WAIT_TIMEOUT): it does not end.
        """
        container = self.container()
        if container.status not in ("running", "paused"):
            return
        if container.status == "paused":
            container.unpause()  # what is held still hears no goodbye
        self._say_goodbye(container)
        self._kill(container)
        if not self.await_exit(container, _DEADLINES.end):
            raise error(
                ErrorCode.WAIT_TIMEOUT,
                f"the container of the sandbox {self.folder.id} does not end",
                hint=f"see the log of {self.kind}",
            )

    def _take_back(self, old: Container, name: str) -> None:
        for each in self.containers():
            if each.id != old.id:
                _remove_container(each)
        old.rename(name)

    def _say_goodbye(self, container: Container) -> None:
        """Tell the guest to end, and wait for it, in bounded time."""
        patience = _DEADLINES.say_goodbye
        with suppress(docker.errors.APIError, requests.exceptions.RequestException), self._patience(patience):
            command = self.client.api.exec_create(container.id, _GOODBYE, user=GUEST_USER)
            self.client.api.exec_start(command["Id"], detach=True)
            self.await_exit(container, patience)

    def _kill(self, container: Container) -> None:
        with suppress(docker.errors.APIError):  # it does not run any more
            container.kill()

    def await_exit(self, container: Container, timeout: float) -> bool:
        """Return whether it has ended, at once when it has, `timeout` seconds later at most."""
        try:
            container.wait(timeout=timeout)
        except docker.errors.NotFound:
            return True
        except (requests.exceptions.Timeout, requests.exceptions.ConnectionError):
            return False
        return True

    @contextmanager
    def _patience(self, seconds: float) -> Generator[None]:
        api: Any = self.client.api  # it takes fractions too
        usual, api.timeout = api.timeout, seconds
        try:
            yield
        finally:
            api.timeout = usual


def remove_all(client: docker.DockerClient, sandbox_id: str, containers: Sequence[Container]) -> None:
    """End and remove the containers of a sandbox, and its files."""
    for each in containers:
        _remove_container(each)
    drop_image(client, kept_name(sandbox_id))


def _remove_container(container: Container) -> None:
    """End and remove a container; returns when it is gone."""
    try:
        container.remove(force=True)
    except docker.errors.NotFound:
        pass  # somebody else was faster
    except docker.errors.APIError as problem:
        if problem.status_code != 409:  # 409: it is just being removed
            raise
        with suppress(docker.errors.NotFound):
            container.wait(condition="removed")

"""The engine `process`: no isolation at all, for development. Chosen by its name alone."""

from __future__ import annotations

import logging
import os
import pwd
import warnings
from typing import TYPE_CHECKING

from sandcell_container.engine import Probe
from sandcell_container.engines.boot import Place, new_boot, spawner_command, spawner_path
from sandcell_container.engines.environment import (
    base_environment,
    make_venv,
)
from sandcell_container.engines.hosted import HostedEngine
from sandcell_container.engines.launch import Launch, Program
from sandcell_container.engines.limits import apply_limits
from sandcell_container.engines.partial import unsupported
from sandcell_container.engines.sandbox_host import Blueprint

if TYPE_CHECKING:
    from sandcell_container.engines.settings import EngineSettings
    from sandcell_container.os_process import OsProcess
    from sandcell_container.registry import Entry
    from sandcell_container.spec import Network

__all__ = ["ProcessEngine"]

_log = logging.getLogger(__name__)
_WARNING = "engine process: user code runs without any isolation, with all rights of the calling user"
_ISOLATION = {"pid": False, "net": False, "mount": False, "user": False, "ipc": False, "uts": False}


class ProcessEngine(HostedEngine):
    """Makes "sandboxes" that are plain processes of the calling user. Implements `Engine`."""

    def __init__(self, settings: EngineSettings) -> None:
        warnings.warn(_WARNING, UserWarning, stacklevel=2)
        _log.warning(_WARNING)
        super().__init__(settings)

    @property
    def name(self) -> str:
        return "process"

    def probe(self) -> Probe:
        """Tell that it works, which it does wherever this program does. Source: `Engine.probe`."""
        return Probe(engine=self.name, usable=True, reason="no isolation: for development, by name only")

    def _check_network(self, network: Network) -> None:
        if not isinstance(network, str):
            raise unsupported(self.name, "keep user code from any host", hint='choose engine="local"')

    def _draw(self, entry: Entry) -> Blueprint:
        spec = entry.spec
        limits = apply_limits(spec.limits, strict=spec.strict, group=entry.group)
        environment, has_files = self._furnish(entry)
        folders = {name: str(entry.folder / name) for name in ("home", "workspace", "tmp")}
        venv = f"{folders['home']}/.venv"
        for folder in folders.values():
            os.makedirs(folder, exist_ok=True)
        if not has_files:
            make_venv(entry.folder / "home" / ".venv", environment, inside=venv)
        guest, user = self._settings.guest, _user_name()
        boot = new_boot(
            spec,
            entry.record,
            Place(
                python=f"{venv}/bin/python",
                runtime_dir=guest.runtime_dir,
                workdir=folders["workspace"],
                home=folders["home"],
                user=user,
                hostname=os.uname().nodename,
            ),
            base_env=base_environment(
                venv=venv, environment=environment, home=folders["home"], user=user, temp=folders["tmp"]
            ),
            isolation={**_ISOLATION, "cgroup": False, "uid": os.geteuid(), "runtime": "none"},
            warnings=(_WARNING, *limits.warnings),
            settings=self._settings.guest_settings,
        )
        command = spawner_command(self._calling.executable, str(spawner_path()), "keepers", limits.spawner)
        launch = Launch(
            boot=boot,
            module=guest.module,
            function=guest.function,
            program=Program(argv=command, groups=limits.group.paths if limits.group else ()),
            timeout=spec.start_timeout,
            enter=False,
            group=limits.group,
        )
        return Blueprint(launch=launch, status=False, python=environment.facts())

    def _init_of(self, entry: Entry) -> OsProcess | None:
        return None

    def _workdir_of(self, entry: Entry) -> str:
        return str(entry.folder / "workspace")


def _user_name() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:  # a uid without an account, as in many containers
        return str(os.geteuid())

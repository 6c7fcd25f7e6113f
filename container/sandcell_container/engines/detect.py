"""Which engine: by name, or the best one that works here, with the reasons against the others."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from sandcell_container.engine import Probe
from sandcell_container.engines.bwrap import find_bwrap
from sandcell_container.engines.local import LocalEngine
from sandcell_container.engines.process import ProcessEngine
from sandcell_container.engines.settings import EngineSettings
from sandcell_container.errors import ErrorCode, SandcellError, error

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sandcell_container.engine import Engine
    from sandcell_container.engines.docker import DockerEngine
    from sandcell_container.engines.docker_address import Kind

__all__ = ["ENGINES", "EngineSettings", "open_builder", "open_engine", "probe_engines"]

ENGINES = ("docker", "podman", "local", "process")
_WITH_CONTAINERS: tuple[Kind, ...] = ("docker", "podman")


def open_engine(name: str, settings: EngineSettings) -> tuple[Engine, list[Probe]]:
    """Return the engine `name` and the probes of those that "auto" passed over, in the order tried.

    "auto" takes docker or podman where it answers and has the runtime image, else local, never process. An engine
    chosen by name is not tried here: its `create` says what is wrong.

    Raises:
        InvalidRequest (INVALID_ARGUMENT): there is no engine of that name.
        Unavailable (ENGINE_UNAVAILABLE): none can work here; `details["probes"]` says why, each.
    """
    match name:
        case "auto":
            return _open_best(settings)
        case "local":
            return LocalEngine(settings), []
        case "process":
            return ProcessEngine(settings), []
        case "docker" | "podman":
            return _in_containers(name, settings), []
        case _:
            raise error(
                ErrorCode.INVALID_ARGUMENT,
                f"there is no engine {name[:40]!r}",
                hint=f"one of auto, {', '.join(ENGINES)}",
            )


def open_builder(name: str, settings: EngineSettings) -> DockerEngine:
    """Return the engine that builds images: the one of that name, or for "auto" the first whose daemon answers.

    Raises:
        Unavailable (ENGINE_UNAVAILABLE): none does, or the package docker is missing.
    """
    engines = [_in_containers(kind, settings) for kind in _WITH_CONTAINERS if name in ("auto", kind)]
    for engine in engines[:-1]:
        if engine.answers():
            return engine
    return engines[-1]


def probe_engines(settings: EngineSettings) -> list[Probe]:
    """Try every engine that "auto" considers and return what was found, in its order."""
    return [*(_probe_containers(kind, settings) for kind in _WITH_CONTAINERS), LocalEngine(settings).probe()]


def _open_best(settings: EngineSettings) -> tuple[Engine, list[Probe]]:
    passed_over = list[Probe]()
    for kind in _WITH_CONTAINERS:
        probe = _probe_containers(kind, settings)
        if probe.usable:
            return _in_containers(kind, settings), passed_over
        passed_over.append(probe)
    try:
        # No trial: it takes as long as a sandbox does, and a first one that fails says the same.
        find_bwrap()
    except SandcellError as missing:
        passed_over.append(
            Probe(engine="local", usable=False, reason=missing.message, remedies=(missing.hint,))
        )
        raise _unavailable(passed_over) from missing
    return LocalEngine(settings), passed_over


def _in_containers(kind: Kind, settings: EngineSettings) -> DockerEngine:
    """Return the engine docker or podman; its SDK is an extra, and half a second of imports for who does not use it.

    Raises:
        Unavailable (ENGINE_UNAVAILABLE): the SDK is not installed.
    """
    try:
        from sandcell_container.engines.docker import DockerEngine
    except ImportError as missing:
        raise _unavailable([_no_package(kind)]) from missing
    return DockerEngine(settings, kind)


def _probe_containers(kind: Kind, settings: EngineSettings) -> Probe:
    try:
        engine = _in_containers(kind, settings)
    except SandcellError:
        return _no_package(kind)
    return engine.probe()


def _no_package(kind: Kind) -> Probe:
    return Probe(
        engine=kind,
        usable=False,
        reason="the Python package docker is not installed",
        remedies=("pip install 'sandcell[docker]'",),
    )


def _unavailable(probes: Sequence[Probe]) -> SandcellError:
    reasons = "; ".join(f"{probe.engine}: {probe.reason}" for probe in probes)
    remedies = dict.fromkeys(remedy for probe in probes for remedy in probe.remedies)
    return error(
        ErrorCode.ENGINE_UNAVAILABLE,
        f"no engine can make a sandbox here ({reasons})",
        hint="; ".join(remedies),
        details={"probes": [asdict(probe) for probe in probes]},
    )

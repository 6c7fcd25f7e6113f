from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from sandcell_container.conformance import command
from sandcell_container.engine import Probe
from sandcell_container.engines import detect
from sandcell_container.engines.detect import EngineSettings, open_engine, probe_engines
from sandcell_container.errors import ErrorCode, SandcellError, error

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def settings(tmp_path: Path) -> EngineSettings:
    guest = command("/usr")
    return EngineSettings(state=tmp_path, first_uid=61200, uid_count=10, guest=guest, guest_settings={})


@pytest.fixture
def no_docker(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(kind: str, _settings: EngineSettings) -> Probe:
        return Probe(engine=kind, usable=False, reason="it does not answer", remedies=(f"start {kind}",))

    monkeypatch.setattr(detect, "_probe_containers", refuse)


def no_bwrap() -> None:
    raise error(ErrorCode.ENGINE_UNAVAILABLE, "bubblewrap is missing", hint="install bubblewrap")


@pytest.mark.usefixtures("no_docker")
def test_auto_falls_to_local_and_says_why_not_the_others(settings: EngineSettings) -> None:
    engine, passed_over = open_engine("auto", settings)
    assert engine.name == "local"
    assert [(probe.engine, probe.usable) for probe in passed_over] == [("docker", False), ("podman", False)]
    assert all(probe.reason for probe in passed_over)


@pytest.mark.usefixtures("no_docker")
def test_auto_is_never_process(settings: EngineSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detect, "find_bwrap", no_bwrap)
    with pytest.raises(SandcellError) as caught:
        open_engine("auto", settings)
    assert caught.value.code is ErrorCode.ENGINE_UNAVAILABLE
    assert [probe["engine"] for probe in caught.value.details["probes"]] == ["docker", "podman", "local"]
    for remedy in ("start docker", "start podman", "install bubblewrap"):
        assert remedy in caught.value.hint


def test_engines_are_opened_by_name(settings: EngineSettings) -> None:
    assert open_engine("local", settings)[0].name == "local"
    with pytest.warns(UserWarning, match="isolation"):
        assert open_engine("process", settings)[0].name == "process"


def test_what_is_no_engine_is_refused(settings: EngineSettings) -> None:
    with pytest.raises(SandcellError) as caught:
        open_engine("qemu", settings)
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT
    assert caught.value.hint


def test_auto_takes_podman_where_docker_does_not_answer(
    settings: EngineSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(kind: str, _settings: EngineSettings) -> Probe:
        return Probe(engine=kind, usable=kind == "podman", reason="" if kind == "podman" else "it is off")

    monkeypatch.setattr(detect, "_probe_containers", answer)
    engine, passed_over = open_engine("auto", settings)
    assert engine.name == "podman"
    assert [(probe.engine, probe.reason) for probe in passed_over] == [("docker", "it is off")]


def test_docker_without_its_package_is_named(
    settings: EngineSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "sandcell_container.engines.docker", None)
    with pytest.raises(SandcellError, match="package docker"):
        open_engine("docker", settings)
    assert not probe_engines(settings)[0].usable


@pytest.mark.usefixtures("no_docker")
def test_probing_tries_what_auto_considers(settings: EngineSettings) -> None:
    docker, podman, local = probe_engines(settings)
    assert not docker.usable
    assert not podman.usable
    assert local.usable, local

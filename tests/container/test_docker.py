"""The engines docker and podman without a daemon: what they ask for, and what they say when nobody answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import docker.errors
import pytest
import requests

from sandcell_container.engines.docker import DockerEngine
from sandcell_container.engines.docker_daemon import failure_of
from sandcell_container.engines.docker_image import check_reference
from sandcell_container.engines.settings import EngineSettings
from sandcell_container.errors import ErrorCode, SandcellError
from sandcell_container.spec import GuestCommand, Limits, SandboxSpec

if TYPE_CHECKING:
    from pathlib import Path

    from sandcell_container.engines.docker_address import Kind

VARIABLES: dict[Kind, str] = {"docker": "DOCKER_HOST", "podman": "CONTAINER_HOST"}
GUEST = GuestCommand(module="sandcell.guest.main", function="serve", runtime_dir="/unused")


def _engine(state: Path, host: str | None = None, *, kind: Kind = "docker") -> DockerEngine:
    settings = EngineSettings(state=state, first_uid=61200, uid_count=10, guest=GUEST, guest_settings={})
    return DockerEngine(settings, kind, environ={VARIABLES[kind]: host or f"unix://{state}/nobody.sock"})


def _spec(*, limits: Limits | None = None, strict: bool = False) -> SandboxSpec:
    return SandboxSpec(id="sbx_1", name="one", limits=limits or Limits(), strict=strict)


def _api_error(status: int, text: str) -> docker.errors.APIError:
    response = requests.Response()
    response.status_code = status
    return docker.errors.APIError(text, response=response, explanation=text)


def test_the_probe_says_that_no_daemon_answers(tmp_path: Path) -> None:
    probe = _engine(tmp_path).probe()
    assert not probe.usable
    assert probe.reason == f"no Docker daemon answers: {tmp_path}/nobody.sock: No such file or directory"
    assert any("start Docker" in remedy for remedy in probe.remedies)


def test_podman_is_looked_for_by_its_own_name(tmp_path: Path) -> None:
    probe = _engine(tmp_path, kind="podman").probe()
    assert not probe.usable
    assert probe.reason == f"no Podman daemon answers: {tmp_path}/nobody.sock: No such file or directory"
    assert any("podman system service" in remedy for remedy in probe.remedies)


def test_a_daemon_on_another_machine_is_of_no_use(tmp_path: Path) -> None:
    probe = _engine(tmp_path, "tcp://192.0.2.1:2375").probe()
    assert not probe.usable
    assert "is not on this machine" in probe.reason


def test_without_a_daemon_nothing_is_made_and_nothing_left(tmp_path: Path) -> None:
    with pytest.raises(SandcellError) as refused:
        _engine(tmp_path).create(_spec())
    assert refused.value.code == ErrorCode.ENGINE_UNAVAILABLE
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("problem", "code"),
    [
        (docker.errors.ImageNotFound("no such image"), ErrorCode.IMAGE_NOT_FOUND),
        (_api_error(409, 'The container name "/sandcell-x" is already in use'), ErrorCode.EXISTS),
        (_api_error(500, 'the container name "sandcell-x" is already in use'), ErrorCode.EXISTS),
        (
            _api_error(409, "preparing container 1a for attach: runc: permission denied"),
            ErrorCode.START_FAILED,
        ),
        (_api_error(500, "OCI runtime create failed"), ErrorCode.START_FAILED),
        (requests.exceptions.ReadTimeout("slow"), ErrorCode.START_TIMEOUT),
        (docker.errors.DockerException("no daemon"), ErrorCode.ENGINE_UNAVAILABLE),
        (
            docker.errors.DockerException("invalid tag 'te bad': invalid reference format"),
            ErrorCode.INVALID_ARGUMENT,
        ),
        (
            _api_error(400, "invalid reference format: repository name must be lowercase"),
            ErrorCode.INVALID_ARGUMENT,
        ),
    ],
)
def test_every_failure_of_the_sdk_has_its_code_and_a_hint(problem: Exception, code: ErrorCode) -> None:
    found = failure_of(problem, "docker")
    assert found.code == code
    assert found.hint


def test_what_the_daemon_said_is_passed_on() -> None:
    assert (
        "OCI runtime create failed"
        in failure_of(_api_error(500, "OCI runtime create failed"), "podman").message
    )


@pytest.mark.parametrize(
    "name", ["", "../containers/x", "a/../b", "-x", "a b", "a?b", "a//b", ".", "a\n", "ä"]
)
def test_what_would_be_another_route_is_no_image(name: str) -> None:
    with pytest.raises(SandcellError) as refused:
        check_reference(name)
    assert refused.value.code is ErrorCode.INVALID_ARGUMENT


@pytest.mark.parametrize(
    "name",
    ["debian", "python:3.12-slim", "ghcr.io/a/b_c:1", "localhost:5000/x@sha256:0a1b", "sha256:0a1b", "A1b2"],
)
def test_what_an_image_is_called(name: str) -> None:
    check_reference(name)

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

import pytest

from sandcell_container.engines.docker_address import Surroundings, addresses_of, all_addresses, faults_of
from sandcell_container.errors import ErrorCode, SandcellError

if TYPE_CHECKING:
    from pathlib import Path

CONTEXT = "unix:///srv/docker.sock"


def _around(home: Path, **environ: str) -> Surroundings:
    return Surroundings(environ=environ, home=home, uid=1234)


def _make_context(home: Path, name: str, host: str) -> None:
    folder = home / ".docker" / "contexts" / "meta" / hashlib.sha256(name.encode()).hexdigest()
    folder.mkdir(parents=True)
    (folder / "meta.json").write_text(json.dumps({"Name": name, "Endpoints": {"docker": {"Host": host}}}))


def test_the_usual_and_the_rootless_sockets(tmp_path: Path) -> None:
    assert addresses_of("docker", _around(tmp_path)) == (
        "unix:///var/run/docker.sock",
        "unix:///run/user/1234/docker.sock",
        f"unix://{tmp_path}/.docker/desktop/docker.sock",
    )
    assert addresses_of("podman", _around(tmp_path, XDG_RUNTIME_DIR="/run/own")) == (
        "unix:///run/own/podman/podman.sock",
        "unix:///run/podman/podman.sock",
        "unix:///var/run/docker.sock",
    )


def test_what_is_chosen_is_the_only_one(tmp_path: Path) -> None:
    assert addresses_of("docker", _around(tmp_path, DOCKER_HOST="unix:///x.sock")) == ("unix:///x.sock",)
    assert addresses_of("podman", _around(tmp_path, CONTAINER_HOST="unix:///y.sock")) == ("unix:///y.sock",)


def test_podman_is_found_where_docker_is_told_to_be(tmp_path: Path) -> None:
    found = addresses_of("podman", _around(tmp_path, DOCKER_HOST="unix:///run/podman/podman.sock"))
    assert found[0] == "unix:///run/podman/podman.sock"
    assert len(found) == len(set(found)) == 3


@pytest.mark.parametrize("environ", [{"DOCKER_CONTEXT": "lab"}, {}])
def test_the_current_context_counts(tmp_path: Path, environ: dict[str, str]) -> None:
    _make_context(tmp_path, "lab", CONTEXT)
    (tmp_path / ".docker" / "config.json").write_text('{"currentContext": "lab"}')
    assert addresses_of("docker", _around(tmp_path, **environ)) == (CONTEXT,)
    assert addresses_of("podman", _around(tmp_path, **environ))[0] == CONTEXT


def test_a_variable_counts_more_than_a_context(tmp_path: Path) -> None:
    _make_context(tmp_path, "lab", CONTEXT)
    around = _around(tmp_path, DOCKER_CONTEXT="lab", DOCKER_HOST="unix:///x.sock")
    assert addresses_of("docker", around) == ("unix:///x.sock",)


@pytest.mark.parametrize("text", ["{", "[]", '{"currentContext": 5}'])
def test_settings_that_cannot_be_read_choose_nothing_and_are_told(tmp_path: Path, text: str) -> None:
    _write_settings(tmp_path, text)
    assert addresses_of("docker", _around(tmp_path))[0] == "unix:///var/run/docker.sock"
    assert str(tmp_path / ".docker" / "config.json") in faults_of(_around(tmp_path))[0]
    assert not faults_of(_around(tmp_path, DOCKER_HOST="unix:///x.sock"))


@pytest.mark.parametrize("text", ["", '{"currentContext": "default"}', '{"currentContext": null}', "{}"])
def test_settings_without_a_context_choose_nothing(tmp_path: Path, text: str) -> None:
    _write_settings(tmp_path, text)
    assert addresses_of("docker", _around(tmp_path))[0] == "unix:///var/run/docker.sock"
    assert not faults_of(_around(tmp_path))


@pytest.mark.parametrize("chosen_by", ["variable", "settings", "broken"])
def test_a_chosen_context_that_is_not_there_is_told(tmp_path: Path, chosen_by: str) -> None:
    _write_settings(tmp_path, '{"currentContext": "gone"}' if chosen_by == "settings" else "{")
    if chosen_by == "broken":
        _make_context(tmp_path, "gone", "")
    around = _around(tmp_path, **({} if chosen_by == "settings" else {"DOCKER_CONTEXT": "gone"}))
    with pytest.raises(SandcellError, match="gone") as raised:
        addresses_of("docker", around)
    assert raised.value.code is ErrorCode.ENGINE_UNAVAILABLE
    assert addresses_of("podman", around)[0] == "unix:///run/user/1234/podman/podman.sock"
    assert "unix:///var/run/docker.sock" in all_addresses(around) and "" not in all_addresses(around)


def _write_settings(home: Path, text: str) -> None:
    (home / ".docker").mkdir()
    (home / ".docker" / "config.json").write_text(text)

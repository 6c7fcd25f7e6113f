from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from sandcell_container.engines.podman_doctor import (
    Machine,
    configuration_of,
    examine_podman,
    look_at_machine,
    service_line,
)

WELL = Machine(
    programs=frozenset({"podman", "conmon", "catatonit", "crun", "runc", "newuidmap", "newgidmap"}),
    is_root=False,
    is_hybrid=False,
    may_raise_limits=False,
    open_files=1048576,
    processes=1048576,
)


def without(*names: str) -> Machine:
    return replace(WELL, programs=WELL.programs - set(names))


@pytest.mark.parametrize(
    "machine", [WELL, without("podman", "conmon"), replace(WELL, open_files=99, may_raise_limits=True)]
)
def test_where_all_is_well_nothing_is_said(machine: Machine) -> None:
    assert examine_podman(machine) == []
    assert configuration_of([]) == ""


@pytest.mark.parametrize(
    ("machine", "word", "remedy"),
    [
        (without("conmon"), "conmon", "install conmon"),
        (without("crun", "runc"), "no runtime", "install crun or runc"),
        (without("catatonit"), "catatonit", "install catatonit"),
        (without("newuidmap"), "newuidmap", "install uidmap"),
        (replace(without("runc"), is_hybrid=True), "both versions of control groups", "install runc"),
    ],
)
def test_what_is_missing_is_named_with_what_to_do(machine: Machine, word: str, remedy: str) -> None:
    (found,) = examine_podman(machine)
    assert word in found.what
    assert found.remedy == remedy
    assert configuration_of([found]) == ""


def test_root_needs_no_maps_of_uids() -> None:
    assert examine_podman(replace(without("newuidmap"), is_root=True)) == []


def test_a_private_configuration_helps_with_the_rest() -> None:
    troubles = examine_podman(replace(WELL, is_hybrid=True, open_files=20000, processes=32768))
    found = tomllib.loads(configuration_of(troubles))
    assert found["engine"] == {"runtime": "runc"}
    assert found["containers"]["default_ulimits"] == ["nofile=20000:20000", "nproc=32768:32768"]
    assert all("--fix" in each.remedy for each in troubles)


def test_the_service_is_started_where_it_is_looked_for() -> None:
    path = Path("/state/podman-containers.conf")
    assert service_line(path, is_root=True, runtime_dir="").endswith("unix:///run/podman/podman.sock")
    assert "unix:///run/user/5/podman/podman.sock" in service_line(
        path, is_root=False, runtime_dir="/run/user/5"
    )
    assert "CONTAINERS_CONF=/state/podman-containers.conf " in service_line(
        path, is_root=True, runtime_dir=""
    )


def test_this_machine_can_be_looked_at() -> None:
    machine = look_at_machine()
    assert machine.open_files > 0
    assert machine.processes > 0
    examine_podman(machine)

"""What a container is asked to be, from the spec alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sandcell_container.engines.docker_daemon import Facts
from sandcell_container.engines.docker_folder import Folder
from sandcell_container.engines.docker_options import (
    PIDS,
    check_openings,
    check_spec,
    container_options,
    host_options,
    warnings_of,
)
from sandcell_container.engines.docker_update import Change, change_of
from sandcell_container.errors import ErrorCode, SandcellError
from sandcell_container.openings import Mount, PublishedPort
from sandcell_container.spec import Limits, SandboxSpec

SPEC = SandboxSpec(id="sbx_1", name="one")
FOLDER = Folder(Path("/state/docker/sbx_1"))
ALL = Facts(
    memory_limit=True,
    swap_limit=True,
    cpu_limit=True,
    pids_limit=True,
    default_runtime="runc",
    runtimes={"runc": {}, "runsc": {}},
)


def host(**fields: Any) -> dict[str, Any]:
    return host_options(replace(SPEC, **fields), FOLDER)


def test_a_container_is_hardened_unless_nothing_is_said() -> None:
    found = host()
    assert found["cap_drop"] == ["ALL"]
    assert found["cap_add"] == ["SETGID", "SETUID"]
    assert found["security_opt"] == ["no-new-privileges"]
    assert (found["network_mode"], found["ipc_mode"]) == ("none", "private")
    assert found["log_config"]["Type"] == "none"
    assert found["pids_limit"] == PIDS
    assert [each["Target"] for each in found["mounts"]] == ["/run/sandcell/host"]


def test_swap_counts_as_memory() -> None:
    found = host(limits=Limits(memory=2**29, cpus=0.5, pids=100))
    assert (found["mem_limit"], found["memswap_limit"], found["pids_limit"]) == (2**29, 2**29, 100)
    assert found["cpu_quota"] / found["cpu_period"] == 0.5


def test_what_is_mounted_is_so_as_said() -> None:
    found = host(mounts=(Mount("/a", "/in"), Mount("/b", "/out", read_only=False)))
    assert [(each["Source"], each["ReadOnly"]) for each in found["mounts"][1:]] == [
        ("/a", True),
        ("/b", False),
    ]


@pytest.mark.parametrize("network", ["none", ("a.org",), "open", ("open", "10.0.0.1")])
def test_a_container_is_in_no_network_of_its_engine(network: Any) -> None:
    found = host(network=network)
    assert found["network_mode"] == "none"
    assert ("/etc/resolv.conf" in [each["Target"] for each in found["mounts"]]) is ("open" in network)


@pytest.mark.parametrize(
    ("limits", "bound"),
    [(Limits(), 2**30), (Limits(disk=2**26), 2**26), (Limits(memory=2**28, disk=2**30), 2**27)],
)
def test_what_may_be_written_beside_a_read_only_root_is_bounded(limits: Limits, bound: int) -> None:
    found = host(read_only=True, limits=limits)
    assert found["read_only"] is True
    assert "storage_opt" not in found
    sizes = {place: int(text.split(",")[0].removeprefix("size=")) for place, text in found["tmpfs"].items()}
    assert sum(size for place, size in sizes.items() if place != "/var/lib/sandcell") <= bound
    assert all("nr_inodes=" in text for text in found["tmpfs"].values())


def test_what_is_mounted_is_no_place_in_memory() -> None:
    mounts = (Mount("/a", "/workspace"),)
    assert "/workspace" not in host(read_only=True, mounts=mounts)["tmpfs"]
    command = container_options(replace(SPEC, read_only=True, mounts=mounts), FOLDER)["command"]
    assert command == ["own=user:/home/user", "own=guest:/var/lib/sandcell"]


def test_limits_without_control_groups_are_told() -> None:
    spec = replace(SPEC, limits=Limits(memory=2**29, cpus=1, pids=100))
    assert warnings_of(spec, ALL) == ()
    assert len(warnings_of(spec, Facts())) == 3
    assert warnings_of(spec, msgspec.structs.replace(ALL, swap_limit=False)) == (
        "swap is not limited with the memory",
    )
    assert warnings_of(SPEC, Facts()) == ()


@pytest.mark.parametrize(("runtime", "engine"), [("kata", "docker"), ("runsc", "podman")])
def test_what_a_daemon_would_ignore_is_refused(runtime: str, engine: str) -> None:
    with pytest.raises(SandcellError) as refused:
        check_spec(replace(SPEC, runtime=runtime), ALL, engine)
    assert refused.value.code is ErrorCode.UNSUPPORTED
    assert refused.value.details["field"] == "runtime"


@pytest.mark.parametrize(
    "fields",
    [
        {"publish": (PublishedPort(80, 80),)},
        {"publish": (PublishedPort(80, 80),), "network": ("a.org",)},
        {"publish": (PublishedPort(80, 80, "::1"),), "network": "open"},
        {"dns": ("192.0.2.1",)},
        {"dns": ("192.0.2.1",), "network": ("a.org",)},
        {"dns": ("2001:db8::1",), "network": "open"},
    ],
)
def test_what_would_mean_nothing_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(SandcellError) as refused:
        check_openings(replace(SPEC, **fields))
    assert refused.value.code is ErrorCode.INVALID_ARGUMENT
    assert refused.value.details["field"] in fields
    assert refused.value.hint


@pytest.mark.parametrize(
    "fields",
    [
        {"network": "open", "dns": ("192.0.2.1",), "publish": (PublishedPort(80, 80),)},
        {"network": ("a.org",)},
        {"runtime": "runsc"},
        {"runtime": "runc"},
    ],
)
def test_what_can_be_had_is_not_refused(fields: dict[str, Any]) -> None:
    check_spec(replace(SPEC, **fields), ALL, "docker")
    check_openings(replace(SPEC, **fields))


@pytest.mark.parametrize(
    ("old", "new", "change"),
    [
        ({}, {}, Change.NOTHING),
        ({}, {"start_timeout": 5.0}, Change.NOTHING),
        ({"limits": Limits(memory=1)}, {"limits": Limits(memory=2)}, Change.LIMITS),
        ({"limits": Limits(cpus=1)}, {"limits": Limits(cpus=2)}, Change.LIMITS),
        ({"limits": Limits(memory=1)}, {"limits": Limits()}, Change.ANEW),
        ({}, {"limits": Limits(memory=1)}, Change.ANEW),
        ({}, {"limits": Limits(pids=100)}, Change.ANEW),
        ({"limits": Limits(memory=1), "read_only": True}, {"limits": Limits(memory=2), "read_only": True}, Change.ANEW),
        ({}, {"env": {"A": "b"}}, Change.START),
        ({}, {"idle_timeout": 5.0, "env": {"A": "b"}}, Change.START),
        ({}, {"env": {"A": "b"}, "hostname": "x"}, Change.ANEW),
        ({}, {"mounts": (Mount("/a", "/in"),)}, Change.ANEW),
        ({"network": ("a.org",)}, {"network": ("b.org",)}, Change.HOSTS),
        ({"network": ("a.org",)}, {"network": ("b.org",), "env": {"A": "b"}}, Change.START),
        ({"network": ("a.org",)}, {"network": ("b.org",), "hostname": "x"}, Change.ANEW),
        ({"network": ("a.org",)}, {"network": "none"}, Change.START),
        ({"network": ("a.org",)}, {"network": "open"}, Change.ANEW),
        ({"network": ("open", "10.0.0.1")}, {"network": "none"}, Change.ANEW),
    ],
)  # fmt: skip
def test_a_change_costs_no_more_than_it_has_to(
    old: dict[str, Any], new: dict[str, Any], change: Change
) -> None:
    assert change_of(replace(SPEC, **old), replace(SPEC, **new), engine="docker") is change


@pytest.mark.parametrize("fields", [{"name": "two"}, {"image": "other"}, {"packages": ("pandas",)}])
def test_what_files_stand_on_does_not_change(fields: dict[str, Any]) -> None:
    with pytest.raises(SandcellError) as refused:
        change_of(SPEC, replace(SPEC, **fields), engine="docker")
    assert refused.value.code is ErrorCode.UNSUPPORTED


def test_docker_desktop_is_told_by_its_name() -> None:
    assert not msgspec.convert({"OperatingSystem": "Docker Desktop"}, Facts).shares_kernel
    assert msgspec.convert({"OperatingSystem": "Debian GNU/Linux 12 (bookworm)"}, Facts).shares_kernel

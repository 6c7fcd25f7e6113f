"""Where control groups may be made is judged by text and folders; what they hold, by real ones where there are any."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sandcell_container.cgroup import ControlGroup, Usage, end_group, read_usage
from sandcell_container.cgroup_mounts import find_own_group
from sandcell_container.engines.cgroups import (
    Parents,
    find_parents,
    limit_group,
    make_group,
    plan_group,
    read_file,
)
from sandcell_container.engines.limits import shortfalls
from sandcell_container.spec import Limits

if TYPE_CHECKING:
    from collections.abc import Iterator


def mountinfo(place: Path, kind: str, options: str, *, root: str = "/") -> str:
    return f"31 23 0:28 {root} {place} rw,relatime shared:5 - {kind} source {options}\n"


def folder(path: Path, **files: str) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (path / name.replace("__", ".")).write_text(text)
    return path


# --- version 1


def test_of_version_1_each_controller_has_a_place_of_its_own(tmp_path: Path) -> None:
    for name in ("memory", "pids", "cpu"):
        folder(tmp_path / name / "own")
    mounts = "".join(mountinfo(tmp_path / name, "cgroup", f"rw,{name}") for name in ("memory", "pids", "cpu"))
    groups = "3:memory:/own\n2:pids:/own\n1:cpu:/own\n0::/\n"
    assert find_parents(mounts, groups) == Parents(
        1, {name: str(tmp_path / name / "own") for name in ("memory", "pids", "cpu")}
    )
    assert find_parents(mounts, groups.replace("2:pids:/own\n", "")) is None


def test_a_container_that_sees_its_own_group_as_the_top(tmp_path: Path) -> None:
    for name in ("memory", "pids"):
        folder(tmp_path / name)
    mounts = "".join(
        mountinfo(tmp_path / name, "cgroup", f"rw,{name}", root="/docker/abc") for name in ("memory", "pids")
    )
    found = find_parents(mounts, "2:memory:/docker/abc\n1:pids:/docker/abc\n")
    assert found is not None and found.folders["memory"] == str(tmp_path / "memory")
    assert find_parents(mounts, "2:memory:/../other\n1:pids:/../other\n") is None


# --- version 2


def test_of_version_2_it_is_the_nearest_that_hands_on_what_is_needed(tmp_path: Path) -> None:
    folder(tmp_path, cgroup__subtree_control="cpu memory pids\n")
    slice_ = folder(
        tmp_path / "app", cgroup__subtree_control="memory pids\n", cgroup__controllers="cpu memory pids"
    )
    folder(slice_ / "own", cgroup__subtree_control="\n", cgroup__controllers="cpu")
    found = find_parents(mountinfo(tmp_path, "cgroup2", "rw"), "0::/app/own\n")
    assert found == Parents(2, {"memory": str(slice_), "pids": str(slice_)})


def test_controllers_that_are_not_handed_on_yet_are_asked_for(tmp_path: Path) -> None:
    own = folder(tmp_path / "own", cgroup__subtree_control="", cgroup__controllers="memory pids")
    assert (
        find_parents(mountinfo(tmp_path, "cgroup2", "rw"), "0::/own\n") is None
    )  # a file here, and no kernel
    assert (own / "cgroup.subtree_control").read_text() == "+memory +pids"


def test_one_without_the_controllers_is_passed_over(tmp_path: Path) -> None:
    folder(tmp_path / "two", cgroup__subtree_control="hugetlb\n", cgroup__controllers="hugetlb")
    for name in ("memory", "pids"):
        folder(tmp_path / name)
    mounts = mountinfo(tmp_path / "two", "cgroup2", "rw") + "".join(
        mountinfo(tmp_path / name, "cgroup", f"rw,{name}") for name in ("memory", "pids")
    )
    found = find_parents(mounts, "2:memory:/\n1:pids:/\n0::/\n")
    assert found is not None and found.version == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_one_that_is_not_ours_is_passed_over(tmp_path: Path) -> None:
    folder(tmp_path, cgroup__subtree_control="memory pids").chmod(0o555)
    assert find_parents(mountinfo(tmp_path, "cgroup2", "rw"), "0::/\n") is None


@pytest.mark.parametrize("text", ["", "nonsense\n", "1 2 3 - cgroup2\n"])
def test_what_is_no_mount_is_none(text: str) -> None:
    assert find_parents(text, "0::/\n") is None


# --- limits, on folders that are none of the kernel's


def test_limits_of_version_2(tmp_path: Path) -> None:
    group = ControlGroup(version=2, folders=dict.fromkeys(("memory", "pids", "cpu"), str(tmp_path)))
    folder(tmp_path, memory__max="", memory__swap__max="", pids__max="", cpu__max="")
    limit_group(group, Limits(memory=2**28, pids=64, cpus=0.5))
    assert [(tmp_path / name).read_text() for name in ("memory.max", "memory.swap.max", "pids.max", "cpu.max")] == [
        str(2**28), "0", "64", "50000 100000",
    ]  # fmt: skip


def test_limits_that_are_none(tmp_path: Path) -> None:
    group = ControlGroup(version=2, folders=dict.fromkeys(("memory", "pids"), str(tmp_path)))
    folder(tmp_path, memory__max="", pids__max="")
    limit_group(group, Limits())
    assert (tmp_path / "memory.max").read_text() == (tmp_path / "pids.max").read_text() == "max"
    limit_group(group, Limits(cpus=1))
    assert "cpus are not limited" in shortfalls(Limits(cpus=1), group)[0]


# --- what is used


def test_usage_of_both_versions() -> None:
    files = {
        "memory.usage_in_bytes": "300\n",
        "memory.max_usage_in_bytes": "900\n",
        "memory.stat": "cache 7\ntotal_inactive_file 100\n",
        "memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
        "pids.current": "5\n",
        "cpuacct.usage": "1500000000\n",
    }
    assert read_usage(1, lambda _, name: files.get(name)) == Usage(
        memory=200, peak_memory=900, pids=5, cpu_time=1.5, oom_kills=2
    )
    files = {
        "memory.current": "300\n",
        "memory.stat": "anon 7\ninactive_file 100\n",
        "memory.events": "low 0\noom 3\noom_kill 2\n",
        "pids.current": "5\n",
        "cpu.stat": "usage_usec 1500000\n",
    }
    assert read_usage(2, lambda _, name: files.get(name)) == Usage(
        memory=200, pids=5, cpu_time=1.5, oom_kills=2
    )
    assert read_usage(2, lambda _controller, _name: None) == Usage()


# --- real ones


@pytest.fixture
def group() -> Iterator[ControlGroup]:
    parents = find_parents(Path("/proc/self/mountinfo").read_text(), Path("/proc/self/cgroup").read_text())
    if parents is None:
        pytest.skip("no control group may be made here")
    made = plan_group(parents, f"sandcell-test-{os.getpid()}")
    make_group(made)
    yield made
    assert end_group(made)


def test_a_real_group_holds_and_tells(group: ControlGroup) -> None:
    limit_group(group, Limits(memory=64 * 2**20, pids=20, cpus=1))
    limit_group(group, Limits(memory=32 * 2**20, pids=20, cpus=1))
    limit_group(group, Limits(memory=64 * 2**20, pids=20, cpus=1))
    join = "".join(f"open({path + '/cgroup.procs'!r}, 'w').write('0');" for path in group.paths)
    greedy = ["python3", "-c", f"{join}x = bytearray(256 * 2**20)"]
    assert subprocess.run(greedy, check=False).returncode == -9
    used = read_usage(group.version, lambda controller, name: read_file(group, controller, name))
    assert (used.oom_kills, used.pids) == (1, 0)
    assert (used.cpu_time or 0) > 0
    assert (used.peak_memory or 64 * 2**20) >= 60 * 2**20


# --- inside of a container


def test_a_container_without_a_namespace_for_groups_sees_its_own() -> None:
    names = ("memory", "pids", "cpu", "cpuacct", "freezer")
    mounts = "".join(
        mountinfo(Path(f"/sys/fs/cgroup/{name}"), "cgroup", f"rw,{name}", root="/docker/abc")
        for name in names
    )
    groups = "".join(f"1:{name}:/docker/abc\n" for name in names) + "0::/docker/abc\n"
    found = find_own_group(mounts, groups)
    assert found is not None and found.version == 1
    assert found.folders == {name: f"/sys/fs/cgroup/{name}" for name in names[:4]}
    found = find_own_group(
        mountinfo(Path("/sys/fs/cgroup"), "cgroup2", "rw", root="/docker/abc"), "0::/docker/abc\n"
    )
    assert found is not None and (found.version, found.folders["pids"]) == (2, "/sys/fs/cgroup")


def test_what_is_mounted_of_others_is_not_its_own() -> None:
    whole = mountinfo(Path("/sys/fs/cgroup/memory"), "cgroup", "rw,memory")
    others = mountinfo(Path("/sys/fs/cgroup/memory"), "cgroup", "rw,memory", root="/docker")
    for mounts in (whole, others, "", mountinfo(Path("/sys/fs/cgroup"), "cgroup2", "rw")):
        assert find_own_group(mounts, "4:memory:/docker/abc\n0::/docker/abc\n") is None
        assert find_own_group(mounts, "4:memory:/\n0::/\n") is None

"""What a guest knows of its control group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sandcell_container.guest.boot import GuestBoot
from sandcell_container.guest.meter import Meter

if TYPE_CHECKING:
    from pathlib import Path


def boot(**isolation: Any) -> GuestBoot:
    return GuestBoot(
        sandbox_id="sbx_1",
        name="one",
        engine="docker",
        token="",
        epoch="",
        created_at=0.0,
        on_release="remove",
        grace=0.0,
        idle_timeout=None,
        default_timeout=None,
        python="/usr/bin/python3",
        runtime_dir="/unused",
        isolation=isolation,
    )


def test_in_a_container_its_own_group_is_found_by_its_mounts(tmp_path: Path) -> None:
    group = tmp_path / "pids"
    group.mkdir()
    (group / "pids.current").write_text("7\n")
    (tmp_path / "mountinfo").write_text(f"31 23 0:28 /docker/abc {group} ro - cgroup cgroup rw,pids\n")
    (tmp_path / "cgroup").write_text("1:pids:/docker/abc\n")
    meter = Meter(boot(pid=True), proc=tmp_path)
    assert meter.has_group
    assert meter.stats([], None).pids.used == 7
    assert not Meter(boot(), proc=tmp_path).has_group  # the engine `process`: what holds it holds others, too


def test_a_guest_that_this_proc_does_not_show_has_no_group(tmp_path: Path) -> None:
    assert not Meter(boot(pid=True), proc=tmp_path / "none").has_group

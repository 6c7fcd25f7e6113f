from __future__ import annotations

from sandcell.guest.facts import isolation_in_words, limits_in_words


def test_isolation_is_told_in_words() -> None:
    own = {"net": True, "pid": True, "cgroup": False, "uid": 61815, "runtime": "bwrap", "seccomp": True}
    assert isolation_in_words(own) == (
        "its own processes, network; those of the machine: control group; system calls are filtered; "
        "user 61815 of the machine; by bwrap"
    )
    none = {"net": False, "uid": 0, "runtime": "none"}
    assert isolation_in_words(none) == "those of the machine: network; user 0 of the machine"


def test_limits_are_told_in_words() -> None:
    limits = {"cpus": 0.5, "memory": 2**29, "disk": None, "pids": 100}
    assert limits_in_words(limits) == "0.5 cpus, 512.0 MiB of memory, 100 processes"
    assert limits_in_words(dict.fromkeys(limits)) == ""

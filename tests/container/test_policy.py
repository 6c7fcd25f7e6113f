"""The list of a running sandbox, as its engine writes it and its proxy reads it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from sandcell_container.policy import Policy, add_policy, open_policy

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path


@pytest.fixture
def policy(tmp_path: Path) -> Generator[Policy]:
    descriptor = open_policy(tmp_path, ("a.org",))
    yield Policy(descriptor)
    os.close(descriptor)


def test_the_last_list_counts(policy: Policy, tmp_path: Path) -> None:
    assert policy.read().host("a.org", 443)
    for network in (("b.org",), ("c.org", "d.org")):
        add_policy(tmp_path, network)
    assert [policy.read().host(f"{name}.org", 443) for name in "abcd"] == [False, False, True, True]


def test_half_a_list_is_not_read(policy: Policy, tmp_path: Path) -> None:
    with (tmp_path / "network").open("ab") as file:
        file.write(b'["b')
        file.flush()
        assert policy.read().host("a.org", 443)
        file.write(b'.org"]\n')
        file.flush()
        assert policy.read().host("b.org", 443)


def test_what_is_no_list_allows_nothing(policy: Policy, tmp_path: Path) -> None:
    add_policy(tmp_path, "none")
    assert not policy.read().host("a.org", 443)


def test_a_start_begins_anew(policy: Policy, tmp_path: Path) -> None:
    os.close(open_policy(tmp_path, ("b.org",)))
    assert (tmp_path / "network").read_text() == '["b.org"]\n'
    assert policy.read().host("a.org", 443)  # that of before keeps what it had

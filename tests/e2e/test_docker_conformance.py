"""The shipped checks, on the daemons of Docker and Podman, each through the guest that users have."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from sandcell.cli.check import GuestRunner
from sandcell_container.conformance import CHECKS, Check, Subject

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.conftest import Place

pytestmark = pytest.mark.docker


@pytest.fixture(scope="module")
def subject(place: Place) -> Iterator[Subject]:
    with closing(Subject(place.engine, GuestRunner)) as made:
        yield made


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_containers(subject: Subject, check: Check) -> None:
    check.run(subject)

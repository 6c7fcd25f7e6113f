"""Ports that are chosen for a container."""

from __future__ import annotations

import pytest

from sandcell_container.engines.docker_publish import choose_ports, words_for
from sandcell_container.errors import ErrorCode, SandcellError
from sandcell_container.openings import PublishedPort


def test_any_free_port_is_one_that_is_told() -> None:
    given = (PublishedPort(80, 0), PublishedPort(81, 8081))
    chosen, named = choose_ports(given)
    assert (named, chosen.port, chosen.host) == (given[1], 80, "127.0.0.1")
    assert 0 < chosen.host_port < 65536
    assert words_for([chosen]) == (f"port 80 is published at 127.0.0.1:{chosen.host_port}, which was free",)


def test_an_address_of_another_machine_is_refused() -> None:
    with pytest.raises(SandcellError) as caught:
        choose_ports([PublishedPort(80, 0, "203.0.113.1")])
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT

"""The rules of an open network, as text; that they hold shows `tests/e2e/test_open_network.py`."""

from __future__ import annotations

import ipaddress

from sandcell_container.network import is_public
from sandcell_container.packet_filter import NOT_PUBLIC, ruleset


def test_what_is_refused_is_what_is_not_public() -> None:
    ranges = [ipaddress.IPv4Network(each) for each in NOT_PUBLIC]
    around = {int(each[0]) - 1 for each in ranges} | {int(each[-1]) + 1 for each in ranges}
    edges = [ipaddress.IPv4Address(number) for number in around if 0 <= number < 2**32]
    assert not any(is_public(each[0]) for each in ranges)
    assert all(is_public(each) != any(each in whole for whole in ranges) for each in edges)


def test_listed_addresses_come_before_what_is_refused_and_the_machine_itself_too() -> None:
    lines = ruleset(
        ["10.1.2.3:5432", "192.168.0.0/16"], own=["8.1.2.3", "8.1.2.3"], resolver="10.0.2.3", log=1
    ).splitlines()
    listed = [
        at for at, line in enumerate(lines) if line.startswith("ip daddr 1") and line.endswith("accept")
    ]
    private = next(at for at, line in enumerate(lines) if "169.254.0.0/16" in line)
    own = lines.index("ip daddr { 8.1.2.3 } reject with icmpx type admin-prohibited")
    public = lines.index("meta nfproto ipv4 meta l4proto { tcp, udp } accept")
    assert lines[listed[1]] == "ip daddr 10.1.2.3/32 meta l4proto { tcp, udp } th dport 5432 accept"
    assert lines[listed[2]] == "ip daddr 192.168.0.0/16 meta l4proto { tcp, udp } th dport { 80, 443 } accept"
    assert max(listed) < private < own < public
    assert "policy drop" in lines[2]


def test_a_machine_without_addresses_has_no_rule_for_them() -> None:
    assert "{  }" not in ruleset([], own=[], resolver="10.0.2.3", log=None)

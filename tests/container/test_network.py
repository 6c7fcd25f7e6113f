"""Which hosts and addresses a list allows: pure."""

from __future__ import annotations

import ipaddress
from typing import Any

import pytest

from sandcell_container.errors import ErrorCode, SandcellError
from sandcell_container.network import (
    is_public,
    items_of,
    kind_of,
    network_environment,
    normal_host,
    parse_allowed,
    parse_network,
)


@pytest.mark.parametrize(
    ("item", "host", "port", "expected"),
    [
        ("pypi.org", "pypi.org", 443, True),
        ("pypi.org", "pypi.org", 80, True),
        ("pypi.org", "pypi.org", 22, False),
        ("pypi.org:22", "pypi.org", 22, True),
        ("pypi.org:22", "pypi.org", 443, False),
        ("pypi.org", "files.pypi.org", 443, False),
        ("pypi.org", "evilpypi.org", 443, False),
        ("pypi.org.", "pypi.org", 443, True),
        ("*.example.org", "a.example.org", 443, True),
        ("*.example.org", "a.b.example.org", 443, True),
        ("*.example.org", "example.org", 443, False),
        ("*.example.org", "badexample.org", 443, False),
        ("*.example.org", "a.example.org.evil.net", 443, False),
        ("*", "whatever.net", 443, True),
        ("*", "1.1.1.1", 443, False),
        ("10.1.2.3", "10.1.2.3", 80, True),
        ("10.1.2.3:81", "10.1.2.3", 80, False),
        ("10.0.0.0/8", "10.1.2.3", 443, True),
        ("fd00::/8", "fd00::1", 443, True),
        ("[fd00::1]:81", "fd00::1", 81, True),
        ("fd00::1", "fd00::1", 443, True),
    ],
)
def test_an_item_allows_what_it_says(item: str, host: str, port: int, *, expected: bool) -> None:
    assert parse_allowed([item]).host(host, port) is expected


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.0.0.1",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "100.100.100.200",
        "0.0.0.0",
        "224.0.0.1",
        "240.0.0.1",
        "255.255.255.255",
        "203.0.113.1",
        "::",
        "::1",
        "fe80::1",
        "fe80::1%2",
        "fec0::1",
        "fd00:ec2::254",
        "ff02::1",
        "::ffff:127.0.0.1",
        "::ffff:169.254.169.254",
        "2002:7f00:1::",
        "64:ff9b::a00:1",
        "2001:db8::1",
    ],
)
def test_what_is_not_of_the_public_internet_is_known(address: str) -> None:
    found = ipaddress.ip_address(address)
    assert not is_public(found)
    assert not is_public(found)
    assert not parse_allowed(["*"]).address(found, 443)
    if "%" not in address:
        assert parse_allowed([address]).address(found, 443)


@pytest.mark.parametrize("address", ["1.1.1.1", "93.184.215.14", "2606:4700::1111", "::ffff:1.1.1.1"])
def test_what_is_public_is_known(address: str) -> None:
    assert is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize(
    ("given", "normal"),
    [
        ("PyPI.org.", "pypi.org"),
        ("[::1]", "::1"),
        ("[0:0::1]", "::1"),
        ("127.0.0.1", "127.0.0.1"),
        ("127.1", None),
        ("2130706433", None),
        ("0x7f000001", None),
        ("0x7f.1", None),
        ("010.0.0.1", None),
        ("a..b", None),
        ("-a.b", None),
        ("a" * 64, None),
        (".".join(["a" * 60] * 5), None),
        ("", None),
        ("ü.org", None),
        ("a b", None),
    ],
)
def test_a_host_has_one_way_to_be_written(given: str, normal: str | None) -> None:
    assert normal_host(given) == normal


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("none", "none"),
        ("open", "open"),
        ([], "none"),
        (["PyPI.org", " pypi.org", "*"], ("pypi.org", "*")),
    ],
)
def test_a_network_is_made_normal(given: object, expected: object) -> None:
    assert parse_network(given) == expected


@pytest.mark.parametrize(
    "given",
    [
        "pypi.org",
        None,
        5,
        {"a": 1},
        [5],
        [""],
        ["https://pypi.org"],
        ["pypi.org/simple"],
        ["pypi.org:0"],
        ["pypi.org:65536"],
        ["a.*.org"],
        ["*.*.org"],
        ["10.0.0.1/8"],
        ["127.1"],
        ["user@host"],
        ["a\nb"],
        [f"h{number}.org" for number in range(1001)],
    ],
)
def test_what_is_no_network_is_refused(given: Any) -> None:
    with pytest.raises(SandcellError) as caught:
        parse_network(given)
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT
    assert caught.value.details["field"] == "network"


def test_user_code_is_told_of_its_proxy_in_both_cases() -> None:
    told = network_environment(("pypi.org",))
    assert {told[name] for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY")} == {
        "http://127.0.0.1:3128"
    }
    assert told["no_proxy"] == told["NO_PROXY"] == "localhost,127.0.0.1,::1"
    assert network_environment("open") == network_environment("none") == {}


@pytest.mark.parametrize(
    ("given", "network", "kind", "items"),
    [
        ("none", "none", "none", ()),
        ("open", "open", "open", ()),
        (["Open"], "open", "open", ()),
        (["10.1.2.3:81", "open"], ("open", "10.1.2.3:81"), "open", ("10.1.2.3:81",)),
        (["a.org"], ("a.org",), "list", ("a.org",)),
        ([], "none", "none", ()),
    ],
)
def test_there_are_three_kinds_of_network(
    given: Any, network: Any, kind: str, items: tuple[str, ...]
) -> None:
    parsed = parse_network(given)
    assert (parsed, kind_of(parsed), items_of(parsed)) == (network, kind, items)


@pytest.mark.parametrize("beside", ["a.org", "*", "*.a.org:81", "fd00::1", "10.0.0.0/8/8"])
def test_beside_open_there_are_addresses_alone(beside: str) -> None:
    with pytest.raises(SandcellError) as caught:
        parse_network(["open", beside])
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT

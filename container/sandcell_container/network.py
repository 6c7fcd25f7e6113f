"""Which hosts a sandbox may reach: host patterns and classes of addresses, as pure functions on plain data.

A network is "none", "open" (every public host, by any protocol), or a tuple of what is allowed, each one of

    pypi.org            this name, at the ports 80 and 443        *.example.org   every name below it
    pypi.org:8443       this name, at this port alone             *               every name
    10.1.2.3, fd00::/8  an address or a range: as a host of its own, and for names of the list that resolve to it

Names that resolve to addresses that are not public are refused unless such an item allows the address. A tuple with "open"
in it is "open" with further addresses, which are not public.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from sandcell_container.errors import ErrorCode, SandcellError, error

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sandcell_container.spec import Network

__all__ = [
    "PROXY_PORT",
    "Allowed",
    "Rule",
    "address_of",
    "is_public",
    "items_of",
    "kind_of",
    "network_environment",
    "normal_host",
    "parse_allowed",
    "parse_network",
]

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_Range = ipaddress.IPv4Network | ipaddress.IPv6Network

PROXY_PORT = 3128  # of the sandbox's loopback
_WEB_PORTS = frozenset({80, 443})
_MOST_RULES = 1000
_LONGEST_NAME = 253
_LABEL = r"(?!-)[a-z0-9_-]{1,63}(?<!-)"
_NAME = re.compile(rf"{_LABEL}(\.{_LABEL})*", re.ASCII)
# What resolvers take for an address: the last label of a name is never a number (WHATWG URL, "ends in a number").
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*", re.ASCII)
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One item of a list: `name` with or without `*.` before it, or else `range`. `port` None: 80 and 443."""

    name: str = ""
    range: _Range | None = None
    port: int | None = None

    def has_port(self, port: int) -> bool:
        return port in _WEB_PORTS if self.port is None else port == self.port

    def has_name(self, host: str) -> bool:
        """Tell whether it allows the name `host`, which is normal: see `normal_host`."""
        if self.name == "*":
            return True
        if self.name.startswith("*."):
            return host.endswith(self.name[1:])
        return bool(self.name) and host == self.name

    def has_address(self, address: Address) -> bool:
        return self.range is not None and address in self.range


@dataclass(frozen=True, slots=True)
class Allowed:
    """A whole list, asked twice: for the host that was named, then for each address that it resolved to."""

    rules: tuple[Rule, ...]

    def host(self, host: str, port: int) -> bool:
        """Tell whether the name or address `host`, which is normal, may be reached at `port`."""
        address = address_of(host)
        if address is not None:
            return self.address(address, port)
        return any(rule.has_port(port) and rule.has_name(host) for rule in self.rules)

    def address(self, address: Address, port: int) -> bool:
        """Tell whether the list has `address` itself: an allowed name may stand for it then, public or not."""
        return any(rule.has_port(port) and rule.has_address(address) for rule in self.rules)


def parse_network(given: object) -> Network:
    """Return a network as it was asked for, checked and normal.

    Raises:
        InvalidRequest (INVALID_ARGUMENT): it is none.
    """
    if isinstance(given, str):
        if given in ("none", "open"):
            return given
        raise _wrong(f"= {given[:80]!r} is none")
    if not isinstance(given, list | tuple | set | frozenset):
        raise _wrong("has to be text or a list")
    items: list[object] = [*given]  # pyright: ignore[reportUnknownArgumentType] -- of any kind, each looked at below
    if len(items) > _MOST_RULES:
        raise _wrong(f"has more than {_MOST_RULES} hosts")
    texts = dict.fromkeys(each.strip().lower() if isinstance(each, str) else repr(each) for each in items)
    if "open" in texts:
        return _opened(tuple(each for each in texts if each != "open"))
    parse_allowed(texts)
    return tuple(texts) or "none"


def kind_of(network: Network) -> Literal["none", "open", "list"]:
    """Return which of the three kinds of network it is."""
    if network == "none":
        return "none"
    return "open" if network == "open" or "open" in network else "list"


def items_of(network: Network) -> tuple[str, ...]:
    """Return the hosts and addresses that it lists."""
    return () if isinstance(network, str) else tuple(each for each in network if each != "open")


def parse_allowed(texts: Iterable[str]) -> Allowed:
    """Return the list that `texts` write.

    Raises:
        InvalidRequest (INVALID_ARGUMENT): one is no host, address or range.
    """
    return Allowed(tuple(_rule(text) for text in texts))


def normal_host(host: str) -> str | None:
    """Return a host as it is compared: in small letters, without a last dot or the brackets of IPv6, an address as
    `ipaddress` writes it. None where it is neither name nor address, or an address in disguise, such as 0x7f.1."""
    bare = host.removeprefix("[").removesuffix("]")
    address = address_of(bare)
    if address is not None:
        return str(address)
    name = host.lower().removesuffix(".")
    return name if _is_name(name) else None


def address_of(host: str) -> Address | None:
    """Return the address that `host` writes, without a zone; None for a name."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def is_public(address: Address) -> bool:
    """Tell whether an address is one of the public internet, whatever way it is wrapped: not private, loopback,
    link-local (metadata services too), shared, multicast, reserved. Source: the registries of RFC 6890."""
    if isinstance(address, ipaddress.IPv6Address):
        if address.scope_id:
            return False
        inner = _inside(address)
        if inner is not None:
            return is_public(inner)
        if address.is_site_local:
            return False
    return address.is_global and not (
        address.is_multicast or address.is_reserved or address.is_link_local or address.is_loopback
    )


def network_environment(network: Network) -> dict[str, str]:
    """Return what user code is told of its way out, in the variables that pip, npm, git and curl look at."""
    return _proxy_environment() if kind_of(network) == "list" else {}


def _proxy_environment() -> dict[str, str]:
    url = f"http://127.0.0.1:{PROXY_PORT}"
    own = "localhost,127.0.0.1,::1"
    found = {"http_proxy": url, "https_proxy": url, "no_proxy": own}
    return found | {name.upper(): value for name, value in found.items()}


def _inside(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """Return the IPv4 address that an IPv6 address leads to: mapped, 6to4, Teredo, NAT64."""
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address.teredo is not None:
        return address.teredo[1]
    return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF) if address in _NAT64 else None


def _opened(texts: tuple[str, ...]) -> Network:
    for text, rule in zip(texts, parse_allowed(texts).rules, strict=True):
        if not isinstance(rule.range, ipaddress.IPv4Network):
            raise _wrong(
                f'holds "open" and {text[:80]!r}: beside "open" there are IPv4 addresses and ranges alone'
            )
    return ("open", *texts) if texts else "open"


def _rule(text: str) -> Rule:
    if "/" in text or (text.count(":") > 1 and not text.startswith("[")):
        return Rule(range=_range(text))
    host, port = _split_port(text)
    if address_of(host) is not None:
        return Rule(range=_range(host), port=port)
    name = host.removesuffix(".")
    if name == "*" or _is_name(name.removeprefix("*.")):
        return Rule(name=name, port=port)
    raise _wrong(f"holds {text[:80]!r}, which is no host")


def _split_port(text: str) -> tuple[str, int | None]:
    found = re.fullmatch(r"\[([^\]]+)\](?::([0-9]{1,5}))?|([^:]+)(?::([0-9]{1,5}))?", text, re.ASCII)
    if found is None:
        raise _wrong(f"holds {text[:80]!r}, which is no host")
    port = found[2] or found[4]
    if port is not None and not 0 < int(port) < 65536:
        raise _wrong(f"holds {text[:80]!r}, and there is no such port")
    return found[1] or found[3], None if port is None else int(port)


def _range(text: str) -> _Range:
    try:
        found = ipaddress.ip_network(text, strict=False)
    except ValueError:
        raise _wrong(f"holds {text[:80]!r}, which is no host") from None
    if address_of(text.partition("/")[0]) != found.network_address:
        raise _wrong(f"holds {text[:80]!r}, which is one address of {found}: write one of both")
    return found


def _is_name(name: str) -> bool:
    return (
        len(name) <= _LONGEST_NAME
        and _NAME.fullmatch(name) is not None
        and _NUMBER.fullmatch(name.rpartition(".")[2]) is None
    )


def _wrong(problem: str) -> SandcellError:
    return error(
        ErrorCode.INVALID_ARGUMENT,
        f"network {problem}",
        hint='"none", "open", or a list of hosts, such as ["pypi.org", "*.example.org", "10.1.2.3:8080"]',
        details={"field": "network"},
    )

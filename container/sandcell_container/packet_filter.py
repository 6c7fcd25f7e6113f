"""What a sandbox with the network "open" may send, as rules of nftables in its own network namespace: pure.

Routes would not do: a socket that is bound to a device goes by none that forbids (ip(7), SO_BINDTODEVICE), nor does multicast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandcell_container.network import parse_allowed

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sandcell_container.network import Rule

__all__ = ["NOT_PUBLIC", "ruleset"]

# Every address of IPv4 that `network.is_public` refuses. Source: the IANA registry of special-purpose addresses, RFC 6890.
NOT_PUBLIC = (
    "0.0.0.0/8",
    "10.0.0.0/8",
    "100.64.0.0/10",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.0.0.0/24",
    "192.0.2.0/24",
    "192.168.0.0/16",
    "198.18.0.0/15",
    "198.51.100.0/24",
    "203.0.113.0/24",
    "224.0.0.0/3",
)

_MOST_TOLD = 20  # packets: user code may try as many as it likes


def ruleset(
    items: Iterable[str], *, own: Sequence[str], resolver: str, log: int | None, published: Sequence[int] = ()
) -> str:
    """Return the rules: its own loopback, the `resolver` at port 53, the addresses of `items`, and what is public, but for the
    addresses `own` of the machine itself. IPv4 by TCP and UDP, nothing else. What is refused fails at once, and the address is
    told to the group `log` of the packet log, where there is one. At the ports `published` who connected is answered."""
    refused = [_set(NOT_PUBLIC), *([_set(sorted(set(own)))] if own else [])]
    rules = [
        'oifname "lo" accept',
        f"ip daddr {resolver} meta l4proto {{ tcp, udp }} th dport 53 accept",
        *(f"tcp sport {port} ct direction reply ct state established accept" for port in published),
        *(_accepted(rule) for rule in parse_allowed(items).rules),
        *(line for each in refused for line in _refused(each, log)),
        "meta nfproto ipv4 meta l4proto { tcp, udp } accept",
        "reject with icmpx type admin-prohibited",
    ]
    chain = "\n".join(["type filter hook output priority 0; policy drop;", *rules])
    return f"table inet sandcell {{\nchain output {{\n{chain}\n}}\n}}\n"


def _accepted(rule: Rule) -> str:
    ports = "{ 80, 443 }" if rule.port is None else str(rule.port)
    return f"ip daddr {rule.range} meta l4proto {{ tcp, udp }} th dport {ports} accept"


def _refused(addresses: str, log: int | None) -> list[str]:
    told = [] if log is None else [f"ip daddr {addresses} limit rate {_MOST_TOLD}/second log group {log}"]
    return [*told, f"ip daddr {addresses} reject with icmpx type admin-prohibited"]


def _set(addresses: Sequence[str]) -> str:
    return f"{{ {', '.join(addresses)} }}"

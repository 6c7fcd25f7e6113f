"""A program for `test_network`: started in a network and a mount namespace of its own, it makes a small world there, and says as
JSON on standard output what a sandbox with a list of hosts gets of it, and what the world has seen.

Every address has a server that would answer: what is refused is refused by the sandbox's proxy alone.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.e2e.small_world import LISTED, connect

from sandcell import Sandbox

_NETWORK = ("site.example.org", "*.wild.example.org", LISTED)
_FETCH = """
import http.client, json, socket, sys
found = {}
for target in sys.argv[1:]:
    scheme, _, host = target.partition("://")
    if scheme in ("resolve", "datagram"):
        try:
            found[target] = str(
                socket.getaddrinfo(host, 80)
                if scheme == "resolve"
                else socket.socket(type=socket.SOCK_DGRAM).sendto(b"hello", (host, 53))
            )
        except OSError as problem:
            found[target] = str(problem)
        continue
    line = http.client.HTTPConnection("127.0.0.1", 3128, timeout=20)
    if scheme == "tunnel":
        line.set_tunnel(host, 443)
    try:
        line.request("GET", "/" if scheme == "tunnel" else target + "/")
        found[target] = line.getresponse().read().decode()
    except OSError as problem:
        found[target] = str(problem)
print(json.dumps(found))
"""


def main(engine: str, folder: Path, targets: list[str]) -> None:
    """Make the world, with its files in `folder`, and have a sandbox of `engine` fetch each of `targets`."""
    with connect(folder) as world:
        with Sandbox.create(engine=engine, network=_NETWORK) as box:
            done = box.exec(["python3", "-c", _FETCH, *targets], timeout=50)
        seen = world.seen()
    found = json.loads(done.stdout) if done.ok else {"failed": done.stderr}
    sys.stdout.write(json.dumps({"found": found, **seen._asdict()}))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:])

"""A program for `test_network`: it is started in a network and a mount namespace of its own, makes a small internet there,
and says as JSON on standard output what a sandbox gets of it.

Every address below has a server that would answer: what is refused is refused by the sandbox's proxy alone.
"""

from __future__ import annotations

import http.server
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

from sandcell import Sandbox
from sandcell_container.engines.namespaces import drop_privileges

_PUBLIC, _PRIVATE, _LISTED, _METADATA = "93.184.215.14", "10.9.8.7", "10.9.8.6", "169.254.169.254"
_NAMES = {
    _PUBLIC: "site.example.org a.wild.example.org example.org other.example.net",
    _PRIVATE: "inside.wild.example.org",
    _LISTED: "listed.wild.example.org",
    _METADATA: "metadata.wild.example.org",
    "127.0.0.1": "localhost loop.wild.example.org",
}
_NETWORK = ("site.example.org", "*.wild.example.org", _LISTED)
_FETCH = """
import http.client, json, sys
found = {}
for target in sys.argv[1:]:
    scheme, _, host = target.partition("://")
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


class _Site(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        said = self.connection.getsockname()[0].encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, format: str, *args: object) -> None:
        """Stay silent."""


def main(engine: str, folder: Path, targets: list[str]) -> None:
    """Make the world, with its files in `folder`, and have a sandbox of `engine` fetch each of `targets`."""
    hosts = folder / "hosts"
    hosts.write_text("".join(f"{address} {names}\n" for address, names in _NAMES.items()))
    subprocess.run(["mount", "--bind", str(hosts), "/etc/hosts"], check=True)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    for address in (_PUBLIC, _PRIVATE, _LISTED, _METADATA):
        subprocess.run(["ip", "address", "add", f"{address}/32", "dev", "lo"], check=True)
    servers = [http.server.ThreadingHTTPServer(("0.0.0.0", port), _Site) for port in (80, 443)]
    if os.geteuid():
        drop_privileges()  # bubblewrap wants none but root's
    for server in servers:
        threading.Thread(target=server.serve_forever, daemon=True).start()
    with Sandbox.create(engine=engine, network=_NETWORK) as box:
        done = box.exec(["python3", "-c", _FETCH, *targets], timeout=50)
        print(done.stdout or json.dumps({"failed": done.stderr}))  # noqa: T201 -- what it is for


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:])

"""Servers of the host for tests of the network, and programs that ask for them from inside of a sandbox."""

from __future__ import annotations

import http.server
import itertools
import threading
from contextlib import closing, contextmanager
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from pathlib import Path

    from sandcell import Sandbox

__all__ = ["FETCH", "HERE", "TUNNEL", "refusals", "run", "serve_folder", "serve_site"]

HERE = "127.0.0.2"  # of this machine's loopback; what the sandbox's own NO_PROXY has not

FETCH = """
import sys, urllib.request
try:
    print(urllib.request.urlopen(sys.argv[1], timeout=20).read().decode())
except OSError as problem:
    print(getattr(problem, "read", lambda: str(problem).encode())().decode())
"""

TUNNEL = """
import http.client, sys
host, _, port = sys.argv[1].partition(":")
line = http.client.HTTPConnection("127.0.0.1", 3128, timeout=20)
line.set_tunnel(host, int(port))
try:
    line.request("GET", "/tunnel", headers={"Host": "x"})
    print(line.getresponse().read().decode())
except OSError as problem:
    print(problem)
"""


def run(sandbox: Sandbox, program: str, argument: str) -> str:
    """Return what `program` prints in there."""
    return sandbox.exec(["python3", "-c", program, argument], timeout=60).stdout.strip()


def refusals(sandbox: Sandbox, count: int = 1) -> list[str]:
    """Return the first words of a sandbox about what was refused."""
    with closing(sandbox.events()) as events:
        told = (event.reason or "" for event in events if event.status == "refused")
        return list(itertools.islice(told, count))


class _Site(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        said = f"{self.path} of {self.headers['Host']}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, format: str, *args: object) -> None:
        """Stay silent."""


class _Folder(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Stay silent."""


@contextmanager
def serve_site() -> Generator[str]:
    """Serve pages that say what was asked for; yields HOST:PORT."""
    with _serving(_Site) as host:
        yield host


@contextmanager
def serve_folder(folder: Path) -> Generator[str]:
    """Serve the files of `folder`; yields HOST:PORT."""
    with _serving(partial(_Folder, directory=folder)) as host:
        yield host


@contextmanager
def _serving(handler: Callable[..., http.server.BaseHTTPRequestHandler]) -> Generator[str]:
    with http.server.ThreadingHTTPServer((HERE, 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"{HERE}:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()

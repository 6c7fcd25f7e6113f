"""`sandcell open`: a port of a sandbox in the browser of the person at the terminal."""

from __future__ import annotations

import sys
import webbrowser
from contextlib import suppress
from typing import TYPE_CHECKING

from sandcell.cli.output import write_stdout
from sandcell.cli.place import open_known
from sandcell_container.errors import Gone

if TYPE_CHECKING:
    import argparse

    from sandcell.client.blocking.sandbox import Sandbox
    from sandcell.config import Config

__all__ = ["open_port"]


def open_port(options: argparse.Namespace, config: Config) -> int:
    """Serve a port at a URL that is printed, until ^C or the end of the sandbox."""
    with open_known(options, config) as place, suppress(KeyboardInterrupt):
        sandbox = place.sandbox
        port = sandbox.ports.expose(options.port, rotate=options.rotate)
        write_stdout(f"{port.url}\n".encode())
        if not _is_listening(sandbox, port.port):
            print(f"sandcell: nothing listens on port {port.port} yet", file=sys.stderr, flush=True)
        if options.browser:
            webbrowser.open(port.url)
        _await_end(sandbox)
        print(f"sandcell: {sandbox.name} has ended", file=sys.stderr, flush=True)
    return 0


def _is_listening(sandbox: Sandbox, port: int) -> bool:
    return any(each.listening for each in sandbox.ports.list() if each.port == port)


def _await_end(sandbox: Sandbox) -> None:
    with suppress(Gone):
        for _ in sandbox.events():
            pass  # what is about to become of it is no concern here

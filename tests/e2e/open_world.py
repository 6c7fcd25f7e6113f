"""A program for `test_open_network`: started in a network and a mount namespace of its own, it makes a small world there, runs the
program on its standard input in a sandbox whose network is open, and says as JSON what that printed and what the world has seen.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.e2e.small_world import LISTED, connect

from sandcell import Sandbox

_NETWORK = ("open", f"{LISTED}:80")


def main(engine: str, folder: Path, attack: str) -> None:
    """Attack from a sandbox of `engine`, with files in `folder`."""
    with connect(folder) as world:
        with Sandbox.create(engine=engine, network=_NETWORK) as box:
            done = box.exec(["python3", "-c", attack], timeout=50)
        seen = world.seen()
    found = json.loads(done.stdout) if done.ok else {"failed": done.stderr}
    sys.stdout.write(json.dumps({"found": found, **seen._asdict()}))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.stdin.read())

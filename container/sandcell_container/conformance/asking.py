"""The other end of `plain_guest`."""

from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING, Any, NamedTuple

from sandcell_container.unix_address import connect_address

if TYPE_CHECKING:
    from sandcell_container.engine import Record

__all__ = ["Asker", "Ran"]


class Ran(NamedTuple):
    """What a program wrote, to either stream, and its exit code, negative for a signal."""

    output: str
    code: int


class Asker:
    """Asks the plain guest of one sandbox. `timeout` in seconds, for each answer."""

    def __init__(self, record: Record, *, timeout: float = 30.0) -> None:
        self._path = record.address.path
        self._timeout = timeout

    def run(self, *argv: str) -> Ran:
        """Run a program as user code and wait until it ended; what it has started may go on."""
        answer = self._ask({"run": argv})
        return Ran(answer["output"], answer["code"])

    def python(self, program: str) -> str:
        """Run a program of the user's Python and return what it wrote, which is an error where it fails."""
        ran = self.run("python", "-c", program)
        if ran.code:
            raise AssertionError(f"exit code {ran.code}: {ran.output}")
        return ran.output.strip()

    def see(self, path: str) -> list[str] | str:
        """Return the names that the guest finds in the folder `path`, or why it finds none."""
        found: list[str] | str = self._ask({"see": path})
        return found

    def boot(self) -> dict[str, Any]:
        """Return the fields of its GuestBoot."""
        found: dict[str, Any] = self._ask({"about": "boot"})
        return found

    def process(self) -> dict[str, Any]:
        """Return what the guest is: pid, uids, groups, path (sys.path), environ, threads."""
        found: dict[str, Any] = self._ask({"about": "process"})
        return found

    def _ask(self, question: dict[str, object]) -> Any:
        with socket.socket(socket.AF_UNIX) as channel, connect_address(self._path) as address:
            channel.settimeout(self._timeout)
            channel.connect(address)
            channel.sendall(json.dumps(question).encode() + b"\n")
            with channel.makefile("rb") as answer:
                return json.loads(answer.readline())

"""A password on its way to the one git that needs it.

Git asks a credential helper, a line of shell, which asks the guest over a socket that only this git's own tree has: so the
password is in no argument, variable or file, and nowhere before it is asked for. A socket, and no pipe: a process of the same
user could open a pipe of another by /proc.
"""

from __future__ import annotations

import asyncio
import base64
import os
import socket
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import quote

from sandcell_container.errors import ErrorCode, error
from sandcell_container.guest.git.names import RemoteUrl

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["HELPER", "WITH_CHANNEL", "CredentialChannel", "Credentials", "make_credentials"]

_CHANNEL = 3
WITH_CHANNEL = ("sh", "-c", f'exec {_CHANNEL}<&0 0</dev/null; exec "$@"', "sh")
"""What git's own arguments follow: the socket, which comes as standard input, is kept for the helper."""

HELPER = (
    '!f() { test "$1" = get || exit 0; { cat; echo; } >&3; '
    'while IFS= read -r line <&3 && test -n "$line"; do printf \'%s\\n\' "$line"; done; }; f'
)

_LONGEST_QUESTION = 2**14
_ANY = "surrogateescape"  # a password may be any bytes
_NOTHING = b"\n"
_QUESTIONS = 4  # a git asks once, or again where the first request was for another way in


@dataclass(frozen=True, slots=True)
class Credentials:
    """Who to be at `url`, and nowhere else."""

    url: RemoteUrl
    username: str = field(repr=False)
    password: str = field(repr=False)

    @property
    def secrets(self) -> Mapping[str, str]:
        """The forms of it that are masked, by names that no variable has."""
        shown = self.password or self.username  # a token that stands alone is the secret
        return {
            "git password": shown,
            "git basic": base64.b64encode(f"{self.username}:{self.password}".encode(errors=_ANY)).decode(),
            "git quoted": quote(shown, safe="", errors=_ANY),
            "git loosely": quote(shown, errors=_ANY),
        }

    def answer(self, question: Mapping[str, str]) -> bytes:
        """Return what the helper prints: nothing, where it is asked for another host or repository."""
        asked = f"{question.get('protocol', '')}://{question.get('host', '').lower()}"
        is_ours = asked == self.url.origin and _repository(question.get("path", "")) == _repository(
            self.url.path
        )
        if not is_ours:
            return _NOTHING
        return f"username={self.username}\npassword={self.password}\n\n".encode(errors=_ANY)


def make_credentials(url: RemoteUrl, username: str | None, password: str | None) -> Credentials | None:
    """Return those for `url`, of it or given; None where there are none. A token may stand alone, in the place of the name.

    Raises:
        InvalidRequest (INVALID_ARGUMENT): they are given twice, or half, or to what takes none.
    """
    if url.username is not None and (username is not None or (url.password and password is not None)):
        raise _refused("they are given twice: in the URL, and by name")
    is_token = url.username is not None and url.password is None and password is None
    username = url.username if username is None else username
    password = url.password if password is None else password
    if username is None and password is None:
        return None
    if not url.takes_password:
        raise _refused("only https:// and http:// take a password")
    if password is None and not is_token:
        raise _refused("there is a name and no password")
    username, password = username or "git", password or ""
    if any(character in text for text in (username, password) for character in "\n\r\0"):
        raise _refused("they have more than one line")
    return Credentials(url, username, password)


def _repository(path: str) -> str:
    """Servers send one to a repository with `.git` behind its name, or without."""
    return path.strip("/").removesuffix(".git")


def _refused(why: str) -> Exception:
    return error(
        ErrorCode.INVALID_ARGUMENT,
        f"the credentials are refused: {why}",
        hint="username= and password= (a token), for a URL of https://",
        details={"field": "password"},
    )


class CredentialChannel:
    """Answers the helpers of one git. It stands in the place of a standard input, see `start_exec`."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket = ours
        self.read_end = theirs.detach()
        self._heard = bytearray()
        self._left = _QUESTIONS
        ours.settimeout(0.0)
        asyncio.get_running_loop().add_reader(ours.fileno(), self._hear)

    def close_read_end(self) -> None:
        if self.read_end >= 0:
            os.close(self.read_end)
            self.read_end = -1

    def close(self) -> None:
        """Answer no more. Twice is fine."""
        self.close_read_end()
        if self._socket.fileno() >= 0:
            asyncio.get_running_loop().remove_reader(self._socket.fileno())
            self._socket.close()

    def _hear(self) -> None:
        try:
            data = self._socket.recv(_LONGEST_QUESTION)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._heard += data
        if not data or len(self._heard) > _LONGEST_QUESTION:
            self.close()
            return
        while b"\n\n" in self._heard:
            question, _, rest = bytes(self._heard).partition(b"\n\n")
            self._heard = bytearray(rest)
            self._answer(question)

    def _answer(self, question: bytes) -> None:
        self._left -= 1
        lines = question.decode(errors="replace").splitlines()
        fields = {name: value for name, _, value in (line.partition("=") for line in lines)}
        try:
            self._socket.send(self._credentials.answer(fields) if self._left >= 0 else _NOTHING)
        except OSError:
            self.close()  # who asked reads no answer

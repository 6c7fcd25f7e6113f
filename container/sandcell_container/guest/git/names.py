"""URLs and names as callers give them to git: refused where git would take them for something else. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from sandcell_container.errors import ErrorCode, error

if TYPE_CHECKING:
    from sandcell_container.errors import SandcellError

__all__ = [
    "SCHEMES",
    "RemoteUrl",
    "check_branch",
    "check_commit",
    "check_remote",
    "folder_of",
    "parse_origin",
    "parse_url",
]

SCHEMES = ("https", "http", "ssh", "git", "file")
"""The transports that git may use, and no other: `ext::` runs programs, `fd::` takes descriptors."""

_LONGEST_URL = 4096
_LONGEST_NAME = 250
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_SCHEME = re.compile(r"([a-z][a-z0-9+.-]*)://", re.IGNORECASE)
_HELPER = re.compile(r"[A-Za-z0-9+.-]+::")
_SCP = re.compile(r"(?:([\w.-]+)@)?([A-Za-z0-9][A-Za-z0-9.-]*|\[[0-9A-Fa-f:]+\]):(?!/?/?-)(.+)", re.ASCII)
_REMOTE = re.compile(r"[\w][\w.-]*(/[\w][\w.-]*)*", re.ASCII)
_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]*|[0-9A-Fa-f:]+", re.ASCII)
# Source: git-check-ref-format(1)
_NO_REF = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//|/\.|^\.|\.lock(/|$)|^-|^/|[/.]$|^@$|^HEAD$")
_COMMIT = re.compile(r"[^\x00-\x20\x7f-][^\x00-\x20\x7f]*")


@dataclass(frozen=True, slots=True)
class RemoteUrl:
    """A URL without credentials, and those that were in it. `origin` is scheme and host, with the port where there is one;
    "" for a path."""

    url: str
    scheme: str
    origin: str = ""
    path: str = ""
    username: str | None = field(default=None, repr=False)  # it may be a token
    password: str | None = field(default=None, repr=False)

    @property
    def takes_password(self) -> bool:
        return self.scheme in {"http", "https"}


def parse_url(text: str, *, what: str = "url") -> RemoteUrl:
    """Return what git may fetch from: `https://`, `http://`, `ssh://`, `git://`, `file:///`, `user@host:path`, or an absolute path.

    Raises:
        InvalidRequest (INVALID_ARGUMENT): it is none of these.
    """
    if not text or len(text) > _LONGEST_URL or _CONTROL.search(text):
        raise _refused(what, text, "it is empty, too long, or has control characters in it")
    if text.startswith("-"):
        raise _refused(what, text, "git would take it for an option")
    if _HELPER.match(text):
        raise _refused(what, text, "it names a program that git would run as a transport")
    if text.startswith("/"):
        return RemoteUrl(text, "file", path=text)
    if any(map(str.isspace, text)):
        raise _refused(what, text, "it has blanks in it")
    if _SCHEME.match(text):
        return _split(text, what)
    scp = _SCP.fullmatch(text)
    if scp is not None:
        return RemoteUrl(text, "ssh", f"ssh://{scp[2].lower()}", scp[3])
    raise _refused(what, text, "it has no scheme; a path of the sandbox is absolute")


def _split(text: str, what: str) -> RemoteUrl:
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as problem:
        raise _refused(what, "", f"it is no URL: {type(problem).__name__}") from problem
    scheme, host = parts.scheme.lower(), parts.hostname or ""
    if scheme not in SCHEMES:
        raise _refused(what, f"{scheme}://", f"only {', '.join(SCHEMES)} are taken")
    if scheme == "file":
        if parts.netloc or not parts.path.startswith("/"):
            raise _refused(what, "file://", "a file is of this sandbox: file:///PATH")
        return RemoteUrl(text, scheme, path=unquote(parts.path))
    if not _HOST.fullmatch(host) or parts.path.startswith("/-") or parts.fragment:
        raise _refused(what, f"{scheme}://", "its host or path is none that git should see")
    return _without_credentials(text, scheme, host, port, what)


def _without_credentials(text: str, scheme: str, host: str, port: int | None, what: str) -> RemoteUrl:
    parts = urlsplit(text)
    user = None if parts.username is None else unquote(parts.username)
    password = None if parts.password is None else unquote(parts.password)
    netloc = (f"[{host}]" if ":" in host else host) + ("" if port is None else f":{port}")
    query = f"?{parts.query}" if parts.query else ""
    if scheme in {"http", "https"}:
        url = f"{scheme}://{netloc}{parts.path}{query}"
        return RemoteUrl(url, scheme, f"{scheme}://{netloc}", parts.path, user, password)
    if password is not None or (user or "").startswith("-"):
        raise _refused(what, f"{scheme}://", "a password is taken with https:// and http:// alone")
    at = "" if user is None else f"{parts.username}@"
    return RemoteUrl(
        f"{scheme}://{at}{netloc}{parts.path}{query}", scheme, f"{scheme}://{netloc}", parts.path
    )


def parse_origin(text: str) -> str:
    """Return whom credentials are for, as `scheme://host[:port]`: of "host", "host:port" or a whole origin; https by default.

    Raises:
        InvalidRequest (INVALID_ARGUMENT).
    """
    found = parse_url(text if "://" in text else f"https://{text}", what="host")
    if not found.takes_password or found.path.strip("/") or found.username is not None:
        raise _refused(
            "host", "", "it is no host that takes a password: github.com, or http://localhost:3000"
        )
    return found.origin


def folder_of(url: RemoteUrl) -> str:
    """Return the name of the folder that a clone of `url` goes into. Raises InvalidRequest where it has none."""
    name = url.path.rstrip("/").removesuffix("/.git").removesuffix(".git").rpartition("/")[2]
    if not name or name in {".", ".."} or "\0" in name:
        raise _refused("url", url.url, "no name can be made of it: give a path")
    return name


def check_branch(name: str, *, what: str = "branch") -> str:
    """Return `name` where a branch may be called so. Raises InvalidRequest (INVALID_ARGUMENT)."""
    if not name or len(name) > _LONGEST_NAME or _NO_REF.search(name):
        raise _refused(what, name, "no branch can be called so")
    return name


def check_remote(name: str) -> str:
    """Return `name` where a remote may be called so. Raises InvalidRequest (INVALID_ARGUMENT)."""
    if len(name) > _LONGEST_NAME or not _REMOTE.fullmatch(name) or _NO_REF.search(name):
        raise _refused("remote", name, "it is the name of a remote, such as origin, and no URL")
    return name


def check_commit(text: str, *, what: str) -> str:
    """Return `text` where it may name a commit: a branch, a tag, `HEAD~2`, a hash. Raises InvalidRequest (INVALID_ARGUMENT)."""
    if len(text) > _LONGEST_NAME or not _COMMIT.fullmatch(text):
        raise _refused(what, text, "it names no commit")
    return text


def _refused(what: str, text: str, why: str) -> SandcellError:
    shown = f" {_without_user(text)[:80]!r}" if text else ""
    return error(
        ErrorCode.INVALID_ARGUMENT,
        f"{what}{shown} is refused: {why}",
        hint="docs/git.md says what is taken",
        details={"field": what},
    )


def _without_user(text: str) -> str:
    """Return a URL as it may be shown: what is before an `@` may hold a password."""
    return text.rpartition("@")[2]

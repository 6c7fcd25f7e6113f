"""The environment of a git: what it may do and ask, and what of the user's settings it follows. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandcell_container.guest.git.credentials import HELPER
from sandcell_container.guest.git.names import SCHEMES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sandcell_container.guest.git.credentials import Credentials

__all__ = ["git_env"]

# Variables of the owner's that a git follows; others change what it is, not who uses it.
_KEPT = ("GIT_AUTHOR_", "GIT_COMMITTER_", "GIT_SSL_CAINFO", "GIT_SSL_CAPATH")

_ALWAYS = {
    "LC_ALL": "C",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "",
    "SSH_ASKPASS": "",
    "GIT_SSH_COMMAND": "ssh -o BatchMode=yes",
    "GIT_EDITOR": "true",
    "GIT_PAGER": "cat",
    "GIT_LITERAL_PATHSPECS": "1",
    "GIT_OPTIONAL_LOCKS": "0",
}

# Where user code cannot write: it may have put a `git` of its own into other folders of its PATH.
_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_FOR_ALL = (
    ("gc.auto", "0"),  # what goes on behind a git's end would be ended with its tree
    ("maintenance.auto", "false"),
    (
        "safe.directory",
        "*",
    ),  # a mounted repository may be another user's; its programs run as user code, which is no more
)

# A git that speaks to another machine runs nothing of the repository's: not its hooks, nor the other programs that its
# configuration can name.
_ALONE = (
    ("core.hooksPath", "/dev/null"),
    ("core.fsmonitor", "false"),
    ("core.alternateRefsCommand", "true"),
    ("core.gitProxy", ""),
    ("push.gpgSign", "false"),
    ("submodule.recurse", "false"),
    ("fetch.recurseSubmodules", "false"),
    ("push.recurseSubmodules", "no"),
)


def git_env(
    base: Mapping[str, str], *, remote: bool = False, credentials: Credentials | None = None
) -> dict[str, str]:
    """Return the whole environment of a git of a user whose own is `base`. `remote`: it speaks to another machine.

    Configuration goes by variables too, which come last and which no file outdoes. With `credentials` the user's own
    file is left out, as a helper there would be told the password, and programs are looked for in the system's folders.
    """
    env = {
        name: value for name, value in base.items() if not name.startswith("GIT_") or name.startswith(_KEPT)
    }
    env.pop("LANGUAGE", None)
    settings = [*_FOR_ALL]
    env |= _ALWAYS
    env["GIT_ALLOW_PROTOCOL"] = ":".join(SCHEMES)
    if remote:
        settings += _ALONE
    if credentials is not None:
        env["GIT_ALLOW_PROTOCOL"] = credentials.url.scheme
        env["PATH"] = _SYSTEM_PATH
        env["GIT_CONFIG_GLOBAL"] = "/dev/null"
        settings += _for_credentials(credentials, base)
    env["GIT_CONFIG_COUNT"] = str(len(settings))
    for number, (name, value) in enumerate(settings):
        env[f"GIT_CONFIG_KEY_{number}"] = name
        env[f"GIT_CONFIG_VALUE_{number}"] = value
    return env


def _for_credentials(credentials: Credentials, base: Mapping[str, str]) -> list[tuple[str, str]]:
    """The repository's configuration cannot be left out, and user code writes it: of what could lead a password elsewhere
    this is the most special that there can be, as it names the whole URL."""
    url = credentials.url.url.rstrip("/").removesuffix(".git")
    proxy = _proxy(base, credentials.url.scheme)
    settings = [("credential.helper", ""), ("credential.helper", HELPER), ("credential.useHttpPath", "true")]
    for each in (url, f"{url}/", f"{url}.git", f"{url}.git/"):
        settings += [
            (f"http.{each}.sslVerify", "true"),
            (f"http.{each}.proxy", proxy),
            (f"http.{each}.curloptResolve", ""),  # forgets what was set before
        ]
    return settings


def _proxy(base: Mapping[str, str], scheme: str) -> str:
    """Return the proxy that the sandbox's own environment names, as curl reads it. Source: curl(1), ENVIRONMENT."""
    names = (f"{scheme}_proxy", "HTTPS_PROXY" if scheme == "https" else "", "all_proxy", "ALL_PROXY")
    return next((base[name] for name in names if base.get(name)), "")

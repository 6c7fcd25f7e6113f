"""What a failure of git means, by what it says in the language of programmers (LC_ALL=C). Pure."""

from __future__ import annotations

import re
from typing import Literal

from sandcell_container.errors import ErrorCode, SandcellError, error

__all__ = ["Reason", "failure_of", "git_missing", "reason_of", "timed_out"]

Reason = Literal["repository", "authentication", "branch", "network", "timeout", "identity"]

_HINTS: dict[Reason, str] = {
    "repository": "look at the path, the URL and the state of the repository",
    "authentication": "give username= and password= (a token), and to push and pull host= too",
    "branch": "look at branches() and status(): pull, commit, or name another branch",
    "network": 'look at the host and at the sandbox\'s network: "none" reaches nothing, a list what it names',
    "timeout": "give a longer timeout=, or a depth= to clone less",
    "identity": "give name= and email=, or set them with `git config`",
}

# The first that is found counts. Source: the messages of git 2.30 to 2.47 and of curl.
_SIGNS: tuple[tuple[Reason, tuple[str, ...]], ...] = (
    ("identity", ("please tell me who you are", "empty ident name", "unable to auto-detect email")),
    (
        "repository",
        ("access denied or repository not exported", r"repository '.*' not found", "returned error: 404"),
    ),
    (
        "authentication",
        (
            "authentication failed",
            "could not read (username|password)",
            "terminal prompts disabled",
            r"permission denied \(",
            "returned error: 40[13]",
            "access denied",
            "host key verification failed",
        ),
    ),
    (
        "network",
        (
            "could not resolve|unable to look up|name or service not known",
            "failed to connect|couldn't connect|unable to connect|could not connect",
            "connection (refused|timed out|reset|was)|operation timed out",
            "network is unreachable|no route to host",
            r"\bssl\b|\btls\b|certificate",
            r"proxy|connect tunnel failed|returned error: 5\d\d|empty reply from server",
        ),
    ),
    (
        "branch",
        (
            "remote branch .* not found|couldn't find remote ref|src refspec",
            r"did not match any file\(s\) known|invalid reference|not a commit|cannot lock ref",
            r"non-fast-forward|fetch first|\[(remote )?rejected\]|stale info|not possible to fast-forward",
            "not a valid (branch|ref)|branch named .* already exists|does not have any commits",
            "automatic merge failed|would be overwritten by|unmerged|conflict|unrelated histories",
            "unknown revision|bad revision|ambiguous argument|not something we can merge",
        ),
    ),
    (
        "repository",
        ("not a git repository", "does not appear to be a git", "no such remote", "not an empty directory"),
    ),
    (
        "network",
        ("hung up", "early eof", "rpc failed", "could not read from remote", "unexpected disconnect"),
    ),
)
_PATTERNS: tuple[tuple[Reason, re.Pattern[str]], ...] = tuple(
    (reason, re.compile("|".join(signs))) for reason, signs in _SIGNS
)
_TELLING = re.compile(r"^(fatal|error|CONFLICT|ssh):? |^\s*! \[")


def reason_of(stderr: str) -> Reason:
    """Return what kind of failure git tells of; what nothing is known of is "repository". What the other end says (`remote:`)
    is not trusted to tell."""
    said = "\n".join(line for line in stderr.splitlines() if not line.startswith("remote:")).lower()
    for reason, pattern in _PATTERNS:
        if pattern.search(said):
            return reason
    return "repository"


def failure_of(verb: str, stderr: str, *, exit_code: int | None) -> SandcellError:
    """Return the error of a git that failed, with what it said, which is masked."""
    reason = reason_of(stderr)
    lines = [line for line in stderr.splitlines() if line.strip()]
    telling = [line for line in lines if _TELLING.match(line)] or lines[-1:] or ["it said nothing"]
    return _failed(verb, telling[0][:500], reason, {"exit_code": exit_code, "stderr": stderr[-4000:]})


def timed_out(verb: str, seconds: float) -> SandcellError:
    """Return the error of a git that took too long, and was ended."""
    return _failed(verb, f"it took more than {seconds:g} s, and was ended", "timeout", {"timeout": seconds})


def git_missing() -> SandcellError:
    """Return the error of a sandbox that has no git, or where a password is to be given none that user code cannot write."""
    return error(
        ErrorCode.UNSUPPORTED,
        "there is no git in the sandbox",
        hint='install it: Sandbox.create(apt=["git"]); with the engine "local" on this machine: apt install git',
        details={"program": "git"},
    )


def _failed(verb: str, why: str, reason: Reason, details: dict[str, object]) -> SandcellError:
    return error(
        ErrorCode.GIT_FAILED,
        f"git {verb}: {why}",
        hint=_HINTS[reason],
        details={"verb": verb, "reason": reason, **details},
        retryable=reason in {"network", "timeout"},
    )

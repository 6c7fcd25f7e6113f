"""What git says of a repository, as a client sees it. Names of files that are not UTF-8 carry lone surrogates (PEP 383)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Change", "GitBranch", "GitChange", "GitCommit", "GitDiff", "GitHead", "GitStatus"]

Change = Literal["added", "modified", "deleted", "renamed", "copied", "type_changed", "conflicted"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GitHead:
    """Where a repository stands: its folder, the branch (None: no branch, HEAD is detached) and the commit (None: there is
    none yet)."""

    path: str
    branch: str | None
    sha: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GitChange:
    """One file that changed, counted from the top of the repository. `old_path`: what it was renamed or copied from."""

    path: str
    change: Change
    old_path: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GitStatus:
    """What is different in a repository. `branch` and `sha`: see GitHead. `ahead` and `behind`: how many commits, against
    `upstream` as it was last fetched; 0 where there is none. `staged` is what the next commit takes, `unstaged` what is
    changed besides, `untracked` what git does not know (a folder ends with "/"), `conflicted` what a merge left open.
    `clean`: nothing is different."""

    branch: str | None
    sha: str | None
    upstream: str | None
    ahead: int
    behind: int
    staged: list[GitChange]
    unstaged: list[GitChange]
    untracked: list[str]
    conflicted: list[str]
    clean: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class GitDiff:
    """A patch as text. `truncated`: there is more of it than was asked for."""

    text: str
    truncated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GitCommit:
    """A commit that was made. `summary` is the first line of its message; `branch`: see GitHead."""

    sha: str
    branch: str | None
    summary: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GitBranch:
    """One branch. `remote`: whose it is, None for one of this repository. `current`: it is checked out."""

    name: str
    sha: str
    current: bool = False
    remote: str | None = None
    upstream: str | None = None

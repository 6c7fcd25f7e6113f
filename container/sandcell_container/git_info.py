"""What git says of a repository, as a client sees it. Names of files that are not UTF-8 carry lone surrogates (PEP 383)."""

from __future__ import annotations

from typing import Literal

import msgspec

__all__ = ["Change", "GitBranch", "GitChange", "GitCommit", "GitDiff", "GitHead", "GitStatus"]

Change = Literal["added", "modified", "deleted", "renamed", "copied", "type_changed", "conflicted"]


class GitHead(msgspec.Struct, frozen=True, kw_only=True):
    """Where a repository stands: its folder, the branch (None: no branch, HEAD is detached) and the commit (None: there is
    none yet)."""

    path: str
    branch: str | None
    sha: str | None


class GitChange(msgspec.Struct, frozen=True, kw_only=True):
    """One file that changed, counted from the top of the repository. `old_path`: what it was renamed or copied from."""

    path: str
    change: Change
    old_path: str | None = None


class GitStatus(msgspec.Struct, frozen=True, kw_only=True):
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


class GitDiff(msgspec.Struct, frozen=True, kw_only=True):
    """A patch as text. `truncated`: there is more of it than was asked for."""

    text: str
    truncated: bool = False


class GitCommit(msgspec.Struct, frozen=True, kw_only=True):
    """A commit that was made. `summary` is the first line of its message; `branch`: see GitHead."""

    sha: str
    branch: str | None
    summary: str


class GitBranch(msgspec.Struct, frozen=True, kw_only=True):
    """One branch. `remote`: whose it is, None for one of this repository. `current`: it is checked out."""

    name: str
    sha: str
    current: bool = False
    remote: str | None = None
    upstream: str | None = None

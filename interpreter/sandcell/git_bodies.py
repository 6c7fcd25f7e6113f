"""Bodies of `POST /v1/git/{verb}`. `path` is the repository, by default the folder that the sandbox or the session is in.

`timeout` in seconds for the whole; an unset one is the sandbox's default, None is no limit. Credentials are used once, for
this request, and kept nowhere.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, UnsetType

from sandcell.api import Body

__all__ = [
    "AddFiles",
    "CheckOut",
    "CloneRepository",
    "CommitStaged",
    "GitPath",
    "PullBranch",
    "PushBranch",
    "ShowDiff",
]

_Files = Annotated[tuple[str, ...], msgspec.Meta(max_length=1000)]


class GitPath(Body, frozen=True, kw_only=True):
    """POST /v1/git/status and /branches."""

    path: str = "."
    timeout: float | UnsetType | None = UNSET


class CloneRepository(Body, frozen=True, kw_only=True):
    """POST /v1/git/clone. A `path` of None is a folder of the repository's name. `branch`: also a tag. `depth`: so many commits."""

    url: str
    path: str | None = None
    branch: str | None = None
    depth: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)] | None = None
    username: str | None = None
    password: str | None = None
    timeout: float | UnsetType | None = UNSET

    def __repr__(self) -> str:
        return "CloneRepository(...)"  # it may hold a password


class ShowDiff(GitPath, frozen=True, kw_only=True):
    """POST /v1/git/diff. `staged`: what the next commit takes; `against` a commit; of `files` alone where there are some."""

    staged: bool = False
    against: str | None = None
    files: _Files = ()


class AddFiles(GitPath, frozen=True, kw_only=True):
    """POST /v1/git/add. No `files` are all that is different."""

    files: _Files = ()


class CommitStaged(GitPath, frozen=True, kw_only=True):
    """POST /v1/git/commit. `all`: also what is changed of files that git knows. `name` and `email` of author and committer."""

    message: str
    name: str | None = None
    email: str | None = None
    all: bool = False
    allow_empty: bool = False


class PushBranch(GitPath, frozen=True, kw_only=True):
    """POST /v1/git/push. A `branch` of None is the current one. `host` says whom the credentials are for. `force` overwrites what
    was there when it was last seen."""

    remote: str = "origin"
    branch: str | None = None
    force: bool = False
    username: str | None = None
    password: str | None = None
    host: str | None = None

    def __repr__(self) -> str:
        return "PushBranch(...)"  # it may hold a password


class PullBranch(GitPath, frozen=True, kw_only=True):
    """POST /v1/git/pull. A `branch` of None is the one that the current one tracks. `how` it is brought in; `name` and `email` are of the
    commits that this makes."""

    remote: str = "origin"
    branch: str | None = None
    how: Literal["merge", "rebase", "ff-only"] = "merge"
    name: str | None = None
    email: str | None = None
    username: str | None = None
    password: str | None = None
    host: str | None = None

    def __repr__(self) -> str:
        return "PullBranch(...)"  # it may hold a password


class CheckOut(GitPath, frozen=True, kw_only=True):
    """POST /v1/git/checkout. `create` makes the branch, at `start` or here."""

    branch: str
    create: bool = False
    start: str | None = None

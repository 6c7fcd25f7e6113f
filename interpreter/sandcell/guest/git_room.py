"""The verbs of git as they are asked for: each body, and what answers it."""

from __future__ import annotations

import posixpath
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, NamedTuple

from sandcell.git_bodies import (
    AddFiles,
    CheckOut,
    CloneRepository,
    CommitStaged,
    GitPath,
    PullBranch,
    PushBranch,
    ShowDiff,
)
from sandcell.guest.command_records import timeout_of
from sandcell_container.errors import ErrorCode, error
from sandcell_container.guest.git.repository import Repository, clone
from sandcell_container.guest.git.run import GitRunner, Job

if TYPE_CHECKING:
    from sandcell.config import Config
    from sandcell_container.guest.boot import GuestBoot
    from sandcell_container.guest.spawn import Spawner

__all__ = ["VERBS", "GitRoom"]

Progress = Callable[[str], None]
Work = Callable[[Repository], Awaitable[object]]


class GitRoom:
    """Git in one sandbox."""

    def __init__(self, spawner: Spawner, boot: GuestBoot, config: Config) -> None:
        self._runner = GitRunner(spawner, boot, kill_grace=config.kill_grace)
        self._boot = boot

    async def clone(self, body: CloneRepository, cwd: str, on_progress: Progress) -> object:
        """See `repository.clone`; `cwd` is the folder that the clone goes into by default."""
        return await clone(
            self._runner,
            body.url,
            None if body.path is None else _checked(body.path),
            workdir=self._folder(cwd),
            branch=body.branch,
            depth=body.depth,
            login=(body.username, body.password, None),
            timeout=timeout_of(body.timeout, self._boot.default_timeout),
            on_progress=on_progress,
        )

    async def work(self, verb: str, body: GitPath, path: str, on_progress: Progress) -> object:
        """Do what `body` asks of the repository `path`. Raises as `Repository`."""
        timeout = timeout_of(body.timeout, self._boot.default_timeout)
        job = Job.begin(verb, self._folder(path), timeout, on_progress)
        return await VERBS[verb].work(Repository(self._runner, job), body)

    def _folder(self, path: str) -> str:
        return posixpath.join(self._boot.workdir, _checked(path)).removesuffix("/.")


class _Verb(NamedTuple):
    body: type[GitPath]
    work: Callable[[Repository, GitPath], Awaitable[object]]


async def _status(repository: Repository, _: GitPath) -> object:
    return await repository.status()


async def _branches(repository: Repository, _: GitPath) -> object:
    return await repository.branches()


async def _diff(repository: Repository, body: GitPath) -> object:
    assert isinstance(body, ShowDiff)
    return await repository.diff(staged=body.staged, against=body.against, files=_names(body.files))


async def _add(repository: Repository, body: GitPath) -> object:
    assert isinstance(body, AddFiles)
    return await repository.add(_names(body.files))


async def _commit(repository: Repository, body: GitPath) -> object:
    assert isinstance(body, CommitStaged)
    return await repository.commit(
        body.message, author=(body.name, body.email), everything=body.all, allow_empty=body.allow_empty
    )


async def _push(repository: Repository, body: GitPath) -> object:
    assert isinstance(body, PushBranch)
    login = (body.username, body.password, body.host)
    return await repository.push(body.remote, body.branch, force=body.force, login=login)


async def _pull(repository: Repository, body: GitPath) -> object:
    assert isinstance(body, PullBranch)
    login = (body.username, body.password, body.host)
    return await repository.pull(
        body.remote, body.branch, how=body.how, author=(body.name, body.email), login=login
    )


async def _checkout(repository: Repository, body: GitPath) -> object:
    assert isinstance(body, CheckOut)
    return await repository.checkout(body.branch, create=body.create, start=body.start)


VERBS: dict[str, _Verb] = {
    "status": _Verb(GitPath, _status),
    "diff": _Verb(ShowDiff, _diff),
    "add": _Verb(AddFiles, _add),
    "commit": _Verb(CommitStaged, _commit),
    "push": _Verb(PushBranch, _push),
    "pull": _Verb(PullBranch, _pull),
    "branches": _Verb(GitPath, _branches),
    "checkout": _Verb(CheckOut, _checkout),
}
"""What is done in a repository that is there."""


def _names(files: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(map(_checked, files))


def _checked(path: str) -> str:
    if not path or "\0" in path:
        raise error(
            ErrorCode.INVALID_PATH,
            "a path is empty, or has a NUL in it",
            hint="give the path of a file or folder",
            details={"field": "path"},
        )
    return path

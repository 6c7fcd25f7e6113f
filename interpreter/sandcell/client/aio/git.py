"""Git in the sandbox: clone, look, commit, and speak to other machines."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, TypeVar, Unpack

from sandcell.client.aio.channel import call
from sandcell.client.aio.follow import AsyncFollower
from sandcell.client.checks import check_text
from sandcell.client.git_options import files_of, git_body, git_request
from sandcell.client.protocol import decode_body
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
from sandcell_container.frames import Kind
from sandcell_container.git_info import GitBranch, GitCommit, GitDiff, GitHead, GitStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sandcell.client.aio.transport import AsyncTransport
    from sandcell.client.git_options import GitOptions, Merge

__all__ = ["AsyncGit"]

T = TypeVar("T")


class AsyncGit:
    """Git as the user of user code runs it. `path` is a folder of the repository: a relative one counts from the sandbox's working
    directory, or from the folder of the session that it is asked for by.

    Every verb takes `timeout` in seconds for all of it (None: no limit; by default the sandbox's), after which git is ended, and
    `on_progress`, which gets each line that git says of its progress.

    Every verb may raise
        Unavailable (GIT_FAILED): `details["reason"]` is "repository", "authentication", "branch", "network", "timeout" or
            "identity", `details["stderr"]` the end of what git said.
        InvalidRequest: INVALID_ARGUMENT: a URL or a name that git would take for something else; INVALID_PATH; CWD_NOT_FOUND:
            there is no folder `path`; UNSUPPORTED: there is no git in the sandbox.

    `username` and `password` (a token) are for this one call: they come to be in no argument, variable, file, log or error.
    docs/git.md says what user code could see meanwhile.
    """

    def __init__(self, transport: AsyncTransport, *, session: str | None = None) -> None:
        self._transport = transport
        self._query = {} if session is None else {"session": session}

    async def clone(
        self,
        url: str,
        *,
        path: str | None = None,
        branch: str | None = None,
        depth: int | None = None,
        username: str | None = None,
        password: str | None = None,
        **options: Unpack[GitOptions],
    ) -> GitHead:
        """Clone a repository, by default into a folder of its name, and return where it stands.

        `url`: `https://`, `http://`, `ssh://`, `git://`, `file:///`, `user@host:path` or an absolute path of the sandbox;
        credentials in it are taken out. `branch`: also a tag. `depth`: so many commits, of that branch alone.
        """
        body = git_body(
            CloneRepository,
            options,
            url=check_text(url, what="url"),
            path=path,
            branch=branch,
            depth=depth,
            username=username,
            password=password,
        )
        return await self._do("clone", body, GitHead, options)

    async def status(self, path: str = ".", **options: Unpack[GitOptions]) -> GitStatus:
        """Return what is different: branch, ahead and behind, staged, unstaged, untracked, conflicted."""
        return await self._do("status", git_body(GitPath, options, path=path), GitStatus, options)

    async def diff(
        self,
        path: str = ".",
        *,
        staged: bool = False,
        against: str | None = None,
        files: str | Sequence[str] = (),
        **options: Unpack[GitOptions],
    ) -> GitDiff:
        """Return as a patch what is not staged yet, or with `staged` what the next commit takes; `against`: since that commit.
        Of `files` alone where some are named. At most 8 MiB."""
        body = git_body(ShowDiff, options, path=path, staged=staged, against=against, files=files_of(files))
        return await self._do("diff", body, GitDiff, options)

    async def add(
        self, files: str | Sequence[str] = (), *, path: str = ".", **options: Unpack[GitOptions]
    ) -> GitStatus:
        """Stage `files`, also those that are gone, or all that is different where none are named; return the status after that."""
        body = git_body(AddFiles, options, path=path, files=files_of(files))
        return await self._do("add", body, GitStatus, options)

    async def commit(
        self,
        message: str,
        *,
        path: str = ".",
        name: str | None = None,
        email: str | None = None,
        all: bool = False,  # the word of git itself
        allow_empty: bool = False,
        **options: Unpack[GitOptions],
    ) -> GitCommit:
        """Commit what is staged, with `all` also what is changed of files that git knows.

        `name` and `email` are the author's and the committer's; by default those that git is configured with. Hooks run.
        """
        body = git_body(
            CommitStaged,
            options,
            message=check_text(message, what="message"),
            path=path,
            name=name,
            email=email,
            all=all,
            allow_empty=allow_empty,
        )
        return await self._do("commit", body, GitCommit, options)

    async def push(
        self,
        path: str = ".",
        *,
        remote: str = "origin",
        branch: str | None = None,
        force: bool = False,
        username: str | None = None,
        password: str | None = None,
        host: str | None = None,
        **options: Unpack[GitOptions],
    ) -> GitHead:
        """Push a branch, by default the current one, to the one of its name, and return what was pushed.

        It tracks that from then on, if it tracked none. `force` overwrites what was there when it was last fetched or pushed, and
        nothing that came since. Credentials need `host` ("github.com"), for user code can write the URL of a remote. No hook runs.
        """
        body = git_body(
            PushBranch,
            options,
            path=path,
            remote=remote,
            branch=branch,
            force=force,
            username=username,
            password=password,
            host=host,
        )
        return await self._do("push", body, GitHead, options)

    async def pull(
        self,
        path: str = ".",
        *,
        remote: str = "origin",
        branch: str | None = None,
        how: Merge = "merge",
        name: str | None = None,
        email: str | None = None,
        username: str | None = None,
        password: str | None = None,
        host: str | None = None,
        **options: Unpack[GitOptions],
    ) -> GitHead:
        """Fetch a branch, by default the one that the current one tracks, bring it in, and return where that led.

        `how`: "merge", "rebase" or "ff-only"; `name` and `email` are of the commits that this makes, see `commit`. A conflict is GIT_FAILED with reason "branch", and left for you to resolve; `status`
        names the files. Credentials: see `push`.
        """
        body = git_body(
            PullBranch,
            options,
            path=path,
            remote=remote,
            branch=branch,
            how=how,
            name=name,
            email=email,
            username=username,
            password=password,
            host=host,
        )
        return await self._do("pull", body, GitHead, options)

    async def branches(self, path: str = ".", **options: Unpack[GitOptions]) -> list[GitBranch]:
        """Return the branches, those of remotes as they were last fetched."""
        return await self._do("branches", git_body(GitPath, options, path=path), list[GitBranch], options)

    async def checkout(
        self,
        branch: str,
        *,
        path: str = ".",
        create: bool = False,
        start: str | None = None,
        **options: Unpack[GitOptions],
    ) -> GitHead:
        """Check out a branch, or a tag or a commit, and return where that led. `create` makes the branch, at the commit `start` or
        here."""
        body = git_body(CheckOut, options, branch=branch, path=path, create=create, start=start)
        return await self._do("checkout", body, GitHead, options)

    async def _do(self, verb: str, body: object, answer: type[T], options: GitOptions) -> T:
        """Ask for a verb, hand on its progress and return its result. It ends when this is given up."""
        on_progress = options.get("on_progress")
        follower = AsyncFollower(self._transport, git_request(verb, body, self._query), None)
        async with aclosing(follower.entries()) as entries:
            async for followed in entries:
                if followed.entry.kind == Kind.ENDED:
                    return decode_body(followed.entry.data, answer)
                if on_progress is not None and followed.entry.kind == Kind.STDERR:
                    await call(on_progress, followed.entry.data.decode(errors="replace").rstrip("\n"))
        raise await self._transport.missed("the answer has no end", admitted=True)

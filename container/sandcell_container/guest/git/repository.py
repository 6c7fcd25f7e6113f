"""The verbs of git on one repository: what each runs, and what it gives back.

Where another machine is spoken to that is a git of its own, which gets the password and runs nothing of the repository's; what
writes the files of the work tree, and so runs filters and hooks, comes after it and gets none.
"""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING, Literal

from sandcell_container.errors import ErrorCode, error
from sandcell_container.git_info import GitCommit, GitDiff, GitHead
from sandcell_container.guest.git.credentials import make_credentials
from sandcell_container.guest.git.names import (
    check_branch,
    check_commit,
    check_remote,
    folder_of,
    parse_origin,
    parse_url,
)
from sandcell_container.guest.git.parse import BRANCH_FORMAT, parse_branches, parse_status
from sandcell_container.guest.git.run import Job

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sandcell_container.git_info import GitBranch, GitStatus
    from sandcell_container.guest.git.credentials import Credentials
    from sandcell_container.guest.git.names import RemoteUrl
    from sandcell_container.guest.git.run import GitRunner

__all__ = ["Author", "Login", "Repository", "clone"]

Login = tuple[str | None, str | None, str | None]
"""A user name, a password, and the host that they are for."""

Author = tuple[str | None, str | None]
"""A name and an e-mail address; None: as git is configured."""

Merge = Literal["merge", "rebase", "ff-only"]

_MERGES: dict[Merge, tuple[str, ...]] = {
    "merge": ("merge", "--ff", "--no-edit", "--quiet"),
    "ff-only": ("merge", "--ff-only", "--quiet"),
    "rebase": ("rebase", "--quiet"),
}

# Whatever the user has configured.
_PLAIN_STATUS = (
    "--porcelain=v2",
    "--branch",
    "-z",
    "--untracked-files=normal",
    "--renames",
    "--ignore-submodules=none",
)
_PLAIN_DIFF = ("--no-ext-diff", "--no-textconv", "--no-color", "--src-prefix=a/", "--dst-prefix=b/")


async def clone(
    runner: GitRunner,
    url: str,
    path: str | None,
    *,
    workdir: str,
    branch: str | None,
    depth: int | None,
    login: Login,
    timeout: float | None,
    on_progress: Callable[[str], None],
) -> GitHead:
    """Clone `url` into `path`, by default a folder of the repository's name in `workdir`; `path` counts from there.

    `branch`: also a tag. `depth`: so many commits of that branch alone. Raises as `GitRunner.run`, and INVALID_ARGUMENT.
    """
    found = parse_url(url)
    username, password, host = login
    if host is not None:
        raise _refused("host", "the URL of a clone says whom the credentials are for")
    credentials = make_credentials(found, username, password)
    target = posixpath.join(workdir, folder_of(found) if path is None else path)
    options: tuple[str, ...] = ("--no-checkout", "--template=", "--progress")
    options += () if branch is None else ("--branch", check_branch(branch))
    options += () if depth is None else ("--depth", str(depth))
    job = Job.begin("clone", workdir, timeout, on_progress)
    await runner.run(job, "clone", *options, "--", found.url, target, remote=True, credentials=credentials)
    made = Repository(runner, job._replace(cwd=target))
    if (await made.head()).sha is not None:
        await made.run("reset", "--hard", "--quiet")
    return await made.head()


class Repository:
    """One repository, the folder of `job`, for one verb. Methods raise as `GitRunner.run`, and INVALID_ARGUMENT."""

    def __init__(self, runner: GitRunner, job: Job) -> None:
        self._runner = runner
        self._job = job

    async def run(self, *arguments: str) -> None:
        await self._runner.run(self._job, *arguments)

    async def head(self) -> GitHead:
        return GitHead(path=self._job.cwd, branch=await self._current(), sha=await self._sha("HEAD"))

    async def status(self) -> GitStatus:
        said = await self._runner.run(self._job, "status", *_PLAIN_STATUS)
        if said.truncated:
            raise error(
                ErrorCode.TOO_LARGE,
                "the status has more than 8 MiB",
                hint="name the folders that git is to pass over in .gitignore",
            )
        return parse_status(said.stdout)

    async def diff(self, *, staged: bool, against: str | None, files: Sequence[str]) -> GitDiff:
        """Return what is not staged yet, or with `staged` what the next commit takes; `against`: since that commit."""
        options = (*_PLAIN_DIFF, *(("--cached",) if staged else ()))
        since = () if against is None else (check_commit(against, what="against"),)
        said = await self._runner.run(self._job, "diff", *options, *since, "--", *files)
        return GitDiff(text=said.stdout.decode(errors="replace"), truncated=said.truncated)

    async def add(self, files: Sequence[str]) -> GitStatus:
        """Stage all that is different, or `files` alone, also where they are gone."""
        await self.run("add", "--all", "--", *files)
        return await self.status()

    async def commit(self, message: str, *, author: Author, everything: bool, allow_empty: bool) -> GitCommit:
        """Commit what is staged; `everything`: and what is changed of files that git knows. `author` is the committer too, by
        default as git is configured."""
        if not message.strip():
            raise _refused("message", "a commit has a message")
        options = ("--quiet", "--cleanup=strip", "--file=-") + ("--all",) * everything
        options += ("--allow-empty",) * allow_empty
        await self._runner.run(
            self._job,
            "commit",
            *options,
            stdin=message.encode(errors="surrogateescape"),
            env=_identity(author),
        )
        head = await self.head()
        said = await self._runner.run(self._job, "log", "-1", "--format=%s")
        return GitCommit(sha=head.sha or "", branch=head.branch, summary=said.line)

    async def branches(self) -> list[GitBranch]:
        where = ("refs/heads", "refs/remotes")
        said = await self._runner.run(self._job, "for-each-ref", f"--format={BRANCH_FORMAT}", *where)
        return parse_branches(said.stdout)

    async def checkout(self, branch: str, *, create: bool, start: str | None) -> GitHead:
        """Check out a branch, or detached a tag or a commit; `create` makes the branch, at `start` or here."""
        if not create and start is not None:
            raise _refused("start", "only a branch that is made has one: create=True")
        if create:
            begin = () if start is None else (check_commit(start, what="start"),)
            await self.run("checkout", "--quiet", "-b", check_branch(branch), *begin, "--")
        else:
            await self.run("checkout", "--quiet", check_commit(branch, what="branch"), "--")
        return await self.head()

    # --- with another machine

    async def push(self, remote: str, branch: str | None, *, force: bool, login: Login) -> GitHead:
        """Push a branch, by default the current one, to the one of its name, which it tracks from then on if it tracked none.
        `force` overwrites what was there when it was last fetched or pushed, and nothing else."""
        branch = await self._branch_or_current(branch)
        sha = await self._sha(f"refs/heads/{branch}")
        if sha is None:
            raise _no_branch(self._job.verb, branch)
        url, credentials = await self._remote(check_remote(remote), login, push=True)
        ref, tracking = f"refs/heads/{branch}", f"refs/remotes/{remote}/{branch}"
        lease = (f"--force-with-lease={ref}:{await self._sha(tracking) or ''}",) if force else ()
        await self._runner.run(
            self._job,
            *("push", "--progress", "--no-verify", *lease, "--", url.url, f"{sha}:{ref}"),
            remote=True,
            credentials=credentials,
        )
        await self.run("update-ref", tracking, sha)
        if await self._tracked(branch) is None:
            await self.run("config", f"branch.{branch}.remote", remote)
            await self.run("config", f"branch.{branch}.merge", ref)
        return GitHead(path=self._job.cwd, branch=branch, sha=sha)

    async def pull(
        self, remote: str, branch: str | None, *, how: Merge, author: Author, login: Login
    ) -> GitHead:
        """Fetch a branch, by default the one that the current one tracks or that has its name, and bring it in; `author` is of
        the commits that this makes."""
        if branch is None:
            current = await self._branch_or_current(None)
            branch = await self._tracked(current) or current
        check_branch(branch)
        url, credentials = await self._remote(check_remote(remote), login, push=False)
        tracking = f"refs/remotes/{remote}/{branch}"
        await self._runner.run(
            self._job,
            *("fetch", "--progress", "--", url.url, f"+refs/heads/{branch}:{tracking}"),
            remote=True,
            credentials=credentials,
        )
        await self._runner.run(self._job, *_MERGES[how], tracking, env=_identity(author))
        return await self.head()

    async def _remote(self, name: str, login: Login, *, push: bool) -> tuple[RemoteUrl, Credentials | None]:
        """Return the URL of a remote, and the credentials where they are for its host: user code can write the URL."""
        username, password, host = login
        asked = ("remote", "get-url", *(("--push",) if push else ()), name)
        said = await self._runner.run(self._job, *asked)
        text = said.line if ":" in said.line else posixpath.join(self._job.cwd, said.line)
        url = parse_url(text, what="remote")
        if username is None and password is None:
            return url, make_credentials(url, None, None)
        if host is None:
            raise _refused(
                "host", f"credentials need it; the remote {name} is of {url.origin or url.scheme!r} now"
            )
        if parse_origin(host) != url.origin:
            raise _refused("host", f"the remote {name} is of {url.origin or url.scheme!r}, and not of it")
        return url, make_credentials(url, username, password)

    async def _branch_or_current(self, branch: str | None) -> str:
        if branch is not None:
            return check_branch(branch)
        current = await self._current()
        if current is None:
            raise _no_branch(self._job.verb, "HEAD")
        return check_branch(current)

    async def _current(self) -> str | None:
        said = await self._runner.run(self._job, "symbolic-ref", "--quiet", "--short", "HEAD", allowed=(0, 1))
        return said.line or None

    async def _sha(self, name: str) -> str | None:
        asked = ("rev-parse", "--quiet", "--verify", f"{name}^{{commit}}")
        said = await self._runner.run(self._job, *asked, allowed=(0, 1))
        return said.line or None

    async def _tracked(self, branch: str) -> str | None:
        """Return the name that the branch has where it is tracked."""
        ref = "--format=%(upstream:remoteref)"
        said = await self._runner.run(self._job, "for-each-ref", ref, f"refs/heads/{branch}")
        return said.line.splitlines()[0].removeprefix("refs/heads/") or None if said.line else None


def _identity(author: Author) -> dict[str, str]:
    given = dict(zip(("NAME", "EMAIL"), author, strict=True))
    return {
        f"GIT_{who}_{what}": text
        for what, text in given.items()
        if text is not None
        for who in ("AUTHOR", "COMMITTER")
    }


def _no_branch(verb: str, name: str) -> Exception:
    is_detached = name == "HEAD"
    return error(
        ErrorCode.GIT_FAILED,
        f"git {verb}: {'no branch is checked out' if is_detached else f'there is no branch {name} with a commit'}",
        hint="name a branch that branches() lists",
        details={"verb": verb, "reason": "branch"},
    )


def _refused(what: str, why: str) -> Exception:
    return error(ErrorCode.INVALID_ARGUMENT, f"{what}: {why}", hint="docs/git.md", details={"field": what})

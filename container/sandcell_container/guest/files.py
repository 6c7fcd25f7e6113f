"""Files of the sandbox, for the guest: everything is done by a worker that has the user's rights and no others.

The guest gets open descriptors of regular files and moves the bytes itself. It never opens a path, and it believes
the worker nothing that could hurt: what is opened is looked at again, answers have a bounded time and a fixed shape.
"""

from __future__ import annotations

import asyncio
import errno
import os
import stat
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, Self

import msgspec

from sandcell_container.errors import ErrorCode, SandcellError, error
from sandcell_container.file_info import FileInfo, FilePage, SearchMatch, SearchResult
from sandcell_container.guest.file_cursor import decode_place, encode_place
from sandcell_container.guest.file_errors import error_of_answer, error_of_errno
from sandcell_container.guest.readable_file import ReadableFile, with_mime
from sandcell_container.guest.user_worker import believe
from sandcell_container.holes import write_all

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    from sandcell_container.guest.user_worker import Answer, UserWorker

__all__ = ["Condition", "Files", "ListPlan", "Replacing", "SearchPlan", "check_regular"]

_LONGEST_PATH = 4095  # PATH_MAX without its NUL
_LONG_S = (
    3600.0  # a copy of a large folder may take as long; who asked for it may go away before, and ends it
)
_SPARE_S = 5.0  # from the end of a search's time to its answer


class Condition(NamedTuple):
    """What has to hold for a file to be replaced: it has one of these tags ("*": it is there), or it is not there at all."""

    tags: tuple[str, ...] | None = None
    is_new: bool = False

    def fields(self) -> dict[str, object]:
        return {"if_match": self.tags, "exclusive": self.is_new}


ALWAYS = Condition()


class ListPlan(NamedTuple):
    """What of a folder is listed: `glob` patterns of names or relative paths (none: all), in the order of `sort`: "name", "size"
    or "mtime", the largest or newest first. `cursor` is that of the page before."""

    recursive: bool = False
    hidden: bool = True
    glob: tuple[str, ...] = ()
    sort: str = "name"
    limit: int = 1000
    cursor: str | None = None


class SearchPlan(NamedTuple):
    """What is looked for: a regular expression of Python's `re`, in files that match one of `glob`, not in what matches one of
    `exclude`. `context` lines around each match, at most `limit` of these, for `timeout` seconds."""

    pattern: str
    glob: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    hidden: bool = True
    ignore_case: bool = False
    context: int = 0
    limit: int = 200
    timeout: float = 20.0


class Files:
    """The files that user code sees, with its rights. Paths that are not absolute count from `workdir`.

    An async context manager: leaving it waits for what goes on by itself.

    Every call raises SandcellError: FILE_NOT_FOUND; IS_A_DIRECTORY, NOT_A_DIRECTORY; PERMISSION_DENIED;
    INVALID_PATH (empty, NUL, too long, a loop of links, a FIFO, socket or device); NO_SPACE; TOO_LARGE; BUSY;
    UNREACHABLE (the worker died or did not answer; whether the work was done is not known).
    """

    def __init__(self, worker: UserWorker, workdir: str) -> None:
        self.worker = worker
        self._workdir = workdir
        self._group: asyncio.TaskGroup | None = None

    async def __aenter__(self) -> Self:
        self._group = asyncio.TaskGroup()
        await self._group.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        group, self._group = self._group, None
        if group is not None:
            await group.__aexit__(None, None, None)

    # whole files

    async def read(self, path: str) -> ReadableFile:
        """Open a regular file; symlinks are followed. Whoever gets it closes it."""
        answer = await self._ask("read", path)
        try:
            info = believe(answer.data, FileInfo)
            check_regular(answer.fd, path)
        except BaseException:
            answer.close()
            raise
        return ReadableFile(info, answer.take_fd())

    async def write(
        self,
        path: str,
        chunks: AsyncIterator[bytes],
        *,
        mode: int | None = None,
        condition: Condition = ALWAYS,
    ) -> FileInfo:
        """Write a whole file: readers see the old one or the new one. Missing folders are made, a symlink is followed.

        `mode` are permission bits; None keeps those of the file that is there, else the umask says. When it fails
        or is cancelled, what was there before is still there, but for folders that were made.

        Raises:
            Conflict: CHANGED_SINCE, EXISTS: the condition does not hold, at the beginning or at the end.
        """
        async with Replacing(self, path, mode, condition) as made:
            async for chunk in chunks:
                _write_all(made.fd, chunk, path)
            return await made.keep()

    def replacing(self, path: str, *, mode: int | None = None, condition: Condition = ALWAYS) -> Replacing:
        """Return what `write` does as a context: whoever enters it writes to its `fd`, then calls `keep`."""
        return Replacing(self, path, mode, condition)

    async def append(
        self, path: str, chunks: AsyncIterator[bytes], *, condition: Condition = ALWAYS
    ) -> FileInfo:
        """Write behind what is in a file, which is made where there is none. What was written stays when it fails."""
        answer = await self._ask("append", path, **condition.fields())
        try:
            check_regular(answer.fd, path)
            async for chunk in chunks:
                _write_all(answer.fd, chunk, path)
        finally:
            answer.close()
        return await self.stat(believe(answer.data, FileInfo).path)

    # folders and names

    async def list(self, path: str, plan: ListPlan) -> FilePage:
        """Return a page of what is in a folder; with `recursive` each folder is followed by what is in it.

        Symlinks are listed and not followed. What goes on in the folder meanwhile changes no other entry's place. What is in
        a folder below that the user may not read is left out.

        Raises:
            InvalidRequest: STALE_CURSOR: the cursor is none; INVALID_ARGUMENT: a pattern is none.
        """
        fields = {**plan._asdict(), "after": decode_place(plan.cursor) if plan.cursor else None}
        if plan.recursive or plan.sort != "name":  # who looks through a tree keeps nobody waiting
            answer = await self._run("list_folder", path, fields)
        else:
            answer = await self._ask("list_folder", path, **fields)
        end = believe(answer.data, _PageEnd)
        return FilePage(
            files=believe(answer.parts, list[FileInfo]),
            next_cursor=encode_place(end.after) if end.more and end.after else None,
        )

    async def stat(self, path: str) -> FileInfo:
        """Return what is known of a file; a symlink speaks of itself."""
        return self._told(await self._ask("stat_file", path))

    async def mkdir(self, path: str) -> FileInfo:
        """Make a folder and those above it; one that is there is fine."""
        return self._told(await self._ask("mkdir", path))

    async def remove(self, path: str, *, recursive: bool = False) -> None:
        """Remove a file or a symlink; with `recursive` also a folder with all that is in it, else that is IS_A_DIRECTORY."""
        if recursive:
            await self._run("remove", path, {"recursive": True})
        else:
            await self._ask("remove", path, recursive=False)

    async def rename(self, path: str, to: str, *, overwrite: bool = False) -> FileInfo:
        """Give a file or folder another name; folders above that are made. A symlink itself is renamed.

        What has the name is replaced only with `overwrite`, and a folder only where it is empty; else EXISTS.
        """
        fields = {"to": self._absolute(to), "overwrite": overwrite}
        answer = await self._worker_answer("rename", path, fields)
        if answer.number == errno.EXDEV:
            answer = await self._run("move", path, fields)
        elif answer.number or answer.refused:
            raise error_of_answer(answer, to if answer.number == errno.EEXIST else path)
        return self._told(answer)

    async def copy(self, path: str, to: str, *, overwrite: bool = False) -> FileInfo:
        """Copy a file or a folder, whole or not at all, with permission bits and times; folders above are made.

        A symlink is followed, those in a folder stay symlinks. `overwrite` is for files. EXISTS as `rename`; INVALID_PATH
        where there is a socket or a device in the folder, INVALID_ARGUMENT for a folder into itself.
        """
        fields = {"to": self._absolute(to), "overwrite": overwrite}
        return self._told(await self._run("copy", path, fields))

    # inside of files

    async def replace(
        self, path: str, edits: Sequence[tuple[str, str]], *, condition: Condition = ALWAYS
    ) -> FileInfo:
        """Replace each old text by its new one, in order. Each has to be there exactly once, else nothing is changed.

        Raises:
            Conflict (MATCH_COUNT): `details["count"]` says how often the text `details["index"]` is there. CHANGED_SINCE.
            InvalidRequest (TOO_LARGE): the file has more than 64 MiB.
        """
        return self._told(await self._ask("replace", path, edits=list(edits), **condition.fields()))

    async def insert(self, path: str, line: int, text: str, *, condition: Condition = ALWAYS) -> FileInfo:
        """Insert `text` as lines of their own behind line `line`: 0 is the start, beyond the end appends. Raises as `replace`."""
        return self._told(await self._ask("insert", path, line=line, text=text, **condition.fields()))

    async def search(self, path: str, plan: SearchPlan) -> SearchResult:
        """Look for lines that match in a file, or in all files below a folder, by name; binary files are passed over.

        Raises:
            InvalidRequest (INVALID_ARGUMENT): the pattern is no regular expression.
        """
        answer = await self._run("search", path, plan._asdict(), deadline_s=plan.timeout + _SPARE_S)
        end = believe(answer.data, _SearchEnd)
        return SearchResult(
            matches=believe(answer.parts, list[SearchMatch]),
            files=end.files,
            truncated=bool(end.truncated),
            timed_out=end.truncated == "timeout",
        )

    # a SpillStore

    def open_soon(self, path: str, callback: Callable[[int | None], None]) -> None:
        """Make the new file `path`, and the folders above it; call back with a descriptor to write it, or None."""

        async def open_it() -> None:
            fd = None
            try:
                answer = await self._ask("new", path)
                check_regular(answer.fd, path)
                fd = answer.take_fd()
            except SandcellError:
                pass  # said by None
            finally:
                callback(fd)

        if self._group is None:
            callback(None)
        else:
            self._group.create_task(open_it())

    async def open_fifo(self, path: str) -> int:
        """Make the new FIFO `path`, and the folders above it; return a descriptor for both of its ends.

        Raises:
            SandcellError: it cannot be made.
        """
        answer = await self._ask("fifo", path)
        try:
            if not stat.S_ISFIFO(os.fstat(answer.fd).st_mode):  # code of the user may stand in between
                raise error(ErrorCode.CHANGED_SINCE, f"{path[:200]!r} is no FIFO any more")
        except BaseException:
            answer.close()
            raise
        return answer.take_fd()

    def remove_soon(self, path: str) -> None:
        """Remove what `open_soon` or `open_fifo` made."""
        if self._group is not None:
            self._group.create_task(self.forget(path))

    # for the other rooms of files

    def absolute(self, path: str) -> str:
        """Return `path` as the worker is told it. Raises INVALID_PATH."""
        return self._absolute(path)

    async def forget(self, path: str) -> None:
        """Remove a file of ours, wherever it is by now."""
        with suppress(SandcellError):  # gone already, or the worker is: nothing more can be done about it
            await self._ask("remove", path, recursive=False)

    async def ask(self, verb: str, path: str, **more: object) -> Answer:
        """Have the worker do something to `path`; whoever gets the answer closes it."""
        return await self._ask(verb, path, **more)

    async def _ask(self, verb: str, path: str, **fields: object) -> Answer:
        return _succeeded(await self._worker_answer(verb, path, fields), path)

    async def _worker_answer(self, verb: str, path: str, fields: Mapping[str, object]) -> Answer:
        return await self.worker.ask(verb, repr(path[:200]), path=self._absolute(path), **fields)

    async def _run(
        self, verb: str, path: str, fields: Mapping[str, object], *, deadline_s: float = _LONG_S
    ) -> Answer:
        """Have a worker of its own do what may take long. Cancelling ends it where it is."""
        what = repr(path[:200])
        async with self.worker.errand(verb, what, path=self._absolute(path), **fields) as errand:
            return _succeeded(await errand.answer(deadline_s), path)

    def _told(self, answer: Answer) -> FileInfo:
        return with_mime(believe(answer.data, FileInfo))

    def _absolute(self, path: str) -> str:
        if not path or "\0" in path:
            raise error(ErrorCode.INVALID_PATH, "a path is empty or holds a NUL character")
        full = os.path.join(self._workdir, path)
        full = full if ".." in full.split("/") else os.path.normpath(full)
        try:
            size = len(full.encode("utf-8", "surrogateescape"))
        except UnicodeEncodeError as problem:
            raise error(ErrorCode.INVALID_PATH, f"{path[:80]!r} is no path: {problem.reason}") from None
        if size > _LONGEST_PATH:
            raise error_of_errno(errno.ENAMETOOLONG, path)
        return full


class Replacing:
    """A file that is to take the place of another: written beside it, until `keep`. Leaving it without takes it away."""

    def __init__(self, files: Files, path: str, mode: int | None, condition: Condition) -> None:
        self._files = files
        self._path = path
        self._mode = mode
        self._condition = condition
        self._answer: Answer | None = None
        self._plan: _WritePlan | None = None

    @property
    def fd(self) -> int:
        assert self._answer is not None, "entered"
        return self._answer.fd

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def open(self) -> None:
        """Open it. Raises as `Files.write`."""
        self._answer = await self._files.ask("begin", self._path, **self._condition.fields())
        try:
            self._plan = believe(self._answer.data, _WritePlan)
            check_regular(self._answer.fd, self._path)
        except BaseException:
            self._answer.close()
            raise

    async def close(self) -> None:
        """Take it away, unless it was kept. Twice is fine."""
        if self._answer is not None:
            self._answer.close()
        plan, self._plan = self._plan, None
        if plan is not None:
            await self._files.forget(plan.temporary)

    async def keep(self) -> FileInfo:
        """Put it into its place. Raises as `Files.write`."""
        assert self._answer is not None and self._plan is not None, "entered"
        self._answer.close()
        bits = self._plan.mode if self._mode is None else self._mode
        fields = {"target": self._plan.target, "mode": bits, **self._condition.fields()}
        done = await self._files.ask("commit", self._plan.temporary, **fields)
        self._plan = None
        return with_mime(believe(done.data, FileInfo))


class _WritePlan(msgspec.Struct, frozen=True):
    temporary: str
    target: str
    mode: int | None


class _PageEnd(msgspec.Struct, frozen=True):
    after: tuple[int, str] | None
    more: bool


class _SearchEnd(msgspec.Struct, frozen=True):
    truncated: str
    files: int


def _succeeded(answer: Answer, path: str) -> Answer:
    if answer.number or answer.refused:
        answer.close()
        raise error_of_answer(answer, path)
    return answer


def check_regular(fd: int, path: str) -> os.stat_result:
    """Look again at what the worker opened, which it may lie about."""
    if fd < 0:
        raise error(ErrorCode.INTERNAL, f"no file was opened for {path[:200]!r}")
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        raise error_of_errno(errno.EINVAL, path, kind="no regular file")
    return status


def _write_all(fd: int, data: bytes, path: str) -> None:
    try:
        write_all(fd, data)
    except OSError as problem:
        raise error_of_errno(problem.errno or errno.EIO, path) from problem

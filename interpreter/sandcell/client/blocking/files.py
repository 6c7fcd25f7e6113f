# Made from ../aio/files.py by `python -m sandcell.client.generate`: change that file, not this one.
"""Files of the sandbox: read, written, listed, changed, searched."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, overload

from sandcell.client.blocking.open_file import FileReader, FileWriter
from sandcell.client.blocking.transfers import Transfers
from sandcell.client.blocking.watch import Watch
from sandcell.client.checks import check_count, check_data, check_path, wrong
from sandcell.client.file_changes import watch_request
from sandcell.client.file_options import (
    LONG_PATIENCE_S,
    MOST_LISTED,
    FileLines,
    change_request,
    file_request,
    lines_of,
    make_copy,
    make_insert,
    make_list,
    make_replace,
    make_search,
    search_patience,
    too_many,
    verb_request,
)
from sandcell.client.options import MAX_READ, too_large
from sandcell.file_bodies import FilePath
from sandcell_container.errors import ErrorCode, SandcellError
from sandcell_container.file_info import FileInfo, FilePage, SearchResult
from sandcell_container.spec import parse_size

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sandcell.client.blocking.transport import Transport
    from sandcell.client.file_options import SandboxPath, Sort
    from sandcell.client.protocol import Request

__all__ = ["Files"]

_MISSING = {ErrorCode.FILE_NOT_FOUND, ErrorCode.NOT_A_DIRECTORY}


class Files(Transfers):
    """Files as user code sees them, with its rights: a relative path counts from the sandbox's working directory, or from the
    folder of the session that they are asked for by. A path is text, or a path object such as `pathlib.PurePosixPath`.

    Every method may raise FILE_NOT_FOUND, PERMISSION_DENIED, NOT_A_DIRECTORY, IS_A_DIRECTORY, INVALID_PATH
    and NO_SPACE. `if_match` is the `etag` that a file has to have, else it is CHANGED_SINCE and nothing is done.
    """

    def __init__(self, transport: Transport, *, session: str | None = None) -> None:
        self._transport = transport
        self._query = {} if session is None else {"session": session}

    # --- reading

    def read(
        self,
        path: SandboxPath,
        *,
        encoding: str = "utf-8",
        errors: str = "replace",
        max_bytes: str | int = MAX_READ,
    ) -> str:
        """Return a file's text. By default bytes that are no UTF-8 come as U+FFFD; `read_bytes` has them as they are.

        Raises:
            InvalidRequest (TOO_LARGE): see `read_bytes`.
            UnicodeDecodeError: with `errors="strict"`.
        """
        return (self.read_bytes(path, max_bytes=max_bytes)).decode(encoding, errors)

    def read_bytes(
        self, path: SandboxPath, *, start: int = 0, end: int | None = None, max_bytes: str | int = MAX_READ
    ) -> bytes:
        """Return a file's bytes, all at once, or those from `start` up to `end`, as a slice has them.

        Raises:
            InvalidRequest (TOO_LARGE): they are more than `max_bytes`, by default 256 MiB, which is the most memory that
                a file may take here; `open` and `download` have no such limit.
        """
        first = check_count(start, what="start", least=0)
        last = None if end is None else check_count(end, what="end", least=0)
        if last is not None and last <= first:
            return b""
        asked = {"Range": f"bytes={first}-{'' if last is None else last - 1}"} if first or last else {}
        request = file_request("GET", path, self._query, headers=asked)
        try:
            return (self._fetch(path, request, parse_size(max_bytes, what="max_bytes")))[0]
        except SandcellError as problem:
            if problem.details.get("field") == "Range":
                return b""  # it ends before
            raise

    def read_lines(
        self,
        path: SandboxPath,
        *,
        start: int = 1,
        count: int | None = None,
        encoding: str = "utf-8",
        errors: str = "replace",
        max_bytes: str | int = MAX_READ,
    ) -> FileLines:
        """Return `count` lines (None: all that follow) from line `start` on, the first of the file being 1, and how many it
        has. The rest of the file does not leave the sandbox."""
        first = check_count(start, what="start", least=1)
        last = "" if count is None else str(first + check_count(count, what="count", least=0) - 1)
        request = file_request("GET", path, {**self._query, "lines": f"{first}-{last}"})
        data, headers = self._fetch(path, request, parse_size(max_bytes, what="max_bytes"))
        return lines_of(data, encoding, errors, start=first, total=int(headers["sandcell-lines"]))

    @overload
    def open(self, path: SandboxPath, mode: Literal["rb"] = "rb", *, start: int = 0) -> FileReader: ...

    @overload
    def open(
        self, path: SandboxPath, mode: Literal["wb"], *, permissions: int | None = None
    ) -> FileWriter: ...

    def open(
        self,
        path: SandboxPath,
        mode: Literal["rb", "wb"] = "rb",
        *,
        start: int = 0,
        permissions: int | None = None,
    ) -> FileReader | FileWriter:
        """Open a file of any size, to read its bytes from `start` on ("rb"), or to write it anew ("wb").

        What is written is there when the `async with` block of the writer ends, whole, unless it ends with an exception.
        """
        if mode == "rb":
            asked = {"Range": f"bytes={check_count(start, what='start', least=0)}-"} if start else {}
            request = file_request("GET", path, self._query, headers=asked)
            return FileReader(self._transport.open(request))
        if mode == "wb":
            request = change_request("PUT", path, self._query, mode=permissions)
            return FileWriter(self._transport, replace(request, streamed=True))
        raise wrong("mode", f"= {mode!r} is none that there is", hint='"rb" or "wb"; append() writes behind')

    # --- writing

    def write(
        self,
        path: SandboxPath,
        data: str | bytes,
        *,
        mode: int | None = None,
        if_match: str | None = None,
        new: bool = False,
    ) -> FileInfo:
        """Write a whole file, its folders made where they are missing; readers see the old file or the new one.

        `mode` are its permission bits, by default those of the file that was there, else 0644. A symlink is followed. `new`:
        only where nothing is there, else EXISTS.
        """
        request = change_request("PUT", path, self._query, mode=mode, if_match=if_match, new=new)
        return self._transport.call(replace(request, body=check_data(data, what="data")), FileInfo)

    def append(self, path: SandboxPath, data: str | bytes, *, if_match: str | None = None) -> FileInfo:
        """Write behind what is in a file, which is made where it is missing."""
        request = change_request("PATCH", path, self._query, if_match=if_match)
        return self._transport.call(replace(request, body=check_data(data, what="data")), FileInfo)

    def replace(
        self,
        path: SandboxPath,
        old: str | Sequence[tuple[str, str]],
        new: str | None = None,
        *,
        if_match: str | None = None,
    ) -> FileInfo:
        """Replace the text `old`, which is there exactly once, by `new`; or a list of such pairs, one after another.

        All of them or none: the file is written once.

        Raises:
            Conflict (MATCH_COUNT): `details["count"]` says how often the text of the pair `details["index"]` is there.
            InvalidRequest (TOO_LARGE): the file has more than 64 MiB.
        """
        body = make_replace(path, old, new, if_match=if_match)
        return self._transport.call(verb_request("replace", body, self._query, once=True), FileInfo)

    def insert(self, path: SandboxPath, line: int, text: str, *, if_match: str | None = None) -> FileInfo:
        """Insert `text` as lines of their own behind line `line`: 0 is the start, beyond the end appends."""
        body = make_insert(path, line, text, if_match=if_match)
        return self._transport.call(verb_request("insert", body, self._query, once=True), FileInfo)

    # --- folders and names

    def list(
        self,
        path: SandboxPath = ".",
        *,
        recursive: bool = False,
        hidden: bool = True,
        glob: str | Iterable[str] = (),
        sort: Sort = "name",
    ) -> list[FileInfo]:
        """Return what is in a folder; `recursive` goes down, each folder before what is in it; `hidden` includes names with a dot.

        `glob`: only what matches one of these patterns: "*.py" is for names, "src/**/*.py" for paths from `path` on.
        `sort` by "name", or by "size" or "mtime", the largest or newest first.

        Raises:
            InvalidRequest (TOO_LARGE): it is more than 100,000; `list_page` has them in parts.
        """
        found, cursor = list[FileInfo](), None
        while True:
            page = self.list_page(
                path, recursive=recursive, hidden=hidden, glob=glob, sort=sort, limit=10_000, cursor=cursor
            )
            found += page.files
            if page.next_cursor is None:
                return found
            if len(found) >= MOST_LISTED:
                raise too_many(os.fspath(path))
            cursor = page.next_cursor

    def list_page(
        self,
        path: SandboxPath = ".",
        *,
        recursive: bool = False,
        hidden: bool = True,
        glob: str | Iterable[str] = (),
        sort: Sort = "name",
        limit: int = 1000,
        cursor: str | None = None,
    ) -> FilePage:
        """Return `limit` entries of what `list` does, behind `cursor`, which is the `next_cursor` of the page before.

        What comes and goes in the folder meanwhile makes nothing else come twice or not at all.
        """
        body = make_list(
            path, recursive=recursive, hidden=hidden, glob=glob, sort=sort, limit=limit, cursor=cursor
        )
        request = verb_request("list", body, self._query, patience=LONG_PATIENCE_S)
        return self._transport.call(request, FilePage)

    def stat(self, path: SandboxPath) -> FileInfo:
        """Return what is known of a file; a symlink speaks of itself."""
        return self._stat(path)

    def exists(self, path: SandboxPath) -> bool:
        """Tell whether a file, folder or symlink has this path."""
        try:
            self.stat(path)
        except SandcellError as problem:
            if problem.code in _MISSING:
                return False
            raise
        return True

    def mkdir(self, path: SandboxPath) -> FileInfo:
        """Make a folder and those above it; one that is there is fine."""
        request = verb_request("mkdir", FilePath(path=check_path(path)), self._query)
        return self._transport.call(request, FileInfo)

    def remove(self, path: SandboxPath, *, recursive: bool = False) -> None:
        """Remove a file or a symlink; with `recursive` also a folder with all that is in it, which is IS_A_DIRECTORY else."""
        more = {"recursive": "true"} if recursive else {}
        request = file_request("DELETE", path, {**self._query, **more})
        self._transport.fetch(replace(request, patience=LONG_PATIENCE_S, repeatable=False))

    def rename(self, path: SandboxPath, to: SandboxPath, *, overwrite: bool = False) -> FileInfo:
        """Give a file or folder another name; folders above that are made. EXISTS where something has it, unless `overwrite`."""
        body = make_copy(path, to, overwrite=overwrite)
        request = verb_request("rename", body, self._query, patience=LONG_PATIENCE_S, once=True)
        return self._transport.call(request, FileInfo)

    def copy(self, path: SandboxPath, to: SandboxPath, *, overwrite: bool = False) -> FileInfo:
        """Copy a file or a folder, whole or not at all; folders above are made. EXISTS as `rename`."""
        body = make_copy(path, to, overwrite=overwrite)
        request = verb_request("copy", body, self._query, patience=LONG_PATIENCE_S, once=True)
        return self._transport.call(request, FileInfo)

    def search(
        self,
        pattern: str,
        path: SandboxPath = ".",
        *,
        glob: str | Iterable[str] = (),
        exclude: str | Iterable[str] = (),
        everywhere: bool = False,
        hidden: bool = True,
        ignore_case: bool = False,
        context: int = 0,
        limit: int = 200,
        timeout: float = 20.0,
    ) -> SearchResult:
        """Return the lines that match a regular expression of Python's `re`, in one file or in all below a folder.

        `glob` and `exclude`: patterns as of `list`. `.git`, `node_modules` and `.cache` are passed over unless `everywhere`, and
        so are binary files. `context` lines around each match. The result is `truncated` where there are more than
        `limit` matches, or more than `timeout` seconds were needed.

        Raises:
            InvalidRequest (INVALID_ARGUMENT): the pattern is none.
        """
        body = make_search(
            pattern,
            path,
            glob=glob,
            exclude=exclude,
            everywhere=everywhere,
            hidden=hidden,
            ignore_case=ignore_case,
            context=context,
            limit=limit,
            timeout=timeout,
        )
        request = verb_request("search", body, self._query, patience=search_patience(body))
        return self._transport.call(request, SearchResult)

    def watch(
        self,
        path: SandboxPath = ".",
        *,
        recursive: bool = True,
        include: str | Iterable[str] = (),
        exclude: str | Iterable[str] = (),
        debounce: float = 0.05,
    ) -> Watch:
        """Watch a folder, with all below it unless not `recursive`, or a file; what changes from its return on is told.

        `include` and `exclude`: patterns as of `list`; what is in an excluded folder is not watched. Changes of one path within
        `debounce` seconds are told as one. Changes that were not seen, as there were too many at once, are told as "lost".

        Raises:
            Limited (QUOTA_EXCEEDED): there are 32 watches, or the system lets this user watch no more.
        """
        request = watch_request(
            path, self._query, recursive=recursive, include=include, exclude=exclude, debounce=debounce
        )
        return Watch(self._transport, request).start()

    # ---

    def _fetch(self, path: SandboxPath, request: Request, limit: int) -> tuple[bytes, dict[str, str]]:
        answer = self._transport.open(request)
        try:
            parts, size = list[bytes](), 0
            for chunk in answer.chunks():
                size += len(chunk)
                if size > limit:
                    raise too_large(os.fspath(path), limit)
                parts.append(chunk)
            return b"".join(parts), answer.head.headers
        finally:
            answer.close()

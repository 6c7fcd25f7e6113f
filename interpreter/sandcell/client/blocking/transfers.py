# Made from ../aio/transfers.py by `python -m sandcell.client.generate`: change that file, not this one.
"""Files and folders between this machine and a sandbox, as streams: their size does not matter."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from sandcell.client.blocking.channel import (
    call,
    in_thread,
    pack_chunks,
    read_chunks,
    unpack_chunks,
    write_chunks,
)
from sandcell.client.blocking.connection import OutgoingFile
from sandcell.client.blocking.loan import borrow_draft, borrow_file
from sandcell.client.checks import check_callbacks, check_path
from sandcell.client.file_options import (
    LONG_PATIENCE_S,
    change_request,
    check_patterns,
    file_request,
    make_list,
    verb_request,
)
from sandcell.client.local_file import OpenFile, Replacement
from sandcell.client.protocol import Request, decode_body, path_of
from sandcell.file_bodies import FilePath
from sandcell_container.errors import ErrorCode, SandcellError
from sandcell_container.file_info import FileInfo, FilePage, TransferReport

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from os import PathLike

    from sandcell.client.blocking.transport import Transport
    from sandcell.client.file_options import Progress, SandboxPath

__all__ = ["Transfers"]

_TAR = "application/x-tar"
_LARGE = 2**20  # bytes from which on it is worth to have the file itself


class Transfers:
    """What `AsyncFiles` does between two machines. Callbacks are called where the caller stands; one that raises ends it."""

    _transport: Transport
    _query: dict[str, str]

    def upload(
        self, local: str | PathLike[str], remote: SandboxPath, *, on_progress: Progress | None = None
    ) -> TransferReport:
        """Copy a file or a folder of this machine into the sandbox.

        A file replaces what is there when all has come. A folder is added to what is there, each file of it whole or not at
        all; its report says what was no file, folder or symlink, or could not be read.

        Raises:
            OSError: the local file cannot be read.
        """
        check_callbacks(on_progress=on_progress)
        source = os.fspath(local)
        if not in_thread(os.path.isdir, source):
            return self._upload_file(source, remote, on_progress)
        request = self._of_archive("PUT", remote)
        chunks = _counted(pack_chunks(source), on_progress, None)
        return decode_body(self._transport.fetch(request, chunks=chunks), TransferReport)

    def download(
        self, remote: SandboxPath, local: str | PathLike[str], *, on_progress: Progress | None = None
    ) -> TransferReport:
        """Copy a file or a folder of the sandbox to this machine.

        A file replaces what is there when all has come. A folder is added to what is there; nothing is written outside of
        it, and symlinks that lead out of it are left out, which the report says.

        Raises:
            OSError: the local file cannot be written, or what is there is no regular file.
        """
        check_callbacks(on_progress=on_progress)
        target = os.fspath(local)
        info = self._stat(remote)
        if info.type == "directory" or (info.type == "symlink" and self._leads_to_folder(remote)):
            answer = self._transport.open(self._of_archive("GET", remote))
            try:
                return unpack_chunks(target, _counted(answer.chunks(), on_progress, None))
            finally:
                answer.close()
        return self._download_file(info, remote, target, on_progress)

    def backup(
        self,
        path: SandboxPath,
        local: str | PathLike[str],
        *,
        exclude: str | Iterable[str] = (),
        on_progress: Progress | None = None,
    ) -> None:
        """Write a folder of the sandbox to a file of this machine, as tar; what matches a pattern of `exclude` is not in it."""
        check_callbacks(on_progress=on_progress)
        patterns = check_patterns(exclude, what="exclude")
        answer = self._transport.open(self._of_archive("GET", path, exclude=patterns))
        try:
            write_chunks(os.fspath(local), _counted(answer.chunks(), on_progress, None))
        finally:
            answer.close()

    def restore(
        self, local: str | PathLike[str], path: SandboxPath, *, on_progress: Progress | None = None
    ) -> TransferReport:
        """Make a folder of the sandbox what it was when `backup` wrote the file `local`: what is not in that is removed.

        What was there stays until all has come, and where it fails.
        """
        check_callbacks(on_progress=on_progress)
        source = os.fspath(local)
        size = in_thread(os.path.getsize, source)
        request = self._of_archive("PUT", path, replace="true")
        chunks = _counted(read_chunks(source), on_progress, size)
        return decode_body(self._transport.fetch(request, chunks=chunks), TransferReport)

    def _upload_file(self, local: str, remote: SandboxPath, on_progress: Progress | None) -> TransferReport:
        request = replace(change_request("PUT", remote, self._query), streamed=True)
        with in_thread(OpenFile, local) as file:
            if file.size is None:  # a pipe, or a device
                chunks = _counted(read_chunks(local), on_progress, None)
                body = self._transport.fetch(request, chunks=chunks)
            else:
                body = self._send_file(request, OutgoingFile(file.fd, file.size, on_progress))
        return TransferReport(files=1, bytes=decode_body(body, FileInfo).size, skipped=[])

    def _send_file(self, request: Request, file: OutgoingFile) -> bytes:
        """Send a file, or write it where its place is open here as well. Returns the body of the answer."""
        draft = borrow_draft(self._transport, request) if file.size >= _LARGE else None
        if draft is None:
            return self._transport.fetch(replace(request, length=file.size), chunks=file)
        try:
            _watched(draft.fill(file.fd, file.size), file.on_progress, file.size)
            return draft.keep()
        finally:
            draft.close()

    def _download_file(
        self, info: FileInfo, remote: SandboxPath, local: str, on_progress: Progress | None
    ) -> TransferReport:
        request = file_request("GET", remote, self._query)
        is_small = info.type == "file" and info.size < _LARGE
        lent = None if is_small else borrow_file(self._transport, request)
        source = lent or self._transport.open(request)
        try:
            made = in_thread(Replacement, local)
            try:
                done = _watched(source.pour(made.fd), on_progress, source.total)
                in_thread(made.keep)
            finally:
                made.drop()
        finally:
            source.close()
        return TransferReport(files=1, bytes=done, skipped=[])

    def _stat(self, path: SandboxPath) -> FileInfo:
        request = verb_request("stat", FilePath(path=check_path(path)), self._query)
        return self._transport.call(request, FileInfo)

    def _leads_to_folder(self, link: SandboxPath) -> bool:
        body = make_list(link, recursive=False, hidden=True, glob=(), sort="name", limit=1, cursor=None)
        try:
            self._transport.call(verb_request("list", body, self._query), FilePage)
        except SandcellError as problem:
            if problem.code is ErrorCode.NOT_A_DIRECTORY:
                return False
            raise
        return True

    def _of_archive(
        self, method: str, path: SandboxPath, *, exclude: tuple[str, ...] = (), **more: str
    ) -> Request:
        return Request(
            method=method,
            path=path_of("files", "archive"),
            query={**self._query, **more, "path": check_path(path)},
            more_query=tuple(("exclude", each) for each in exclude),
            streamed=method == "PUT",
            content_type=_TAR,
            patience=LONG_PATIENCE_S if method == "PUT" else None,
        )


def _counted(chunks: Iterator[bytes], on_progress: Progress | None, total: int | None) -> Iterator[bytes]:
    """Yield `chunks`, and tell how many bytes that were."""
    done = 0
    for chunk in chunks:
        done += len(chunk)
        if on_progress is not None:
            call(on_progress, done, total)
        yield chunk


def _watched(counts: Iterator[int], on_progress: Progress | None, total: int | None) -> int:
    """Go through pieces that are moved, tell how many bytes that were by now, and return how many in the end."""
    done = 0
    for count in counts:
        done += count
        if on_progress is not None:
            call(on_progress, done, total)
    return done

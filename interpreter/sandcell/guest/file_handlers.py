"""What is asked of files by JSON, and folders as archives."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from tornado.iostream import StreamClosedError

from sandcell.file_bodies import CopyFile, FilePath, InsertText, ListFiles, ReplaceText, SearchFiles
from sandcell.guest.connections import stream_of
from sandcell.guest.files import path_in_query, placed
from sandcell.guest.request import ApiHandler
from sandcell.guest.upload import PipedIntake, UploadHandler
from sandcell_container.errors import ErrorCode, error
from sandcell_container.guest.file_archive import open_folder, write_folder
from sandcell_container.guest.files import Condition, ListPlan, SearchPlan

if TYPE_CHECKING:
    from sandcell.guest.upload import Intake

__all__ = [
    "ArchiveHandler",
    "CopyFileHandler",
    "InsertTextHandler",
    "ListFilesHandler",
    "MakeFolderHandler",
    "RenameFileHandler",
    "ReplaceTextHandler",
    "SearchFilesHandler",
    "StatFileHandler",
]

T = TypeVar("T")

TAR_TYPE = "application/x-tar"
SKIPPED = {".git", "node_modules", ".cache"}
"""What a search passes over unless it is asked to look everywhere."""


class _FileVerb(ApiHandler):
    """A verb with a JSON body, whose names of files may have any bytes."""

    def asked(self, kind: type[T]) -> T:
        return self.body(kind, lone="surrogatepass")  # half a character in a name is told as INVALID_PATH

    def asked_with_text(self, kind: type[T]) -> T:
        return self.body(kind, lone="surrogateescape")


class ListFilesHandler(_FileVerb):
    """POST /v1/files/list"""

    async def post(self) -> None:
        body = self.asked(ListFiles)
        plan = ListPlan(
            recursive=body.recursive,
            hidden=body.hidden,
            glob=body.glob,
            sort=body.sort,
            limit=body.limit,
            cursor=body.cursor,
        )
        with self.while_client_waits():
            self.reply(await self.guest.files.list(placed(self, body.path), plan))


class StatFileHandler(_FileVerb):
    """POST /v1/files/stat"""

    async def post(self) -> None:
        self.reply(await self.guest.files.stat(placed(self, self.asked(FilePath).path)))


class MakeFolderHandler(_FileVerb):
    """POST /v1/files/mkdir"""

    async def post(self) -> None:
        self.reply(await self.guest.files.mkdir(placed(self, self.asked(FilePath).path)), status=201)


class RenameFileHandler(_FileVerb):
    """POST /v1/files/rename"""

    async def post(self) -> None:
        body = self.asked(CopyFile)
        path, to = placed(self, body.path), placed(self, body.to)
        with self.while_client_waits():
            self.reply(await self.guest.files.rename(path, to, overwrite=body.overwrite))


class CopyFileHandler(_FileVerb):
    """POST /v1/files/copy"""

    async def post(self) -> None:
        body = self.asked(CopyFile)
        path, to = placed(self, body.path), placed(self, body.to)
        with self.while_client_waits():
            self.reply(await self.guest.files.copy(path, to, overwrite=body.overwrite), status=201)


class ReplaceTextHandler(_FileVerb):
    """POST /v1/files/replace"""

    async def post(self) -> None:
        body = self.asked_with_text(ReplaceText)
        edits = [(each.old, each.new) for each in body.edits]
        if not edits or not all(old for old, _ in edits):
            raise _no_text("edits", "there is nothing to replace, or an old text is empty")
        path, condition = placed(self, body.path), _condition(body.if_match)
        self.reply(await self.guest.files.replace(path, edits, condition=condition))


class InsertTextHandler(_FileVerb):
    """POST /v1/files/insert"""

    async def post(self) -> None:
        body = self.asked_with_text(InsertText)
        path, condition = placed(self, body.path), _condition(body.if_match)
        self.reply(await self.guest.files.insert(path, body.line, body.text, condition=condition))


class SearchFilesHandler(_FileVerb):
    """POST /v1/files/search"""

    async def post(self) -> None:
        body = self.asked_with_text(SearchFiles)
        plan = SearchPlan(
            pattern=body.pattern,
            glob=body.glob,
            exclude=(*body.exclude, *(() if body.everywhere else sorted(SKIPPED))),
            hidden=body.hidden,
            ignore_case=body.ignore_case,
            context=body.context,
            limit=body.limit,
            timeout=body.timeout,
        )
        with self.while_client_waits():
            self.reply(await self.guest.files.search(placed(self, body.path), plan))


class ArchiveHandler(UploadHandler):
    """GET, PUT /v1/files/archive?path=: a folder as a stream of tar."""

    def intake(self) -> Intake:
        files, path = self.guest.files, path_in_query(self)
        replace = self.flag("replace", default=False)
        return PipedIntake(
            self.guest.group, lambda chunks: write_folder(files, path, chunks, replace=replace)
        )

    async def get(self) -> None:
        exclude = self.get_query_arguments("exclude")
        with self.while_client_waits():
            async with open_folder(self.guest.files, path_in_query(self), exclude) as stream:
                self.set_header("Content-Type", TAR_TYPE)
                try:
                    async for chunk in stream.chunks():
                        self.write(chunk)
                        await self.flush()
                except StreamClosedError:
                    return
                except Exception as problem:
                    if not self.headers_written:
                        raise
                    # Half an archive must not look like one: the connection ends before its end is told.
                    self.log_exception(type(problem), problem, problem.__traceback__)
                    _break_off(self)
                    return
        self.finish()

    async def put(self) -> None:
        self.reply(await self.uploaded(), status=201)


def _break_off(handler: ApiHandler) -> None:
    stream = stream_of(handler.request.connection)
    if stream is not None:
        stream.close()


def _condition(tags: tuple[str, ...] | None) -> Condition:
    return Condition(tags=tags)


def _no_text(field: str, why: str) -> Exception:
    return error(ErrorCode.INVALID_ARGUMENT, why, hint="say what is to be replaced", details={"field": field})

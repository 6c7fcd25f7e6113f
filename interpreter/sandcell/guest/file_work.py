"""`%sandbox files` and `%sandbox download`: files of the sandbox, with the rights of user code, as a person sees them in a cell."""

from __future__ import annotations

import stat
import time
from typing import TYPE_CHECKING

from sandcell.guest.conditions import line_span
from sandcell.guest.file_handlers import SKIPPED
from sandcell.guest.stage import Outcome
from sandcell_container.errors import ErrorCode, error
from sandcell_container.guest.files import ListPlan, SearchPlan
from sandcell_kernel.tables import Table, describe_bytes, link_to_data, picture_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

    from sandcell.guest.stage import Stage
    from sandcell_container.file_info import FileInfo
    from sandcell_container.guest.files import Files
    from sandcell_container.guest.readable_file import ReadableFile
    from sandcell_kernel.cells import LineOrder

    FileVerb = Callable[["Stage", "LineOrder"], Awaitable[Outcome]]

__all__ = ["FileWork"]

_NOTHING = Outcome()
_MOST_FILES = 1000
_MOST_TEXT = 2**20 - 2**16  # a cell shows a MiB of text, what we say of the rest among it
_MOST_PICTURE = 10 * 2**20
_MOST_DOWNLOAD = 8 * 2**20
_PICTURES = ("image/gif", "image/jpeg", "image/png", "image/svg+xml", "image/webp")
_LETTERS = {"directory": "d", "symlink": "l", "file": "-", "other": "?"}


class FileWork:
    """See the module. `verbs` are what it does, by their words in our table."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self.verbs: Mapping[str, FileVerb] = {
            "files": self._list,
            "files list": self._list,
            "files read": self._read,
            "files stat": self._stat,
            "files search": self._search,
            "files write": self._write,
            "files append": self._append,
            "files insert": self._insert,
            "files replace": self._replace,
            "files mkdir": self._mkdir,
            "files copy": self._copy,
            "files rename": self._rename,
            "files remove": self._remove,
            "download": self._download,
        }

    # --- looking

    async def _list(self, stage: Stage, order: LineOrder) -> Outcome:
        path = order.operands[0] if order.operands else "."
        glob = order.options.get("--glob")
        plan = ListPlan(
            recursive="--recursive" in order.options,
            glob=(glob,) if glob is not None else (),
            sort=_sort_of(order.options.get("--sort", "name")),
            limit=_MOST_FILES,
        )
        page = await self._files.list(path, plan)
        stage.show(
            Table.of(f"Files in {path}", ("NAME", "SIZE", "CHANGED (UTC)", ""), map(_entry, page.files))
        )
        if page.next_cursor is not None:
            stage.say(f"only the first {_MOST_FILES} are shown")
        return _NOTHING

    async def _read(self, stage: Stage, order: LineOrder) -> Outcome:
        """Show a picture as one, text as it is, and of all else what it is."""
        file = await self._files.read(order.operands[0])
        try:
            lines = order.options.get("--lines")
            if lines is None and file.info.mime in _PICTURES and file.info.size <= _MOST_PICTURE:
                data = await _all_of(file, 0, _MOST_PICTURE)
                stage.show(picture_of(file.info.name, file.info.mime, data))
            elif file.info.binary:
                stage.show(_facts([file.info], "No text"))
            else:
                await _show_text(stage, file, lines)
        finally:
            await file.aclose()
        return _NOTHING

    async def _stat(self, stage: Stage, order: LineOrder) -> Outcome:
        stage.show(_facts([await self._files.stat(path) for path in order.operands], "Files"))
        return _NOTHING

    async def _search(self, stage: Stage, order: LineOrder) -> Outcome:
        pattern, path = order.operands[0], order.operands[1] if len(order.operands) > 1 else "."
        glob = order.options.get("--glob")
        plan = SearchPlan(
            pattern=pattern,
            glob=(glob,) if glob is not None else (),
            exclude=tuple(sorted(SKIPPED)),
            ignore_case="--ignore-case" in order.options,
            context=min(int(order.number("--context") or 0), 20),
            limit=min(int(order.number("--limit") or 200), _MOST_FILES),
        )
        found = await stage.unless_stopped(self._files.search(path, plan))
        rows = [
            (each.relative_path or each.path, number, text)
            for each in found.matches
            for number, text in _around(each.line, each.before, each.text, each.after)
        ]
        title = f"{pattern} in {path}: {len(found.matches)} matches in {found.files} files"
        stage.show(Table.of(title, ("FILE", "LINE", "TEXT"), rows))
        if found.truncated:
            stage.say("there may be more: " + ("the time was over" if found.timed_out else "--limit N"))
        return _NOTHING

    async def _download(self, stage: Stage, order: LineOrder) -> Outcome:
        """Show a link that holds the file itself: a guest has no address that a browser could ask."""
        path, *local = order.operands
        if local:
            hint = "without LOCAL a link is shown"
            raise error(ErrorCode.UNSUPPORTED, "there is no kernel process that could write it", hint=hint)
        file = await self._files.read(path)
        try:
            if file.info.size > _MOST_DOWNLOAD:
                hint = f"%sandbox download {path[:80]} LOCAL writes it to your machine"
                raise error(ErrorCode.TOO_LARGE, f"{path[:80]!r} has {file.info.size} bytes", hint=hint)
            data = await _all_of(file, 0, _MOST_DOWNLOAD)
        finally:
            await file.aclose()
        stage.show(link_to_data(file.info.name, data))
        return _NOTHING

    # --- changing

    async def _write(self, stage: Stage, order: LineOrder) -> Outcome:
        path, *lines = order.operands
        return self._tell(stage, "wrote", await self._files.write(path, _only(_text_of(lines))))

    async def _append(self, stage: Stage, order: LineOrder) -> Outcome:
        path, *lines = order.operands
        return self._tell(stage, "wrote", await self._files.append(path, _only(_text_of(lines))))

    async def _insert(self, stage: Stage, order: LineOrder) -> Outcome:
        path, number, *lines = order.operands
        if not number.isascii() or not number.isdigit() or len(number) > 9:
            raise error(ErrorCode.INVALID_ARGUMENT, f"{number[:40]!r} is no number of a line")
        text = _text_of(lines).decode()
        return self._tell(stage, "wrote", await self._files.insert(path, int(number), text))

    async def _replace(self, stage: Stage, order: LineOrder) -> Outcome:
        path, old, new = order.operands
        return self._tell(stage, "wrote", await self._files.replace(path, [(old, new)]))

    async def _mkdir(self, stage: Stage, order: LineOrder) -> Outcome:
        for path in order.operands:
            self._tell(stage, "there is", await self._files.mkdir(path))
        return _NOTHING

    async def _copy(self, stage: Stage, order: LineOrder) -> Outcome:
        path, to = order.operands
        copying = self._files.copy(path, to, overwrite="--overwrite" in order.options)
        return self._tell(stage, "there is", await stage.unless_stopped(copying))

    async def _rename(self, stage: Stage, order: LineOrder) -> Outcome:
        path, to = order.operands
        renamed = await self._files.rename(path, to, overwrite="--overwrite" in order.options)
        return self._tell(stage, "there is", renamed)

    async def _remove(self, stage: Stage, order: LineOrder) -> Outcome:
        recursive = "--recursive" in order.options
        for path in order.operands:
            await stage.unless_stopped(self._files.remove(path, recursive=recursive))
            stage.say(f"removed {path}")
        return _NOTHING

    def _tell(self, stage: Stage, what: str, info: FileInfo) -> Outcome:
        size = f" ({describe_bytes(info.size)})" if info.type == "file" else ""
        stage.say(f"{what} {info.path}{size}")
        return _NOTHING


def _sort_of(given: str) -> str:
    if given not in {"name", "size", "mtime"}:
        raise error(ErrorCode.INVALID_ARGUMENT, f"--sort {given[:40]}: name, size or mtime")
    return given


def _entry(info: FileInfo) -> tuple[str, str, str, str]:
    return (
        info.relative_path + ("/" if info.type == "directory" else ""),
        describe_bytes(info.size) if info.type == "file" else "",
        _at(info.mtime),
        f"-> {info.target}" if info.target else "",
    )


def _facts(files: Sequence[FileInfo], title: str) -> Table:
    rows = [
        (
            each.path,
            _LETTERS[each.type] + stat.filemode(each.mode)[1:],
            each.owner,
            describe_bytes(each.size),
            _at(each.mtime),
            f"-> {each.target}" if each.target else each.mime,
        )
        for each in files
    ]
    return Table.of(title, ("PATH", "MODE", "OWNER", "SIZE", "CHANGED (UTC)", "KIND"), rows)


def _at(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(seconds))


def _around(line: int, before: Sequence[str], text: str, after: Sequence[str]) -> list[tuple[int | str, str]]:
    """Return a match and the lines around it; only its own number is shown, so that it is found among them."""
    return [
        *(("", each) for each in before),
        (line, text),
        *(("", each) for each in after),
    ]


async def _show_text(stage: Stage, file: ReadableFile, lines: str | None) -> None:
    start, end, total = 0, file.info.size or _MOST_TEXT, ""
    if lines is not None:
        first, count = line_span(lines)
        place = await stage.unless_stopped(file.find_lines(first, count))
        start, end, total = place.start, place.end, f" of {place.total} lines"
    stage.write("stdout", await _all_of(file, start, min(end, start + _MOST_TEXT)))
    if lines is not None:
        stage.say(f"lines {lines}{total}")
    if end - start > _MOST_TEXT:
        rest = describe_bytes(end - start - _MOST_TEXT)
        stage.say(f"{rest} more are not shown: --lines FIRST-LAST shows others")


async def _all_of(file: ReadableFile, start: int, end: int) -> bytes:
    return b"".join([chunk async for chunk in file.chunks(start, end)])


def _text_of(lines: Sequence[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "surrogateescape")


async def _only(data: bytes) -> AsyncIterator[bytes]:
    if data:
        yield data

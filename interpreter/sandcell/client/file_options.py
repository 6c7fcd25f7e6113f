"""What the caller asks of files, checked and turned into plain requests. Pure: the same for both clients."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from typing import TYPE_CHECKING, Literal, cast

from sandcell.client.checks import (
    check_bytes_as_text,
    check_count,
    check_number,
    check_path,
    check_text,
    wrong,
)
from sandcell.client.protocol import Request, path_of
from sandcell.file_bodies import CopyFile, InsertText, ListFiles, ReplaceText, SearchFiles, TextEdit
from sandcell.names import encode_names
from sandcell_container.errors import ErrorCode, error

if TYPE_CHECKING:
    from sandcell_container.errors import SandcellError

__all__ = [
    "BYTES",
    "LONG_PATIENCE_S",
    "MOST_LISTED",
    "FileLines",
    "Progress",
    "SandboxPath",
    "Sort",
    "change_request",
    "check_patterns",
    "file_request",
    "lines_of",
    "make_copy",
    "make_insert",
    "make_list",
    "make_replace",
    "make_search",
    "search_patience",
    "too_many",
    "verb_request",
]

Sort = Literal["name", "size", "mtime"]
SandboxPath = str | PathLike[str]
"""The path of a file in the sandbox: where its system is another one than this machine's, a `PurePosixPath`."""

Progress = Callable[[int, int | None], object]
"""Called with the bytes that have been moved, and how many there are, None where nobody knows."""

BYTES = "application/octet-stream"
LONG_PATIENCE_S = 3600.0
"""What copies and removals of large folders may take. Who gives up before ends them."""

MOST_LISTED = 100_000
_MOST_A_PAGE = 10_000
_SORTS = ("name", "size", "mtime")
_SPARE_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLines:
    """Some lines of a file, without their ends. The first of `lines` is the line `start`; the file has `total` of them."""

    lines: list[str]
    start: int
    total: int


def lines_of(data: bytes, encoding: str, errors: str, *, start: int, total: int) -> FileLines:
    text = data.decode(encoding, errors)
    lines = text.split("\n")
    if not lines[-1]:
        del lines[-1]  # the end of a line and not the beginning of another
    return FileLines(lines=[each.removesuffix("\r") for each in lines], start=start, total=total)


# --- requests


def file_request(
    method: str, path: SandboxPath, query: dict[str, str], *, headers: dict[str, str] | None = None
) -> Request:
    """Return the request of a file itself; its body is yet to be said."""
    return Request(
        method=method,
        path=path_of("files"),
        query={**query, "path": check_path(path)},
        headers=headers or {},
        content_type=BYTES,
    )


def change_request(
    method: str,
    path: SandboxPath,
    query: dict[str, str],
    *,
    mode: int | None = None,
    if_match: str | None = None,
    new: bool = False,
) -> Request:
    """Return the request that writes a file. One with a condition is not repeated: its own success would fail it."""
    headers: dict[str, str] = {}
    if if_match is not None:
        headers["If-Match"] = f'"{check_tag(if_match)}"'
    if new:
        headers["If-None-Match"] = "*"
    more = {} if mode is None else {"mode": f"{check_count(mode, what='mode', least=0):o}"}
    made = file_request(method, path, {**query, **more}, headers=headers)
    return made if not headers and method == "PUT" else _once(made)


def verb_request(
    verb: str, body: object, query: dict[str, str], *, patience: float | None = None, once: bool = False
) -> Request:
    """Return the request of a verb. `once`: doing it twice is another thing than doing it once."""
    return Request(
        method="POST",
        path=path_of("files", verb),
        query=query,
        body=encode_names(body),
        patience=patience,
        repeatable=not once,
    )


def _once(request: Request) -> Request:
    return replace(request, repeatable=False)


# --- bodies


def make_list(
    path: SandboxPath,
    *,
    recursive: bool,
    hidden: bool,
    glob: str | Iterable[str],
    sort: Sort,
    limit: int,
    cursor: str | None,
) -> ListFiles:
    """Return the request of a page. Raises INVALID_PATH, INVALID_ARGUMENT."""
    if sort not in _SORTS:
        raise wrong("sort", f"= {sort!r} is no order", hint=" ".join(_SORTS))
    return ListFiles(
        path=check_path(path),
        recursive=recursive,
        hidden=hidden,
        glob=check_patterns(glob, what="glob"),
        sort=sort,
        limit=_at_most(limit, _MOST_A_PAGE, what="limit"),
        cursor=None if cursor is None else check_text(cursor, what="cursor"),
    )


def make_copy(path: SandboxPath, to: SandboxPath, *, overwrite: bool) -> CopyFile:
    return CopyFile(path=check_path(path), to=check_path(to, what="to"), overwrite=overwrite)


def make_replace(
    path: SandboxPath, old: str | Sequence[tuple[str, str]], new: str | None, *, if_match: str | None
) -> ReplaceText:
    """Return the request of one edit, or of a list of them. Raises INVALID_PATH, INVALID_ARGUMENT."""
    if isinstance(old, str):
        if new is None:
            raise wrong(
                "new", "is missing", hint="replace(path, old, new), or replace(path, [(old, new), ...])"
            )
        pairs: list[tuple[str, str]] = [(old, new)]
    elif new is not None:
        raise wrong("new", "is there beside a list", hint="replace(path, [(old, new), ...])")
    else:
        pairs = [_pair(each) for each in old]
    edits = tuple(
        TextEdit(old=check_bytes_as_text(a, what="old"), new=check_bytes_as_text(b, what="new"))
        for a, b in pairs
    )
    return ReplaceText(path=check_path(path), edits=edits, if_match=_tags(if_match))


def make_insert(path: SandboxPath, line: int, text: str, *, if_match: str | None) -> InsertText:
    return InsertText(
        path=check_path(path),
        line=check_count(line, what="line", least=0),
        text=check_bytes_as_text(text, what="text"),
        if_match=_tags(if_match),
    )


def make_search(
    pattern: str,
    path: SandboxPath,
    *,
    glob: str | Iterable[str],
    exclude: str | Iterable[str],
    everywhere: bool,
    hidden: bool,
    ignore_case: bool,
    context: int,
    limit: int,
    timeout: float,
) -> SearchFiles:
    """Return the request of a search. Raises INVALID_PATH, INVALID_ARGUMENT."""
    return SearchFiles(
        pattern=check_bytes_as_text(pattern, what="pattern"),
        path=check_path(path),
        glob=check_patterns(glob, what="glob"),
        exclude=check_patterns(exclude, what="exclude"),
        everywhere=everywhere,
        hidden=hidden,
        ignore_case=ignore_case,
        context=check_count(context, what="context", least=0),
        limit=_at_most(limit, _MOST_A_PAGE, what="limit"),
        timeout=check_number(timeout, what="timeout", hint="seconds above 0"),
    )


def search_patience(body: SearchFiles) -> float:
    """Return how long an answer may take, in seconds."""
    return body.timeout + _SPARE_S


def check_tag(given: object) -> str:
    """Return the tag of a file's content, as `FileInfo.etag` has it. Raises INVALID_ARGUMENT."""
    text = check_text(given, what="if_match")
    if not text.isascii() or not text.isprintable() or '"' in text:
        raise wrong("if_match", f"= {text!r} is no tag", hint="FileInfo.etag has it")
    return text


def check_patterns(given: object, *, what: str) -> tuple[str, ...]:
    """Return one pattern or several as a tuple. Raises INVALID_ARGUMENT."""
    if isinstance(given, str):
        return (check_bytes_as_text(given, what=what),)
    if not isinstance(given, Iterable):
        raise wrong(what, f"has to be text, not {type(given).__name__}", hint='"*.py", or several in a list')
    return tuple(check_bytes_as_text(each, what=what) for each in cast("Iterable[object]", given))


def too_many(path: str) -> SandcellError:
    """Return the error of a folder that has more in it than is returned at once."""
    return error(
        ErrorCode.TOO_LARGE,
        f"there are more than {MOST_LISTED} files in {path[:80]!r}",
        hint="list_page() has them page by page; glob= leaves some out",
        details={"field": "path", "limit": MOST_LISTED},
    )


def _tags(if_match: str | None) -> tuple[str, ...] | None:
    return None if if_match is None else (check_tag(if_match),)


def _pair(given: object) -> tuple[str, str]:
    if (
        isinstance(given, Sequence)
        and not isinstance(given, str)
        and len(cast("Sequence[object]", given)) == 2
    ):
        old, new = cast("Sequence[str]", given)
        return old, new
    raise wrong("old", "holds something that is no pair", hint="[(old, new), ...]")


def _at_most(given: object, most: int, *, what: str) -> int:
    count = check_count(given, what=what, least=1)
    if count > most:
        raise wrong(what, f"= {count} is too many", hint=f"at most {most}")
    return count

"""Search in the text of files, line by line. What was found until the time was over is told, and that it was over."""

from __future__ import annotations

import collections
import os
import re
import signal

from sandcell_container.guest.worker.globs import PathFilter
from sandcell_container.guest.worker.listing import Found, walk
from sandcell_container.guest.worker.opening import NotRegular, Refusal, open_regular

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from io import BufferedReader
    from typing import Any

    from sandcell_container.guest.worker.reply import Reply

__all__ = ["search"]

LONGEST_LINE = 2**20  # what comes behind it in a line is the next one
LONGEST_SHOWN = 500  # characters of a line
HEAD = 2**13


class TimeIsOver(Exception):
    """As long as was granted."""


def search(reply: Reply, path: bytes, request: dict[str, Any]) -> None:
    """Send each line that matches, at most `limit`; at the end, whether there may be more, and why no more were looked for."""
    try:
        pattern = re.compile(request["pattern"], re.IGNORECASE if request["ignore_case"] else 0)
    except (re.error, OverflowError, RecursionError) as problem:
        raise Refusal("INVALID_ARGUMENT", f"the pattern is no regular expression: {problem}") from None
    left, why, files = request["limit"], "", 0
    signal.signal(signal.SIGALRM, _stop)
    signal.setitimer(signal.ITIMER_REAL, request["timeout"])  # which breaks off a match, too
    try:
        for found in _files(path, request):
            files += 1
            for match in _matches(found, pattern, request["context"]):
                if left == 0:
                    why = "limit"
                    break
                left -= 1
                reply.part(match)
            if why:
                break
    except TimeIsOver:
        why = "timeout"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    reply.done({"truncated": why, "files": files})


def _stop(*_: object) -> None:
    raise TimeIsOver


def _files(path: bytes, request: dict[str, Any]) -> Iterator[Found]:
    """Yield what is to be looked into: the file that `path` is, or the files below it."""
    if not os.path.isdir(path):
        os.close(
            open_regular(path)
        )  # below a folder what cannot be read is passed over; here it is the answer
        yield Found(path, os.path.basename(path), is_folder=False)
        return
    wanted = PathFilter(request["glob"])
    skip = PathFilter(exclude=request["exclude"])
    for found in walk(path, recursive=True, hidden=request["hidden"], skip=skip):
        if not found.is_folder and wanted.wants(found.relative):
            yield found


def _matches(found: Found, pattern: re.Pattern[str], context: int) -> Iterator[dict[str, object]]:
    """Yield the lines of one file that match, each with those around it. One that may not be read, or has a NUL at its
    beginning, has none."""
    try:
        fd = open_regular(found.path)
    except (OSError, NotRegular):
        return
    with os.fdopen(fd, "rb") as file:
        if b"\0" not in file.peek(HEAD)[:HEAD]:
            yield from _in_lines(found, _lines(file), pattern, context)


def _lines(file: BufferedReader) -> Iterator[str]:
    while line := file.readline(LONGEST_LINE):
        yield line.rstrip(b"\r\n").decode("utf-8", "surrogateescape")


def _in_lines(
    found: Found, lines: Iterator[str], pattern: re.Pattern[str], context: int
) -> Iterator[dict[str, object]]:
    before: collections.deque[str] = collections.deque(maxlen=context)
    waiting: collections.deque[tuple[dict[str, object], list[str]]] = collections.deque()
    for number, line in enumerate(lines, 1):
        for _, behind in waiting:
            behind.append(line[:LONGEST_SHOWN])
        while waiting and len(waiting[0][1]) == context:
            yield waiting.popleft()[0]
        match = pattern.search(line)
        if match is not None:
            told = _describe(found, number, line, match, list(before))
            after: list[str] = []
            told["after"] = after
            if context:
                waiting.append((told, after))
            else:
                yield told
        before.append(line[:LONGEST_SHOWN])
    for told, _ in waiting:
        yield told


def _describe(
    found: Found, number: int, line: str, match: re.Match[str], before: list[str]
) -> dict[str, object]:
    begin = max(0, match.start() - LONGEST_SHOWN // 2) if match.end() > LONGEST_SHOWN else 0
    return {
        "path": os.fsdecode(found.path),
        "relative_path": os.fsdecode(found.relative),
        "line": number,
        "column": match.start() + 1,
        "text": line[begin : begin + LONGEST_SHOWN],
        "match": match.group()[:LONGEST_SHOWN],
        "before": before,
    }

"""The screen of a terminal as a page in a browser shows it: bytes in, changed rows out. No IO."""

from __future__ import annotations

import copy
from collections import deque
from typing import TYPE_CHECKING, Any

import pyte
from pyte.screens import Char

from sandcell.errands.control_text import ControlText

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["TerminalScreen"]

_COLS, _ROWS = (2, 500), (2, 200)
_MOST_SCROLLED = 1000  # rows that left the screen at its top since the last patch
_MOST_SAVED = 16  # cursors that a program has put aside
_OTHER_SCREEN = (47, 1047, 1049)
_132_COLUMNS = 3
_APP_KEYS, _PASTE = 1 << 5, 2004 << 5  # private modes, as pyte keeps them

Run = tuple[str, str]
"""Text, and its style in words: `fg-red bg-1a2b3c bold`; `cursor` is where that is."""


class TerminalScreen:
    """One viewer's. `feed` takes what the terminal says, `patch` tells what has changed since the last one."""

    def __init__(self, cols: int, rows: int) -> None:
        self._screen = _Screen(_within(cols, _COLS), _within(rows, _ROWS))
        self._stream = pyte.Stream(self._screen)
        self._text = ControlText()
        self._cursor: tuple[int, int] | None = None

    @property
    def size(self) -> tuple[int, int]:
        return self._screen.columns, self._screen.lines

    def resize(self, cols: int, rows: int) -> None:
        """Make it as large, within bounds."""
        self._screen.resize(_within(rows, _ROWS), _within(cols, _COLS))
        self._screen.dirty.update(range(self._screen.lines))

    def feed(self, data: bytes) -> str:
        """Show `data`, and return what the terminal answers to questions in it."""
        for token in self._text.feed(data):
            try:
                self._stream.feed(token)
            except Exception:  # noqa: BLE001 -- pyte raises what it likes at sequences that it does not know; they are skipped
                self._stream = pyte.Stream(self._screen)
        return self._screen.take_answer()

    def patch(self) -> dict[str, Any]:
        """Return what has changed: `rows` of `lines` by their numbers, and those that have `scrolled` off the top."""
        screen = self._screen
        before, cursor = self._cursor, screen.place
        self._cursor = cursor
        changed = screen.dirty | {place[1] for place in (before, cursor) if place is not None}
        screen.dirty.clear()
        return {
            "rows": {
                str(row): _runs(
                    screen.buffer[row],
                    screen.columns,
                    cursor[0] if cursor is not None and cursor[1] == row else None,
                )
                for row in sorted(changed)
                if row < screen.lines
            },
            "scrolled": [_runs(row, screen.columns) for row in screen.take_scrolled()],
            "lines": screen.lines,
            "app_keys": _APP_KEYS in screen.mode,
            "paste": _PASTE in screen.mode,
        }


class _Screen(pyte.Screen):
    """What pyte leaves out: the other screen of full-screen programs, rows that leave at the top, answers; and bounds."""

    def __init__(self, columns: int, lines: int) -> None:
        self._scrolled: deque[Any] = deque(maxlen=_MOST_SCROLLED)
        self._main: tuple[Any, Any] | None = None
        self._answer = ""
        super().__init__(columns, lines)

    @property
    def place(self) -> tuple[int, int] | None:
        """Where the cursor is to be seen, None where it is hidden."""
        cursor = self.cursor
        return None if cursor.hidden else (min(cursor.x, self.columns - 1), cursor.y)

    def take_scrolled(self) -> list[Any]:
        scrolled = list(self._scrolled)
        self._scrolled.clear()
        return scrolled

    def take_answer(self) -> str:
        answer, self._answer = self._answer, ""
        return answer

    def write_process_input(self, data: str) -> None:
        self._answer = (self._answer + data)[:1024]

    def reset(self) -> None:
        self._main = None
        super().reset()

    def index(self) -> None:
        top, bottom = self.margins or (0, self.lines - 1)
        if self.cursor.y == bottom and top == 0 and self._main is None:
            self._scrolled.append(self.buffer[0])
        super().index()

    def save_cursor(self) -> None:
        super().save_cursor()
        del self.savepoints[:-_MOST_SAVED]

    def set_mode(self, *modes: int, **kwargs: Any) -> None:
        if kwargs.get("private"):
            if self._main is None and any(each in _OTHER_SCREEN for each in modes):
                self._show_other()
            modes = tuple(each for each in modes if each != _132_COLUMNS)
        super().set_mode(*modes, **kwargs)

    def reset_mode(self, *modes: int, **kwargs: Any) -> None:
        if kwargs.get("private"):
            if self._main is not None and any(each in _OTHER_SCREEN for each in modes):
                self._show_main()
            modes = tuple(each for each in modes if each != _132_COLUMNS)
        super().reset_mode(*modes, **kwargs)

    def _show_other(self) -> None:
        self._main = dict(self.buffer), copy.copy(self.cursor)
        self.buffer.clear()
        self.dirty.update(range(self.lines))

    def _show_main(self) -> None:
        assert self._main is not None
        rows, self.cursor = self._main
        self._main = None
        self.buffer.clear()
        self.buffer.update(rows)
        self.cursor.x, self.cursor.y = (
            min(self.cursor.x, self.columns - 1),
            min(self.cursor.y, self.lines - 1),
        )
        self.margins = None
        self.dirty.update(range(self.lines))


def _runs(row: Mapping[int, Char], columns: int, cursor: int | None = None) -> list[Run]:
    """Return a row as pieces of one style; blanks without one at its end are left out."""
    runs, text = list[Run](), list[str]()
    filled = max(row, default=-1) + 1 if cursor is None else max(cursor, *row, -1) + 1
    style: object = None
    for column in range(min(filled, columns)):
        char = row[column]
        here = (char[1:], column == cursor)
        if here != style and text:
            runs.append(("".join(text), _words_of(style)))
            text.clear()
        style = here
        text.append(char.data)
    if text:
        runs.append(("".join(text), _words_of(style)))
    if runs and not runs[-1][1]:
        runs[-1] = runs[-1][0].rstrip(" "), ""
    return runs


def _words_of(style: Any) -> str:
    """Return a style in words: what a `Char` has besides its text, and whether the cursor is there."""
    look, has_cursor = style
    words = [] if look == _PLAIN else [f"fg-{look[0]}", f"bg-{look[1]}"]
    words += [name for name, is_on in zip(_LOOKS, look[2:], strict=False) if is_on]
    return " ".join([*words, "cursor"] if has_cursor else words)


_PLAIN = Char(" ")[1:]
_LOOKS = (
    "bold",
    "italics",
    "underscore",
    "strikethrough",
    "reverse",
)  # blink, the last of a Char, is not shown


def _within(number: int, bounds: tuple[int, int]) -> int:
    return max(bounds[0], min(number, bounds[1]))

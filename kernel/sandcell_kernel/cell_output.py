"""How much of a cell's output a front end is told: front ends freeze on, and notebooks are filled by, what has no bound. Pure.

What is not shown is counted, and said at the end with where it can be found.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from sandcell_kernel.plain import list_of, text_of
from sandcell_kernel.tables import describe_bytes
from sandcell_kernel.wire import BadMessage

if TYPE_CHECKING:
    from sandcell_kernel.wire import Message, RequestKey

__all__ = ["MAX_DISPLAYS", "MAX_ERRORS", "CellOutput", "PastOutputs"]

MAX_DISPLAYS = 1000
MAX_ERRORS = 16  # a cell has one; more are forged
_DATA_SHARE = 16  # displays together may have so many times what text may
_DISPLAYS = ("display_data", "execute_result")


class CellOutput:
    """What one cell may still show: `max_text` bytes of streams, and displays of sixteen times that, a thousand at most."""

    def __init__(self, max_text: int) -> None:
        self._max_text = max_text
        self._begin()

    @property
    def is_cut(self) -> bool:
        return bool(self._text_hidden or self._displays_hidden)

    def take(self, message: Message) -> Message | None:
        """Return what is shown of a message of iopub, None where that is nothing. Others than output pass."""
        kind = message.msg_type
        if kind == "stream":
            return self._take_text(message)
        if kind in _DISPLAYS:
            return self._take_display(message)
        if kind == "error":
            return self._take_error(message)
        if kind == "clear_output":  # what was shown is gone, and counts no more
            self._begin()
        return message

    def bound(self, message: Message) -> Message:
        """Return an error, or a reply that tells one, with no more than a cell may show."""
        return message if len(message.content) <= self._max_text else _shortened(message, self._max_text)

    def describe_rest(self) -> str:
        """Return what was not shown, "" where all was."""
        parts = list[str]()
        if self._text_hidden:
            parts.append(f"{describe_bytes(self._text_hidden)} more of output")
        if self._displays_hidden:
            parts.append(f"{self._displays_hidden} more displays")
        return f"{' and '.join(parts)} are not shown" if parts else ""

    def _begin(self) -> None:
        self._text_left = self._max_text
        self._data_left = _DATA_SHARE * self._max_text
        self._displays_left = MAX_DISPLAYS
        self._errors_left = MAX_ERRORS
        self._text_hidden = 0
        self._displays_hidden = 0

    def _take_text(self, message: Message) -> Message | None:
        cost = len(message.content)  # more than its text has, and usually little: nothing need be decoded
        if cost <= self._text_left and b"\\r" not in message.content:
            self._text_left -= cost
            return message
        body = _body_of(message)
        text = text_of(body.get("text"))
        cost = _seen_of(text)
        if cost <= self._text_left:
            self._text_left -= cost
            return message
        shown, self._text_left = text[: self._text_left], 0
        self._text_hidden += len(text) - len(shown)
        return message.with_content({**body, "text": shown}) if shown else None

    def _take_display(self, message: Message) -> Message | None:
        if not self._displays_left:
            self._displays_hidden += 1
            return None
        self._displays_left -= 1
        size = len(message.content)
        if size <= self._data_left:
            self._data_left -= size
            return message
        self._displays_hidden += 1
        note = f"[{describe_bytes(size)} are not shown: what a cell displays may have {describe_bytes(_DATA_SHARE * self._max_text)}]"
        return message.with_content({**_body_of(message), "data": {"text/plain": note}, "metadata": {}})

    def _take_error(self, message: Message) -> Message | None:
        if not self._errors_left:
            self._displays_hidden += 1
            return None
        self._errors_left -= 1
        return self.bound(_with_traceback(message))


def _with_traceback(error: Message) -> Message:
    """Return an error with a line of traceback where its kernel gives none: that is all that some front ends show."""
    body = _body_of(error)
    if body.get("traceback") != []:
        return error
    line = f"{text_of(body.get('ename'))}: {text_of(body.get('evalue'))}"
    return error.with_content({**body, "traceback": [line]})


def _shortened(message: Message, most: int) -> Message:
    """Return an error whose lines are cut, and of these the last ones: they say what it was."""
    body = _body_of(message)
    lines = list[str]()
    left = most // 2
    for line in reversed(list_of(body.get("traceback"))):
        lines.append(_cut(text_of(line), most // 8))
        left -= len(lines[-1])
        if left < most // 8:
            break
    short = {"evalue": _cut(text_of(body.get("evalue")), most // 8), "traceback": lines[::-1]}
    return message.with_content({**body, **short}) if "evalue" in body else message


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]} [{len(text) - most} more characters are not shown]"


def _seen_of(text: str) -> int:
    """Return how much of a text is seen in the end: a line that is begun again, as by a progress bar, is overwritten."""
    return sum(len(line) - line.rstrip("\r").rfind("\r") for line in text.split("\n"))


def _body_of(message: Message) -> dict[str, Any]:
    try:
        return message.body()
    except BadMessage:
        return {}


class PastOutputs:
    """The last cells that have ended: their threads may still print, and as much as they had left."""

    def __init__(self, most: int = 64) -> None:
        self._most = most
        self._known: OrderedDict[RequestKey, CellOutput] = OrderedDict()

    def add(self, key: RequestKey, output: CellOutput) -> None:
        self._known[key] = output
        if len(self._known) > self._most:
            self._known.popitem(last=False)

    def take(self, key: RequestKey | None, message: Message) -> Message | None:
        """Return what is shown of late output."""
        output = self._known.get(key) if key is not None else None
        return message if output is None else output.take(message)

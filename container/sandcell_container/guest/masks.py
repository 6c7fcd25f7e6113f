"""Secrets taken out of what is shown: output, messages, errors, logs. Pure.

What is masked is the value as it is, as JSON and as Python's `repr` write it; of one with several lines, each line, for
terminals change their ends. It is a guard against accidents: code that has a secret can write it in another form.
"""

from __future__ import annotations

import json
import logging
import re
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from sandcell_container.journal import Kind

__all__ = [
    "MASK",
    "MaskingFormatter",
    "Masks",
    "StreamMask",
    "StreamMasks",
    "TextMasks",
    "masks_of",
    "warnings_of",
]

MASK = "***"

_MASK = MASK.encode()
_SHORTEST = 4  # characters: what is shorter stands everywhere by chance
_SHORTEST_LINE = 8  # of a secret with several lines, such as a brace in a key file


def warnings_of(secrets: Mapping[str, str]) -> list[str]:
    """Return what a user should know of `secrets`, by name: those that cannot be masked, as they are too short."""
    short = [name for name, value in secrets.items() if value and not list(_lines(value))]
    return [f"the secret {name} is not masked: it is too short" for name in short]


def masks_of(secrets: Mapping[str, str]) -> Masks | None:
    """Return what masks the values of `secrets`; None where there is nothing to mask."""
    forms = {form for value in secrets.values() for line in _lines(value) for form in _forms(line)}
    return Masks(forms) if forms else None


class Masks:
    """Puts MASK in the place of each of `forms`, none of which has an end of a line in it."""

    def __init__(self, forms: set[bytes]) -> None:
        self._forms = sorted(forms, key=len, reverse=True)
        self._in_json = forms | {each for form in forms for each in _json_of(form)}
        self._pattern = re.compile(b"|".join(map(re.escape, self._forms)))
        self._longest = len(self._forms[0])
        self._by_first = {form[0]: [each for each in self._forms if each[0] == form[0]] for form in forms}

    def data(self, data: bytes) -> bytes:
        """Return `data`, which is whole, masked."""
        return self._pattern.sub(_MASK, data) if self.is_in(data) else data

    def text(self, text: str) -> str:
        """Return `text`, which is whole, masked."""
        data = text.encode(errors="surrogatepass")
        return self.data(data).decode(errors="surrogatepass") if self.is_in(data) else text

    def json(self, data: bytes) -> bytes:
        """Return JSON with what is masked in its texts, names of fields among them. Numbers stay what they are."""
        if not any(form in data for form in self._in_json):
            return data
        try:
            return json.dumps(self._value(json.loads(data))).encode()
        except (ValueError, RecursionError):
            return self.data(data)

    def is_in(self, data: bytes) -> bool:
        """Whether there is something to mask."""
        return any(form in data for form in self._forms)

    def places(self, data: bytes) -> Iterator[tuple[int, int]]:
        """Yield from where to where `data` is to be masked."""
        if self.is_in(data):
            yield from (match.span() for match in self._pattern.finditer(data))

    def held_from(self, data: bytes, start: int = 0) -> int:
        """Return where the end of `data` begins, not before `start`, that may be the beginning of a secret."""
        line = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        for at in range(max(start, line, len(data) - self._longest + 1), len(data)):
            rest = len(data) - at
            for form in self._by_first.get(data[at], ()):
                if len(form) > rest and form.startswith(data[at:]):
                    return at
        return len(data)

    def _value(self, value: object) -> object:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self._value(each) for each in cast("list[object]", value)]
        if isinstance(value, dict):
            table = cast("dict[str, Any]", value)
            return {self.text(name): self._value(each) for name, each in table.items()}
        return value


class StreamMask:
    """Masks one stream in pieces: the end of a piece that may be the beginning of a secret is held until more comes.

    Of what a person types at a terminal not every letter can wait for the next: ends of fewer than `least` bytes are shown
    at once, and only the rest of the secret is masked where it turns out to be one.
    """

    def __init__(self, masks: Masks, *, least: int = 0) -> None:
        self._masks = masks
        self._least = least
        self._held = b""
        self._shown = 0  # of what is held

    def feed(self, data: bytes) -> bytes:
        """Take the next piece, and return what may be shown."""
        whole = self._held + data
        held_from = self._masks.held_from(whole)
        out, done = self._masked(whole, held_from)
        if done > held_from:
            held_from = self._masks.held_from(whole, done)
        start = max(done, self._shown)
        out += whole[start:held_from]
        self._held = whole[held_from:]
        self._shown = max(self._shown - held_from, 0)
        if len(self._held) < self._least:
            out += self._held[self._shown :]
            self._shown = len(self._held)
        return bytes(out)

    def finish(self) -> bytes:
        """Return what is held: nothing more comes, or not soon."""
        whole, self._held = self._held, b""
        out, done = self._masked(whole, len(whole))
        out += whole[max(done, self._shown) :]
        self._shown = 0
        return bytes(out)

    def _masked(self, whole: bytes, before: int) -> tuple[bytearray, int]:
        """Return what is to be shown up to the end of the last secret that begins `before` there, and that end."""
        out, done = bytearray(), 0
        for start, end in self._masks.places(whole):
            if start >= before:
                break
            out += whole[max(done, self._shown) : start] + _MASK
            done = end
        return out, done


class TextMasks:
    """Masks the streams of a run, as text in pieces."""

    def __init__(self, masks: Masks) -> None:
        self._masks = masks
        self._streams = dict[str, StreamMask]()

    def feed(self, name: str, text: str, *, is_last: bool) -> str:
        """Take the next piece of a stream, and return what may be shown; all where it `is_last`."""
        stream = self._streams.setdefault(name, StreamMask(self._masks))
        shown = stream.feed(text.encode(errors="surrogatepass"))
        if is_last:
            shown += stream.finish()
        return shown.decode(errors="surrogatepass")

    def finish(self) -> dict[str, str]:
        """Return what is held, by stream."""
        rest = {name: stream.finish() for name, stream in self._streams.items()}
        return {name: data.decode(errors="surrogatepass") for name, data in rest.items() if data}


class StreamMasks:
    """Hands output on to `take`, masked, each kind for itself."""

    def __init__(self, masks: Masks, take: Callable[[Kind, bytes], None]) -> None:
        self._masks = masks
        self._take = take
        self._streams = dict[int, tuple["Kind", StreamMask]]()

    def take(self, kind: Kind, data: bytes) -> None:
        _, stream = self._streams.setdefault(kind, (kind, StreamMask(self._masks)))
        shown = stream.feed(data)
        if shown:
            self._take(kind, shown)

    def finish(self) -> None:
        """Hand on what is held."""
        for kind, stream in self._streams.values():
            rest = stream.finish()
            if rest:
                self._take(kind, rest)


class MaskingFormatter(logging.Formatter):
    """Formats a line of a log without secrets."""

    def __init__(self, template: str, masks: Masks) -> None:
        super().__init__(template)
        self._masks = masks

    def format(self, record: logging.LogRecord) -> str:
        return self._masks.text(super().format(record))


def _lines(secret: str) -> Iterator[str]:
    lines = secret.splitlines()
    if len(lines) == 1:
        yield from (line for line in lines if len(line) >= _SHORTEST)
    else:
        yield from (line for each in lines if len(line := each.strip()) >= _SHORTEST_LINE)


def _forms(line: str) -> set[bytes]:
    raw = line.encode(errors="surrogateescape")
    return {raw, repr(line)[1:-1].encode(errors="surrogateescape"), *_json_of(raw)}


def _json_of(form: bytes) -> set[bytes]:
    """Return what `form` is inside of a text in JSON."""
    text = form.decode(errors="surrogateescape")
    both = (json.dumps(text), json.dumps(text, ensure_ascii=False))
    return {each[1:-1].encode(errors="surrogateescape") for each in both}

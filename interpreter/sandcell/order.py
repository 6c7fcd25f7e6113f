"""In which order a run printed and showed: places in its streams, which are kept once and whole. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sandcell.screen import Screen

__all__ = ["Order", "Part", "Stream"]

Stream = Literal["stdout", "stderr"]

_MOST_PARTS = 10_000  # what user code shows must not choose the memory of its caller


class Part(NamedTuple):
    """What came next: of a stream the text up to the character `end`, or the result with the index `end`."""

    kind: Literal["stdout", "stderr", "result"]
    end: int


class Order:
    """Notes what comes while it comes, by lines: text that goes on with a line stands where the line began. Beyond 10,000 parts
    nothing more is noted: what is left of the streams and results comes last."""

    def __init__(self) -> None:
        self._parts: list[Part] = []  # of streams with lines for `end`
        self._stream: Stream | None = None

    def note_text(self, stream: Stream, screens: Mapping[Stream, Screen]) -> None:
        """Text of this stream is to be written to its screen."""
        if self._stream != stream:
            self._close(screens)
            self._stream = stream

    def note_result(self, index: int, screens: Mapping[Stream, Screen]) -> None:
        """This result was shown."""
        self._close(screens)
        self._stream = None
        self._note(Part("result", index))

    def parts(self, screens: Mapping[Stream, Screen]) -> list[Part]:
        """Return the parts; the screens are finished."""
        ends = {
            stream: iter(screen.offsets([part.end for part in self._parts if part.kind == stream]))
            for stream, screen in screens.items()
        }
        return [
            part if part.kind == "result" else Part(part.kind, next(ends[part.kind])) for part in self._parts
        ]

    def _close(self, screens: Mapping[Stream, Screen]) -> None:
        if self._stream is not None:
            self._note(Part(self._stream, screens[self._stream].lines))

    def _note(self, part: Part) -> None:
        if len(self._parts) < _MOST_PARTS:
            self._parts.append(part)

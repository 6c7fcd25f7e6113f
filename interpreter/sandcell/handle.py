"""Results that were too large to send: where in the sandbox the whole is. Known to the guest and to its clients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, cast

from sandcell.events import Truncated

__all__ = ["Handle", "LeftOut", "left_out_of", "note_left_out"]

_MOST = 32  # parts of one bundle


@dataclass(frozen=True, slots=True)
class Handle:
    """A part of a result that was too large to send: the whole is in the file `path` of the sandbox, in `size` bytes."""

    path: str
    size: int
    mime: str


class LeftOut(NamedTuple):
    """A part of a display that our runtime did not send; `path` is None where no file could be made either."""

    mime: str
    size: int
    path: str | None

    def event(self, *, late: bool = False) -> Truncated:
        """Return what a run's journal says of it."""
        return Truncated(stream=self.mime, bytes=self.size, total_bytes=self.size, path=self.path, late=late)

    @property
    def handle(self) -> Handle | None:
        return None if self.path is None else Handle(self.path, self.size, self.mime)


def left_out_of(metadata: dict[str, Any]) -> list[LeftOut]:
    """Return what a display's metadata say of parts that were not sent. A cell can forge that: then it is what the code
    wants to be said, and nothing else depends on it."""
    own: object = metadata.get("sandcell")
    told: object = cast("dict[str, Any]", own).get("spilled") if isinstance(own, dict) else None
    parts = list(cast("dict[str, object]", told).items())[:_MOST] if isinstance(told, dict) else []
    return [found for mime, part in parts if (found := _read(mime, part)) is not None]


def note_left_out(
    data: dict[str, Any], metadata: dict[str, Any], outs: list[LeftOut]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a bundle and its metadata, as our runtime makes them, that say what is not in it."""
    if "text/plain" not in data:
        data = {**data, "text/plain": "\n".join(_note(out) for out in outs)}
    own: object = metadata.get("sandcell")
    known = cast("dict[str, Any]", own) if isinstance(own, dict) else {}
    told: object = known.get("spilled")
    spilled = cast("dict[str, Any]", told) if isinstance(told, dict) else {}
    spilled = {**spilled, **{out.mime: {"path": out.path, "size": out.size} for out in outs}}
    return data, {**metadata, "sandcell": {**known, "spilled": spilled}}


def _note(out: LeftOut) -> str:
    place = f"it is in {out.path}" if out.path else "no file could be made"
    return f"[{out.mime} of {out.size} bytes is too large to show: {place}]"


def _read(mime: str, part: object) -> LeftOut | None:
    fields = cast("dict[str, object]", part) if isinstance(part, dict) else {}
    path, size = fields.get("path"), fields.get("size")
    if not isinstance(size, int) or isinstance(size, bool) or size < 0:
        return None
    return LeftOut(mime, size, path if isinstance(path, str) else None)

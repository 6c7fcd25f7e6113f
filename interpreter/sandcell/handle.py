"""Results that were too large to send: where in the sandbox the whole is. Known to the guest and to its clients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, cast

__all__ = ["Handle", "LeftOut", "left_out_of"]

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


def _read(mime: str, part: object) -> LeftOut | None:
    fields = cast("dict[str, object]", part) if isinstance(part, dict) else {}
    path, size = fields.get("path"), fields.get("size")
    if not isinstance(size, int) or isinstance(size, bool) or size < 0:
        return None
    return LeftOut(mime, size, path if isinstance(path, str) else None)

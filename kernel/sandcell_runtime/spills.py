"""Results that are too large to send: the whole goes into a file of the user's, and the bundle says where it is.

`metadata["sandcell"]["spilled"]` is then `{mime: {"path", "size"}}`, `path` None where there could be no file, with
the `problem`; `size` in bytes of the file. What a part had been is in the file as such: the bytes of an image, text as UTF-8,
JSON as text. Nothing is ever cut.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import tempfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Spills", "own_of"]

_SUFFIXES = {
    "image/png": ".png",
    "image/jpeg": ".jpeg",
    "image/gif": ".gif",
    "image/svg+xml": ".svg",
    "application/pdf": ".pdf",
    "application/json": ".json",
    "application/javascript": ".js",
    "text/html": ".html",
    "text/markdown": ".md",
    "text/latex": ".tex",
}
_BINARY = ("image/png", "image/jpeg", "image/gif", "application/pdf")
_PLAIN = "text/plain"


@dataclass(frozen=True, slots=True)
class Spills:
    """Bounds in bytes as they are sent, `image` for image types and `text` for all others; files are made in `folder`."""

    folder: str
    text: int
    image: int

    @classmethod
    def of(cls, told: object) -> Spills | None:
        """Read them from a request, None where it has none."""
        match told:
            case {"folder": str(folder), "text": int(text), "image": int(image)}:
                return cls(folder, text, image)
            case _:
                return None

    def lighten(
        self, bundle: dict[str, Any], metadata: dict[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return bundle and metadata with the parts over their bound in files. Parts are text, bytes or JSON."""
        over = [mime for mime, value in bundle.items() if self._is_over(mime, value)]
        if not over:
            return bundle, metadata
        spilled = {mime: self._spill(mime, bundle[mime]) for mime in over}
        kept = {mime: value for mime, value in bundle.items() if mime not in spilled}
        if _PLAIN not in kept:
            kept[_PLAIN] = "\n".join(_note(mime, told) for mime, told in spilled.items())
        return kept, {**metadata, "sandcell": {**own_of(metadata), "spilled": spilled}}

    def _is_over(self, mime: str, value: object) -> bool:
        return _size(value) > (self.image if mime.startswith("image/") else self.text)

    def _spill(self, mime: str, value: object) -> dict[str, Any]:
        data = _file_form(mime, value)
        try:
            return {"path": self._write(data, _suffix_of(mime)), "size": len(data)}
        except OSError as problem:
            return {"path": None, "size": len(data), "problem": f"no file could be made: {problem}"[:500]}

    def _write(self, data: bytes, suffix: str) -> str:
        os.makedirs(self.folder, mode=0o700, exist_ok=True)
        descriptor, path = tempfile.mkstemp(suffix, "result-", self.folder)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
        except OSError:
            os.unlink(path)
            raise
        return path


def _suffix_of(mime: str) -> str:
    return _SUFFIXES.get(mime) or (".json" if mime.endswith("+json") else ".txt")


def own_of(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return what of a display's metadata is ours; a user's code can put anything there."""
    own: object = metadata.get("sandcell")
    return cast("dict[str, Any]", own) if isinstance(own, dict) else {}


def _size(value: object) -> int:
    """Return how many bytes a part of a bundle is when it is sent."""
    match value:
        case str():
            return len(value) if value.isascii() else len(value.encode("utf-8", "backslashreplace"))
        case bytes():
            return (len(value) + 2) // 3 * 4
        case _:
            return len(json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode(errors="replace"))


def _file_form(mime: str, value: object) -> bytes:
    if isinstance(value, bytes):
        return value
    if not isinstance(value, str):
        return json.dumps(value).encode()
    if mime in _BINARY:
        try:
            return base64.b64decode("".join(value.split()), validate=True)
        except (binascii.Error, ValueError):
            pass  # no base64: the user's code put something else there, and gets it as it is
    return value.encode("utf-8", "backslashreplace")


def _note(mime: str, told: Mapping[str, Any]) -> str:
    place = f"it is in {told['path']}" if told["path"] else told["problem"]
    return f"[{mime} of {told['size']} bytes is too large to show: {place}]"

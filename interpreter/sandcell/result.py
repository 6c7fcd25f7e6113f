"""One thing that a run displayed, in every format that it came in.

Source: CONTRACT section 1 for every name and shape here.
"""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from sandcell_container.errors import ErrorCode, error

__all__ = ["Handle", "Image", "Result"]

DATA_MIME = "application/vnd.sandcell.data+json"
CHART_MIME = "application/vnd.sandcell.chart+json"

# What each short name of a format is in a MIME bundle, the richest for a file first.
FORMATS = {
    "png": "image/png",
    "jpeg": "image/jpeg",
    "svg": "image/svg+xml",
    "pdf": "application/pdf",
    "html": "text/html",
    "markdown": "text/markdown",
    "latex": "text/latex",
    "json": "application/json",
    "javascript": "application/javascript",
    "text": "text/plain",
}
_SUFFIXES = {
    ".png": "png",
    ".jpg": "jpeg",
    ".jpeg": "jpeg",
    ".svg": "svg",
    ".pdf": "pdf",
    ".html": "html",
    ".htm": "html",
    ".md": "markdown",
    ".tex": "latex",
    ".json": "json",
    ".js": "javascript",
    ".txt": "text",
}
_BINARY = {"png", "jpeg", "pdf"}


@dataclass(frozen=True, slots=True)
class Handle:
    """A result that was too large to send: the whole is at `path` inside the sandbox."""

    path: str
    size: int
    mime: str


class Image(bytes):
    """The bytes of an image, and its MIME type."""

    mime: str

    def __new__(cls, data: bytes, mime: str) -> Self:
        image = super().__new__(cls, data)
        image.mime = mime
        return image


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Something that was displayed. `mime` is the whole bundle as Jupyter has it: text, JSON, images as base64.

    Each format is a property, None where the bundle does not have it: text as str, images and PDF as bytes.
    """

    mime: dict[str, Any]
    metadata: dict[str, Any] = field(default_factory=dict[str, Any])
    display_id: str | None = None
    is_main: bool = False
    spilled: Handle | None = None

    @property
    def text(self) -> str | None:
        return self._text("text")

    @property
    def html(self) -> str | None:
        return self._text("html")

    @property
    def markdown(self) -> str | None:
        return self._text("markdown")

    @property
    def svg(self) -> str | None:
        return self._text("svg")

    @property
    def latex(self) -> str | None:
        return self._text("latex")

    @property
    def javascript(self) -> str | None:
        return self._text("javascript")

    @property
    def json(self) -> Any:
        return self.mime.get(FORMATS["json"])

    @property
    def png(self) -> bytes | None:
        return self._bytes("png")

    @property
    def jpeg(self) -> bytes | None:
        return self._bytes("jpeg")

    @property
    def pdf(self) -> bytes | None:
        return self._bytes("pdf")

    @property
    def data(self) -> Any:
        """A table as `{"columns", "rows"}`, where the run asked for it."""
        return self.mime.get(DATA_MIME)

    @property
    def chart(self) -> Any:
        """A chart as data, where the run asked for it."""
        return self.mime.get(CHART_MIME)

    def formats(self) -> list[str]:
        """Return the short names of the formats that it has, such as "text" and "png"."""
        return [name for name, mime in FORMATS.items() if mime in self.mime]

    def save(self, path: str | Path) -> Path:
        """Write the format that the suffix of `path` names, and return the path.

        Raises:
            InvalidRequest (INVALID_ARGUMENT): the suffix is unknown, or it has no such format.
        """
        target = Path(path)
        name = _SUFFIXES.get(target.suffix.lower(), "")
        content = self._bytes(name) if name in _BINARY else self._file_text(name)
        if content is None:
            raise error(
                ErrorCode.INVALID_ARGUMENT,
                f"{target.name!r} cannot be written: this result has {', '.join(self.formats()) or 'no format'}",
                hint=f"one of the suffixes {' '.join(_SUFFIXES)}",
            )
        if isinstance(content, bytes):
            target.write_bytes(content)
        else:
            target.write_text(content, encoding="utf-8")
        return target

    def to_pandas(self) -> Any:
        """Return the table as a pandas DataFrame.

        Raises:
            InvalidRequest (UNSUPPORTED): the run did not ask for data, or this is no table.
        """
        raise error(
            ErrorCode.UNSUPPORTED,
            "this result holds no table as data",
            hint="return the rows as the value of the last expression, such as df.to_dict('records')",
        )

    def _text(self, name: str) -> str | None:
        value = self.mime.get(FORMATS[name])
        return value if isinstance(value, str) else None

    def _bytes(self, name: str) -> bytes | None:
        value = self.mime.get(FORMATS[name])
        if not isinstance(value, str):
            return None
        try:
            return base64.b64decode("".join(value.split()), validate=True)
        except (binascii.Error, ValueError):
            return None  # the code in the sandbox displayed what is no base64: then there is no such image

    def _file_text(self, name: str) -> str | None:
        if name == "json" and FORMATS["json"] in self.mime:
            return json.dumps(self.json)
        return self._text(name) if name else None

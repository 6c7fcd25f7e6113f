"""One thing that a run displayed, in every format that it came in.

Source: CONTRACT section 1 for every name and shape here.
"""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from sandcell.handle import Handle, left_out_of
from sandcell.plain_fields import fields_of
from sandcell_container.errors import ErrorCode, error

if TYPE_CHECKING:
    from sandcell.chart import Chart
    from sandcell.table import Table

__all__ = ["Handle", "Image", "Result"]

DATA_MIME = "application/vnd.sandcell.data+json"
CHART_MIME = "application/vnd.sandcell.chart+json"
PLOTLY_MIME = "application/vnd.plotly.v1+json"

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
_OWN = {"data": DATA_MIME, "chart": CHART_MIME}
_RANK = {mime: at for at, mime in enumerate(FORMATS.values())}


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
    `spilled` is where in the sandbox the whole is of what was too large to send.
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
    def data(self) -> Table | None:
        """The table that was displayed, where the run asked for it: the first rows, with the shape of the whole."""
        if DATA_MIME not in self.mime:
            return None
        from sandcell.table import table_from  # like charts: who looks at none does not pay for it

        return table_from(self.mime[DATA_MIME])

    @property
    def chart(self) -> Chart | None:
        """The chart that was displayed, as data, where the run asked for it: of matplotlib or plotly."""
        if CHART_MIME in self.mime:
            from sandcell.chart import chart_from

            return chart_from(self.mime[CHART_MIME])
        if PLOTLY_MIME in self.mime:
            from sandcell.plotly_chart import chart_of_plotly

            return chart_of_plotly(self.mime[PLOTLY_MIME])
        return None

    def formats(self) -> list[str]:
        """Return what it has: short names such as "text", "png", "data" and "chart", and other MIME types as they are."""
        known = {*FORMATS.values(), *_OWN.values()}
        others = [mime for mime in self.mime if mime not in known]
        named = {**FORMATS, **_OWN}.items()
        found = [name for name, mime in named if mime in self.mime]
        if PLOTLY_MIME in self.mime and "chart" not in found:
            found.append("chart")
        return found + others

    def save(self, path: str | Path) -> Path:
        """Write the format that the suffix of `path` names, and return the path.

        Raises:
            InvalidRequest (INVALID_ARGUMENT): the suffix is unknown, it has no such format, or that was too large to send.
        """
        target = Path(path)
        name = _SUFFIXES.get(target.suffix.lower(), "")
        content = self._bytes(name) if name in _BINARY else self._file_text(name)
        if content is None:
            raise self._cannot_save(target)
        if isinstance(content, bytes):
            target.write_bytes(content)
        else:
            target.write_text(content, encoding="utf-8")
        return target

    def to_pandas(self) -> Any:
        """Return the table as a pandas DataFrame or Series, with its types: the rows that `data` has.

        Raises:
            InvalidRequest (UNSUPPORTED): the run did not ask for data, this is no table, or pandas is not installed here.
        """
        table = self.data
        if table is None:
            raise error(
                ErrorCode.UNSUPPORTED,
                "this result holds no table as data",
                hint="end the code with a DataFrame of pandas or polars, or pull a variable with context.pull()",
            )
        return table.to_pandas()

    def to_dict(self) -> dict[str, Any]:
        """Return all of it, JSON-safe; `from_dict` takes it back."""
        return fields_of(self)

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> Self:
        """Return the result that `to_dict` gave `fields` of; what is not known here is left out."""
        spilled = fields.get("spilled")
        return cls(
            mime=fields["mime"],
            metadata=fields.get("metadata") or {},
            display_id=fields.get("display_id"),
            is_main=fields.get("is_main", False),
            spilled=Handle(**spilled) if spilled else None,
        )

    @classmethod
    def of_display(cls, mime: dict[str, Any], metadata: dict[str, Any], **more: Any) -> Self:
        """Return the result of a bundle as it came; `spilled` is the richest part of it that was too large to send."""
        handles = {out.mime: out.handle for out in left_out_of(metadata) if out.handle is not None}
        order = sorted(handles, key=lambda name: _RANK.get(name, len(_RANK)))
        return cls(mime=mime, metadata=metadata, spilled=handles[order[0]] if order else None, **more)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        """Show it in a notebook without giving code of the sandbox the page: see `sandcell.shown`."""
        from sandcell.shown import bundle_of  # who shows nothing does not pay for it

        return bundle_of(self.text or f"[{', '.join(self.formats())}]", [self])

    def _cannot_save(self, target: Path) -> Exception:
        spilled = self.spilled
        if spilled is not None and FORMATS.get(_SUFFIXES.get(target.suffix.lower(), "")) == spilled.mime:
            return error(
                ErrorCode.INVALID_ARGUMENT,
                f"{target.name!r} cannot be written: {spilled.mime} of {spilled.size} bytes was too large to send",
                hint=f"sandbox.files.download({spilled.path!r}, ...)",
            )
        return error(
            ErrorCode.INVALID_ARGUMENT,
            f"{target.name!r} cannot be written: this result has {', '.join(self.formats()) or 'no format'}",
            hint=f"one of the suffixes {' '.join(_SUFFIXES)}",
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

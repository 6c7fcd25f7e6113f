"""A run shown in the notebook of the program that made it: what it printed, its results in order, its error.

HTML and scripts of results come from code that nobody trusts, and a page of Jupyter's can run code on its server. So
they stand in frames that have an origin of their own, pictures in elements that run no scripts, and all else is text.
"""

from __future__ import annotations

import base64
import html
from typing import TYPE_CHECKING, Any

from sandcell.screen import strip_ansi

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sandcell.result import Result

__all__ = ["bundle_of"]

_PICTURES = (("png", "image/png"), ("jpeg", "image/jpeg"))
_FRAME = (
    '<iframe sandbox="allow-scripts" srcdoc="{document}" '
    'style="width: 100%; height: 320px; border: 0; resize: vertical; overflow: auto; background: white"></iframe>'
)


def bundle_of(plain: str, results: Sequence[Result], *, before: str = "", after: str = "") -> dict[str, Any]:
    """Return a MIME bundle: `plain` as text, and HTML where any of `results` is more than text.

    `before` and `after` are text around the results: output, and an error.
    """
    bundle: dict[str, Any] = {"text/plain": plain}
    if any(_is_rich(result) for result in results):
        parts = [_text(before), *(_result(result) for result in results), _text(after)]
        bundle["text/html"] = "\n".join(part for part in parts if part)
    return bundle


def _is_rich(result: Result) -> bool:
    return any((result.png, result.jpeg, result.svg, result.html))


def _result(result: Result) -> str:
    for name, mime in _PICTURES:
        data: bytes | None = getattr(result, name)
        if data is not None:
            return _picture(data, mime)
    if result.svg is not None:
        return _picture(result.svg.encode("utf-8", "replace"), "image/svg+xml")
    if result.html is not None:
        return _FRAME.format(document=html.escape(result.html))
    return _text(result.markdown or result.text or "")


def _picture(data: bytes, mime: str) -> str:
    return f'<img src="data:{mime};base64,{base64.b64encode(data).decode()}">'


def _text(text: str) -> str:
    return f"<pre>{html.escape(strip_ansi(text))}</pre>" if text.strip() else ""

"""What an exposure answers itself: the page that lets a browser in, and why there is nothing to see."""

from __future__ import annotations

import html
import json
import secrets
from http import HTTPStatus
from typing import TYPE_CHECKING

from sandcell.ports.entry import Stopped
from sandcell_container.errors import CODES, ErrorCode, SandcellError, error

if TYPE_CHECKING:
    from sandcell.ports.entry import Lock
    from sandcell.ports.heads import RequestHead

__all__ = ["problem_answer", "stopped", "welcome_answer"]

_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:36em;margin:15vh auto;padding:0 1em;color:#333;background:#fff}"
    "h1{font-size:1.3em}code{background:#eee;padding:.1em .3em}"
    "@media(prefers-color-scheme:dark){body{color:#ddd;background:#1c1c1c}code{background:#333}}"
)
_TITLES = {
    ErrorCode.PORT_NOT_LISTENING: "Nothing answers here yet",
    ErrorCode.UNAUTHENTICATED: "This address needs its token",
    ErrorCode.FORBIDDEN: "This address is not valid any more",
    ErrorCode.SANDBOX_GONE: "The sandbox is not running",
}


def stopped(why: Stopped, port: int) -> SandcellError:
    """Return the error of who may not come in."""
    if why is Stopped.NO_TOKEN:
        return error(
            ErrorCode.UNAUTHENTICATED,
            f"port {port} of the sandbox is not open to everybody",
            hint="open the whole URL that expose() or `sandcell open` gave, with its token",
        )
    return error(
        ErrorCode.FORBIDDEN,
        f"the token for port {port} of the sandbox is wrong",
        hint="it was replaced or mistyped: ask for the URL again",
    )


def welcome_answer(target: str, lock: Lock) -> bytes:
    """Return the page that gives a browser its cookie and sends it on to `target`.

    A page and no redirect: after a redirect from another site's link a browser would hold the cookie back, as strict as it
    is. What the browser had behind a `#` goes along; the URL with the token stays neither in its history nor in a Referer.
    """
    nonce, where = secrets.token_urlsafe(12), html.escape(target, quote=True)
    body = (
        f'<!doctype html><html data-to="{where}"><meta charset="utf-8"><title>Sandcell</title>'
        f'<noscript><meta http-equiv="refresh" content="0;url={where}"></noscript>'
        f'<script nonce="{nonce}">location.replace(document.documentElement.dataset.to+location.hash)</script>'
        f'<a href="{where}">Go on</a>'
    )
    cookie = f"{lock.cookie}={lock.token}; Path=/; HttpOnly; SameSite=Strict"
    policy = f"default-src 'none'; script-src 'nonce-{nonce}'"
    return _answer(
        200, "text/html; charset=utf-8", body, **{"Set-Cookie": cookie, "Content-Security-Policy": policy}
    )


def problem_answer(problem: SandcellError, head: RequestHead | None) -> bytes:
    """Return the answer that tells of `problem`: a page for who accepts one, else our form of errors."""
    status = CODES[problem.code].status
    if head is None or "text/html" not in head.get("accept"):
        return _answer(status, "application/json", json.dumps(problem.to_dict()))
    title = _TITLES.get(problem.code, "This did not work")
    body = (
        f'<!doctype html><meta charset="utf-8"><title>{title}</title><style>{_STYLE}</style>'
        f"<h1>{title}</h1><p>{html.escape(problem.message)}.</p><p>{html.escape(problem.hint)}.</p>"
        f"<p><code>{problem.code}</code></p>"
    )
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    return _answer(status, "text/html; charset=utf-8", body, **{"Content-Security-Policy": policy})


def _answer(status: int, kind: str, body: str, **more: str) -> bytes:
    data = body.encode("utf-8", "surrogateescape")
    lines = [
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}",
        f"Content-Type: {kind}",
        f"Content-Length: {len(data)}",
        "Cache-Control: no-store",
        "Referrer-Policy: no-referrer",
        "X-Content-Type-Options: nosniff",
        "Connection: close",
        *(f"{name}: {value}" for name, value in more.items()),
    ]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + data

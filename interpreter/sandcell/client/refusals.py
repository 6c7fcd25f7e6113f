"""Why a WebSocket to an app was not opened, in our form of errors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandcell_container.errors import ErrorCode, error

if TYPE_CHECKING:
    from sandcell_container.errors import SandcellError

__all__ = ["no_websockets", "refused_websocket"]


def no_websockets() -> SandcellError:
    """Return the error of a program that cannot speak WebSocket."""
    return error(
        ErrorCode.UNSUPPORTED,
        "a WebSocket needs the package websockets",
        hint='pip install "sandcell[websockets]"',
    )


def refused_websocket(url: str, problem: Exception) -> SandcellError:
    """Return the error of an app that does not answer as a WebSocket does."""
    return error(
        ErrorCode.INVALID_ARGUMENT,
        f"what listens at {url[:80]} opens no WebSocket: {problem}"[:300],
        hint="compare path, headers and subprotocols with what it expects",
    )

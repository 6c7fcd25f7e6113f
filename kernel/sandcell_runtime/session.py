"""Messages that are too large for the guest never leave the process: a frame over its bound would cost the kernel.

What a user sees is made smaller and says so; anything else raises in the code that wanted to send it.
"""

from __future__ import annotations

from typing import Any

from jupyter_client.session import Session

__all__ = ["BoundedSession", "TooLargeToSend"]

_SHOWN = 1000  # characters of an error's value that are kept


class TooLargeToSend(ValueError):
    """A message of this kernel has a part that is larger than what its reader takes."""


class BoundedSession(Session):
    """A session none of whose frames is longer than `max_frame` bytes."""

    max_frame = 64 * 2**20

    def serialize(self, msg: dict[str, Any], ident: list[bytes] | bytes | None = None) -> list[bytes]:
        frames = super().serialize(msg, ident)
        longest = max(map(len, frames))
        if longest <= self.max_frame:
            return frames
        smaller = _smaller(msg["content"], longest, self.max_frame)
        return super().serialize({**msg, "content": smaller, "metadata": {}}, ident)


def _smaller(content: dict[str, Any], size: int, limit: int) -> dict[str, Any]:
    note = f"{size} bytes left out: a message may have {limit}"
    if "ename" in content:
        return {**content, "evalue": content["evalue"][:_SHOWN], "traceback": [note]}
    if content.get("status") == "ok":
        return {"status": "error", "ename": "TooLargeToSend", "evalue": note, "traceback": []}
    if "data" in content and "metadata" in content:
        return {**content, "data": {"text/plain": f"[{note}]"}, "metadata": {"sandcell": {"left_out": size}}}
    raise TooLargeToSend(note)

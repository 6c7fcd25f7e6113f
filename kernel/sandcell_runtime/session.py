"""Messages that are too large for the guest never leave the process: one over its bound would cost the kernel.

What a user sees is made smaller and says so; anything else raises in the code that wanted to send it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from jupyter_client.session import Session

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["BoundedSession", "TooLargeToSend"]

_SHOWN = 1000  # characters of an error's value that are kept
_FRAME_COST = 64  # bytes that the reader counts for each frame beside its data
_OWN_FRAMES = (
    3  # delimiter, signature and topic, at least one of which is not among those that are counted here
)


class TooLargeToSend(ValueError):
    """A message of this kernel is larger than what its reader takes."""


class BoundedSession(Session):
    """A session whose messages have at most `max_frame` bytes of JSON, and as many again of buffers."""

    max_frame = 32 * 2**20

    def send(
        self,
        stream: Any,
        msg_or_type: Any,
        content: Any = None,
        parent: Any = None,
        ident: Any = None,
        buffers: Any = None,
        *args: Any,
        **kwargs: Any,
    ) -> dict[str, Any] | None:
        attached: Sequence[Any] = buffers or _buffers_of(msg_or_type)
        size = sum(memoryview(each).nbytes + _FRAME_COST for each in attached)
        if size > self.max_frame:
            raise TooLargeToSend(f"{size} bytes of buffers: a message may have {self.max_frame}")
        return super().send(stream, msg_or_type, content, parent, ident, buffers, *args, **kwargs)

    def serialize(self, msg: dict[str, Any], ident: list[bytes] | bytes | None = None) -> list[bytes]:
        try:
            frames = super().serialize(msg, ident)
        except UnicodeEncodeError:  # half a character, as in `raise ValueError("\ud800")`
            msg = {**msg, "content": _escaped(msg["content"])}
            frames = super().serialize(msg, ident)
        size = sum(map(len, frames))
        if size + _FRAME_COST * (len(frames) + _OWN_FRAMES) <= self.max_frame:
            return frames
        smaller = _smaller(msg["content"], size, self.max_frame)
        return super().serialize({**msg, "content": smaller, "metadata": {}}, ident)


def _buffers_of(message: object) -> Sequence[Any]:
    return cast("dict[str, Any]", message).get("buffers") or () if isinstance(message, dict) else ()


def _escaped(value: object) -> Any:
    """Return plain data with what UTF-8 cannot carry written as Python writes it."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        table = cast("dict[str, Any]", value)
        return {_escaped(key): _escaped(item) for key, item in table.items()}
    if isinstance(value, (list, tuple)):
        return [_escaped(item) for item in cast("Sequence[Any]", value)]
    return value


def _smaller(content: dict[str, Any], size: int, limit: int) -> dict[str, Any]:
    note = f"{size} bytes left out: a message may have {limit}"
    if "ename" in content:
        return {**content, "evalue": content["evalue"][:_SHOWN], "traceback": [note]}
    if content.get("status") == "ok":
        return {"status": "error", "ename": "TooLargeToSend", "evalue": note, "traceback": []}
    if "data" in content and "metadata" in content:
        return {**content, "data": {"text/plain": f"[{note}]"}, "metadata": {"sandcell": {"left_out": size}}}
    raise TooLargeToSend(note)

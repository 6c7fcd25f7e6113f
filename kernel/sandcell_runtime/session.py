"""Messages that are too large for the guest never leave the process: one over its bound would cost the kernel.

What a user sees is made smaller and says so, and where a display now is as a file; anything else raises in the code that
wanted to send it.
"""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING, Any, cast

from jupyter_client.session import Session

from sandcell_runtime.spills import Spills, own_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["BoundedSession", "TooLargeToSend"]

# Of displays, for one interpreter: a loop that draws what is too large must not fill the disk.
_MAX_FILES = 16
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

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._files_left = _MAX_FILES

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
        smaller = self._smaller(msg["content"], size)
        return super().serialize({**msg, "content": smaller, "metadata": {}}, ident)

    def _smaller(self, content: dict[str, Any], size: int) -> dict[str, Any]:
        note = f"{size} bytes left out: a message may have {self.max_frame}"
        if "ename" in content:
            return {**content, "evalue": content["evalue"][:_SHOWN], "traceback": [note]}
        if content.get("status") == "ok":
            return {"status": "error", "ename": "TooLargeToSend", "evalue": note, "traceback": []}
        if isinstance(content.get("data"), dict) and "metadata" in content:
            text = "; ".join([note, *self._put_into_files(content["data"])])
            return {
                **content,
                "data": {"text/plain": f"[{text}]"},
                "metadata": {"sandcell": {"left_out": size}},
            }
        raise TooLargeToSend(note)

    def _put_into_files(self, bundle: dict[str, Any]) -> list[str]:
        """Write the large parts of a display into files, as long as there may be more, and return where each is."""
        if self._files_left <= 0:
            return []
        share = self.max_frame // 8
        try:
            folder = tempfile.gettempdir()
        except OSError as problem:  # none that can be written
            return [str(problem)]
        _, told = Spills(folder, text=share, image=share).lighten(bundle, {})
        spilled: dict[str, dict[str, Any]] = own_of(told).get("spilled", {})
        self._files_left -= len(spilled)
        return [_place(mime, each) for mime, each in spilled.items()]


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


def _place(mime: str, told: Mapping[str, Any]) -> str:
    return f"the {mime} is in {told['path']}" if told["path"] else f"the {mime}: {told['problem']}"

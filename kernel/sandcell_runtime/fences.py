"""Messages on iopub, each with its place among the output that its run writes into pipes.

The place travels behind the topic, as ` fence:NUMBER`: a frame of its own would cost more than all the rest of this.
See docs/protocol.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jupyter_client.session import DELIM

from sandcell_runtime.session import BoundedSession

if TYPE_CHECKING:
    from sandcell_runtime.outlet import Outlet

__all__ = ["FencedSession"]

_LAST = ("execute_result", "status")  # what ends a run: little comes after it


class FencedSession(BoundedSession):
    """A session of a kernel whose runs write where `outlet` says."""

    outlet: Outlet

    def serialize(self, msg: dict[str, Any], ident: list[bytes] | bytes | None = None) -> list[bytes]:
        frames = super().serialize(msg, ident)
        number = self._fence(msg)
        if number:
            if frames[0] == DELIM:
                frames.insert(0, b"")  # it has no topic
            frames[0] += b" fence:%d" % number
        return frames

    def _fence(self, msg: dict[str, Any]) -> int:
        """Return the message's place among the output of the run that it is of, 0 where it has none."""
        kind: str = msg["header"]["msg_type"]
        if kind == "execute_input" or kind.endswith(("_reply", "_request")):
            return 0  # before all output, or not on iopub
        if msg["content"].get("execution_state") == "busy":
            return 0  # before all output too, which must not wait for it: C code may never let its sender run
        pipes = self.outlet.pipes
        if pipes is None or msg["parent_header"].get("msg_id") != pipes.msg_id:
            return 0
        return pipes.fence(is_last=kind in _LAST)

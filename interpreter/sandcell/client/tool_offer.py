"""What a run is offered of the tools of its client, and the requests that answer its calls. Pure: the same for both clients."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from sandcell.api import AnswerTool, OfferTools, ToolFailure
from sandcell.client.protocol import Request, path_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sandcell.tools import ToolLike, Toolset

__all__ = ["Offer", "answering", "make_offer", "toolset_of"]

_MOST_SENT = 6 * 2**20  # bytes: a body may have 8 MiB


class Offer(NamedTuple):
    """The tools of one run; `required`: they were given to it alone. `key` is known to this client and the guest alone: nobody else can answer. `client` is what the
    guest knows this one by."""

    tools: Toolset
    key: str
    client: str
    required: bool

    @property
    def body(self) -> OfferTools:
        return OfferTools(key=self.key, tools=self.tools.specs, client=self.client, required=self.required)


def toolset_of(tools: Sequence[ToolLike] | None) -> Toolset | None:
    """Return the tools that a caller gives, None where there are none. Raises InvalidRequest (INVALID_ARGUMENT)."""
    if tools is None or tools == () or tools == []:
        return None
    from sandcell.tools import make_toolset  # what reads signatures and schemas is for who has some

    return make_toolset(tools) or None


def make_offer(tools: Sequence[ToolLike] | None, usual: Toolset | None, *, client: str) -> Offer | None:
    """Return what a run is offered: `tools`, where it has its own, else the `usual` ones of its sandbox."""
    chosen = usual if tools is None else toolset_of(tools)
    return None if chosen is None else Offer(chosen, os.urandom(16).hex(), client, tools is not None)


def answering(run_id: str, call_id: str, answer: AnswerTool) -> Request:
    """Return the request that answers a call."""
    body = msgspec.json.encode(answer)
    if len(body) > _MOST_SENT:
        said = f"what the tool returned has {len(body)} bytes of JSON: that is too much to travel"
        failure = ToolFailure(name="ToolUnavailable", message=said, kind="unavailable")
        body = msgspec.json.encode(AnswerTool(key=answer.key, error=failure))
    return Request(method="POST", path=path_of("executions", run_id, "tools", call_id), body=body)

"""Which messages of a kernel a front end can read: code in the sandbox writes what it likes on its kernel's sockets, and
programs that run notebooks end over what lacks a part, with the rest of the notebook. Pure.

Source: https://jupyter-client.readthedocs.io/en/stable/messaging.html (5.5); nbformat's `output_from_msg`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import Raw

from sandcell_kernel.plain import list_of, table_of, text_of
from sandcell_kernel.wire import BadMessage

if TYPE_CHECKING:
    from sandcell_kernel.wire import Message

__all__ = ["check_shape", "with_known_orders"]


class _Stream(msgspec.Struct):
    name: Literal["stdout", "stderr"]
    text: str


class _Transient(msgspec.Struct):
    display_id: str | None = None


class _Display(msgspec.Struct):
    data: dict[str, Raw]
    metadata: dict[str, Raw]
    transient: _Transient | None = None


class _Result(_Display, kw_only=True):
    execution_count: int | None


class _Error(msgspec.Struct):
    ename: str
    evalue: str
    traceback: list[str]


class _Input(msgspec.Struct):
    code: str
    execution_count: int


class _Clear(msgspec.Struct):
    wait: bool = False


class _Comm(msgspec.Struct):
    comm_id: str


class _Question(msgspec.Struct):
    prompt: str
    password: bool = False


_DECODERS: dict[str, msgspec.json.Decoder[Any]] = {
    "stream": msgspec.json.Decoder(_Stream),
    "display_data": msgspec.json.Decoder(_Display),
    "update_display_data": msgspec.json.Decoder(_Display),
    "execute_result": msgspec.json.Decoder(_Result),
    "error": msgspec.json.Decoder(_Error),
    "execute_input": msgspec.json.Decoder(_Input),
    "clear_output": msgspec.json.Decoder(_Clear),
    "comm_open": msgspec.json.Decoder(_Comm),
    "comm_msg": msgspec.json.Decoder(_Comm),
    "comm_close": msgspec.json.Decoder(_Comm),
    "input_request": msgspec.json.Decoder(_Question),
}
_NOT_OF_CELLS = ("shutdown_reply", "iopub_welcome")  # what a kernel says of itself, and ours says itself


def check_shape(message: Message) -> None:
    """Check a message of a kernel on iopub or stdin; types that are not known here pass.

    Raises:
        BadMessage: no front end can read it, or it is not for code to say.
    """
    kind = message.msg_type
    if kind in _NOT_OF_CELLS:
        raise BadMessage(f"{kind} is not for code to say")
    decoder = _DECODERS.get(kind)
    if decoder is None:
        return
    try:
        decoder.decode(message.content)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as problem:
        raise BadMessage(f"{kind}: {problem}") from None


def with_known_orders(reply: Message) -> Message:
    """Return an execute_reply whose payload orders nothing but a page to show or the text of a cell.

    Others that front ends know would end `jupyter console`, or open a file of this machine in an editor.
    """
    body = reply.body()
    payload = list_of(body.get("payload"))
    known = [each for each in payload if _is_known_order(table_of(each))]
    return reply if len(known) == len(payload) else reply.with_content({**body, "payload": known})


def _is_known_order(order: dict[str, Any]) -> bool:
    match text_of(order.get("source")):
        case "page":
            return isinstance(table_of(order.get("data")).get("text/plain"), str)
        case "set_next_input":
            return isinstance(order.get("text"), str)
        case _:
            return False

"""JSON that may hold names of files. A name is bytes, and one that is no UTF-8 has lone surrogates as text (PEP 383).

msgspec refuses lone surrogates both ways, the standard library escapes them as JSON allows; so it is the way out
where a name may stand, and only when there is such a name.
"""

from __future__ import annotations

import json
from typing import Literal, TypeVar

import msgspec

__all__ = ["decode_names", "encode_names"]

T = TypeVar("T")


def encode_names(answer: object) -> bytes:
    """Return `answer` as JSON."""
    try:
        return msgspec.json.encode(answer)
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(answer)).encode()


def decode_names(
    text: bytes | bytearray,
    kind: type[T],
    *,
    lone: Literal["strict", "surrogateescape", "surrogatepass"] = "surrogatepass",
) -> T:
    """Return JSON as `kind`. `lone` says which lone surrogates are let in: none, those of names, or all.

    Raises:
        msgspec.MsgspecError: it is no JSON, or does not fit.
        UnicodeEncodeError: it holds a lone surrogate that is not let in.
    """
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        try:
            plain = json.loads(text)
        except ValueError:
            plain = None
        if plain is None:
            raise
        json.dumps(plain, ensure_ascii=False).encode("utf-8", lone)
        return msgspec.convert(plain, type=kind)

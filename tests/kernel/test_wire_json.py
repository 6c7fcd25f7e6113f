"""The JSON of a kernel's own messages."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jupyter_client.session import json_packer

from sandcell_runtime.wire_json import pack, unpack

plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(plain)
def test_messages_are_what_jupyter_makes_of_them(value: Any) -> None:
    assert pack(value) == json_packer(value)
    assert unpack(pack(value)) == unpack(b" " + json.dumps(value).encode() + b"\n") == value


def test_what_json_has_no_form_for_is_cleaned() -> None:
    moment = datetime(2024, 1, 2, tzinfo=UTC)
    assert unpack(pack({"at": moment, "bytes": b"x", "pair": (1, 2)})) == {
        "at": "2024-01-02T00:00:00Z",
        "bytes": "eA==",
        "pair": [1, 2],
    }


@pytest.mark.parametrize("text", ["", "{", "{} {}", "nonsense"])
def test_what_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"JSON|Expecting"):
        unpack(text)

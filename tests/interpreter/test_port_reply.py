"""Requests to an app in a sandbox, before they are sent."""

from __future__ import annotations

from typing import Any

import pytest

from sandcell.ports.reply import encode_request
from sandcell_container.errors import ErrorCode, SandcellError


@pytest.mark.parametrize(
    "given",
    [
        {"method": 5},
        {"method": "GET\r\nX: y"},
        {"path": None},
        {"path": "/a b"},
        {"headers": {"X": 5}},
        {"headers": {5: "x"}},
        {"headers": {"X": "a\r\nB: c"}},
        {"headers": {"Host": "other"}},
    ],
)
def test_what_no_request_can_say_is_refused(given: dict[str, Any]) -> None:
    asked: dict[str, Any] = {"method": "GET", "path": "/", "headers": None, "body": b""} | given
    with pytest.raises(SandcellError) as refused:
        encode_request(8000, **asked)
    assert refused.value.code is ErrorCode.INVALID_ARGUMENT
    assert refused.value.details == {"field": next(iter(given))}

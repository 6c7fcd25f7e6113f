"""Foreign errors as ours."""

from __future__ import annotations

import errno

import msgspec
import pytest

from sandcell.api import CreateExecution
from sandcell.failure import failure_of
from sandcell_container.errors import ErrorCode, error


def decoding(body: bytes) -> BaseException:
    with pytest.raises(Exception) as caught:
        msgspec.json.decode(body, type=CreateExecution)
    return caught.value


@pytest.mark.parametrize(
    ("body", "code", "details"),
    [
        (b"{", ErrorCode.INVALID_JSON, {}),
        (b'{"code": "\xff"}', ErrorCode.INVALID_JSON, {}),
        (b"3", ErrorCode.INVALID_ARGUMENT, {}),
        (b"{}", ErrorCode.INVALID_ARGUMENT, {"field": "code"}),
        (b'{"code": 3}', ErrorCode.INVALID_ARGUMENT, {"field": "code"}),
        (b'{"code": "", "env": {"A": 3}}', ErrorCode.INVALID_ARGUMENT, {"field": "env[...]"}),
        (b'{"code": "", "cod": ""}', ErrorCode.INVALID_ARGUMENT, {"field": "cod"}),
    ],
)
def test_a_body_that_does_not_fit(body: bytes, code: ErrorCode, details: dict[str, str]) -> None:
    failure = failure_of(decoding(body))
    assert (failure.code, failure.details) == (code, details)


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (errno.ENOENT, ErrorCode.FILE_NOT_FOUND),
        (errno.EACCES, ErrorCode.PERMISSION_DENIED),
        (errno.ENOSPC, ErrorCode.NO_SPACE),
        (errno.EIO, ErrorCode.INTERNAL),
    ],
)
def test_errors_of_the_system(number: int, code: ErrorCode) -> None:
    assert failure_of(OSError(number, "words")).code is code


def test_ours_stays_as_it_is() -> None:
    ours = error(ErrorCode.BUSY, "m")
    assert failure_of(ours) is ours


def test_what_nobody_foresaw_shows_its_kind_and_not_its_words() -> None:
    failure = failure_of(ValueError("a secret"), request_id="r1")
    assert failure.code is ErrorCode.INTERNAL
    assert "secret" not in str(failure)
    assert failure.details == {"request_id": "r1"}

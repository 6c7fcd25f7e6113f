"""What is said to bash and heard from it, as bytes."""

from __future__ import annotations

import pytest

from sandcell_container.errors import ErrorCode
from sandcell_container.guest.shell_lines import (
    Begun,
    Dropped,
    Reading,
    Refused,
    Reported,
    ShellOrder,
    Taking,
    encode_order,
    parse_answer,
    reading_lines,
    refusal_of,
    report_lines,
)


def test_bash_gets_the_lines_that_read_in_one_piece() -> None:
    """It reads lines in pieces of 1024 bytes; what is left of them would be taken for the order."""
    assert len(reading_lines(10**18 - 1, before=255)) <= 1024


def test_an_order_is_its_plan_its_values_and_the_command() -> None:
    order = ShellOrder(command=b"run me", cwd=b"sub", env=(("A", b"va'l"), ("B", None)), stdin=b"/in")
    head, *fields, end = encode_order(order, b"MARK").split(b"\0")
    first, _, plan = head.partition(b"\n")
    assert (first, end) == (b": <<'MARK'", b"\nMARK\n")
    assert fields == [b"./sub", b"va'l", b"/in", b"run me"]
    assert b"va'l" not in plan and b"sub" not in plan.replace(b"__sandcell_subst", b"")


def test_a_plain_order_has_no_plan() -> None:
    assert encode_order(ShellOrder(command=b"x\ny"), b"M") == b": <<'M'\n\0x\ny\0\nM\n"
    first, second = report_lines(ShellOrder(command=b""), 7).splitlines()
    assert first.startswith(b"\\builtin printf '= 7 ") and second.startswith(b"\\command printf '= 8 ")


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        (b"< 1", Reading(1)),
        (b": 2 : <<'M'", Taking(2, b": <<'M'")),
        (b"> 3", Begun(3)),
        (b"? 4", Dropped(4)),
        (b"! readonly PATH", Refused("readonly PATH")),
        (b"= 5 130 1 /a\nb", Reported(5, 130, ran=True, cwd=b"/a\nb")),
        (b"= 6 0 0 ", Reported(6, 0, ran=False, cwd=b"")),
        (b"", None),
        (b"= 6 0 2 /", None),
        (b"= x 0 1 /", None),
        (b"> 99999999999999999999", None),
        (b"! " + b"x" * 300, None),
        (b"= 1 0 1 /" + b"x" * 5000, None),
    ],
)
def test_answers(said: bytes, answer: object) -> None:
    assert parse_answer(said) == answer


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        ("missing", ErrorCode.CWD_NOT_FOUND),
        ("forbidden", ErrorCode.PERMISSION_DENIED),
        ("readonly X", ErrorCode.INVALID_ENV_NAME),
        ("made up by user code", ErrorCode.START_FAILED),
    ],
)
def test_refusals(reason: str, code: ErrorCode) -> None:
    assert refusal_of(reason, ShellOrder(command=b"", cwd=b"a\xff")).code is code

"""Who is let in at an exposure, and as what."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sandcell.ports.entry import Admitted, Lock, Stopped, Welcomed, admit
from sandcell.ports.heads import RequestHead
from sandcell.ports.rules import label_of, new_token

TOKEN = new_token()
LOCK = Lock(port=8000, token=TOKEN, listener=555)
BROWSER = {"accept": "text/html,*/*", "sec-fetch-dest": "document"}


def asked(target: str, method: str = "GET", **headers: str) -> RequestHead:
    return RequestHead(
        method, target, tuple((name.replace("_", "-"), value) for name, value in headers.items())
    )


def test_a_token_is_128_bits_and_fits_into_a_label() -> None:
    assert len(TOKEN) == 26 and TOKEN.isalnum() and TOKEN == TOKEN.lower() != new_token()
    assert len(label_of(65535, TOKEN)) <= 63


@pytest.mark.parametrize(
    ("target", "welcomed"),
    [
        ("", "/"),
        ("/", "/"),
        ("/a/b?c", "/a/b?c"),
        ("?c", "/?c"),
        ("//evil.org", "/evil.org"),
        ("/\\evil.org", "/evil.org"),
    ],
)
def test_a_browser_is_welcomed_to_the_path_behind_the_token(target: str, welcomed: str) -> None:
    assert admit(asked(f"/{TOKEN}{target}", **BROWSER), LOCK) == Welcomed(welcomed)


def test_a_program_is_let_in_at_once() -> None:
    expected = Admitted("/a", prefix=f"/{TOKEN}")
    assert admit(asked(f"/{TOKEN}/a", accept="*/*"), LOCK) == expected
    assert admit(asked(f"/{TOKEN}/a", "POST", **BROWSER), LOCK) == expected
    assert admit(asked(f"/{TOKEN}/a", accept="text/html", sec_fetch_dest="empty"), LOCK) == expected


def test_a_cookie_lets_in() -> None:
    assert admit(asked("/a", cookie=f"x=1; {LOCK.cookie}={TOKEN}"), LOCK) == Admitted("/a")
    assert admit(asked("/a", cookie=f"sandcell-port-556={TOKEN}"), LOCK) is Stopped.NO_TOKEN


def test_others_are_not_let_in() -> None:
    assert admit(asked("/"), LOCK) is Stopped.NO_TOKEN
    assert admit(asked(f"/{'a' * 26}/"), LOCK) is Stopped.WRONG_TOKEN
    assert admit(asked(f"/x/{TOKEN}"), LOCK) is Stopped.NO_TOKEN
    assert admit(asked("/", cookie=f"{LOCK.cookie}=\xff"), LOCK) is Stopped.WRONG_TOKEN
    assert admit(asked(f"/?token={TOKEN}"), LOCK) is Stopped.NO_TOKEN


def test_where_there_is_a_public_host_only_its_name_lets_in() -> None:
    lock = replace(LOCK, public_host="sandbox.example.org")
    assert admit(asked("/a", host=f"8000-{TOKEN}.sandbox.example.org:555"), lock) == Admitted(
        "/a", by_host=True
    )
    assert admit(asked("/a", host=f"8000-{TOKEN}.SANDBOX.example.org"), lock) == Admitted("/a", by_host=True)
    for host in (f"8001-{TOKEN}.sandbox.example.org", f"8000-{TOKEN}.example.org", "127.0.0.1"):
        assert admit(asked(f"/{TOKEN}/", host=host), lock) is Stopped.WRONG_TOKEN


def test_what_is_logged_of_it_has_no_token() -> None:
    assert TOKEN not in repr(LOCK)

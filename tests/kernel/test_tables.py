from __future__ import annotations

import pytest

from sandcell_kernel.tables import Link, Table, describe_age, describe_bytes, picture_of


def test_a_table_has_a_text_and_an_html_form() -> None:
    table = Table.of("Things", ("ID", "N"), [("a", 1), ("longer", None)])
    assert table.text() == "Things\nID      N\na       1\nlonger"
    bundle = table.bundle()
    assert "<td" in bundle["text/html"]
    assert bundle["text/plain"] == table.text()


def test_nothing_in_a_table_is_markup_or_does_something_to_a_terminal() -> None:
    table = Table.of("<b>", (), [("<script>", "\x1b[2J\udc80\nx")])
    assert "<script>" not in table.html()
    assert "&lt;script&gt;" in table.html()
    assert "\x1b" not in table.text()
    table.text().encode()


def test_an_empty_table_says_so_and_a_long_cell_is_cut() -> None:
    assert Table.of("Things", ("ID",), []).text() == "Things: none"
    assert "none" in Table.of("Things", ("ID",), []).html()
    assert Table.of("Things", (), [("x" * 1000,)]).text().endswith("x...")


def test_a_link_is_a_link_in_one_form_and_its_url_in_the_other() -> None:
    table = Table.of("<Open>", ("LINK",), [(Link("here & now", "http://127.0.0.1/?a=1&b"),)])
    assert (
        'href="http://127.0.0.1/?a=1&amp;b" target="_blank" rel="noopener noreferrer">here &amp; now<'
        in table.html()
    )
    assert table.text() == "<Open>\nLINK\nhttp://127.0.0.1/?a=1&b"


def test_a_picture_is_one_that_runs_nothing() -> None:
    shown = picture_of('a"><script>.svg', "image/svg+xml", b"<svg/>")
    assert shown["text/html"].startswith(
        '<img src="data:image/svg+xml;base64,PHN2Zy8+" alt="a&quot;&gt;&lt;script&gt;'
    )
    assert shown["text/plain"].endswith("image/svg+xml, 6 B")


@pytest.mark.parametrize(
    ("count", "text"),
    [(None, ""), (12, "12 B"), (2048, "2.0 KiB"), (3 * 2**20, "3.0 MiB"), (2**31, "2.0 GiB")],
)
def test_sizes_are_written_as_people_do(count: int | None, text: str) -> None:
    assert describe_bytes(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(-1, "0 s"), (59, "59 s"), (120, "2 min"), (7200, "2 h"), (90000, "1 d")]
)
def test_ages_are_written_as_people_do(seconds: float, text: str) -> None:
    assert describe_age(seconds) == text

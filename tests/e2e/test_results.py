"""What comes out of a run, where other interpreters went wrong: each case is somebody's bug."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sandcell import ErrorCode, SandcellError

if TYPE_CHECKING:
    from sandcell import Sandbox


def test_a_value_is_a_result_and_no_output(sandbox: Sandbox) -> None:
    run = sandbox.run_code("40 + 2")
    assert (run.text, run.value, run.stdout, run.stderr) == ("42", 42, "", "")


@pytest.mark.parametrize(
    ("code", "name"),
    [("def (", "SyntaxError"), ("1 / 0", "ZeroDivisionError"), ("x = 1\n  y", "IndentationError")],
)
def test_an_error_is_an_error_and_no_output(sandbox: Sandbox, code: str, name: str) -> None:
    run = sandbox.run_code(code)
    assert run.error is not None
    assert (run.error.name, run.ok, run.stdout, run.stderr, run.results) == (name, False, "", "", [])


def test_the_line_of_an_error_is_that_of_the_code_as_it_was_sent(sandbox: Sandbox) -> None:
    run = sandbox.run_code("a = 1\n\nb = 2\nraise ValueError(a)", env={"X": "1\n2\n3"}, cwd="/tmp")
    assert run.error is not None
    assert run.error.line == 4
    assert all("\n" in entry or len(entry) < 200 for entry in run.error.traceback)


@pytest.mark.parametrize(
    ("code", "line"),
    [
        ("\n\n1/0", 3),
        ("  \n\t\n1/0", 3),
        ("\n\nx = = 1", 3),
        ("# c\n\n1/0", 3),
        ("\ndef f():\n  1/0\nf()", 3),
    ],
)
def test_empty_lines_in_front_count(sandbox: Sandbox, code: str, line: int) -> None:
    run = sandbox.run_code(code)
    assert run.error is not None
    assert run.error.line == line


@pytest.mark.parametrize(
    ("code", "stdout"), [("\n\n%%capture found\nprint(1)", ""), ("\n\n>>> print(1)\n", "1\n")]
)
def test_empty_lines_hide_no_magic_and_no_prompt(sandbox: Sandbox, code: str, stdout: str) -> None:
    run = sandbox.run_code(code)
    assert (run.ok, run.stdout) == (True, stdout)


@pytest.mark.parametrize(
    ("code", "text", "value"),
    [
        ("[object]", "[object]", None),
        ("{1: 2}", "{1: 2}", None),
        ("{(1, 2): 3}", "{(1, 2): 3}", None),
        ("float('nan')", "nan", None),
        ("[float('inf')]", "[inf]", None),
        ("x = []; x.append(x); x", "[[...]]", None),
        ("b'\\xff'", "b'\\xff'", None),
        ("__import__('datetime').date(2020, 1, 2)", "datetime.date(2020, 1, 2)", None),
        ("\"'a' + 'b'\"", "\"'a' + 'b'\"", "'a' + 'b'"),
        ("'\"'", "'\"'", '"'),
        ("''", "''", ""),
        ("None", None, None),
        ("[None, True, 1.5, 'é😀']", "[None, True, 1.5, 'é😀']", [None, True, 1.5, "é😀"]),
    ],
)  # fmt: skip
def test_a_result_is_what_it_is(sandbox: Sandbox, code: str, text: str | None, value: object) -> None:
    run = sandbox.run_code(code)
    assert (run.ok, run.text, run.value) == (True, text, value)


def test_an_image_is_whole_or_in_a_file_never_cut(sandbox: Sandbox) -> None:
    show = "from IPython.display import Image, display\ndisplay(Image(data=b'\\x89PNG\\r\\n\\x1a\\n' + bytes({size}), format='png'))"
    whole = sandbox.run_code(show.format(size=5_000_000))
    assert len(whole.images) == 1
    assert len(whole.results[0].png or b"") == 5_000_008
    cut = sandbox.run_code(show.format(size=20_000_000))
    assert cut.images == []
    assert cut.truncated["image/png"].total_bytes > 20_000_000


def test_a_display_is_updated_and_not_repeated(sandbox: Sandbox) -> None:
    run = sandbox.run_code(
        "from IPython.display import display, update_display, clear_output\n"
        "display('gone'); clear_output(); display('first', display_id='d')\n"
        "for i in range(5): update_display(f'step {i}', display_id='d')"
    )
    assert [result.text for result in run.results] == ["'step 4'"]
    waited = sandbox.run_code(
        "print('old'); display('old'); clear_output(wait=True); print('new'); display('new')"
    )
    assert (waited.stdout, [result.text for result in waited.results]) == ("new\n", ["'new'"])
    kept = sandbox.run_code("display('old'); clear_output(wait=True)")
    assert [result.text for result in kept.results] == ["'old'"]


def test_a_language_that_is_none_is_refused(sandbox: Sandbox) -> None:
    with pytest.raises(SandcellError) as caught:
        sandbox.run_code("puts 1", language="ruby")
    assert caught.value.code is ErrorCode.UNKNOWN_LANGUAGE
    assert "python" in caught.value.hint or "python" in caught.value.message


def test_a_child_that_writes_breaks_nothing(sandbox: Sandbox) -> None:
    run = sandbox.run_code(
        "import os, subprocess\nos.system('echo a; echo b >&2'); subprocess.run(['echo', '{\"id\": 1}']); os.write(1, b'c\\n'); 7"
    )
    assert (run.value, run.stdout, run.stderr) == (7, 'a\n{"id": 1}\nc\n', "b\n")
    assert sandbox.run_code("8").value == 8


def test_a_variable_of_one_run_does_not_take_one_of_the_context_away(sandbox: Sandbox) -> None:
    context = sandbox.create_context(env={"KEPT": "of the context"})
    assert context.run_code("import os; os.environ['KEPT']", env={"KEPT": "of the run"}).value == "of the run"
    assert context.run_code("os.environ['KEPT']").value == "of the context"
    context.delete()

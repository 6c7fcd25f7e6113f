"""Questions of code: answered by who asked for the run, or refused at once. Nothing ever waits for a keyboard."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sandcell.events import InputRequested, Stdout

if TYPE_CHECKING:
    from sandcell import Sandbox


def test_every_question_reaches_the_caller_in_order(sandbox: Sandbox) -> None:
    asked = list[str]()

    def on_input(prompt: str) -> str:
        asked.append(prompt)
        return f"answer {len(asked)}"

    code = "import getpass\n(input('name? '), getpass.getpass('word? '), input())"
    run = sandbox.run_code(code, on_input=on_input)
    assert run.value == ["answer 1", "answer 2", "answer 3"]
    assert asked == ["name? ", "word? ", ""]


def test_who_follows_hears_whether_it_is_a_password_and_may_answer(sandbox: Sandbox) -> None:
    live = sandbox.start_code("import getpass\n(input('name? '), getpass.getpass('word? '))")
    asked = list[tuple[str, bool]]()
    for event in live.follow():
        if isinstance(event, InputRequested):
            asked.append((event.prompt, event.password))
            sandbox.execution(live.id).send_input("é\n😀" * len(asked))
    assert asked == [("name? ", False), ("word? ", True)]
    assert live.wait().value == ["é\n😀", "é\n😀é\n😀"]


def test_a_question_comes_after_what_was_printed_before_it(sandbox: Sandbox) -> None:
    for number in range(100):
        live = sandbox.start_code(f"print({number}); input()")
        heard = ""
        for event in live.follow():
            if isinstance(event, Stdout):
                heard += event.text
            if isinstance(event, InputRequested):
                assert heard == f"{number}\n"
                live.send_input("")


@pytest.mark.parametrize("ask", ["input('? ')", "__import__('getpass').getpass()"])
def test_without_anybody_to_ask_it_is_an_error_at_once_that_says_what_to_do(
    sandbox: Sandbox, ask: str
) -> None:
    run = sandbox.run_code(ask, timeout=5)
    assert run.error is not None
    assert run.error.name == "StdinNotImplementedError"
    assert "on_input" in run.error.value
    assert run.end.cause == "exited"


@pytest.mark.parametrize(
    "read",
    [
        "__import__('sys').stdin.read()",
        "__import__('os').read(0, 10).decode()",
        "__import__('subprocess').run('read x; echo got:$x', shell=True, capture_output=True, text=True).stdout[4:-1]",
    ],
    ids=["sys.stdin", "descriptor", "child"],
)
def test_standard_input_is_empty_and_never_waits(sandbox: Sandbox, read: str) -> None:
    assert sandbox.run_code(read, timeout=5, on_input=lambda _: "no").value == ""


@pytest.mark.parametrize("stop", ["breakpoint()", "import pdb; pdb.set_trace()"])
def test_a_debugger_without_anybody_to_ask_does_not_wait(sandbox: Sandbox, stop: str) -> None:
    run = sandbox.run_code(f"x = 1\n{stop}\nx", timeout=5)
    assert not run.timed_out
    assert run.end.state == "kept"


def test_a_debugger_asks_the_caller(sandbox: Sandbox) -> None:
    answers = iter(["p x + 1", "c"])
    run = sandbox.run_code(
        "x = 41\nimport pdb; pdb.set_trace()\nx", on_input=lambda _: next(answers), timeout=10
    )
    assert "42" in run.stdout
    assert run.value == 41


def test_an_answer_that_raises_interrupts_the_run_and_is_raised(sandbox: Sandbox) -> None:
    def on_input(prompt: str) -> str:
        raise LookupError(prompt)

    with pytest.raises(LookupError, match="who"):
        sandbox.run_code("kept = 1; input('who')", on_input=on_input, id="asked-badly")
    assert sandbox.execution("asked-badly").wait(timeout=20).end.cause == "interrupted"
    assert sandbox.run_code("kept").value == 1

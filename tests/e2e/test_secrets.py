"""`secrets=`: user code has them, and nothing that is shown has."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
from jupyter_client.manager import start_new_kernel

from sandcell import Sandbox, SandcellError
from sandcell_kernel.install import KERNEL_NAME

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

TOKEN = "sk-live-42\"42'$x"
KEY = "-----BEGIN KEY-----\nMIIEvQIBADANBg\nkqhkiG9w0BAQ\n-----END KEY-----\n"
# Written in two pieces, with a moment between.
IN_PIECES = 'printf %s "${TOKEN:0:5}"; sleep 0.2; printf %s "${TOKEN:5}"; echo " end"'


@pytest.fixture(scope="module")
def sandbox() -> Generator[Sandbox]:
    secrets = {"TOKEN": TOKEN, "KEY": KEY, "PIN": "123"}
    with Sandbox.create(engine="local", secrets=secrets, on_release="stop") as made:
        yield made
        made.remove()


def _leaks(text: object) -> list[str]:
    shown = str(text)
    return [part for part in (TOKEN, "sk-live", '"42', "MIIEv", "kqhki") if part in shown]


def test_user_code_has_them(sandbox: Sandbox) -> None:
    assert sandbox.exec(["sh", "-c", 'test "$TOKEN" = "$1"', "sh", TOKEN]).ok
    assert sandbox.run_code("import os; len(os.environ['TOKEN']), len(os.environ['KEY'])").value == [
        len(TOKEN),
        len(KEY),
    ]
    assert sandbox.create_session().exec("echo ${#TOKEN}").stdout == f"{len(TOKEN)}\n"


def test_output_of_commands_is_masked_also_in_pieces(sandbox: Sandbox) -> None:
    shows = f'echo "<$TOKEN>"; {IN_PIECES}; echo "$KEY" >&2'
    parts = list[str]()
    process = sandbox.start_process(shows)
    process.wait(timeout=20)
    terminal = sandbox.create_terminal(command=shows)
    told = [
        sandbox.exec(shows),
        sandbox.exec(shows, on_stdout=parts.append),
        sandbox.create_session().exec(shows),
    ]
    assert [done.stdout for done in told] == ["<***>\n*** end\n"] * 3
    assert process.output() == "<***>\n*** end\n"
    screen = "".join(getattr(event, "text", "") for event in terminal.follow())
    assert _leaks([*(done.stderr for done in told), parts, process.output("stderr"), screen]) == []


def test_what_is_cut_is_masked_in_its_file_too(sandbox: Sandbox) -> None:
    done = sandbox.exec("for n in $(seq 3000); do echo $n $TOKEN; done", max_output=1000)
    assert _leaks(done.stdout) == []
    whole = sandbox.files.read(done.truncated["stdout"].path or "")
    assert whole.count("***") == 3000
    assert _leaks(whole) == []


def test_runs_are_masked_in_every_form(sandbox: Sandbox, tmp_path: Path) -> None:
    context = sandbox.create_context()
    shows = """
import os, sys, subprocess, json
from IPython.display import HTML, display
token = os.environ["TOKEN"]
print(token[:6], end="", flush=True); sys.stdout.flush(); print(token[6:])
print(repr(token), json.dumps(token), os.environ["KEY"], file=sys.stderr)
subprocess.run(["printenv", "TOKEN"])
display(HTML(f"<b>{token}</b>"))
[token, {"key": os.environ["KEY"]}]
"""
    heard = list[str]()
    run = context.run_code(shows, on_stdout=heard.append)
    assert run.stdout == "***\n***\n"
    failed = context.run_code("raise ValueError(f'the token {token} is wrong')")
    assert failed.error is not None
    assert failed.error.value == "the token *** is wrong"
    assert context.to_notebook(tmp_path / "history.ipynb") == 2
    seen: list[Any] = [run.to_dict(), failed.to_dict(), heard, (tmp_path / "history.ipynb").read_text()]
    seen += [context.variables(), context.inspect("token"), sandbox.executions()[-1].refresh()]
    assert _leaks(seen) == []
    assert run.value == ["***", {"key": "***\n***\n***\n***\n"}]


def test_errors_and_what_is_told_of_it_are_masked(sandbox: Sandbox) -> None:
    with pytest.raises(SandcellError) as caught:
        sandbox.exec("ls", cwd=f"/{TOKEN}")
    process = sandbox.start_process(["sleep", "60", TOKEN])
    try:
        told = [sandbox.top(), process.refresh(), sandbox.info(), sandbox.env()]
        assert _leaks([str(caught.value), caught.value.details, *told]) == []
    finally:
        process.kill(grace=0)
    assert sandbox.env()["TOKEN"] == "***"
    assert "the secret PIN is not masked: it is too short" in sandbox.info().warnings


@pytest.mark.usefixtures("kernelspec")
def test_a_notebook_shows_none(sandbox: Sandbox) -> None:
    env = {**os.environ, "SANDCELL_SANDBOX": sandbox.name}
    manager, client = start_new_kernel(kernel_name=KERNEL_NAME, env=env, startup_timeout=50)
    messages = list[dict[str, Any]]()
    cells = (
        (
            "import os; print(os.environ['TOKEN']); print(os.environ['TOKEN'][:5], end='', flush=True); "
            "print(os.environ['TOKEN'][5:]); os.environ['TOKEN']"
        ),
        '%%shell\necho "$TOKEN"',
        "os.environ['TOKEN'].no",
    )
    try:
        for cell in cells:
            client.execute_interactive(cell, timeout=30, output_hook=messages.append)
        asking: Any = client  # its requests are made at run time
        hint = asking.complete("os.environ['", reply=True, timeout=30)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    text = "".join(each["content"].get("text", "") for each in messages)
    assert text == "***\n***\n***\n"
    assert _leaks([each["content"] for each in messages]) == []
    assert _leaks(hint) == []


def test_they_survive_stop_and_start_and_set_env_does_not_unmask(sandbox: Sandbox) -> None:
    sandbox.set_env(TOKEN="another", COPY=TOKEN)
    sandbox.restart()
    assert sandbox.exec('echo "$TOKEN $COPY"').stdout == "another ***\n"
    sandbox.set_env(TOKEN=TOKEN)
    assert sandbox.exec('echo "$TOKEN"; echo "${#TOKEN}"').stdout == f"***\n{len(TOKEN)}\n"

"""`set_env`: what starts, what lives and what begins anew sees the change, whatever the value is."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
from jupyter_client.manager import start_new_kernel

from sandcell import AsyncSandbox, Sandbox, SandcellError
from sandcell_container.errors import ErrorCode
from sandcell_kernel.install import KERNEL_NAME

if TYPE_CHECKING:
    from collections.abc import Generator

AWKWARD = "a 'b' \"c\" $d `e`\n\\ \t é \udcff"
_RAW = AWKWARD.encode(errors="surrogateescape")


@pytest.fixture
def sandbox() -> Generator[Sandbox]:
    """One for each test: what is set there is for all that is in it."""
    with Sandbox.create(engine="local", env={"GIVEN": "1"}, on_release="stop") as made:
        yield made
        made.remove()


def _in_python(run: Any, *names: str) -> Any:
    """What Python code sees, as text: a value that is no UTF-8 has no JSON."""
    return run(f"import os; [ascii(os.environ.get(name)) for name in {names}]", check=True).value


def test_all_that_starts_has_it(sandbox: Sandbox) -> None:
    sandbox.set_env(NEW=AWKWARD, GIVEN=None)
    shows = 'printf "%s|" "$NEW" "${GIVEN-none}"'
    expected = _RAW + b"|none|"
    assert sandbox.exec(shows).stdout_bytes == expected
    assert sandbox.create_session().exec(shows).stdout_bytes == expected
    process = sandbox.start_process(shows)
    process.wait(timeout=20)
    assert process.output().startswith("a 'b'")
    terminal = sandbox.create_terminal(command=["printenv", "NEW"])
    assert "a 'b'" in "".join(getattr(event, "text", "") for event in terminal.follow())
    assert _in_python(sandbox.create_context().run_code, "NEW", "GIVEN") == [ascii(AWKWARD), "None"]
    assert sandbox.exec("echo $NEW", env={"NEW": "for one"}).stdout == "for one\n"
    env = sandbox.env()
    assert (env["NEW"], env["HOME"], env.get("GIVEN")) == (AWKWARD, "/home/user", None)


def test_what_lives_has_it_before_the_next_command_or_run(sandbox: Sandbox) -> None:
    session, context = sandbox.create_session(), sandbox.create_context()
    session.exec("cd /tmp; here=1")
    context.run_code("here = 1")
    sandbox.set_env(NEW=AWKWARD)
    assert session.exec('printf %s "$NEW$here"').stdout_bytes == _RAW + b"1"
    assert _in_python(context.run_code, "NEW") == [ascii(AWKWARD)]
    assert _in_python(sandbox.run_code, "NEW") == [ascii(AWKWARD)]
    sandbox.unset_env("NEW", "NEVER_THERE")
    assert session.exec("echo ${NEW-none}").stdout == "none\n"
    assert _in_python(context.run_code, "NEW") == ["None"]
    sandbox.set_env(OTHER="1")
    run = context.run_code(
        "[ascii(os.environ.get(name)) for name in ('OTHER', 'MINE')]", env={"MINE": "\udcff"}
    )
    assert run.value == ["'1'", "'\\udcff'"]
    assert context.run_code("here").value == 1


def test_runs_that_wait_have_it_and_the_one_that_runs_has_not(sandbox: Sandbox) -> None:
    running = sandbox.start_code("import os; input(); os.environ.get('NEW')")
    waiting = sandbox.start_code("os.environ.get('NEW')")
    next(event for event in running.follow() if event.to_dict()["type"] == "input_requested")
    sandbox.set_env(NEW="yes")
    running.send_input("")
    assert (running.wait(20).value, waiting.wait(20).value) == (None, "yes")


def test_what_one_was_given_itself_it_keeps(sandbox: Sandbox) -> None:
    session, context = (
        sandbox.create_session("own", env={"A": "own"}),
        sandbox.create_context(env={"A": "own"}),
    )
    session.set_env(B="own")
    sandbox.set_env(A="all", B="all", C="all")
    assert session.exec("echo $A $B $C").stdout == "own own all\n"
    assert _in_python(context.run_code, "A", "C") == ["'own'", "'all'"]
    session.restart()
    context.restart()
    assert session.exec("echo $A $B $C").stdout == "own own all\n"
    assert _in_python(context.run_code, "A", "C") == ["'own'", "'all'"]
    assert sandbox.create_session("own", env={"A": "own"}).id == "own"


def test_a_repeated_request_finds_what_was_made_before_the_change(sandbox: Sandbox) -> None:
    asked: dict[str, Any] = {"id": "same", "env": {"A": "1"}}

    def make() -> list[str]:
        made: list[Any] = [sandbox.create_session(**asked), sandbox.create_terminal(**asked)]
        return [each.id for each in (*made, sandbox.create_context(**asked))]

    assert make() == ["same"] * 3
    sandbox.set_env(A="2", B="2")
    assert make() == ["same"] * 3


def test_it_survives_stop_and_start(sandbox: Sandbox) -> None:
    sandbox.set_env(NEW=AWKWARD, GIVEN=None, GONE="1")
    sandbox.unset_env("GONE")
    sandbox.stop()
    assert (
        sandbox.exec('printf "%s|" "$NEW" "${GIVEN-none}" "${GONE-none}"').stdout_bytes
        == _RAW + b"|none|none|"
    )
    sandbox.set_env(GIVEN="back")
    sandbox.restart()
    assert _in_python(sandbox.run_code, "NEW", "GIVEN") == [ascii(AWKWARD), "'back'"]


@pytest.mark.usefixtures("kernelspec")
def test_an_open_notebook_has_it_in_its_next_cell(sandbox: Sandbox) -> None:
    env = {**os.environ, "SANDCELL_SANDBOX": sandbox.name}
    manager, client = start_new_kernel(kernel_name=KERNEL_NAME, env=env, startup_timeout=50)
    said = list[str]()

    def hear(message: dict[str, Any]) -> None:
        said.append(message["content"].get("text", ""))

    def cell(code: str) -> str:
        said.clear()
        client.execute_interactive(code, timeout=30, output_hook=hear)
        return "".join(said)

    try:
        cell("import os")
        cell("%%shell\n:")
        sandbox.set_env(NEW="yes")
        assert cell("print(os.environ['NEW'])") == "yes\n"
        assert cell("%%shell\necho $NEW") == "yes\n"
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


@pytest.mark.parametrize(
    ("values", "code"),
    [
        ({"a b": "1"}, ErrorCode.INVALID_ENV_NAME),
        ({"A=B": "1"}, ErrorCode.INVALID_ENV_NAME),
        ({"A": "\0"}, ErrorCode.INVALID_ENV_NAME),
        ({"A": 1}, ErrorCode.INVALID_ARGUMENT),
        ({"A": "\ud800"}, ErrorCode.INVALID_ARGUMENT),
        ({"A": 200_000 * "x"}, ErrorCode.TOO_LARGE),
    ],
)
def test_what_cannot_be_set_is_refused_and_changes_nothing(
    sandbox: Sandbox, values: dict[str, Any], code: ErrorCode
) -> None:
    with pytest.raises(SandcellError) as caught:
        sandbox.set_env(B="2", **values)
    assert caught.value.code is code
    assert "B" not in sandbox.env()


async def test_the_asyncio_client_sets_it() -> None:
    async with await AsyncSandbox.create(engine="local") as made:
        await made.set_env(NEW="1")
        assert (await made.exec("echo $NEW")).stdout == "1\n"
        await made.unset_env("NEW")
        assert "NEW" not in await made.env()

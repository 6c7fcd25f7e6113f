"""What holds for a run holds in every language: Python, JavaScript, TypeScript, bash, R."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from sandcell import ErrorCode, Sandbox, SandcellError
from sandcell.events import Started, Stdout

if TYPE_CHECKING:
    from collections.abc import Generator

    from sandcell.client.blocking.context import Context
    from sandcell.client.blocking.execution import Execution

DEADLINE_S = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Speech:
    """How a language says things. `wait` waits for ever and can be interrupted, `loop` computes for ever."""

    language: str
    keep: str
    kept: str
    shout: str
    place: str
    fail: str
    error: tuple[str, str]
    broken: str
    wait: str
    loop: str
    die: str
    died: tuple[str, int | None]
    lives_through: frozenset[str] = frozenset(("wait", "loop"))


JS = Speech(
    language="javascript",
    keep="let kept = 'kept'",
    kept="console.log(kept)",
    shout="console.log('out'); console.warn('err')",
    place="console.log(Deno.cwd() + ' ' + Deno.env.get('WHO'))",
    fail="throw new RangeError('boo')",
    error=("RangeError", "boo"),
    broken="let x =",
    wait="console.log('go'); await new Promise((done) => setTimeout(done, 600_000))",
    loop="console.log('go'); while (true) {}",
    die="Deno.exit(3)",
    died=("exited", 3),
    lives_through=frozenset(("loop",)),
)
SPEECHES = {
    "python": Speech(
        language="python",
        keep="kept = 'kept'",
        kept="print(kept)",
        shout="import sys; print('out'); print('err', file=sys.stderr)",
        place="import os; print(os.getcwd(), os.environ['WHO'])",
        fail="raise ValueError('boo')",
        error=("ValueError", "boo"),
        broken="x =",
        wait="print('go'); import time; time.sleep(600)",
        loop="print('go')\nwhile True: pass",
        die="import os; os._exit(3)",
        died=("exited", 3),
    ),
    "javascript": JS,
    "typescript": Speech(
        language="typescript",
        keep="let kept: string = 'kept'",
        kept="console.log(kept as string)",
        shout=JS.shout,
        place=JS.place,
        fail="const how: string = 'boo'; throw new RangeError(how)",
        error=JS.error,
        broken="let x: number =",
        wait=JS.wait,
        loop=JS.loop,
        die=JS.die,
        died=JS.died,
        lives_through=JS.lives_through,
    ),
    "bash": Speech(
        language="bash",
        keep="kept=kept",
        kept="echo $kept",
        shout="echo out; echo err >&2",
        place="echo $PWD $WHO",
        fail="(exit 7)",
        error=("CommandFailed", "7"),
        broken="if then",
        wait="echo go; sleep 600",
        loop="echo go; while :; do :; done",
        die="kill -9 $$",
        died=("signaled", None),
    ),
    "r": Speech(
        language="r",
        keep="kept <- 'kept'",
        kept="cat(kept, '\\n', sep='')",
        shout="cat('out\\n'); message('err')",
        place="cat(getwd(), ' ', Sys.getenv('WHO'), '\\n', sep='')",
        fail="stop('boo')",
        error=("ERROR", "boo"),
        broken="x <- )",
        wait="cat('go\\n'); Sys.sleep(600)",
        loop="cat('go\\n'); while (TRUE) {}",
        die="tools::pskill(Sys.getpid(), 9)",
        died=("signaled", None),
    ),
}


def check_installed(language: str) -> None:
    """Skip where a language is not on this machine; CI has all of them."""
    has_r = shutil.which("R") is not None and os.path.exists("/usr/share/jupyter/kernels/ir/kernel.json")
    if language == "r" and not has_r:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)("R or IRkernel is not installed")


@pytest.fixture(scope="module", params=SPEECHES)
def speech(request: pytest.FixtureRequest) -> Speech:
    name: str = request.param
    check_installed(name)
    return SPEECHES[name]


@pytest.fixture(scope="module")
def context(sandbox: Sandbox, speech: Speech) -> Generator[Context]:
    """A context whose tests leave it alive."""
    context = sandbox.create_context(language=speech.language, cwd="/tmp", env={"WHO": "it's"})
    yield context
    context.delete()


def started(context: Context, code: str, **options: Any) -> Execution:
    """Return a run whose code has begun."""
    live = context.start_code(code, **options)
    next(event for event in live.follow() if isinstance(event, Stdout))
    return live


@pytest.mark.short
def test_state_survives_between_runs(context: Context, speech: Speech) -> None:
    context.run_code(speech.keep, check=True)
    assert context.run_code(speech.kept, check=True).stdout == "kept\n"


@pytest.mark.short
def test_streams_are_apart_and_in_the_run(context: Context, speech: Speech) -> None:
    run = context.run_code(speech.shout, check=True)
    assert (run.stdout, run.stderr.strip()) == ("out\n", "err")
    assert {(entry.stream, entry.late) for entry in run.logs} == {("stdout", False), ("stderr", False)}


def test_a_context_has_its_folder_and_variables(context: Context, speech: Speech) -> None:
    assert context.run_code(speech.place, check=True).stdout == "/tmp it's\n"


def test_an_error_has_name_message_and_traceback(context: Context, speech: Speech) -> None:
    run = context.run_code(speech.fail)
    assert run.error is not None
    name, value = speech.error
    assert run.error.name == name
    assert value in run.error.value
    assert run.error.traceback or speech.language == "bash"  # which has none
    assert (run.ok, run.end.cause, run.end.state) == (False, "exited", "kept")


def test_code_that_is_none_is_an_error_of_the_run(context: Context, speech: Speech) -> None:
    run = context.run_code(speech.broken)
    assert run.error is not None
    assert "syntax" in f"{run.error}{run.stderr}".lower() or "unexpected" in run.error.value
    assert run.end.state == "kept"


@pytest.mark.parametrize("what", ["wait", "loop"])
def test_a_timeout_ends_a_run_and_says_what_became_of_the_state(
    context: Context, speech: Speech, what: str
) -> None:
    context.run_code(speech.keep, fresh=False)
    run = context.run_code(getattr(speech, what), timeout=2)
    assert (run.timed_out, run.stdout) == (True, "go\n")
    check_state(context, speech, what, run.end.state)


@pytest.mark.parametrize("what", ["wait", "loop"])
def test_an_interrupt_ends_a_run_and_says_what_became_of_the_state(
    context: Context, speech: Speech, what: str
) -> None:
    context.run_code(speech.keep)
    live = started(context, getattr(speech, what))
    live.interrupt()
    run = live.wait(timeout=DEADLINE_S)
    lives = run.end.state == "kept"  # code that only waits is reached as well, where it has not begun to
    assert (run.end.cause, run.end.who) == ("interrupted" if lives else "killed", "sdk")
    assert run.error is not None
    assert run.error.name == "KeyboardInterrupt"
    check_state(context, speech, what, run.end.state)


def check_state(context: Context, speech: Speech, what: str, state: str) -> None:
    if what in speech.lives_through or state == "kept":
        assert state == "kept"
        assert context.run_code(speech.kept).stdout == "kept\n"
    else:
        assert state == "lost"
        after = context.run_code(speech.shout)
        assert (after.stdout, after.fresh_state is not None) == ("out\n", True)


@pytest.mark.short
def test_changes_of_the_sandboxes_environment_arrive(own: Sandbox, speech: Speech) -> None:
    context = own.create_context(language=speech.language, cwd="/tmp")
    context.run_code(speech.keep, check=True)
    own.set_env(WHO="a 'b' \\ \"c\"")
    assert context.run_code(speech.place, check=True).stdout == "/tmp a 'b' \\ \"c\"\n"


def test_a_death_is_told_with_its_cause_and_the_next_run_begins_anew(
    sandbox: Sandbox, speech: Speech
) -> None:
    context = sandbox.create_context(language=speech.language)
    run = context.run_code(speech.die)
    assert run.error is not None
    assert (run.error.name, run.end.cause, run.end.code, run.end.state) == (
        "ContextDied",
        *speech.died,
        "lost",
    )
    after = context.run_code(speech.shout)
    assert after.stdout == "out\n"
    assert after.fresh_state is not None
    context.delete()


def test_runs_wait_for_their_turn(context: Context, speech: Speech) -> None:
    busy = started(context, speech.loop)
    waiting = context.start_code(speech.shout)
    assert waiting.refresh().position == 0
    busy.interrupt()
    assert waiting.wait(timeout=DEADLINE_S).stdout == "out\n"


def test_a_restart_forgets_the_state(sandbox: Sandbox, speech: Speech) -> None:
    context = sandbox.create_context(language=speech.language)
    context.run_code(speech.keep)
    context.restart()
    run = context.run_code(speech.kept)
    assert run.stdout != "kept\n"
    assert run.fresh_state is not None
    context.delete()


def test_the_sandboxes_own_context_has_the_name_of_its_language(sandbox: Sandbox, speech: Speech) -> None:
    run = sandbox.run_code(speech.shout, language=speech.language.upper())
    assert (run.context_id, run.stdout) == (speech.language, "out\n")


@pytest.mark.parametrize(
    ("language", "code"),
    [
        ("python", "name = input('name? '); print(name)"),
        ("javascript", "console.log(prompt('name? '))"),
        ("r", "name <- readline('name? '); cat(name, '\\n', sep='')"),
    ],
)
def test_input_is_asked_of_the_client(sandbox: Sandbox, language: str, code: str) -> None:
    check_installed(language)
    asked = list[str]()

    def answer(prompt: str, *_: object) -> str:
        asked.append(prompt)
        return "Ada"

    run = sandbox.run_code(code, language=language, on_input=answer)
    assert (run.stdout.removeprefix("name? "), asked) == ("Ada\n", ["name? "])


@pytest.mark.parametrize("language", ["javascript", "r"])
def test_json_goes_in_and_out(sandbox: Sandbox, language: str) -> None:
    check_installed(language)
    context = sandbox.create_context(language=language)
    settings = {"depth": 3, "names": ["a", "b\"'\n"], "on": True}
    context.push(settings=settings)
    assert context.pull("settings") == settings
    with pytest.raises(SandcellError) as raised:
        context.pull("nothing")
    assert raised.value.code is ErrorCode.NOT_FOUND
    with pytest.raises(SandcellError) as raised:
        context.push(raw=b"\0")
    assert raised.value.code is ErrorCode.UNSUPPORTED
    context.delete()


# JavaScript


def test_javascript_has_values_displays_and_imports(sandbox: Sandbox) -> None:
    run = sandbox.run_code(
        "import { join } from 'node:path';\n"
        "await Deno.jupyter.display({ 'text/html': '<b>x</b>' }, { raw: true });\n"
        "await Promise.resolve([join('a', 'b'), { n: 1 }, null])",
        language="js",
    )
    assert run.error is None
    assert (run.text, run.value) == ('[ "a/b", { n: 1 }, null ]', ["a/b", {"n": 1}, None])
    assert [result.html for result in run.results] == ["<b>x</b>", None]


@pytest.mark.parametrize("code", ["new Map([[1, 2]])", "[undefined]", "({ get x() { throw 1 } })", "() => 1"])
def test_what_is_no_json_has_text_and_no_value(sandbox: Sandbox, code: str) -> None:
    run = sandbox.run_code(code, language="js")
    assert (run.error, run.value) == (None, None)
    assert run.text


def test_console_keeps_its_levels_and_order(sandbox: Sandbox) -> None:
    code = (
        "console.log(1); console.info(2); console.debug(3); console.warn(4); console.error(5); console.log(6)"
    )
    run = sandbox.run_code(code, language="js")
    assert (run.stdout, run.stderr) == ("1\n2\n3\n6\n", "4\n5\n")
    assert "".join(entry.text for entry in run.logs) == "1\n2\n3\n4\n5\n6\n"


def test_all_that_a_run_prints_is_its_own(sandbox: Sandbox) -> None:
    run = sandbox.run_code("for (let i = 0; i < 3000; i++) console.log(i)", language="js")
    assert run.stdout == "".join(f"{i}\n" for i in range(3000))
    assert not any(entry.late for entry in run.logs)
    assert sandbox.run_code("1", language="js").stdout == ""


def test_what_goes_past_the_console_is_shown(sandbox: Sandbox) -> None:
    code = "await Deno.stdout.write(new TextEncoder().encode('a\\n')); process.stderr.write('b\\n'); 0"
    run = sandbox.run_code(code, language="js")
    assert (run.stdout, run.stderr) == ("a\n", "b\n")


def test_a_syntax_error_names_its_line(sandbox: Sandbox) -> None:
    run = sandbox.run_code("const fine = 1;\nconst broken = ;\n", language="ts")
    assert run.error is not None
    assert (run.error.name, run.error.line) == ("SyntaxError", 2)


def test_a_remote_import_fails_and_says_why(sandbox: Sandbox) -> None:
    run = sandbox.run_code("import x from 'https://nowhere.invalid/x.ts'", language="js")
    assert run.error is not None
    assert "nowhere.invalid" in run.error.value
    run = sandbox.run_code("import x from 'npm:left-pad'", language="js")
    assert run.error is not None
    assert "network" in run.error.value


def test_a_timer_that_outlives_its_run_prints_late(sandbox: Sandbox) -> None:
    context = sandbox.create_context(language="js")
    live = context.start_code("setTimeout(() => console.log('late'), 200); 1")
    assert live.wait(timeout=DEADLINE_S).stdout == ""
    context.run_code("await new Promise((done) => setTimeout(done, 400))")
    texts = [entry.text for run in (live.wait(),) for entry in run.logs if entry.late]
    assert texts in ([], ["late\n"])  # its kernel may say it is of what runs now
    context.delete()


def test_completion_and_what_deno_has_not(sandbox: Sandbox) -> None:
    context = sandbox.create_context(language="js")
    assert "cwd" in context.complete("Deno.cw").matches
    for ask in (context.variables, lambda: context.inspect("Deno")):
        with pytest.raises(SandcellError) as raised:
            ask()
        assert raised.value.code is ErrorCode.UNSUPPORTED
        assert raised.value.hint
    with pytest.raises(SandcellError) as raised:
        context.run_code("1", env={"A": "b"})
    assert raised.value.code is ErrorCode.UNSUPPORTED
    context.delete()


def test_a_sandbox_says_whose_kernel_runs_the_code(sandbox: Sandbox) -> None:
    context = sandbox.create_context(language="js")
    assert any("deno" in warning for warning in context.refresh().warnings)
    assert any("deno" in warning for warning in sandbox.info().warnings)
    context.delete()


def test_memory_of_a_context_is_bounded(sandbox: Sandbox) -> None:
    with pytest.raises(SandcellError) as raised:
        sandbox.create_context(language="js", memory="128MiB")
    assert raised.value.code is ErrorCode.INVALID_ARGUMENT
    context = sandbox.create_context(language="js", memory="256MiB")
    run = context.run_code("const parts = []; for (;;) parts.push(new Uint8Array(2 ** 20).fill(1))")
    assert run.error is not None
    assert (run.error.name, run.end.state) == ("RangeError", "kept") or run.end.cause == "oom"
    context.delete()


# host tools


def divide(a: float, b: float) -> float:
    """Divide."""
    return a / b


@pytest.mark.parametrize("language", ["javascript", "typescript"])
def test_host_tools_are_called_from_javascript(sandbox: Sandbox, language: str) -> None:
    code = """
        const quotients = await Promise.all([1, 2].map((a) => tools.divide({ a, b: 4 })));
        const [first] = await tools.list();
        let problem = null;
        try { await tools.divide({ a: 1, b: 0 }) } catch (error) { problem = `${error.name}: ${error.message}` }
        let wrong = null;
        try { await tools.multiply({}) } catch (error) { wrong = error.name }
        [quotients, first.name, problem, wrong, `${tools} ${JSON.stringify(tools)}`]
    """
    run = sandbox.run_code(code, language=language, tools=[divide])
    assert run.error is None
    failed = ["ZeroDivisionError: float division by zero", "UnknownTool"]
    assert run.value == [[0.25, 0.5], "divide", *failed, "[host tools] {}"]
    assert [call.name for call in run.tool_calls][:3] == ["divide"] * 3
    without = sandbox.run_code("await tools.divide({ a: 1, b: 1 })", language=language)
    assert without.error is not None
    assert without.error.name == "ToolUnavailable"


@pytest.mark.parametrize(
    ("language", "code"),
    [
        (
            "javascript",
            """const done = new Deno.Command("sandcell-tool", { args: ["divide", '{"a": 1, "b": 4}'] }).outputSync();
            new TextDecoder().decode(done.stdout).trim()""",
        ),
        (
            "r",
            """noquote(system2("sandcell-tool", c("divide", shQuote('{"a": 1, "b": 4}')), stdout = TRUE))""",
        ),
    ],
)
def test_what_a_run_starts_calls_its_host_tools(sandbox: Sandbox, language: str, code: str) -> None:
    check_installed(language)
    run = sandbox.run_code(code, language=language, tools=[divide])
    assert run.error is None
    assert run.text is not None
    assert run.text.split()[-1].strip("'\"") == "0.25"
    without = sandbox.run_code(code, language=language)
    assert without.text is None or "0.25" not in without.text
    assert not without.tool_calls


def test_calls_from_javascript_leave_nothing_open(sandbox: Sandbox) -> None:
    code = """
        const opened = () => Array.from(Deno.readDirSync("/proc/self/fd")).length;
        await tools.divide({ a: 1, b: 1 });
        const before = opened();
        for (let n = 0; n < 50; n++) await tools.divide({ a: n, b: 1 });
        opened() - before
    """
    assert sandbox.run_code(code, language="javascript", tools=[divide]).value <= 2


def test_host_tools_are_called_from_bash(sandbox: Sandbox) -> None:
    code = """sandcell-tool divide '{"a": 1, "b": 4}'"""
    run = sandbox.run_code(code, language="bash", tools=[divide])
    assert (run.stdout, run.error) == ("0.25\n", None)
    assert [call.name for call in run.tool_calls] == ["divide"]
    assert sandbox.run_code("echo $SANDCELL_TOOLS", language="bash").stdout == "\n"


# bash


def test_bash_is_a_session_of_the_sandbox() -> None:
    with Sandbox.create(engine="local") as sandbox:
        sandbox.run_code("cd /usr; x=5", language="sh")
        assert [session.id for session in sandbox.sessions()] == ["bash"]
        assert sandbox.session("bash").exec("echo $x $PWD").stdout == "5 /usr\n"
        sandbox.session("bash").exec("y=6")
        assert sandbox.run_code("echo $y", language="bash").stdout == "6\n"


def test_bash_has_a_folder_and_variables_of_one_run(sandbox: Sandbox) -> None:
    run = sandbox.run_code("echo $A $PWD", language="bash", env={"A": "b c"}, cwd="/usr")
    assert run.stdout == "b c /usr\n"
    assert sandbox.run_code("echo $A.$PWD", language="bash").stdout == ".\n".replace("\n", "/workspace\n")
    with pytest.raises(SandcellError) as raised:
        sandbox.run_code("true", language="bash", cwd="/no/such")
    assert raised.value.code is ErrorCode.CWD_NOT_FOUND


def test_exit_ends_the_shell_and_the_run_with_its_status(sandbox: Sandbox) -> None:
    context = sandbox.create_context(language="bash")
    run = context.run_code("echo bye; exit 3")
    assert (run.stdout, run.end.cause, run.end.code, run.end.state) == ("bye\n", "exited", 3, "lost")
    after = context.run_code("echo again")
    assert after.stdout == "again\n"
    assert after.fresh_state is not None
    assert "3" in after.fresh_state
    context.delete()
    assert context.id not in [session.id for session in sandbox.sessions()]


def test_bytes_that_are_no_text_are_shown_as_marks(sandbox: Sandbox) -> None:
    run = sandbox.run_code(r"printf '\xc3'; sleep 0.05; printf '\xa9\xff'", language="bash")
    assert run.stdout == "é\ufffd"


# R


def test_r_has_results_tables_and_plots(sandbox: Sandbox) -> None:
    check_installed("r")
    run = sandbox.run_code("plot(1:3)\ndata.frame(a = 1:2)", language="r")
    assert run.error is None
    (image,) = run.images
    assert image.startswith(b"\x89PNG")
    assert run.text is not None
    assert "a" in run.text
    assert any("<table" in (result.html or "") for result in run.results)


def test_what_r_starts_is_shown_and_quit_ends_it(sandbox: Sandbox) -> None:
    check_installed("r")
    context = sandbox.create_context(language="r")
    run = context.run_code("invisible(system('echo child; echo err >&2'))")
    assert (run.stdout, run.stderr) == ("child\n", "err\n")
    assert "print" in context.complete("prin").matches
    assert context.inspect("mean").found
    assert context.run_code("quit()").end.state == "lost"
    assert context.run_code("cat('again')").stdout == "again"
    context.delete()


# others


def install_kernelspec(sandbox: Sandbox, name: str, argv: list[str], **more: Any) -> None:
    folder = f"/home/user/.local/share/jupyter/kernels/{name}"
    text = json.dumps({"argv": argv, "display_name": name, "language": name, **more})
    sandbox.files.mkdir(folder)
    sandbox.files.write(f"{folder}/kernel.json", text)


@pytest.fixture
def own() -> Generator[Sandbox]:
    with Sandbox.create(engine="local") as sandbox:
        yield sandbox


def test_any_kernelspec_goes_by_its_name(own: Sandbox) -> None:
    python = own.info().python
    assert python is not None
    argv = [python, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    install_kernelspec(own, "other", argv, env={"WHERE": "${HOME}/x"})
    context = own.create_context(language="other")
    assert context.language == "other"
    run = context.run_code("import os; print(os.environ['WHERE']); 6 * 7")
    assert (run.stdout, run.text, run.error) == ("/home/user/x\n", "42", None)
    with pytest.raises(SandcellError, match="other has no tools"):
        context.run_code("1", tools=[divide])
    assert own.run_code("1", language="Other").context_id == "other"
    live = started(context, "import time; print('go', flush=True); time.sleep(600)")
    live.interrupt()
    assert live.wait(timeout=DEADLINE_S).end.state == "kept"


def test_a_broken_kernel_stops_nothing_else(own: Sandbox) -> None:
    install_kernelspec(own, "ends", ["sh", "-c", "echo cannot >&2; exit 4"])
    install_kernelspec(own, "missing", ["/no/such/program"])
    own.files.write("/home/user/.local/share/jupyter/kernels/no-spec/kernel.json", "{")
    with pytest.raises(SandcellError) as raised:
        own.run_code("1", language="ends")
    assert raised.value.code is ErrorCode.START_FAILED
    assert "exit status 4: cannot" in raised.value.message
    with pytest.raises(SandcellError) as raised:
        own.create_context(language="missing")
    assert raised.value.code is ErrorCode.UNSUPPORTED
    with pytest.raises(SandcellError) as raised:
        own.create_context(language="no-spec")
    assert raised.value.code is ErrorCode.UNKNOWN_LANGUAGE
    assert own.run_code("1 + 1").value == 2


def test_an_unknown_language_lists_what_there_is(own: Sandbox) -> None:
    install_kernelspec(own, "toy", ["toy"])
    with pytest.raises(SandcellError) as raised:
        own.run_code("1", language="ruby")
    assert raised.value.code is ErrorCode.UNKNOWN_LANGUAGE
    there = raised.value.details["languages"]
    assert {"python", "javascript", "typescript", "bash", "r", "toy"} <= set(there)
    assert not any("sandcell" in name for name in there)
    assert not {"python3", "ir"} & set(there)  # kernels of those that have a name already


def test_a_missing_program_is_told_with_the_line_that_installs_it(own: Sandbox) -> None:
    with pytest.raises(SandcellError) as raised:
        own.create_context(language="js", env={"PATH": "/nowhere"})
    assert raised.value.code is ErrorCode.UNSUPPORTED
    assert "pip install deno" in raised.value.hint


def test_a_run_of_another_kernel_cannot_take_it_along(own: Sandbox) -> None:
    with pytest.raises(SandcellError) as raised:
        own.create_context(language="bash", memory="256MiB")
    assert raised.value.code is ErrorCode.UNSUPPORTED
    live = own.start_code("Deno.exit(0)", language="js")
    assert live.wait(timeout=DEADLINE_S).end.state == "lost"
    assert any(isinstance(event, Started) for event in live.follow())
    assert own.run_code("'fine'").value == "fine"


def run_command(*argv: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "sandcell", "run", "--engine", "local", *argv]
    return subprocess.run(line, capture_output=True, text=True, timeout=50, check=False)


def test_the_command_runs_any_language() -> None:
    done = run_command("-l", "js", "-c", "console.log([1, 2].map((n) => n * 2))")
    assert (done.stdout, done.returncode) == ("[ 2, 4 ]\n", 0)
    done = run_command("-l", "bash", "-c", "echo no >&2; exit 5")
    assert (done.stderr, done.returncode) == ("no\n", 5)

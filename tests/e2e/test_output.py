"""Output, environment, folder and cost of runs, as the caller of the SDK has them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from sandcell.events import Ended, Stdout

if TYPE_CHECKING:
    from sandcell import Sandbox

VALUES = [
    'it\'s "quoted"\nline two $HOME `x` \\',
    "é漢\U0001f600",
    "",
    "x" * 128 * 1024,
    os.fsdecode(b"\xff raw \x80"),
]


def test_late_output_is_in_the_logs_of_its_run(sandbox: Sandbox) -> None:
    live = sandbox.start_code(
        "import threading; gate = threading.Event()\n"
        "t = threading.Thread(target=lambda: (gate.wait(), print('late'))); t.start(); print('now')"
    )
    first = live.wait()
    assert (first.stdout, [entry.late for entry in first.logs]) == ("now\n", [False] * len(first.logs))
    assert sandbox.run_code("gate.set(); t.join()").stdout == ""
    while "late" not in (run := live.wait()).stdout:
        pass
    assert run.stdout == "now\nlate\n"
    assert "".join(entry.text for entry in run.logs if entry.late) == "late\n"
    assert run.end == first.end


def test_late_output_stands_behind_the_end_for_who_follows(sandbox: Sandbox) -> None:
    live = sandbox.start_code("import subprocess; p = subprocess.Popen('cat', stdin=subprocess.PIPE);")
    live.wait()
    sandbox.run_code("p.communicate(b'late\\n');")
    while True:
        events = list(live.follow())
        if isinstance(events[-1], Stdout):
            break
    end = next(event for event in events if isinstance(event, Ended))
    assert events.index(end) < len(events) - 1
    assert [event.late for event in events if isinstance(event, Stdout)] == [True]
    since = [event for event in live.follow(cursor=end.cursor) if isinstance(event, Stdout)]
    assert [event.text for event in since] == ["late\n"]


@pytest.mark.parametrize("value", VALUES, ids=["special", "unicode", "empty", "128 KiB", "no utf-8"])
def test_a_variable_of_one_run_may_be_anything(sandbox: Sandbox, value: str) -> None:
    code = "import os\nos.environb[b'VALUE'] == bytes.fromhex('{}')\n"
    asked = code.format(os.fsencode(value).hex())
    sandbox.run_code("import os; os.environ['VALUE'] = 'before'")
    assert sandbox.run_code(asked, env={"VALUE": value}).value is True
    assert sandbox.run_code("os.environ.pop('VALUE')").value == "before"
    failed = sandbox.run_code("1\n2\n1/0", env={"VALUE": value})
    assert failed.error is not None
    assert failed.error.line == 3


# With its name one variable of a process may have 128 KiB.
@pytest.mark.parametrize("value", [each[:130_000] for each in VALUES], ids=lambda value: repr(value)[:20])
def test_a_variable_of_a_context_may_be_anything(sandbox: Sandbox, value: str) -> None:
    context = sandbox.create_context(env={"VALUE": value})
    assert context.run_code("import os; os.environb[b'VALUE'].hex()").value == os.fsencode(value).hex()
    context.delete()


@pytest.mark.parametrize(
    "name", [b"a b 'c' \"d\" $e", b"\xff\xfe", "é\U0001f600".encode(), b"two\nlines\t;&\\"]
)
def test_a_folder_may_have_any_name(sandbox: Sandbox, name: bytes) -> None:
    folder = os.fsdecode(name)
    sandbox.exec(["mkdir", "-p", f"/workspace/{folder}"])
    asked = "import os; os.getcwdb().hex()"
    before = sandbox.run_code(asked).value
    expected = (b"/workspace/" + name).hex()
    assert sandbox.run_code(asked, cwd=folder).value == expected
    assert sandbox.run_code("1/0", cwd=folder).error is not None
    assert sandbox.run_code(asked).value == before == b"/workspace".hex()
    context = sandbox.create_context(cwd=f"/workspace/{folder}")
    assert context.run_code(asked).value == expected
    context.delete()


def test_what_a_run_took(sandbox: Sandbox) -> None:
    run = sandbox.run_code(
        "x = bytearray(100_000_000); del x; print('é'); print('oh', file=__import__('sys').stderr)"
    )
    assert set(run.usage) == {"wall", "cpu_user", "cpu_system", "peak_memory", "stdout_bytes", "stderr_bytes"}
    assert (run.usage["stdout_bytes"], run.usage["stderr_bytes"]) == (3, 3)
    assert run.usage["peak_memory"] > 100_000_000
    assert 0 < run.usage["wall"] <= run.duration


@pytest.mark.parametrize("code", ["print('last'); os._exit(3)", "print('last'); os.kill(os.getpid(), 11)"])
def test_what_was_printed_before_a_sudden_end_is_there(sandbox: Sandbox, code: str) -> None:
    run = sandbox.run_code(f"import os; {code}", fresh=True)
    assert (run.stdout, run.end.state) == ("last\n", "lost")

"""Asynchronous code in cells: await at the top level, loops of the code's own, and tasks that outlive their run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandcell.events import Stdout

if TYPE_CHECKING:
    from sandcell import Sandbox


def test_await_at_the_top_level(sandbox: Sandbox) -> None:
    run = sandbox.run_code("import asyncio\nx = await asyncio.sleep(0.01, 'woken')\nx")
    assert (run.value, run.ok) == ("woken", True)


def test_asynchronous_loops_and_blocks_at_the_top_level(sandbox: Sandbox) -> None:
    code = """
import asyncio, contextlib
async def numbers():
    for n in range(3): yield n
@contextlib.asynccontextmanager
async def around():
    yield 'inside'
async with around() as where:
    found = [where] + [n async for n in numbers()]
found
"""
    assert sandbox.run_code(code).value == ["inside", 0, 1, 2]


def test_asyncio_run_in_a_cell(sandbox: Sandbox) -> None:
    code = """
import asyncio
async def main():
    await asyncio.gather(asyncio.sleep(0), asyncio.to_thread(print, 'in a thread'))
    return asyncio.current_task().get_name() != outer.get_name()
outer = asyncio.current_task()
asyncio.run(main()), asyncio.current_task() is outer
"""
    run = sandbox.run_code(code)
    assert (run.value, run.stdout) == ([True, True], "in a thread\n")


def test_asyncio_run_inside_an_asynchronous_cell_and_again(sandbox: Sandbox) -> None:
    code = """
import asyncio
await asyncio.sleep(0)
async def inner(): return await asyncio.sleep(0, 'inner')
async def outer(): return [asyncio.run(inner()), await asyncio.sleep(0, 'outer')]
[asyncio.run(outer()), asyncio.run(inner()), await asyncio.sleep(0, 'after')]
"""
    assert sandbox.run_code(code).value == [["inner", "outer"], "inner", "after"]


def test_an_error_in_asyncio_run_is_the_codes_own(sandbox: Sandbox) -> None:
    run = sandbox.run_code("import asyncio\nasync def main():\n    1 / 0\nasyncio.run(main())")
    assert run.error is not None
    assert run.error.name == "ZeroDivisionError"
    assert not any("sandcell" in line for line in run.error.traceback)
    assert sandbox.run_code("await asyncio.sleep(0, 'fine')").value == "fine"


def test_a_runner_of_the_codes_own(sandbox: Sandbox) -> None:
    code = "import asyncio\nwith asyncio.Runner() as r: x = [r.run(asyncio.sleep(0, n)) for n in (1, 2)]\nx"
    assert sandbox.run_code(code).value == [1, 2]


def test_a_task_goes_on_between_runs(sandbox: Sandbox) -> None:
    first = sandbox.start_code(
        "import asyncio\nticks = 0\nasync def tick():\n    global ticks\n    print('tick', flush=True)\n"
        "    await gate.wait(); ticks += 1; print('tock')\n"
        "gate = asyncio.Event()\ntask = asyncio.create_task(tick())\nawait asyncio.sleep(0)"
    )
    assert first.wait().stdout == "tick\n"
    second = sandbox.run_code("gate.set(); await task; ticks")
    assert (second.value, second.stdout) == (1, "")
    late = [event.text for event in first.follow() if isinstance(event, Stdout)]
    assert late[0] == "tick\n"


def test_a_task_that_is_left_pending_is_no_error(sandbox: Sandbox) -> None:
    context = sandbox.create_context()
    assert context.run_code("import asyncio; t = asyncio.ensure_future(asyncio.sleep(600))").ok
    assert context.run_code("t.done()").value is False
    assert context.run_code("t.cancel()").ok
    assert context.run_code("t.cancelled()").value is True
    context.delete()


def test_a_task_that_fails_in_the_background_harms_nothing(sandbox: Sandbox) -> None:
    sandbox.run_code("import asyncio\nasync def fail(): raise ValueError('in the background')")
    assert sandbox.run_code("task = asyncio.ensure_future(fail()); await asyncio.sleep(0)").ok
    assert sandbox.run_code("repr(task.exception())").value == "ValueError('in the background')"

"""Processes with the asyncio client: callbacks beside the program, cancelled waits, loops that end."""

from __future__ import annotations

import asyncio
import gc
from typing import TYPE_CHECKING, Any

import pytest

from sandcell import AsyncSandbox, ErrorCode, SandcellError
from sandcell.events import Started, Stdout

if TYPE_CHECKING:
    from sandcell import Sandbox
    from sandcell.client.aio.process import AsyncProcess
    from sandcell.events import Stderr
    from sandcell_container.end import End


async def attach(sandbox: Sandbox) -> AsyncSandbox:
    return await AsyncSandbox.connect(sandbox.name)


async def test_callbacks_are_called_beside_the_program_and_may_be_coroutines(sandbox: Sandbox) -> None:
    told, over = list[Any](), asyncio.Event()

    async def on_output(event: Stdout | Stderr) -> None:
        told.append((event.text, (await ours.exec("echo again")).stdout))

    def on_exit(end: End) -> None:
        told.append(end.code)
        over.set()

    async with await attach(sandbox) as ours:
        job = await ours.start_process(
            "echo one; read line; exit 3", stdin=True, on_output=on_output, on_exit=on_exit
        )
        await job.write("go\n")
        async with asyncio.timeout(20):
            await over.wait()
        assert told == [("one\n", "again\n"), 3]
        assert (await job.wait(20)).code == 3
    assert len(told) == 2


async def test_a_wait_returns_when_all_has_been_told(sandbox: Sandbox) -> None:
    told = list[str]()

    async def on_output(event: Stdout | Stderr) -> None:
        await ours.exec("true")
        told.append(event.text)

    async with await attach(sandbox) as ours:
        job = await ours.start_process("for n in 1 2 3; do echo $n; sleep 0.02; done", on_output=on_output)
        await job.wait(20)
        assert "".join(told) == "1\n2\n3\n"


async def test_a_callback_that_raises_is_heard_by_who_waits(sandbox: Sandbox) -> None:
    told = list[str]()

    def on_output(event: Stdout | Stderr) -> None:
        told.append(event.text)
        if len(told) == 1:
            raise ValueError("not that")

    async with await attach(sandbox) as ours:
        job = await ours.start_process("echo one; read line; echo two", stdin=True, on_output=on_output)
        with pytest.raises(ValueError, match="not that"):
            await job.wait(20)
        await job.write("go\n")
        await job.wait(20)
    assert told == ["one\n", "two\n"]


async def test_the_task_of_a_handle_ends_with_it(sandbox: Sandbox) -> None:
    before = asyncio.all_tasks()
    ours = await attach(sandbox)
    closed = await ours.start_process("sleep 50", on_exit=print)
    left = await ours.start_process("sleep 50", on_exit=print)
    assert len(asyncio.all_tasks() - before) == 2
    await closed.close()
    await closed.close()
    assert len(asyncio.all_tasks() - before) == 1
    await ours.close()
    assert asyncio.all_tasks() == before
    assert left.status == "running"
    sandbox.kill_all()


def test_callbacks_go_on_in_another_loop(sandbox: Sandbox) -> None:
    told = list[str]()

    async def begin() -> tuple[AsyncSandbox, AsyncProcess]:
        ours = await attach(sandbox)
        return ours, await ours.start_process(
            "echo out; exit 4", on_output=lambda event: told.append(event.text)
        )

    async def end(ours: AsyncSandbox, job: AsyncProcess) -> None:
        assert (await job.wait(20)).code == 4
        await ours.close()

    asyncio.run(end(*asyncio.run(begin())))
    assert told == ["out\n"]


async def test_a_cancelled_wait_or_follow_leaves_the_process(sandbox: Sandbox) -> None:
    async with await attach(sandbox) as ours:
        job = await ours.start_process("echo up; sleep 50")
        for waiting in (job.wait(), job.wait_for_log("never"), job.wait_for_port(8999)):
            task = asyncio.ensure_future(waiting)
            await asyncio.wait({task}, timeout=0.1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        events = job.follow()
        assert isinstance(await anext(events), Started)
        assert isinstance(await anext(events), Stdout)
        await events.aclose()
        assert (await job.refresh()).status == "running"
        assert (await job.kill(0)).killed == 1


async def test_many_waits_at_once(sandbox: Sandbox) -> None:
    async with await attach(sandbox) as ours:
        job = await ours.start_process("echo ready; read line; exit 5", stdin=True)
        waits = [asyncio.ensure_future(job.wait(20)) for _ in range(20)]
        assert (await job.wait_for_log("ready", timeout=20)).line == "ready"
        await job.close_stdin()
        assert {(await each).code for each in waits} == {5}


async def test_a_sandbox_that_ends_ends_its_waits() -> None:
    doomed = await AsyncSandbox.create(engine="local")
    job = await doomed.start_process("sleep 50", on_exit=print)
    waiting = asyncio.ensure_future(job.wait())
    await asyncio.wait({waiting}, timeout=0.1)
    await doomed.remove()
    with pytest.raises(SandcellError) as caught:
        await waiting
    assert caught.value.code is ErrorCode.SANDBOX_GONE


async def test_a_wait_goes_on_without_callbacks_when_these_are_given_up(sandbox: Sandbox) -> None:
    told = list[str]()
    async with await attach(sandbox) as ours:
        job = await ours.start_process(
            "read line; echo out; exit 6", stdin=True, on_output=lambda event: told.append(event.text)
        )
        waiting = asyncio.ensure_future(job.wait(20))
        await asyncio.wait({waiting}, timeout=0.05)
        await job.close()
        await job.close_stdin()
        assert (await waiting).code == 6
    assert told == []


async def test_what_a_callback_raised_and_nobody_heard_is_logged_and_an_ended_sandbox_is_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def on_output(event: Stdout | Stderr) -> None:
        over.set()
        raise ValueError("not that")

    over, doomed = asyncio.Event(), await AsyncSandbox.create(engine="local")
    quiet = await doomed.start_process("sleep 50", on_exit=print)
    loud = await doomed.start_process("echo out; sleep 50", on_output=on_output)
    async with asyncio.timeout(20):
        await over.wait()
    await doomed.remove()
    del quiet, loud
    gc.collect()
    assert [record.getMessage() for record in caplog.records] == ["a callback raised"]

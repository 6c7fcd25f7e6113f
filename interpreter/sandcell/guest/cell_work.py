"""What cells ask of the guest itself: commands in sessions and without, processes, and the line magics.

Each work is shown on the stage of its cell. The magics themselves are told apart in `sandcell_kernel.cells`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from sandcell.guest.cell_questions import asking
from sandcell.guest.stage import Outcome, Stopped, show_journal
from sandcell.job_bodies import CreateProcess, ExecRequest
from sandcell_container.guest.session_command import CommandOrder
from sandcell_kernel.answers import Problem
from sandcell_kernel.cells import ExecCell, LineCell, ProcessCell, ShellCell
from sandcell_kernel.requests import INTERRUPTED, command_problem

if TYPE_CHECKING:
    from sandcell.guest.desk import Desk
    from sandcell.guest.line_work import LineWork
    from sandcell.guest.stage import Stage
    from sandcell_container.guest.process import Process
    from sandcell_kernel.cells import Work

__all__ = ["CellWork", "show_process"]


class CellWork:
    """See the module."""

    def __init__(self, desk: Desk, lines: LineWork) -> None:
        self._desk = desk
        self._lines = lines

    async def perform(self, stage: Stage, work: Work) -> Outcome:
        """Do what a cell asks, and return how that ended. Cancelling ends a command, and leaves a process running.

        Raises:
            SandcellError: it could not be begun, or its sandbox is gone.
        """
        try:
            match work:
                case ShellCell():
                    return await self._run_shell(stage, work)
                case ExecCell(code):
                    return await self._run_exec(stage, code)
                case ProcessCell():
                    return await self._run_process(stage, work)
                case LineCell(orders):
                    return await self._lines.perform(stage, orders)
                case _:
                    assert_never(work)
        except Stopped:
            return Outcome(problem=INTERRUPTED)

    async def _run_shell(self, stage: Stage, cell: ShellCell) -> Outcome:
        session = await self._desk.shells.get_or_create(cell.session_id)
        async with asking(stage, self._desk) as paths:
            command = session.run(CommandOrder(text=cell.code, asks=paths))
            command.on_late = stage.write_late
            self._desk.note_command(command.id, stage.origin, session.id, cell.code, command.journal)
            try:
                with stage.stopping(command.interrupt):
                    ended = await show_journal(stage, command.journal)
            finally:
                command.journal.close()
        if command.refusal is not None:
            raise command.refusal
        return Outcome(problem=command_problem(ended, interrupted=stage.is_stopped))

    async def _run_exec(self, stage: Stage, code: str) -> Outcome:
        request = ExecRequest(command=code, stream=True, timeout=None)
        async with self._desk.commands.follow(request, who=stage.origin) as command:
            ended = await stage.unless_stopped(show_journal(stage, command.journal))
        return Outcome(problem=command_problem(ended, interrupted=False))

    async def _run_process(self, stage: Stage, cell: ProcessCell) -> Outcome:
        process = await self._desk.processes.start(
            CreateProcess(command=cell.code, id=cell.process_id), who=stage.origin
        )
        self._desk.note_made("process", process.id)
        if cell.is_detached:
            stage.say(f"the process {process.id} runs: %process follow {process.id}")
            return Outcome()
        return await show_process(stage, process)


async def show_process(stage: Stage, process: Process) -> Outcome:
    """Show what a process says until it ends, or the cell is interrupted: then it goes on, and that is said."""
    try:
        with process.read() as journal:
            ended = await stage.unless_stopped(show_journal(stage, journal))
    except Stopped:
        stage.say(
            f"the process {process.id} goes on: %process follow {process.id}, %process kill {process.id}"
        )
        return Outcome()
    problem = command_problem(ended, interrupted=False)
    if problem is None:
        return Outcome()
    return Outcome(problem=Problem(name=problem.name, value=f"{process.id}: {problem.value}"))

"""Run code that you do not trust in a sandbox, and get back everything a notebook would show."""

from __future__ import annotations

import importlib

TYPE_CHECKING = False  # of `typing`, whose import would take most of the time of this one
if TYPE_CHECKING:
    from typing import Any

    from sandcell.client.aio.context import AsyncContext
    from sandcell.client.aio.execution import AsyncExecution
    from sandcell.client.aio.process import AsyncProcess
    from sandcell.client.aio.sandbox import AsyncSandbox
    from sandcell.client.aio.session import AsyncSession
    from sandcell.client.aio.terminal import AsyncTerminal
    from sandcell.client.blocking.context import Context
    from sandcell.client.blocking.execution import Execution
    from sandcell.client.blocking.process import Process
    from sandcell.client.blocking.sandbox import Sandbox
    from sandcell.client.blocking.session import Session
    from sandcell.client.blocking.terminal import Terminal
    from sandcell.command import ExecResult
    from sandcell.events import (
        Ended,
        ErrorRaised,
        Gap,
        InputRequested,
        OutputCleared,
        ResultAdded,
        ResultUpdated,
        Started,
        StatusChanged,
        Stderr,
        Stdout,
        ToolCalled,
        Truncated,
    )
    from sandcell.result import Result
    from sandcell.results import ExecutionError, RunResult
    from sandcell.tools import Tool
    from sandcell_container.end import End
    from sandcell_container.errors import ErrorCode, SandcellError
    from sandcell_container.openings import Mount

__all__ = [
    "AsyncContext",
    "AsyncExecution",
    "AsyncProcess",
    "AsyncSandbox",
    "AsyncSession",
    "AsyncTerminal",
    "Context",
    "End",
    "Ended",
    "ErrorCode",
    "ErrorRaised",
    "ExecResult",
    "Execution",
    "ExecutionError",
    "Gap",
    "InputRequested",
    "Mount",
    "OutputCleared",
    "Process",
    "Result",
    "ResultAdded",
    "ResultUpdated",
    "RunResult",
    "Sandbox",
    "SandcellError",
    "Session",
    "Started",
    "StatusChanged",
    "Stderr",
    "Stdout",
    "Terminal",
    "Tool",
    "ToolCalled",
    "Truncated",
]

# Looked up when first asked for: the guest and the kernel need no client, and who blocks needs no asyncio.
_HOMES = {
    "AsyncContext": "sandcell.client.aio.context",
    "AsyncExecution": "sandcell.client.aio.execution",
    "AsyncProcess": "sandcell.client.aio.process",
    "AsyncSandbox": "sandcell.client.aio.sandbox",
    "AsyncSession": "sandcell.client.aio.session",
    "AsyncTerminal": "sandcell.client.aio.terminal",
    "Context": "sandcell.client.blocking.context",
    "End": "sandcell_container.end",
    "Ended": "sandcell.events",
    "ErrorCode": "sandcell_container.errors",
    "ErrorRaised": "sandcell.events",
    "ExecResult": "sandcell.command",
    "Execution": "sandcell.client.blocking.execution",
    "ExecutionError": "sandcell.results",
    "Gap": "sandcell.events",
    "InputRequested": "sandcell.events",
    "Mount": "sandcell_container.openings",
    "OutputCleared": "sandcell.events",
    "Process": "sandcell.client.blocking.process",
    "Result": "sandcell.result",
    "ResultAdded": "sandcell.events",
    "ResultUpdated": "sandcell.events",
    "RunResult": "sandcell.results",
    "Sandbox": "sandcell.client.blocking.sandbox",
    "SandcellError": "sandcell_container.errors",
    "Session": "sandcell.client.blocking.session",
    "Started": "sandcell.events",
    "StatusChanged": "sandcell.events",
    "Stderr": "sandcell.events",
    "Stdout": "sandcell.events",
    "Terminal": "sandcell.client.blocking.terminal",
    "Tool": "sandcell.tools",
    "ToolCalled": "sandcell.events",
    "Truncated": "sandcell.events",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

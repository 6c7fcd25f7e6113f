"""Run code that you do not trust in a sandbox, and get back everything a notebook would show."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sandcell.client.aio.sandbox import AsyncSandbox
    from sandcell.client.blocking.sandbox import Sandbox
    from sandcell.command import ExecResult
    from sandcell.result import Result
    from sandcell.results import ExecutionError, RunResult
    from sandcell.tools import Tool
    from sandcell_container.errors import ErrorCode, SandcellError
    from sandcell_container.openings import Mount

__all__ = [
    "AsyncSandbox",
    "ErrorCode",
    "ExecResult",
    "ExecutionError",
    "Mount",
    "Result",
    "RunResult",
    "Sandbox",
    "SandcellError",
    "Tool",
]

# Looked up when first asked for: the guest and the kernel need no client, and who blocks needs no asyncio.
_HOMES = {
    "AsyncSandbox": "sandcell.client.aio.sandbox",
    "ErrorCode": "sandcell_container.errors",
    "ExecResult": "sandcell.command",
    "ExecutionError": "sandcell.results",
    "Mount": "sandcell_container.openings",
    "Result": "sandcell.result",
    "RunResult": "sandcell.results",
    "Sandbox": "sandcell.client.blocking.sandbox",
    "SandcellError": "sandcell_container.errors",
    "Tool": "sandcell.tools",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

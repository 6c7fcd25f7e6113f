"""Where `breakpoint()` stops: in the debugger of the front end where one is attached, else at the prompt of pdb.

debugpy takes the hook for itself when it is imported, and then passes over every breakpoint while nobody is attached.
"""

from __future__ import annotations

import os
import sys
from types import FunctionType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["set_breakpoint_hook"]

_PDB = sys.breakpointhook  # Python's own, as this is imported before anything of the user's


def set_breakpoint_hook(*, is_debugged: bool, may_ask: bool) -> None:
    """Set what `breakpoint()` does in the run that begins. A hook of the user's own stays.

    Where nobody is attached and nobody can be asked, a breakpoint is passed over, as in a stock kernel.
    """
    if _is_known(getattr(sys, "breakpointhook", None)):
        sys.breakpointhook = _hook(is_debugged=is_debugged, may_ask=may_ask)


def _hook(*, is_debugged: bool, may_ask: bool) -> Callable[..., object]:
    if is_debugged:
        import debugpy  # noqa: T100 -- for people who debug

        attached: Callable[..., object] = debugpy.breakpoint
        return attached
    return _PDB if may_ask or os.environ.get("PYTHONBREAKPOINT") else _pass_over


def _is_known(hook: object) -> bool:
    """Whether it is Python's own, one of debugpy's, or ours."""
    if hook is _PDB or hook is _pass_over:
        return True
    return isinstance(hook, FunctionType) and hook.__module__.startswith("debugpy.")


def _pass_over(*_: object, **__: object) -> None:
    """Stop nowhere."""

"""Host tools in a kernel: `tools` among the builtins, `import sandcell_tools`, and the way to them for what a run starts.

Nothing of it is there before the first run that has some.
"""

from __future__ import annotations

import builtins
import importlib.util
import os
import sys
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from sandcell_runtime.scope import applied_env

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

__all__ = ["HostTools"]

MODULE = "sandcell_tools"
TOOLKIT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "toolkit")


class HostTools:
    """Which tools the caller's run has. One for a process."""

    def __init__(self) -> None:
        self._newest: Any = None  # a Link of the module, as below
        self._mine: ContextVar[Any] = ContextVar("sandcell_tools_link")
        self._module: Any = None

    @property
    def link(self) -> Any:
        """The way to the tools of the caller's run. Who was told nothing belongs to the run that is on."""
        return self._mine.get(self._newest)

    def bequest(self) -> Callable[[], None] | None:
        """Return what a thread calls to have the tools that its maker has now, None where those are none."""
        link = self.link
        return None if link is None else lambda: _set(self._mine, link)

    @contextmanager
    def applied(self, told: dict[str, str] | None) -> Generator[None]:
        """Have the tools that the guest told of, for one run: here, and in what it starts. None: it has none."""
        if told is None:
            yield
            return
        module = self._module = self._module or _install(lambda: self.link)
        link = self._newest = module.Link(told["address"], told["secret"])
        token = self._mine.set(link)
        try:
            with applied_env(_surroundings(str(link))):
                yield
        finally:
            self._newest = None
            self._mine.reset(token)


def _install(find: Callable[[], Any]) -> Any:
    spec = importlib.util.spec_from_file_location(MODULE, os.path.join(TOOLKIT, f"{MODULE}.py"))
    if spec is None or spec.loader is None:
        raise ImportError(f"{TOOLKIT} has no {MODULE}")
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.tools = module.Tools(find)
    sys.modules.setdefault(MODULE, module)
    if not hasattr(builtins, "tools"):
        setattr(builtins, "tools", module.tools)  # noqa: B010 -- a name that no type knows
    return module


def _surroundings(link: str) -> dict[str, str]:
    """Return the variables by which processes of the run find their way: the command by PATH, the module by PYTHONPATH."""
    found = {"SANDCELL_TOOLS": link}
    for name in ("PATH", "PYTHONPATH"):
        before = os.environ.get(name, "")
        if TOOLKIT not in before.split(os.pathsep):
            found[name] = f"{before}{os.pathsep}{TOOLKIT}" if before else TOOLKIT
    return found


def _set(variable: ContextVar[Any], link: Any) -> None:
    variable.set(link)

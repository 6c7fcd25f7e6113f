"""A kernel of an ipykernel that lacks what ours needs: that ipykernel's own, and what stands on its oldest parts.

It has no pipes, no accounting and no values of runs, and publishes as it always did. Needs ipykernel 6.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ipykernel._version import __version__, version_info
from ipykernel.ipkernel import IPythonKernel
from ipykernel.kernelapp import IPKernelApp
from traitlets import Type

from sandcell_runtime.extras import VARIABLES, Extras, extras_of, is_errand
from sandcell_runtime.limits import limit_memory
from sandcell_runtime.scope import CwdRefused, applied_cwd, applied_env
from sandcell_runtime.tools import HostTools

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["make_app"]

if version_info < (6,):  # pyright: ignore[reportUnnecessaryComparison]
    raise ImportError(f"ipykernel {__version__} is older than 6")


class StockKernel(Extras, IPythonKernel):
    """That ipykernel's kernel, which does what requests ask beyond Jupyter."""

    control_msg_types = [*IPythonKernel.control_msg_types, VARIABLES]  # noqa: RUF012 -- as its base has it

    def __init__(self, **kwargs: Any) -> None:
        self.host_tools = HostTools()
        super().__init__(**kwargs)

    async def execute_request(self, stream: Any, ident: Any, parent: dict[str, Any]) -> None:
        extras = extras_of(parent["metadata"])
        try:
            if is_errand(extras):
                reply = await self.do_errand(extras)
            else:
                with (
                    applied_cwd(extras.get("cwd")),
                    applied_env(extras.get("env") or {}),
                    self.host_tools.applied(extras.get("tools")),
                ):
                    await super().execute_request(stream, ident, parent)
                return
        except CwdRefused as problem:
            reply = self.refused(problem.code, str(problem))
        session: Any = self.session
        session.send(stream, "execute_reply", reply, parent, ident=ident)


class StockApp(IPKernelApp):
    """That ipykernel's application, told its connection and writing no file."""

    kernel_class = Type(StockKernel)

    def init_connection_file(self) -> None:
        """Nothing: the connection came by stdin, and nobody else is to find it on disk."""

    def write_connection_file(self, **_: Any) -> None:
        """Nothing, as above."""

    def log_connection_info(self) -> None:
        names = ("shell", "iopub", "stdin", "hb", "control")
        self._ports = {name: getattr(self, f"{name}_port") for name in names}

    def init_poller(self) -> None:
        """Nothing: the spawner owns this process, and its parent's id means nothing."""


def make_app(connection: Mapping[str, Any], settings: Mapping[str, Any]) -> StockApp:
    """Return the application with every socket bound and its threads running; arguments as those of `app.make_app`."""
    app = StockApp.instance()
    app.session.key = str(connection["key"]).encode()
    for name in ("transport", "ip", "shell_port", "iopub_port", "stdin_port", "hb_port", "control_port"):
        setattr(app, name, connection[name])
    app.initialize(["--HistoryManager.hist_file=:memory:", "--IPCompleter.use_jedi=False"])
    if settings.get("memory") is not None:
        limit_memory(settings["memory"])
    return app

"""The application around a kernel: what it is told, what it binds, and what it changes in its process."""

from __future__ import annotations

import atexit
import sys
from io import TextIOWrapper
from typing import TYPE_CHECKING, Any, cast

import zmq
from ipykernel.kernelapp import IPKernelApp
from traitlets import Bool, Type, Unicode
from traitlets.config import Config

from sandcell_runtime.fences import FencedSession
from sandcell_runtime.heritage import bequeath_to_children, bequeath_to_threads
from sandcell_runtime.kernel import Kernel
from sandcell_runtime.limits import limit_memory
from sandcell_runtime.loops import allow_nested_runs
from sandcell_runtime.outlet import Outlet
from sandcell_runtime.publishing import PublishingThread, QuickSocket
from sandcell_runtime.wire_json import pack, unpack

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sandcell_runtime.streams import KernelStream
    from sandcell_runtime.tools import HostTools

__all__ = ["make_app"]

_SEND_QUEUE = 100  # messages that wait for a slow reader before the sender does
_LINGER_MS = 1000  # what the last messages get at the end, as in stock
# Above what the user's profile says, as the words of a command line are.
_CONFIG = Config(
    {
        "HistoryManager": {"hist_file": ":memory:", "db_cache_size": 100},
        # Jedi reads source for a second or more before its first answer; live objects are there at once.
        "IPCompleter": {"use_jedi": False},
    }
)


class KernelApp(IPKernelApp):
    """The application around the kernel: told its connection, writing no file, printing nothing."""

    outlet: Outlet

    kernel_class = Type(Kernel)
    outstream_class = Unicode("sandcell_runtime.streams.KernelStream")
    blocking_class = Type(
        object, klass=object
    )  # of a client to itself, for which all clients would be imported
    capture_fd_output = Bool(default_value=False)  # the descriptors are pipes of the run's own

    def parse_command_line(self, argv: Any = None) -> None:
        """Take nothing: this program has no words, and the parser of all that stock knows takes 5 ms to make."""

    def init_connection_file(self) -> None:
        """Nothing: the connection came by stdin, and nobody else is to find it on disk."""

    def write_connection_file(self, **_: Any) -> None:
        """Nothing, as above."""

    def log_connection_info(self) -> None:
        names = ("shell", "iopub", "stdin", "hb", "control")
        self._ports = {name: getattr(self, f"{name}_port") for name in names}

    def init_io(self) -> None:
        super().init_io()
        for stream in (sys.stdout, sys.stderr):
            cast("KernelStream", stream).connect(self.outlet)
        for plain in (sys.__stdout__, sys.__stderr__):
            if isinstance(plain, TextIOWrapper):
                plain.reconfigure(line_buffering=True)  # what a run leaves in it is flushed at its end

    def init_poller(self) -> None:
        """Nothing: the spawner owns this process, and its parent's id means nothing."""

    def close(self) -> None:
        """End the threads that publish before the one they publish by. Stock has the other order, and one that has a last
        status to say then waits for ever: one end in two hundred."""
        for thread in (self.control_thread, self.shell_channel_thread):
            if thread is not None and thread.is_alive():
                thread.stop()
                thread.join()
        super().close()

    def init_iopub(self, context: zmq.Context[Any]) -> None:
        """Do as stock does, with a socket that is quick, and makes its sender wait where stock's drops."""
        publisher = context.socket(zmq.XPUB, socket_class=QuickSocket)
        publisher.setsockopt(zmq.LINGER, _LINGER_MS)
        publisher.setsockopt(zmq.XPUB_NODROP, 1)
        publisher.setsockopt(zmq.SNDHWM, _SEND_QUEUE)
        self.iopub_port = self._bind_socket(publisher, self.iopub_port)
        self.configure_tornado_logger()
        self.iopub_thread = PublishingThread(publisher, pipe=True, session=self.session)
        self.iopub_thread.start()
        atexit.unregister(self.iopub_thread.stop)  # which would come before `close`
        self.iopub_socket = self.iopub_thread.background_socket


def _leave_heritage(app: KernelApp) -> None:
    """From now on, let what a run starts go on in its name."""
    outlet, shell = app.outlet, cast("Any", app.shell)
    host_tools: HostTools = cast("Any", app.kernel).host_tools
    get_parent, set_parent = shell.get_parent, shell.set_thread_parent

    def bequest() -> Callable[[], None]:
        take_pipes, parent, take_tools = outlet.bequest(), get_parent(), host_tools.bequest()

        def take_on() -> None:
            take_pipes()
            set_parent(parent)
            if take_tools is not None:
                take_tools()

        return take_on

    bequeath_to_threads(bequest)
    bequeath_to_children(outlet)


def make_app(connection: Mapping[str, Any], settings: Mapping[str, Any]) -> KernelApp:
    """Return the application with every socket bound and its threads running; `start()` serves until the end.

    `connection` is a connection file's content. `settings`: `max_frame`, bytes of JSON, and of buffers, that one message may have;
    `memory`, bytes that the interpreter may have from now on, None is no limit.
    """
    allow_nested_runs()
    app = KernelApp.instance()
    app.outlet = Outlet(_address_of_output(connection), connection["key"])
    key = str(connection["key"]).encode()
    app.session = FencedSession(parent=app, key=key, pack=pack, unpack=unpack)
    app.session.max_frame = settings["max_frame"]
    app.session.outlet = app.outlet
    for name in ("transport", "ip", "shell_port", "iopub_port", "stdin_port", "hb_port", "control_port"):
        setattr(app, name, connection[name])
    app.update_config(_CONFIG)
    app.initialize()
    app.log.setLevel(
        app.log_level
    )  # traitlets leaves that to the handler, and four records a cell are made for nobody
    _leave_heritage(app)
    if settings.get("memory") is not None:
        limit_memory(settings["memory"])
    return app


def _address_of_output(connection: Mapping[str, Any]) -> str:
    """Return where the guest sends the pipes of runs: beside the sockets, an abstract one as they are."""
    return f"\0{connection['ip'].removeprefix('@')}-output"

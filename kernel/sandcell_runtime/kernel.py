"""The kernel of a Python context: a subclass of ipykernel's where its public points allow.

See `extras` for what a request may ask beyond Jupyter. The metadata of a reply holds `{"sandcell": {"usage": ...}}`, what
the run took.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NoReturn, cast

from ipykernel._version import __version__, version_info
from ipykernel.ipkernel import IPythonKernel
from ipykernel.zmqshell import ZMQInteractiveShell
from IPython.core import inputtransformer2
from IPython.core.autocall import ZMQExitAutocall
from IPython.core.error import StdinNotImplementedError
from IPython.core.events import available_events
from traitlets import Type, default

from sandcell_runtime.breakpoints import set_breakpoint_hook
from sandcell_runtime.c_stdout import CStdout
from sandcell_runtime.displays import BundleFormatter, DisplayHook, DisplayPublisher, Wishes
from sandcell_runtime.extras import VARIABLES, Extras, extras_of, is_errand
from sandcell_runtime.guards import GuardedEvents, fault_in_words, fault_of
from sandcell_runtime.late_debugger import LateDebugger, no_debugger_yet
from sandcell_runtime.patience import TooSlow, limited
from sandcell_runtime.scope import CwdRefused, applied_cwd, applied_env, set_env
from sandcell_runtime.tools import HostTools
from sandcell_runtime.usage import Meter, PeakMemory

if TYPE_CHECKING:
    from collections.abc import Coroutine, Generator
    from types import FrameType, TracebackType

    from sandcell_runtime.outlet import Outlet
    from sandcell_runtime.publishing import PublishingThread

__all__ = ["Kernel"]

# 7.0 brought the welcome message on iopub; without it nobody knows when the subscription is there.
if version_info < (7,):
    raise ImportError(f"ipykernel {__version__} is older than 7")

_FIRST = ("%%", ">>>", "In [")
_PUBLISHED_S = 5.0  # what publishing may take where the reader is slow
NOBODY_TO_ASK = "this run takes no input; pass on_input=..., or allow_stdin in a Jupyter request"


_DROP_ALWAYS: Any = getattr(inputtransformer2, "leading_empty_lines")  # noqa: B009 -- it has no types


def drop_empty_lines(lines: list[str]) -> list[str]:
    """Drop empty lines in front of what IPython has to find in the first line, a cell magic or a prompt.

    IPython's own drops them always, and then each error names a line that is not the one it is in.
    """
    rest = cast("list[str]", _DROP_ALWAYS(lines))
    return rest if rest and rest[0].lstrip().startswith(_FIRST) else lines


class Exit(ZMQExitAutocall):
    """`exit` and `quit` as Python has them, and bare as IPython has: the code stops there, with a status.

    IPython's own would let the code go on, take a status for something else, and end the interpreter behind it.
    """

    def __call__(self, code: object = None) -> NoReturn:
        raise SystemExit(code)


class Shell(ZMQInteractiveShell):
    displayhook_class = Type(DisplayHook)
    display_pub_class = Type(DisplayPublisher)

    @default("exiter")
    def _default_exiter(self) -> Exit:
        return Exit(self)

    def init_builtins(self) -> None:
        super().init_builtins()
        for name in ("exit", "quit"):  # IPython hides Python's own from modules
            self.builtin_trap.auto_builtins[name] = self.exiter

    def init_display_formatter(self) -> None:
        self.display_formatter = self._bundles = BundleFormatter(parent=self)
        parts: list[Any] = self.configurables
        parts.append(self.display_formatter)

    def init_events(self) -> None:
        super().init_events()
        before, self.events = self.events, GuardedEvents(self, available_events)
        self.events.callbacks = before.callbacks
        # Before the inline backend registers what shows the figures of a cell, and after it was called.
        self.events.register("post_execute", self._end_code)
        self.events.register("post_run_cell", self._show_rest)

    def init_instance_attrs(self) -> None:
        super().init_instance_attrs()
        cleanups = self.input_transformer_manager.cleanup_transforms
        cleanups[cleanups.index(_DROP_ALWAYS)] = drop_empty_lines

    def _end_code(self) -> None:
        self._bundles.end_code()

    def _show_rest(self, _: object) -> None:
        self._bundles.show_rest()

    def init_environment(self) -> None:
        """Leave the environment as it was given: stock forces colours and pagers on every child process."""

    def showtraceback(self, *args: Any, **kwargs: Any) -> None:
        """Show an exception. One by an interrupt that came before the code has no line of it to show, and to draw IPython's own,
        out of files of thousands, takes longer than the grace of an interrupt may be."""
        kind, value, at = sys.exc_info()
        if kind is KeyboardInterrupt and not self._has_code(at):
            self._showtraceback(KeyboardInterrupt, cast("KeyboardInterrupt", value), ["KeyboardInterrupt"])
        else:
            super().showtraceback(*args, **kwargs)

    def _has_code(self, at: TracebackType | None) -> bool:
        while at is not None and at.tb_frame.f_globals is not self.user_global_ns:
            at = at.tb_next
        return at is not None

    def _showtraceback(self, etype: type[BaseException], evalue: BaseException, stb: list[str]) -> None:
        if not self.kernel.is_fork:
            super()._showtraceback(etype, evalue, stb)
        elif not issubclass(etype, SystemExit):
            print("\n".join(stb), file=sys.stderr)  # noqa: T201 -- as any program that ends so


class Kernel(Extras, IPythonKernel):
    """One context. Interrupts reach the user's code only, so none can break the kernel around it."""

    shell_class = Type(Shell)
    control_msg_types = [*IPythonKernel.control_msg_types, VARIABLES]  # noqa: RUF012 -- as its base has it
    _execute_sleep = 0.0  # stock sleeps before each reply, in the hope that output arrives first
    _interrupted = False

    def __init__(self, **kwargs: Any) -> None:
        self._outlet: Outlet = kwargs["parent"].outlet
        self._c_stdout = CStdout()
        self._peak_memory = PeakMemory()
        self._pid = os.getpid()
        self.host_tools = HostTools()
        self._streams = {"stdout": sys.stdout, "stderr": sys.stderr}
        with no_debugger_yet():
            super().__init__(**kwargs)

    def debugger_class(self, *arguments: Any) -> LateDebugger:  # type: ignore[override]  # stock has the class itself
        """Return what ipykernel takes for the debugger that it makes when it starts."""

        def make() -> Any:
            from ipykernel.debugger import Debugger

            return Debugger(*arguments)

        return LateDebugger(make)

    @property
    def kernel_info(self) -> dict[str, Any]:
        with no_debugger_yet():  # stock imports it here to tell that it is there
            return cast("dict[str, Any]", super().kernel_info)

    @property
    def is_fork(self) -> bool:
        """Whether this is a child that user code has forked."""
        return os.getpid() != self._pid

    async def dispatch_shell(self, *args: Any, **kwargs: Any) -> None:
        """Do what a message asks. An interpreter in which that breaks off, as user code can change anything in it, would
        leave its client waiting: it ends instead."""
        try:
            await super().dispatch_shell(*args, **kwargs)
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as problem:
            if isinstance(problem, asyncio.CancelledError) and _is_being_cancelled():
                raise
            _give_up(problem)

    async def execute_request(self, stream: Any, ident: Any, parent: dict[str, Any]) -> None:
        try:
            await super().execute_request(stream, ident, parent)
        except Exception as problem:  # noqa: BLE001 -- ipykernel would log it, and reply nothing
            _give_up(problem)

    async def do_execute(
        self,
        code: str,
        silent: bool,  # noqa: FBT001 -- ipykernel's signature
        store_history: bool = True,  # noqa: FBT001, FBT002
        user_expressions: dict[str, str] | None = None,
        allow_stdin: bool = False,  # noqa: FBT001, FBT002
        *,
        cell_meta: dict[str, Any] | None = None,
        cell_id: str | None = None,
    ) -> dict[str, Any]:
        extras = extras_of(cell_meta)
        set_env(extras.get("environ") or {})
        if is_errand(extras):
            return await self._run_interruptible(self.do_errand(extras))
        if _in_main_thread():  # what runs in a subshell stops as the cell beside it does
            set_breakpoint_hook(is_debugged=self.debugger.is_attached, may_ask=allow_stdin)
        running = super().do_execute(
            code,
            silent,
            store_history,
            user_expressions,
            allow_stdin,
            cell_meta=cell_meta,
            cell_id=cell_id,
        )
        return await self._run(running, extras)

    async def _run(
        self, running: Coroutine[Any, Any, dict[str, Any]], extras: dict[str, Any]
    ) -> dict[str, Any]:
        """Await the user's code with pipes, folder and environment of its own."""
        formatter = self._ipython.display_formatter
        formatter.begin_run(Wishes.of(extras))
        try:
            with (
                applied_cwd(extras.get("cwd")),
                applied_env(extras.get("env") or {}),
                self.host_tools.applied(extras.get("tools")),
            ):
                reply = await self._run_interruptible(running)
        except CwdRefused as problem:
            running.close()
            return self.refused(problem.code, str(problem))
        finally:
            formatter.end_run()
            self._mend_streams()
            self._flush_others()
        if self.is_fork:
            os._exit(_exit_code(reply))  # a child that user code forked: there is only one kernel
        return reply

    def _mend_streams(self) -> None:
        """Put the kernel's own streams back where the run has left some that are closed or broken: what comes next, the
        reply first, could not be made with those."""
        for name, own in self._streams.items():
            left: Any = getattr(sys, name, None)
            if left is not own and (left is None or fault_of(left.flush) is not None):
                setattr(sys, name, own)

    def _flush_others(self) -> None:
        """Write what lies in buffers that are not of any run: it goes where 1 and 2 go now."""
        self._c_stdout.flush()
        for plain in (sys.__stdout__, sys.__stderr__):
            if plain is not None and not plain.closed:
                plain.flush()

    async def _run_interruptible(self, running: Coroutine[Any, Any, dict[str, Any]]) -> dict[str, Any]:
        """Await the user's code with SIGINT as KeyboardInterrupt; a late one becomes the run's error."""
        if not _in_main_thread():
            return await self._run_to_reply(running)  # a subshell: signals never reach its thread
        publisher = self._publisher
        publisher.in_code = True
        try:
            try:
                signal.signal(signal.SIGINT, signal.default_int_handler)
                if self._interrupted:
                    running.close()
                    raise KeyboardInterrupt
                return await self._run_to_reply(running)
            finally:
                signal.signal(signal.SIGINT, self._note_interrupt)
        except KeyboardInterrupt:
            signal.signal(signal.SIGINT, self._note_interrupt)
            return self._failed_aloud("KeyboardInterrupt", "")
        finally:
            publisher.in_code = False

    async def _run_to_reply(self, running: Coroutine[Any, Any, dict[str, Any]]) -> dict[str, Any]:
        """Await the user's code; what escapes IPython becomes the run's error: without a reply it would have no end."""
        try:
            return await running
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as problem:
            if isinstance(problem, asyncio.CancelledError) and _is_being_cancelled():
                raise
            name, _, words = fault_in_words(problem).partition(": ")
            return self._failed_aloud(name, words)

    def _failed_aloud(self, name: str, value: str) -> dict[str, Any]:
        reply = self.failed(name, value)
        error = {key: reply[key] for key in ("ename", "evalue", "traceback")}
        self.send_response(self.iopub_socket, "error", error)
        return reply

    @contextmanager
    def _cancel_on_sigint(self, future: asyncio.Future[Any]) -> Generator[None]:
        """End a coroutine of the user's on SIGINT: cancelled where it waits, by KeyboardInterrupt where it computes.

        Stock only cancels, without waking the loop that waits, and never reaches code that lets no loop run.
        """
        loop = asyncio.get_running_loop()

        def cancel(_number: int, frame: FrameType | None) -> None:
            if asyncio.current_task(loop) is future and self._is_users(frame):
                raise KeyboardInterrupt
            loop.call_soon_threadsafe(future.cancel)

        before = signal.signal(signal.SIGINT, cancel)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def _is_users(self, frame: FrameType | None) -> bool:
        """Whether code of a cell is on the stack: outside of it KeyboardInterrupt would end the kernel's loop."""
        names = self._ipython.user_global_ns
        while frame is not None and frame.f_globals is not names:
            frame = frame.f_back
        return frame is not None

    @property
    def _publisher(self) -> PublishingThread:
        return cast("PublishingThread", self.iopub_thread)

    def _publish_status(self, *args: Any, **kwargs: Any) -> None:
        with self._publisher.at_once():
            super()._publish_status(*args, **kwargs)

    def _publish_execute_input(self, *args: Any, **kwargs: Any) -> None:
        with self._publisher.at_once():
            super()._publish_execute_input(*args, **kwargs)

    def pre_handler_hook(self) -> None:
        self._interrupted = False
        self.saved_sigint_handler = signal.signal(signal.SIGINT, self._note_interrupt)

    def _note_interrupt(self, _number: int, _frame: object) -> None:
        self._interrupted = True

    def set_parent(self, ident: Any, parent: dict[str, Any], channel: str = "shell") -> None:
        super().set_parent(ident, parent, channel)
        if channel == "shell":
            # Before busy is published: what takes turns with the publishing thread costs more than what it does.
            msg_id, runs = parent["header"]["msg_id"], parent["header"]["msg_type"] == "execute_request"
            self._outlet.turn_to(msg_id, new=runs, take_over=_in_main_thread())

    def init_metadata(self, parent: dict[str, Any]) -> dict[str, Any]:
        return {**super().init_metadata(parent), "sandcell": Meter(self._peak_memory)}

    def finish_metadata(
        self, parent: dict[str, Any], metadata: dict[str, Any], reply_content: dict[str, Any]
    ) -> dict[str, Any]:
        usage = metadata["sandcell"].read()
        return {**super().finish_metadata(parent, metadata, reply_content), "sandcell": {"usage": usage}}

    def raw_input(self, prompt: str = "") -> str:
        self._check_asking("input()")
        line: str = super().raw_input(prompt)
        return line

    def getpass(self, *args: Any, **kwargs: Any) -> str:
        self._check_asking("getpass()")
        line: str = super().getpass(*args, **kwargs)
        return line

    def _check_asking(self, what: str) -> None:
        if not self._allow_stdin:
            raise StdinNotImplementedError(f"{what} has nobody to ask: {NOBODY_TO_ASK}")
        # What was published is sent by a thread of its own; the question must not come before it.
        sent = threading.Event()
        publisher = self.iopub_thread
        publisher.schedule(lambda: publisher.schedule(sent.set))
        sent.wait(_PUBLISHED_S)

    def do_complete(self, code: str, cursor_pos: int) -> Any:
        """Return completions; none where finding them takes long."""
        reply: Any = {"status": "ok", "matches": [], "metadata": {}}
        try:
            with limited():
                reply = cast("Any", super().do_complete(code, cursor_pos))
        except TooSlow:
            reply |= {"cursor_start": cursor_pos, "cursor_end": cursor_pos}
        return reply

    def do_inspect(self, *args: Any, **kwargs: Any) -> Any:
        """Return what is known of a name; nothing where that takes long."""
        reply: Any = {"status": "ok", "found": False, "data": {}, "metadata": {}}
        with suppress(TooSlow), limited():
            reply = super().do_inspect(*args, **kwargs)
        return reply

    # Plain as IPythonKernel's, which ipykernel awaits only where it has to; its base is typed as a coroutine.
    def do_history(self, *args: Any, **kwargs: Any) -> dict[str, Any]:  # type: ignore[override]
        """Return history under the number of its session: a range of IPython's own calls the present one 0."""
        reply = cast("dict[str, Any]", super().do_history(*args, **kwargs))
        present = self._ipython.history_manager.session_number
        reply["history"] = [(session or present, line, text) for session, line, text in reply["history"]]
        return reply


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()  # else in a subshell


def _give_up(problem: BaseException) -> NoReturn:
    """End the interpreter, with the reason where its errors go."""
    words = f"the kernel cannot answer any more, and ends: {fault_in_words(problem)}\n"
    os.write(2, words.encode("utf-8", "replace"))
    os._exit(1)


def _is_being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _exit_code(reply: dict[str, Any]) -> int:
    """Return what a script would exit with, that ended as this run did."""
    if reply["status"] == "ok":
        return 0
    said: str = reply["evalue"] if reply["ename"] == "SystemExit" else "1"
    return int(said) if said.isdecimal() else int(said not in {"", "None"})

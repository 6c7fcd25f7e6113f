"""What a fork server imports in advance, and how it does so without reading what user code could have written."""

from __future__ import annotations

import importlib
import os
import sys
import threading
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

__all__ = [
    "KERNEL",
    "ImportFailed",
    "ReadGuard",
    "adapt_libraries",
    "import_all",
    "library_env",
    "native_threads",
]

# What the start of a kernel and its first run import, beyond what `sandcell_runtime.app` does.
KERNEL = (
    "sandcell_runtime.app",
    "sandcell_runtime.streams",
    "IPython.core.completerlib",
    "IPython.core.debugger",
    "IPython.core.oinspect",
    "IPython.extensions.storemagic",
    "IPython.utils.wildcard",
    "faulthandler",
    "pdb",
    "sqlite3",
    "tornado.platform.asyncio",
)

_READS = ("open", "os.listdir", "os.scandir")
_SYSTEM = ("/usr", "/lib", "/lib64", "/etc", "/proc", "/sys", "/dev/null", "/dev/urandom")
_INLINE = "module://matplotlib_inline.backend_inline"
_TIMER_S = 5.0  # matplotlib's, which says that fonts take a moment


class ReadGuard:
    """Refuses to open what lies outside the folders `roots` and those of the system, while `active`.

    A fork server with a capability runs as the user: a configuration that user code wrote must not be read by it.
    """

    def __init__(self, roots: Iterable[str]) -> None:
        named = [*_SYSTEM, *roots]
        self._roots = tuple({*named, *(os.path.realpath(root) for root in named)})
        self._folders = tuple(f"{root}/" for root in self._roots)
        self._active = False
        sys.addaudithook(self._check)

    @contextmanager
    def active(self) -> Generator[None]:
        self._active = True
        try:
            yield
        finally:
            self._active = False

    def _check(self, event: str, args: tuple[Any, ...]) -> None:
        if self._active and event in _READS and not isinstance(args[0], (int, type(None))):
            named = args[0]
            if type(named) is str and named.startswith(self._folders) and "/." not in named:
                return  # most are, and what follows takes as long as to open them
            path = os.path.abspath(os.fsdecode(named))
            if not any(path == root or path.startswith(f"{root}/") for root in self._roots):
                raise PermissionError(f"{path} is not read by a fork server")


class ImportFailed(Exception):
    """A module that is there could not be imported: this process may hold halves of it, and is of no use any more."""

    def __init__(self, module: str, problem: Exception) -> None:
        super().__init__(f"{module}: {type(problem).__name__}: {problem}"[:1000])
        self.module = module


def import_all(names: Iterable[str]) -> list[str]:
    """Import each module; return those that are not there. Raises ImportFailed."""
    missing = list[str]()
    for name in names:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                importlib.import_module(name)
        except Exception as problem:
            if not isinstance(problem, ModuleNotFoundError) or not f"{name}.".startswith(f"{problem.name}."):
                raise ImportFailed(name, problem) from problem
            missing.append(name)
    return missing


def library_env() -> dict[str, str]:
    """Return the variables with which a library has to be imported to be what it would be in a kernel.

    And for pyarrow, which pandas imports where it is there: its allocator must start no thread, which no fork takes along.
    """
    return {"MPLBACKEND": _INLINE, "JE_ARROW_MALLOC_CONF": "background_thread:false"}


def native_threads() -> int:
    """Return how many threads of any kind there are, once those of the libraries had their chance to end.

    A fork ends OpenBLAS's, in parent and child; they come back with the first work for them.
    """
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    for thread in threading.enumerate():
        if thread is not threading.main_thread():
            thread.join(_TIMER_S)
    return len(os.listdir("/proc/self/task"))


def adapt_libraries() -> None:
    """In the forked process, give libraries in memory what they would have found now, had they been imported now."""
    random = sys.modules.get("numpy.random")
    if random is not None:
        random.seed()  # the legacy generator would be the same in every fork
    matplotlib = sys.modules.get("matplotlib")
    if matplotlib is not None:
        _adapt_matplotlib(matplotlib)


def _adapt_matplotlib(matplotlib: Any) -> None:
    settings = matplotlib.matplotlib_fname()
    if not settings.startswith(matplotlib.get_data_path()):
        changes = matplotlib.rc_params_from_file(settings, use_default_template=False)
        changes.pop("backend", None)  # the environment names one, and has the last word
        for params in (matplotlib.rcParams, matplotlib.rcParamsOrig):
            params.update(changes)
    style = sys.modules.get("matplotlib.style")
    if style is not None and os.path.isdir(os.path.join(matplotlib.get_configdir(), "stylelib")):
        style.reload_library()

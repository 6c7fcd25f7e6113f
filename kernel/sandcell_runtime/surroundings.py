"""The Python environment around a forked kernel: taken on late, and compared with what it was.

A fork server imports once; a user's environment changes all the time. What is told apart here: modules that a
fresh interpreter would find elsewhere (then the ones in memory are wrong), and a path that is not what it was.
"""

from __future__ import annotations

import importlib
import math
import os
import site
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = [
    "State",
    "become_python",
    "changes",
    "enter",
    "is_read_only",
    "loaded_names",
    "observe_path",
    "observe_profile",
    "process_start",
    "replaced",
    "trusted_path",
]

State = dict[str, tuple[int, int, int]]
"""Paths that decide what is imported and run at a start, with what tells one version of each from another."""

_NEVER = (0, 0, 0)
_COARSE_S = 0.01  # what the times of files may be behind the clock
_LOOKS = 5
_PROFILE = (
    "ipython_config.py",
    "ipython_config.json",
    "ipython_kernel_config.py",
    "ipython_kernel_config.json",
)


def trusted_path(site_dirs: Iterable[str]) -> list[str]:
    """Return an import path of the standard library and `site_dirs`, and of nothing else."""
    return [*_standard_library(), *site_dirs]


def _standard_library() -> list[str]:
    library = os.path.dirname(os.path.realpath(os.__file__))
    archive = f"python{sys.version_info.major}{sys.version_info.minor}.zip"
    return [
        folder
        for folder in sys.path
        if os.path.realpath(folder) in (library, f"{library}/lib-dynload")
        or os.path.basename(folder) == archive
    ]


def is_read_only(folder: str) -> bool:
    """Tell whether nobody can write there, whoever owns it."""
    return bool(os.statvfs(folder).f_flag & os.ST_RDONLY)


def enter(env: Mapping[str, str], cwd: str) -> None:
    """Be in `cwd` with the environment `env`. Raises OSError when there is no such folder."""
    os.chdir(cwd)
    # What an interpreter itself sets at its start, where the locale is the C one (PEP 538).
    coerced = {name: os.environ[name] for name in ("LC_CTYPE",) if name in os.environ}
    os.environ.clear()
    os.environ.update(coerced | dict(env))


def process_start() -> float:
    """Return when this process was made, in seconds since the epoch, not later than it was."""
    with open("/proc/self/stat") as file:
        ticks = int(file.read().rpartition(")")[2].split()[19])
    return max(_boot() for _ in range(_LOOKS)) + ticks / os.sysconf("SC_CLK_TCK")


def _boot() -> float:
    """Return when the system's clock of ticks began, too early by as long as others run between these two looks."""
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)


def become_python(python: str) -> None:
    """Be, as far as user code can see, an interpreter that was started as `python`, of a venv above this one's.

    Its .pth files and its sitecustomize are run, as they would be. Raises OSError when `python` is another program.
    """
    if not os.path.samefile(python, sys.executable):
        raise OSError(f"{python} is not {sys.executable} any more")
    sys.executable = python
    folder = os.path.dirname(os.path.dirname(os.path.abspath(python)))
    sys.prefix = sys.exec_prefix = folder
    sys.path[:] = _standard_library()
    for name in ("sitecustomize", "usercustomize"):
        sys.modules.pop(name, None)
    importlib.reload(site)
    importlib.invalidate_caches()
    _forget_prefix()


def _forget_prefix() -> None:
    """Mend what standard modules took from the interpreter's old place when they were imported."""
    if "sysconfig" in sys.modules:
        importlib.reload(sys.modules["sysconfig"])
    spawn = sys.modules.get("multiprocessing.spawn")
    if spawn is not None:
        spawn.set_executable(sys.executable)


def loaded_names() -> dict[str, str]:
    """Return the top-level modules in memory that the path has, each with the entry of the path it came from."""
    found = dict[str, str]()
    for name, module in list(sys.modules.items()):
        origin = getattr(getattr(module, "__spec__", None), "origin", None)
        if "." not in name and origin:
            is_package = os.path.basename(origin).startswith("__init__.")
            folder = os.path.dirname(os.path.dirname(origin) if is_package else origin)
            if folder in sys.path:
                found[name] = folder
    return found


def replaced(loaded: Mapping[str, str]) -> list[str]:
    """Return those names of `loaded` that the path of this moment has somewhere else, or no more at all, sorted."""
    places = {folder: at for at, folder in reversed(list(enumerate(sys.path)))}
    wrong = {name for name, folder in loaded.items() if folder not in places}
    last = max((places[folder] for folder in loaded.values() if folder in places), default=-1)
    for at, folder in enumerate(sys.path[:last]):
        if folder not in _standard_library():
            there = {entry.partition(".")[0] for entry in _listing(folder)}
            wrong |= {name for name in there & loaded.keys() if places.get(loaded[name], -1) > at}
    return sorted(wrong)


def observe_path(*, since: float = math.inf) -> State:
    """Return the state of this moment of what decides which modules an interpreter finds.

    A file that was changed after the time `since`, when an interpreter began to look, is in a state that never was:
    nobody knows which one the interpreter saw. (What it imports it finds later, so for folders that is no matter.)
    """
    state = State()
    for folder in sys.path:
        _note(state, folder)
        if folder.endswith("-packages"):
            for entry in _listing(folder):
                if entry.endswith(".pth"):
                    _note(state, os.path.join(folder, entry))
    _note(state, os.path.join(sys.prefix, "pyvenv.cfg"))
    for path, (_, changed_ns, _) in state.items():
        if changed_ns / 1e9 > since - _COARSE_S and not os.path.isdir(path):
            state[path] = _NEVER
    return state


def observe_profile() -> State:
    """Return the state of this moment of the files that IPython reads and runs at its start."""
    state = State()
    home = os.environ.get("IPYTHONDIR") or os.path.expanduser("~/.ipython")
    profile = os.path.join(home, "profile_default")
    startup = os.path.join(profile, "startup")
    for path in (*(os.path.join(profile, name) for name in _PROFILE), startup):
        _note(state, path)
    for entry in _listing(startup):
        _note(state, os.path.join(startup, entry))
    return state


def changes(before: State, now: State) -> list[str]:
    """Return the paths that differ, sorted."""
    return sorted(path for path in before.keys() | now.keys() if before.get(path) != now.get(path))


def _note(state: State, path: str) -> None:
    try:
        seen = os.stat(path)
    except OSError:  # what is not there, or not for us, is no part of it
        return
    state[path] = (seen.st_ino, seen.st_ctime_ns, seen.st_size)


def _listing(folder: str) -> list[str]:
    try:
        return os.listdir(folder or ".")
    except OSError:
        return []

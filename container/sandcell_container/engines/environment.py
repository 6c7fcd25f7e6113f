"""The environment that user code gets: which Python it stands on, the venv of its own above that, its variables."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from sandcell_container.engines import python_facts
from sandcell_container.errors import ErrorCode, error

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

__all__ = [
    "PythonEnvironment",
    "base_environment",
    "calling_environment",
    "check_readable",
    "is_below",
    "make_venv",
    "minimal_cover",
    "query_environment",
]

_QUERY_TIMEOUT = 20.0  # seconds; a cold start of an interpreter on a slow disk


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonEnvironment:
    """One Python environment of this machine. `executable` is the base interpreter's real path, `packages` the
    folder of packages below the prefix of a venv, `site_dirs` where packages are installed, existing ones only, `below`
    the prefixes of environments that it was made above."""

    executable: str
    prefix: str
    base_prefix: str
    packages: str
    site_dirs: tuple[str, ...]
    version: str
    below: tuple[str, ...] = ()

    @classmethod
    def from_facts(cls, facts: dict[str, Any]) -> PythonEnvironment:
        lists = {name: tuple(facts.get(name, ())) for name in ("site_dirs", "below")}
        fields: dict[str, Any] = {**facts, **lists}
        return cls(**fields)

    def facts(self) -> dict[str, Any]:
        """Return what `from_facts` takes, JSON-safe."""
        return asdict(self)

    @property
    def roots(self) -> list[str]:
        """The folders that hold it, by the names it goes by and by their real ones."""
        named = [self.prefix, *self.below, self.base_prefix, *self.site_dirs]
        return [*named, *(os.path.realpath(folder) for folder in named), _prefix_of(self.executable)]


def calling_environment() -> PythonEnvironment:
    """Return the environment that this program runs in."""
    return PythonEnvironment.from_facts(python_facts.describe())


def query_environment(python: str) -> PythonEnvironment:
    """Return the environment of the interpreter `python`, by asking it.

    Raises:
        InvalidRequest (INVALID_ARGUMENT): it cannot be run, or is no Python.
    """
    try:
        done = subprocess.run(
            [python, "-I", python_facts.__file__],
            capture_output=True,
            timeout=_QUERY_TIMEOUT,
            check=True,
            stdin=subprocess.DEVNULL,
        )
        return PythonEnvironment.from_facts(json.loads(done.stdout))
    except (OSError, subprocess.SubprocessError, ValueError, KeyError, TypeError) as failed:
        raise error(
            ErrorCode.INVALID_ARGUMENT,
            f"python={python[:200]!r} does not answer as a Python: {failed}",
            hint="the path of an interpreter, for example that of a venv",
        ) from failed


def make_venv(folder: Path, environment: PythonEnvironment, *, inside: str) -> None:
    """Make a venv at `folder`, which the sandbox sees at `inside`, above the packages of `environment`.

    `pip install` writes into it; the packages below can be shadowed but neither changed nor removed.
    """
    packages = folder / environment.packages
    packages.mkdir(parents=True)
    scripts = folder / "bin"
    scripts.mkdir()
    for name in ("python", "python3"):
        (scripts / name).symlink_to(environment.executable)
    (folder / "pyvenv.cfg").write_text(
        f"home = {os.path.dirname(environment.executable)}\n"
        f"include-system-site-packages = false\nversion = {environment.version}\n"
    )
    # addsitedir and not the bare path: .pth files of the packages below count as well.
    lines = [f"import site; site.addsitedir({site_dir!a})\n" for site_dir in environment.site_dirs]
    (packages / "_sandcell_base.pth").write_text("".join(lines))
    # The script of the environment below would install below, where nothing can be written.
    pip = scripts / "pip"
    pip.write_text(f"#!{inside}/bin/python\nimport runpy\nrunpy.run_module('pip', run_name='__main__')\n")
    pip.chmod(0o755)


def check_readable(environment: PythonEnvironment, runtime_dir: str) -> tuple[str, ...]:
    """Check that any user of this machine can use `environment`, as far as its folders go, and what is in `runtime_dir`;
    returns warnings about packages that only their owner can read.

    Raises:
        Unavailable (ENGINE_UNAVAILABLE): something of it is closed, as when it was made under umask 077.
    """
    folders = {*environment.roots, *_on_the_way(environment), runtime_dir}
    runtime = [entry.path for entry in os.scandir(runtime_dir)]
    closed = [path for path in (environment.executable, *sorted(folders), *runtime) if _is_closed(path)]
    if closed:
        raise error(
            ErrorCode.ENGINE_UNAVAILABLE,
            f"a sandbox's user may not read what its Python needs: {closed[0]}",
            hint=f"open it for reading: chmod -R o+rX {closed[0]}; or use another environment: python=",
            details={"closed": closed},
        )
    packages = [
        entry.name
        for site_dir in environment.site_dirs
        for entry in os.scandir(site_dir)
        if _is_closed(entry.path)
    ]
    return (f"closed to the sandbox's user: {', '.join(sorted(packages)[:10])}",) if packages else ()


def _on_the_way(environment: PythonEnvironment) -> list[str]:
    """Return the folders between the prefixes and the packages."""
    found = list[str]()
    for site_dir in environment.site_dirs:
        folder = site_dir
        while folder != environment.prefix and is_below(folder, environment.prefix):
            found.append(folder)
            folder = os.path.dirname(folder)
    return found


def _is_closed(path: str) -> bool:
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return False  # a broken link, or a folder that never was: nothing is hidden
    needed = stat.S_IROTH | stat.S_IXOTH if stat.S_ISDIR(mode) else stat.S_IROTH
    return mode & needed != needed


def base_environment(
    *, venv: str, environment: PythonEnvironment, home: str, user: str, temp: str
) -> dict[str, str]:
    """Return all variables that user code starts with. Source: CONTRACT section 5."""
    shell = "/bin/bash" if os.path.exists("/bin/bash") else "/bin/sh"
    path = (
        f"{venv}/bin",
        *(f"{prefix}/bin" for prefix in (environment.prefix, *environment.below)),
        "/usr/local/bin",
        "/usr/bin",
        "/bin",
    )
    return {
        "PATH": ":".join(dict.fromkeys(path)),
        "HOME": home,
        "USER": user,
        "LANG": "C.UTF-8",
        "TERM": "xterm-256color",
        "TMPDIR": temp,
        "SHELL": shell,
    }


def minimal_cover(folders: Iterable[str], *, covered: Sequence[str]) -> list[str]:
    """Return those of `folders` that lie neither in one of `covered` nor in another one, sorted."""
    kept = list[str]()
    for folder in sorted(set(folders)):  # a parent sorts before what lies in it
        if not any(is_below(folder, other) for other in (*covered, *kept)):
            kept.append(folder)
    return kept


def is_below(path: str, folder: str) -> bool:
    """Tell whether `path` is `folder` or lies in it, by name alone."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _prefix_of(executable: str) -> str:
    return os.path.dirname(os.path.dirname(executable))

"""Environments with packages that sandboxes ask for: each made once, by content, and shared read-only.

    STATE/environments/
        .locks/KEY     held while it is made, or looked for: its time is that of the last use
        KEY/           0755: a venv above the environment that it was asked for
            complete   written last: without it the folder is what a crash has left

Made outside of any sandbox, with the rights of the program that asks. So wheels alone are installed, which is a copy of
files: what has to be built runs code of strangers.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import tempfile
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sandcell_container.engine import Deadlines
from sandcell_container.engines.environment import make_venv
from sandcell_container.engines.image_recipe import SETTLING_S
from sandcell_container.errors import ErrorCode, SandcellError, error
from sandcell_container.file_tree import remove_tree
from sandcell_container.named_lock import idle_lock, named_lock

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from sandcell_container.engines.environment import PythonEnvironment
    from sandcell_container.engines.settings import ImageSettings

__all__ = ["DerivedEnvironments", "reason_in"]

_FORMAT = 1  # of what a folder holds
_MOST_WORDS = 4000
_LOCKS = ".locks"


class DerivedEnvironments:
    """Those of the folder `place`. Thread-safe, and shared by programs."""

    def __init__(self, place: Path, settings: ImageSettings) -> None:
        self._place = place
        self._settings = settings

    def obtain(self, base: PythonEnvironment, packages: tuple[str, ...]) -> PythonEnvironment:
        """Return the environment `base` with `packages` added, made where there is none yet.

        Source of the options of pip: its own documentation; its files and variables count, as they do for pip itself.

        Raises:
            Unavailable (START_FAILED): it cannot be made; `details["words"]` has what pip said last.
            OSError: there is no room.
        """
        key = _key(base, packages)
        folder = self._place / key
        made = _above(base, folder)
        with named_lock(self._place / _LOCKS, key):
            if not (folder / "complete").exists():
                remove_tree(folder)
                self._make(folder, base, packages)
                (folder / "complete").touch()
        return made

    def remove_unused(self, pythons: Iterable[dict[str, Any]], older_than: float) -> list[str]:
        """Remove those that nobody has asked for, for so many seconds, and on which none of `pythons` stands, the facts of
        environments of sandboxes and snapshots. Returns their folders. One of the last ten minutes stays."""
        if not self._place.is_dir():
            return []
        in_use = json.dumps(list(pythons))  # a folder's name is a hash: nothing else has it in its paths
        candidates = [
            each for each in self._place.iterdir() if each.name != _LOCKS and each.name not in in_use
        ]
        removed = list[str]()
        for folder in candidates:
            with idle_lock(self._place / _LOCKS, folder.name, since=max(older_than, SETTLING_S)) as is_idle:
                if is_idle:
                    remove_tree(folder)
                    removed.append(str(folder))
        return removed

    def _make(self, folder: Path, base: PythonEnvironment, packages: tuple[str, ...]) -> None:
        try:
            make_venv(folder, base, inside=str(folder))
            for each in (folder, *folder.rglob("*")):  # it is for every sandbox's user, whatever the umask
                if not each.is_symlink():
                    each.chmod(0o755)
            self._install(folder, packages)
        except BaseException:
            remove_tree(folder)
            raise

    def _install(self, folder: Path, packages: tuple[str, ...]) -> None:
        line = [
            str(folder / "bin" / "python"),
            "-I",
            "-m",
            "pip",
            "install",
            "--quiet",
            "--only-binary",
            ":all:",
        ]
        with ExitStack() as held:
            if self._settings.index_url:
                line += ["--index-url", self._settings.index_url]
            if self._settings.ca_bundle:
                bundle = held.enter_context(tempfile.NamedTemporaryFile(suffix=".crt"))
                bundle.write(self._settings.ca_bundle)
                bundle.flush()
                line += ["--cert", bundle.name]
            _run_pip([*line, "--", *packages], folder)


def _run_pip(line: list[str], folder: Path) -> None:
    """Run pip in `folder`, where no name of a package is by chance that of a file."""
    try:
        done = subprocess.run(
            line,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=folder,
            umask=0o022,
            timeout=Deadlines().build,
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        raise _failed(f"pip took longer than {Deadlines().build:g} s", late.stdout or b"") from late
    if done.returncode:
        raise _failed(reason_in(done.stdout.decode(errors="replace")), done.stdout)


def reason_in(said: str) -> str:
    """Return the line of pip's words that says what is wrong: its last error, as hints and carets come behind it."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR:")]
    return (errors or lines or [""])[-1]


def _failed(why: str, said: bytes) -> SandcellError:
    return error(
        ErrorCode.START_FAILED,
        f"the packages could not be installed: {why[:300]}",
        hint="on this engine only what has wheels can be installed, by the pip of the environment; "
        'engine="docker" builds from source too',
        details={"words": said[-_MOST_WORDS:].decode(errors="replace")},
    )


def _key(base: PythonEnvironment, packages: tuple[str, ...]) -> str:
    """Return the name of the environment: another one where something was installed below since."""
    changed = [os.stat(each).st_mtime_ns for each in base.site_dirs]
    content = json.dumps([_FORMAT, base.facts(), changed, sorted(packages)])
    return hashlib.sha256(content.encode()).hexdigest()[:32]


def _above(base: PythonEnvironment, folder: Path) -> PythonEnvironment:
    return replace(
        base,
        prefix=str(folder),
        site_dirs=(str(folder / base.packages), *base.site_dirs),
        below=(base.prefix, *base.below),
    )

"""Working folder and environment for one run: applied around it, undone afterwards."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

__all__ = ["CwdRefused", "applied_cwd", "applied_env", "set_env"]


class CwdRefused(Exception):
    """The folder for one run cannot be entered; `code` names why."""

    def __init__(self, code: str, path: str) -> None:
        super().__init__(path)
        self.code = code


@contextmanager
def applied_cwd(path: str | None) -> Generator[None]:
    """Be in `path` for a while; afterwards go back, unless somebody went elsewhere meanwhile.

    Raises:
        CwdRefused: it is missing, no folder, or closed to the user.
    """
    if path is None:
        yield
        return
    before = os.open(".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)  # works also when its name is gone
    try:
        _enter(path)
        entered = os.stat(".")
        try:
            yield
        finally:
            if os.path.samestat(os.stat("."), entered):
                os.fchdir(before)
    finally:
        os.close(before)


def _enter(path: str) -> None:
    try:
        os.chdir(path)
    except NotADirectoryError:
        raise CwdRefused("NOT_A_DIRECTORY", path) from None
    except PermissionError:
        raise CwdRefused("PERMISSION_DENIED", path) from None
    except (OSError, ValueError):
        raise CwdRefused("CWD_NOT_FOUND", path) from None


@contextmanager
def applied_env(changes: Mapping[str, str | None]) -> Generator[None]:
    """Have these variables (None: unset) for a while; afterwards put back those that nobody changed meanwhile."""
    before = {name: os.environ.get(name) for name in changes}
    set_env(changes)
    try:
        yield
    finally:
        set_env({name: before[name] for name, value in changes.items() if os.environ.get(name) == value})


def set_env(changes: Mapping[str, str | None]) -> None:
    """Have these variables (None: unset) from now on."""
    for name, value in changes.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value

"""What a guest may import once its paths mean the sandbox's files: nothing that user code could have written."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Protocol

from sandcell_container.engines.environment import is_below

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

__all__ = ["import_only_from"]


def import_only_from(roots: Sequence[str]) -> None:
    """Let every later import of this process fail that is not built in, made in memory, or a file below `roots`.

    `sys.path` alone would not do: a package that is loaded already brings its own folders, and editable installs
    bring finders of their own, both with paths of the host.
    """
    sys.path[:] = [folder for folder in sys.path if _is_in(folder, roots)]
    sys.path_importer_cache.clear()
    sys.meta_path[:] = [_Guard(finder, roots) for finder in sys.meta_path]


class _Finder(Protocol):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = ..., /
    ) -> ModuleSpec | None: ...


class _Guard:
    """A finder that finds what another one finds, as long as it lies below the roots."""

    def __init__(self, finder: _Finder, roots: Sequence[str]) -> None:
        self._finder = finder
        self._roots = roots

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = self._finder.find_spec(name, path, target)
        if spec is None or not spec.has_location or spec.origin is None:
            return spec
        # The real path: a link below the roots may lead out of them.
        return spec if _is_in(os.path.realpath(spec.origin), self._roots) else None

    def __getattr__(self, name: str) -> object:
        return getattr(self._finder, name)  # importlib.metadata asks finders for distributions


def _is_in(path: str, roots: Sequence[str]) -> bool:
    return any(is_below(path, root) for root in roots)

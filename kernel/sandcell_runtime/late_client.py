"""Jupyter's client library as a package that is filled when somebody asks for what is in it.

ipykernel needs three of its modules, and by way of the package imports all: managers, provisioners, clients of every kind, which
is a tenth of a kernel's start, and no kernel uses them.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import ModuleType

__all__ = ["put_off_client"]

_PACKAGE = "jupyter_client"
# What ipykernel takes from the package itself when it is imported. Source: ipykernel/connect.py
_TAKEN = {"write_connection_file": f"{_PACKAGE}.connect"}


def put_off_client() -> None:
    """Have the package there without what its `__init__` imports, where nobody has imported it yet."""
    if _PACKAGE in sys.modules:
        return
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or spec.loader is None or spec.submodule_search_locations is None:
        return  # none, or none that we know how to fill: its import says what there is to say
    module = importlib.util.module_from_spec(spec)
    module.__getattr__ = _Late(module, spec)  # type: ignore[method-assign]  # PEP 562
    sys.modules[_PACKAGE] = module


class _Late:
    """Finds what a package has not yet: for most of it, the package is filled first."""

    def __init__(self, module: ModuleType, spec: ModuleSpec) -> None:
        self._module = module
        self._spec = spec
        self._lock = threading.RLock()
        self._is_filling = False

    def __call__(self, name: str) -> Any:
        if name in _TAKEN:
            return getattr(importlib.import_module(_TAKEN[name]), name)
        if not name.startswith("_") and importlib.util.find_spec(f"{_PACKAGE}.{name}") is not None:
            return importlib.import_module(f"{_PACKAGE}.{name}")  # as one of its own modules asks of another
        if not name.startswith("__") or name in ("__all__", "__version__"):
            self._fill()
        try:
            return vars(self._module)[name]
        except KeyError:
            raise AttributeError(f"module {_PACKAGE!r} has no attribute {name!r}") from None

    def _fill(self) -> None:
        with self._lock:
            if self._is_filling or "__getattr__" not in vars(self._module):
                return  # it is asked by what it imports, or somebody else was faster
            self._is_filling = True
            try:
                assert self._spec.loader is not None
                self._spec.loader.exec_module(self._module)
                del vars(self._module)["__getattr__"]
            finally:
                self._is_filling = False

"""Bytecode of what runs in sandboxes: there its folder is read-only, so no import ever leaves any."""

from __future__ import annotations

import compileall
import os

__all__ = ["compile_folder"]


def compile_folder(folder: str) -> None:
    """Have the modules in `folder` there as bytecode, as a first import by this interpreter would leave them.

    An installation by pip has done so; one that is editable, or by a tool that does not, would compile them at each start of an
    interpreter, for most of its time. Where nothing can be written it is so, and no error.
    """
    if os.access(folder, os.W_OK):
        compileall.compile_dir(folder, quiet=2)

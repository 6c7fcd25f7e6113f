"""Whether a cell may reach this machine: said beforehand by whoever installed the kernel, or by the person who runs it.

A notebook is a document that others may have written. Running it must not read the files of this machine, write them,
or open the network, unless somebody who may do that says so.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sandcell_container.errors import ErrorCode, error
from sandcell_kernel.tables import printable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

__all__ = ["Permission", "ask_for"]

_YES = ("y", "yes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Permission:
    """`transfers`: a folder of this machine whose files cells may copy in and out, and write, without a question.
    `network_changes`: they may change the network of their sandbox. `folder`: where relative paths begin, the notebook's.
    """

    folder: str
    transfers: str | None = None
    network_changes: bool = False

    def local_path(self, given: str) -> str:
        """Return the file of this machine that is meant: absolute, and with no symlink in it."""
        return os.path.realpath(os.path.join(self.folder, os.path.expanduser(given)))

    def covers(self, path: str) -> bool:
        """Tell whether the file at `path`, which has no symlink in it, may be reached without a question."""
        if self.transfers is None:
            return False
        allowed = self.local_path(self.transfers)
        return path == allowed or path.startswith(os.path.join(allowed, ""))


async def ask_for(what: str, option: str, ask: Callable[[str], Awaitable[str]] | None) -> None:
    """Ask whoever runs the cell for `what`; `option` allows it beforehand. `ask` is None where nobody can be asked.

    Raises:
        Refused (FORBIDDEN): it was not allowed.
    """
    shown = printable(what).replace("\n", " ")
    hint = f"{option} of `sandcell kernel install`, or of SANDCELL_KERNEL_OPTIONS, allows it beforehand"
    if ask is None:
        raise error(ErrorCode.FORBIDDEN, f"nobody can be asked: {shown}", hint=hint)
    answer = await ask(f"{shown}? [y/N] ")
    if answer.strip().lower() not in _YES:
        raise error(ErrorCode.FORBIDDEN, f"it was not allowed: {shown}", hint=hint)

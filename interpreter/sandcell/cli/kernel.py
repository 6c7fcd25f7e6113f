"""`sandcell kernel install`: tell Jupyter of the kernel."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from sandcell.cli.output import write_stdout
from sandcell_container.errors import ErrorCode, error
from sandcell_kernel.install import KERNEL_NAME, install_kernelspec

if TYPE_CHECKING:
    import argparse

    from sandcell.config import Config

__all__ = ["install_kernel"]


def install_kernel(options: argparse.Namespace, _: Config) -> int:
    """Install the kernelspec and say where. Nothing said: into an environment where this is one, else for the user."""
    prefix = None if options.prefix is None else str(options.prefix)
    chosen = options.sys_prefix or options.user or prefix is not None
    in_environment = sys.prefix != sys.base_prefix
    try:
        if options.prefix is not None:  # tried before Jupyter, which warns of an unknown folder first
            (options.prefix / "share" / "jupyter").mkdir(parents=True, exist_ok=True)
        folder = install_kernelspec(
            user=options.user or not (chosen or in_environment),
            sys_prefix=options.sys_prefix or (in_environment and not chosen),
            prefix=prefix,
        )
    except OSError as problem:
        what = f"cannot install the kernelspec: {problem}"
        raise error(ErrorCode.INVALID_ARGUMENT, what, hint="choose another --prefix") from problem
    write_stdout(f"{KERNEL_NAME}: {folder}\n")
    return 0

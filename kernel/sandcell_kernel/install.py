"""The kernelspec: how Jupyter finds and starts the kernel."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from importlib import resources
from pathlib import Path
from typing import Any

from jupyter_client.kernelspec import KernelSpecManager

from sandcell_container.errors import ErrorCode, error

__all__ = ["KERNEL_NAME", "install_kernelspec", "kernelspec"]

KERNEL_NAME = "sandcell-python"


def kernelspec(executable: str) -> dict[str, Any]:
    """Return the content of kernel.json; `executable` is the interpreter that has Sandcell.

    Its path is absolute because VS Code starts what stands there, without a PATH. Interrupts travel as messages:
    a signal would reach the process on this machine, and the code does not run there.
    """
    return {
        "argv": [executable, "-m", "sandcell.launch_kernel", "-f", "{connection_file}"],
        "display_name": "Python (Sandcell)",
        "language": "python",
        "interrupt_mode": "message",
        "metadata": {"debugger": True},
    }


def install_kernelspec(*, user: bool = False, sys_prefix: bool = False, prefix: str | None = None) -> Path:
    """Install the kernelspec, in place of an older one, and return its folder.

    `user`: below the user's Jupyter folder. `sys_prefix`: into the running environment. `prefix`: below
    `PREFIX/share/jupyter`. None of them: for everyone on this machine.

    Raises:
        InvalidRequest (INVALID_ARGUMENT): more than one of them.
        Refused (PERMISSION_DENIED): the folder may not be written.
    """
    if user + sys_prefix + (prefix is not None) > 1:
        raise error(ErrorCode.INVALID_ARGUMENT, "user, sys_prefix and prefix exclude each other")
    with tempfile.TemporaryDirectory() as folder:
        _write_kernelspec(Path(folder))
        try:
            installed = KernelSpecManager().install_kernel_spec(
                folder, KERNEL_NAME, user=user, prefix=sys.prefix if sys_prefix else prefix
            )
        except PermissionError as problem:
            raise error(
                ErrorCode.PERMISSION_DENIED,
                f"cannot install the kernelspec: {problem}",
                hint="install it with --user, or with --sys-prefix into this environment",
            ) from problem
    return Path(installed)


def _write_kernelspec(folder: Path) -> None:
    folder.chmod(0o755)  # the copy keeps the mode, and others may have to read it
    (folder / "kernel.json").write_text(json.dumps(kernelspec(sys.executable), indent=1) + "\n")
    for logo in resources.files("sandcell_kernel").joinpath("resources").iterdir():
        if logo.is_file():
            with resources.as_file(logo) as path:
                shutil.copy(path, folder / logo.name)

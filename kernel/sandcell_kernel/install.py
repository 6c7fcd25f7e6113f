"""Kernelspecs: how Jupyter finds and starts the kernel, one for each language, and more for other sandboxes."""

from __future__ import annotations

import json
import re
import shutil
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from jupyter_client.kernelspec import KernelSpecManager

from sandcell_container.errors import ErrorCode, error

__all__ = ["KERNEL_NAME", "LANGUAGES", "KernelPlan", "install_kernelspec"]

KERNEL_NAME = "sandcell-python"
LANGUAGES = {
    "python": "Python",
    "javascript": "JavaScript",
    "typescript": "TypeScript",
    "bash": "Bash",
    "r": "R",
}
"""The languages that have a kernelspec and a logo, by what people call them."""

_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._-]{0,60}")  # what Jupyter takes
_RESOURCES = ("logo-32x32.png", "logo-64x64.png", "logo-svg.svg")


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelPlan:
    """A kernelspec. `name` and `display_name` are those of the language where they are None; `options` are what it asks of
    the sandbox behind its notebooks: docs/kernel.md."""

    language: str = "python"
    name: str | None = None
    display_name: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def kernel_name(self) -> str:
        return f"sandcell-{self.name or self.language}"

    def spec(self, executable: str) -> dict[str, Any]:
        """Return the content of kernel.json; `executable` is the interpreter that has Sandcell.

        Its path is absolute because VS Code starts what stands there, without a PATH. Interrupts travel as messages:
        a signal would reach the process on this machine, and the code does not run there.
        """
        argv = [executable, "-m", "sandcell.launch_kernel", "-f", "{connection_file}"]
        options = {**({} if self.language == "python" else {"language": self.language}), **self.options}
        what = self.name or LANGUAGES[self.language]
        return {
            "argv": [*argv, "--options", json.dumps(options)] if options else argv,
            "display_name": self.display_name or f"{what} (Sandcell)",
            "language": self.language,
            "interrupt_mode": "message",
            "metadata": {"debugger": self.language == "python"},
        }

    def check(self) -> None:
        """Refuse what Jupyter could not find.

        Raises:
            InvalidRequest: INVALID_NAME; UNKNOWN_LANGUAGE: none that has a kernelspec.
        """
        if self.language not in LANGUAGES:
            known = ", ".join(LANGUAGES)
            raise error(
                ErrorCode.UNKNOWN_LANGUAGE,
                f"there is no kernelspec for {self.language[:40]!r}",
                hint=f"one of: {known}",
            )
        if self.name is not None and not _NAME.fullmatch(self.name):
            hint = "ASCII letters, digits and . _ -"
            raise error(ErrorCode.INVALID_NAME, f"{self.name[:80]!r} is no name of a kernel", hint=hint)


def install_kernelspec(
    plan: KernelPlan | None = None,
    *,
    user: bool = False,
    sys_prefix: bool = False,
    prefix: str | None = None,
) -> Path:
    """Install a kernelspec, by default that for Python, in place of an older one, and return its folder.

    `user`: below the user's Jupyter folder. `sys_prefix`: into the running environment. `prefix`: below
    `PREFIX/share/jupyter`. None of them: for everyone on this machine.

    Raises:
        InvalidRequest (INVALID_ARGUMENT): more than one of them; and as `KernelPlan.check`.
        Refused (PERMISSION_DENIED): the folder may not be written.
    """
    if user + sys_prefix + (prefix is not None) > 1:
        raise error(ErrorCode.INVALID_ARGUMENT, "user, sys_prefix and prefix exclude each other")
    plan = plan or KernelPlan()
    plan.check()
    with tempfile.TemporaryDirectory() as folder:
        _write_kernelspec(Path(folder), plan)
        try:
            installed = KernelSpecManager().install_kernel_spec(
                folder, plan.kernel_name, user=user, prefix=sys.prefix if sys_prefix else prefix
            )
        except PermissionError as problem:
            raise error(
                ErrorCode.PERMISSION_DENIED,
                f"cannot install the kernelspec: {problem}",
                hint="install it with --user, or with --sys-prefix into this environment",
            ) from problem
    return Path(installed)


def _write_kernelspec(folder: Path, plan: KernelPlan) -> None:
    folder.chmod(0o755)  # the copy keeps the mode, and others may have to read it
    (folder / "kernel.json").write_text(json.dumps(plan.spec(sys.executable), indent=1) + "\n")
    logos = resources.files("sandcell_kernel").joinpath("resources")
    if plan.language != "python":
        logos = logos.joinpath(plan.language)
    for name in _RESOURCES:
        with resources.as_file(logos.joinpath(name)) as path:
            shutil.copy(path, folder / name)

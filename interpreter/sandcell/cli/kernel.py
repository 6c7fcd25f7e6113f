"""`sandcell kernel install`: tell Jupyter of the kernel, in each language, and for sandboxes of one's own making."""

from __future__ import annotations

import shutil
import sys
from typing import TYPE_CHECKING, Any

from sandcell.cli.output import write_stdout
from sandcell.kernel_options import check_options
from sandcell_container.errors import ErrorCode, error
from sandcell_kernel.install import LANGUAGES, KernelPlan, install_kernelspec

if TYPE_CHECKING:
    import argparse

    from sandcell.config import Config

__all__ = ["install_kernel"]

_ALL = "all"
_LISTS = ("apt", "mounts", "packages", "publish")
_PLAIN = (
    "context",
    "cpus",
    "disk",
    "engine",
    "image",
    "memory",
    "network",
    "notebook_folder",
    "pids",
    "preset",
    "sandbox",
    "transfers",
)


def install_kernel(options: argparse.Namespace, _: Config) -> int:
    """Install kernelspecs and say where. Nothing said: into an environment where this is one, else for the user."""
    languages = _languages_of(options.language or ["python"])
    if len(languages) > 1 and options.name is not None:
        raise error(ErrorCode.INVALID_ARGUMENT, "--name is that of one kernel", hint="give one --language")
    asked = _options_of(options)
    check_options(asked)
    for language in languages:
        plan = KernelPlan(
            language=language, name=options.name, display_name=options.display_name, options=asked
        )
        write_stdout(f"{plan.kernel_name}: {_install(plan, options)}\n")
    return 0


def _languages_of(named: list[str]) -> list[str]:
    """Return the languages that are named; "all" are those that a sandbox of this machine may have."""
    if _ALL not in named:
        return list(dict.fromkeys(each.lower() for each in named))
    return [each for each in LANGUAGES if each != "r" or shutil.which("R")]


def _options_of(options: argparse.Namespace) -> dict[str, Any]:
    given: dict[str, Any] = {name: getattr(options, name) for name in (*_PLAIN, *_LISTS)}
    variables = {name: value for name, _, value in (each.partition("=") for each in options.env)}
    if any("=" not in each for each in options.env):
        raise error(ErrorCode.INVALID_ARGUMENT, "--env is NAME=VALUE")
    given |= {"env": variables, "network_changes": options.network_changes or None}
    return {name: value for name, value in given.items() if value not in (None, [], {})}


def _install(plan: KernelPlan, options: argparse.Namespace) -> str:
    prefix = None if options.prefix is None else str(options.prefix)
    chosen = options.sys_prefix or options.user or prefix is not None
    in_environment = sys.prefix != sys.base_prefix
    try:
        if options.prefix is not None:  # tried before Jupyter, which warns of an unknown folder first
            (options.prefix / "share" / "jupyter").mkdir(parents=True, exist_ok=True)
        folder = install_kernelspec(
            plan,
            user=options.user or not (chosen or in_environment),
            sys_prefix=options.sys_prefix or (in_environment and not chosen),
            prefix=prefix,
        )
    except OSError as problem:
        what = f"cannot install the kernelspec: {problem}"
        raise error(ErrorCode.INVALID_ARGUMENT, what, hint="choose another --prefix") from problem
    return str(folder)

"""What is asked of the sandbox behind a notebook: by its kernelspec, the environment, and the notebook itself. Pure.

Each is a JSON object of the same options; what comes later in that order wins, option by option. A notebook is a document
that others may have written: it may ask for room and packages, and for nothing that opens the sandbox.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from sandcell_container.errors import ErrorCode, error

__all__ = ["KernelOptions", "check_options", "merge_options", "read_options"]

# Of `Sandbox.create`.
_OF_NOTEBOOKS = (
    "apt",
    "cpus",
    "default_timeout",
    "disk",
    "env",
    "idle_timeout",
    "image",
    "memory",
    "packages",
    "pids",
    "preset",
)
_OF_PEOPLE = (
    *_OF_NOTEBOOKS,
    "dns",
    "engine",
    "hostname",
    "mounts",
    "network",
    "publish",
    "python",
    "read_only",
    "runtime",
    "strict",
)
# Ours: which sandbox and context is used, the language, whether the folder of the notebook is mounted, and what cells may
# do without a question.
_OWN = ("context", "language", "network_changes", "notebook_folder", "sandbox", "transfers")
_FOLDER_MODES = ("ro", "rw")
_FOLDER_TARGET = "/workspace/notebook"


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelOptions:
    """What a kernel process does. `create` are options of `Sandbox.create` for a sandbox of its own; `sandbox` names one
    to attach to instead, `context` one of its contexts. `transfers` is a folder of this machine whose files cells may copy in
    and out without a question, `network_changes` says that they may open the network."""

    create: Mapping[str, Any] = field(default_factory=dict[str, Any])
    sandbox: str | None = None
    context: str | None = None
    language: str = "python"
    transfers: str | None = None
    network_changes: bool = False


def read_options(text: str, *, source: str) -> dict[str, Any]:
    """Read options from JSON; `source` is named in what is wrong with them.

    Raises:
        InvalidRequest (INVALID_JSON): it is no JSON object.
    """
    try:
        found: object = json.loads(text)
    except ValueError as problem:
        raise error(ErrorCode.INVALID_JSON, f"the options of {source} are no JSON: {problem}") from None
    if not isinstance(found, dict):
        raise error(ErrorCode.INVALID_JSON, f"the options of {source} are no JSON object")
    return cast("dict[str, Any]", found)


def check_options(options: Mapping[str, Any], *, of_notebook: bool = False) -> None:
    """Refuse what is no option, or none that a notebook may ask for itself.

    Raises:
        InvalidRequest (INVALID_ARGUMENT), Refused (FORBIDDEN).
    """
    for name in options:
        if name not in (*_OF_PEOPLE, *_OWN):
            raise error(
                ErrorCode.INVALID_ARGUMENT,
                f"a kernel has no option {name[:80]!r}",
                hint=f"one of: {', '.join(sorted((*_OF_PEOPLE, *_OWN)))}",
            )
        if of_notebook and name not in _OF_NOTEBOOKS:
            raise error(
                ErrorCode.FORBIDDEN,
                f"a notebook may not ask for {name!r} in its metadata",
                hint="say it when the kernel is installed (sandcell kernel install), or in SANDCELL_KERNEL_OPTIONS",
            )


def merge_options(*given: Mapping[str, Any], folder: str) -> KernelOptions:
    """Return what holds of options in rising order; `folder` is that of the notebook.

    Raises:
        InvalidRequest (INVALID_ARGUMENT): `notebook_folder` is neither "ro" nor "rw", `transfers` no text, or
            `network_changes` no bool.
    """
    merged = {name: value for options in given for name, value in options.items()}
    own = {name: merged.pop(name) for name in _OWN if merged.get(name) is not None}
    mode = own.get("notebook_folder")
    if mode is not None:
        if mode not in _FOLDER_MODES:
            raise error(ErrorCode.INVALID_ARGUMENT, f'notebook_folder={mode!r} is neither "ro" nor "rw"')
        merged["mounts"] = [*merged.get("mounts", ()), f"{folder}:{_FOLDER_TARGET}:{mode}"]
    return KernelOptions(
        create={name: value for name, value in merged.items() if value is not None},
        sandbox=own.get("sandbox"),
        context=own.get("context"),
        language=own.get("language", "python"),
        transfers=_text(own, "transfers"),
        network_changes=_flag(own, "network_changes"),
    )


def _text(options: Mapping[str, Any], name: str) -> str | None:
    value = options.get(name)
    if value is not None and (not isinstance(value, str) or not value):
        raise error(ErrorCode.INVALID_ARGUMENT, f"{name}={value!r} is no folder")
    return value


def _flag(options: Mapping[str, Any], name: str) -> bool:
    value = options.get(name, False)
    if not isinstance(value, bool):
        raise error(ErrorCode.INVALID_ARGUMENT, f"{name}={value!r} is neither true nor false")
    return value

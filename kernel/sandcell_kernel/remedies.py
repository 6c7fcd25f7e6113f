"""One line with the remedy, for what a person in a notebook runs into because the code runs elsewhere. Pure."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

from sandcell_kernel.magics import MAGICS, magic_named
from sandcell_kernel.requests import text_field

if TYPE_CHECKING:
    from collections.abc import Callable

    from sandcell_kernel.wire import Message

__all__ = ["finds_no_index", "missing_file_remedy", "network_remedy", "place_remedy"]

_MISSING = re.compile(r"\[Errno 2\] .{0,100}: '([^'\n]{1,500})'")
_INSTALL = re.compile(r"^[ \t]*[%!]*[ \t]*(?:python3? -m )?pip3? install\b([^\n]{0,500})", re.MULTILINE)
_INDEX = "%sandbox network pypi.org files.pythonhosted.org"
_UNKNOWN = re.compile(r"magic (?:function )?`(%{1,2}\w+)` not found")
_OURS = re.compile(rf"^[ \t]*({'|'.join(each.name for each in MAGICS)})\b", re.MULTILINE)
_NO_INDEX = (b"No matching distribution found", b"name resolution")  # pip's words, and the system's
_OFFLINE = ("--no-index", "./", "/", "-e ", ".whl")


def missing_file_remedy(error: Message, *, is_here: Callable[[str], bool]) -> str:
    """Return what to do about a file that is missing in the sandbox; "" where that is not the error, or `is_here` says that
    no such path, relative to the notebook, is on this machine either."""
    if text_field(error, "ename") != "FileNotFoundError":
        return ""
    found = _MISSING.search(text_field(error, "evalue"))
    if found is None or found[1].startswith("/") or ".." in found[1].split("/") or not is_here(found[1]):
        return ""
    path = found[1].removeprefix("./")
    names = [path, path] if "/" in path else [path]  # one that is in a folder goes into its like
    line = shlex.join(["%sandbox", "upload", *(["--"] if path.startswith("-") else []), *names])
    return f"{path} lies beside the notebook and not in the sandbox. Copy it, in a cell: {line}"


def network_remedy(code: str, *, has_network: bool) -> str:
    """Return what to do where `code` installs from an index and the sandbox has no network, "" elsewhere."""
    if has_network or "install" not in code:
        return ""
    found = _INSTALL.search(code)
    if found is None or any(word in found[1] for word in _OFFLINE):
        return ""
    names = (
        " ".join(f"--package {each}" for each in found[1].split() if re.match(r"[A-Za-z]", each))
        or "--package NAME"
    )
    return (
        f"the sandbox has no network, so pip finds no index. Let it reach one, in a cell: {_INDEX}; "
        f"or have a kernel with the packages: sandcell kernel install --name mine {names}"
    )


def finds_no_index(output: bytes) -> bool:
    """Whether this is of a pip that has found no index."""
    return any(words in output for words in _NO_INDEX)


def place_remedy(code: str, reply: Message) -> str:
    """Return where a line of ours has to stand, for a cell that failed because the interpreter was given one; "" elsewhere."""
    match text_field(reply, "ename"):
        case "UsageError":
            found = _UNKNOWN.search(text_field(reply, "evalue"))
        case "SyntaxError":
            found = _OURS.search(code)
        case _:
            found = None
    if found is None:
        return ""
    name = found[1]
    magic = magic_named(name)
    if magic is None:
        other = name[1:] if name.startswith("%%") else f"%{name}"
        return f"it is {other}" if magic_named(other) is not None else ""
    if magic.is_of_cells:
        return f"{name} has to be the first line of its cell"
    return f"{name} needs a cell of its own, without other code"

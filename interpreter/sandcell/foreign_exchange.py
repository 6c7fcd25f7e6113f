"""How a kernel without our runtime reads and writes an object: code of its language, and what its errors mean. Pure.

A path of ours and a name that was checked are the only values in it, each as a literal.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from sandcell_container.errors import ErrorCode, error

if TYPE_CHECKING:
    from sandcell_container.errors import SandcellError

__all__ = ["JSON", "load_code", "problem_of", "save_code"]

JSON = "application/json"

_OURS = 'Deno.jupyter[Symbol.for("sandcell")]'
# A name that was declared by let or const hides a property of globalThis, and one that was not cannot be assigned to.
_JS_LOAD = (
    "((value) => {{ try {{ {name} = value }} catch (problem) {{"
    " if (!(problem instanceof ReferenceError)) throw problem; globalThis.{name} = value }} }})"
    "({ours}.load({path}))"
)
_LOAD = {
    "javascript": _JS_LOAD,
    "typescript": _JS_LOAD,
    "r": "assign({text}, jsonlite::fromJSON({path}), envir = globalenv())",
}
_SAVE = {
    "javascript": "{ours}.save({name}, {path})",
    "typescript": "{ours}.save({name}, {path})",
    "r": 'writeLines(jsonlite::toJSON(get({text}, envir = globalenv()), auto_unbox = TRUE, digits = NA, null = "null"), {path})',
}


def load_code(language: str, name: str, path: str, form: str) -> str:
    """Return the code that binds `name` to what the file at `path` holds.

    Raises:
        Unsupported (UNSUPPORTED): the form is not JSON.
    """
    if form != JSON:
        raise error(
            ErrorCode.UNSUPPORTED,
            f"{language} takes no objects of the form {form}",
            hint="numbers, text, lists and objects as JSON has them; anything else goes by a file",
        )
    return _fill(_LOAD[language], name, path)


def save_code(language: str, name: str, path: str) -> str:
    """Return the code that writes `name` as JSON to a new file at `path`."""
    return _fill(_SAVE[language], name, path)


def problem_of(name: str, ename: str, evalue: str) -> SandcellError:
    """Return what an error of that code says of the variable `name`."""
    if ename == "ReferenceError" or "not found" in evalue:
        return error(ErrorCode.NOT_FOUND, f"there is no variable {name[:80]!r}", details={"kind": "object"})
    if ename == "SyntaxError":
        return error(ErrorCode.INVALID_NAME, f"{name[:80]!r} cannot be assigned to: {evalue[:500]}")
    if ename in ("TypeError", "ERROR"):
        return error(
            ErrorCode.UNSUPPORTED,
            f"{name[:80]!r} cannot go in or out: {evalue[:500]}",
            hint="what JSON has goes, to a name that is no constant",
        )
    return error(ErrorCode.BUSY, f"the exchange was interrupted: {ename[:80]}", hint="try again")


def _fill(template: str, name: str, path: str) -> str:
    return template.format(name=name, text=json.dumps(name), path=json.dumps(path), ours=_OURS)

"""Objects in and out of a context: its interpreter reads or writes a file of the sandbox, this side only moves bytes.

Nothing of what comes out is decoded here. An exchange waits for its turn as a run does, and counts as none.
"""

from __future__ import annotations

import keyword
import secrets
from typing import TYPE_CHECKING

from sandcell.content import take_object, take_text
from sandcell.foreign_exchange import JSON, load_code, problem_of, save_code
from sandcell_container.errors import ErrorCode, SandcellError, error

if TYPE_CHECKING:
    from typing import Any

    from sandcell.context import Context

__all__ = ["FORMS", "check_variable", "load_object", "new_exchange_path", "save_object"]

FORMS = (
    "application/json",
    "application/octet-stream",
    "application/x-npy",
    "application/vnd.apache.arrow.stream",
)

# What an interpreter may say of an object: code in it can forge the rest.
_REFUSALS = {ErrorCode.INTERNAL, ErrorCode.INVALID_ARGUMENT, ErrorCode.NOT_FOUND, ErrorCode.UNSUPPORTED}
_FOLDER = "/tmp"


def check_variable(name: str) -> str:
    """Return `name`, which is one of a variable.

    Raises:
        InvalidRequest (INVALID_NAME): it is none.
    """
    if not name.isidentifier() or keyword.iskeyword(name):
        raise error(
            ErrorCode.INVALID_NAME, f"{name[:80]!r} is no name of a variable", hint="one that Python takes"
        )
    return name


def new_exchange_path() -> str:
    """Return the path of a file that is not there yet. What is written to it is gone when it was read."""
    return f"{_FOLDER}/.sandcell-{secrets.token_hex(12)}"


async def load_object(context: Context, name: str, path: str, form: str, *, timeout: float) -> None:
    """Bind a variable to what the file at `path` holds.

    Raises:
        InvalidRequest (INVALID_ARGUMENT, UNSUPPORTED): the file is not what `form` says, or a library is missing.
        Conflict (BUSY), Gone (CONTEXT_DIED, LOST), Unavailable: it did not get its turn, or an end.
        Unsupported (UNSUPPORTED): the language of the context takes none, or none of this form.
    """
    context.speaks.check("objects")
    if context.language != "python":
        await _run_code(context, name, load_code(context.language, name, path, form), timeout)
        return
    asked = {"verb": "load", "name": name, "path": path, "form": form}
    _check(context, await context.serve({"exchange": asked}, origin="sdk", timeout=timeout))


async def save_object(context: Context, name: str, path: str, *, timeout: float) -> str:
    """Write a variable to a new file at `path` and return its form. Raises as `load_object`, and NotFound."""
    context.speaks.check("objects")
    if context.language != "python":
        await _run_code(context, name, save_code(context.language, name, path), timeout)
        return JSON
    asked = {"verb": "save", "name": name, "path": path}
    content = await context.serve({"exchange": asked}, origin="sdk", timeout=timeout)
    _check(context, content)
    form = take_text(take_object(take_object(content, "sandcell"), "exchanged"), "form")
    if form not in FORMS:
        raise error(
            ErrorCode.INTERNAL, f"the interpreter of {context.id} did not say what {name} was written as"
        )
    return form


async def _run_code(context: Context, name: str, code: str, timeout: float) -> None:
    """Have a kernel without our runtime do it."""
    content = await context.serve({}, origin="sdk", timeout=timeout, code=code)
    if content.get("status") != "ok":
        raise problem_of(name, take_text(content, "ename"), take_text(content, "evalue"))


def _check(context: Context, content: dict[str, Any]) -> None:
    if content.get("status") == "ok":
        return
    told = take_object(content, "sandcell")
    raise _refusal(told, take_text(content, "evalue")) or error(
        ErrorCode.BUSY,
        f"the exchange with {context.id} was interrupted: {take_text(content, 'ename')[:80]}",
        hint="try again",
    )


def _refusal(told: dict[str, Any], why: str) -> SandcellError | None:
    code = take_text(told, "refused")
    if code not in _REFUSALS:
        return None
    return error(ErrorCode(code), why[:1000], hint=take_text(told, "hint")[:1000])

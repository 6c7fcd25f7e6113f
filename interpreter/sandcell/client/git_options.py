"""The requests of git: what callers give, checked, as bodies. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypedDict, TypeVar

import msgspec
from msgspec import UnsetType

from sandcell.client.checks import check_bytes_as_text, check_callbacks, check_path, check_timeout, wrong
from sandcell.client.options import NOT_GIVEN
from sandcell.client.protocol import Request, path_of
from sandcell.names import encode_names

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sandcell.client.options import NotGiven

__all__ = ["GitOptions", "Merge", "files_of", "git_body", "git_request"]

B = TypeVar("B", bound=msgspec.Struct)

Merge = Literal["merge", "rebase", "ff-only"]


class GitOptions(TypedDict, total=False):
    """What every verb takes: `timeout` in seconds for all of it (None: no limit; not given: the sandbox's), `on_progress` gets each
    line that git says of its progress."""

    timeout: float | NotGiven | None
    on_progress: Callable[[str], object] | None


def git_body(kind: type[B], options: GitOptions, **fields: object) -> B:
    """Return the body of a verb. Raises InvalidRequest (INVALID_ARGUMENT, INVALID_PATH)."""
    check_callbacks(on_progress=options.get("on_progress"))
    given = {name: value for name, value in fields.items() if value is not None}
    timeout = check_timeout(options.get("timeout", NOT_GIVEN))
    if not isinstance(timeout, UnsetType):
        given["timeout"] = timeout
    for name, value in given.items():
        if isinstance(value, str):
            _check(name, value)
    try:
        return msgspec.convert(given, kind)
    except msgspec.ValidationError as problem:
        raise wrong(
            "git", f"cannot be asked that: {problem}", hint="look at the types of what is given"
        ) from problem


def _check(name: str, text: str) -> None:
    if name == "path":
        check_path(text)
    else:
        check_bytes_as_text(text, what=name)


def files_of(given: str | Sequence[str]) -> tuple[str, ...]:
    """Return one file or several as a tuple. Raises InvalidRequest (INVALID_PATH)."""
    return tuple(check_path(each, what="files") for each in ((given,) if isinstance(given, str) else given))


def git_request(verb: str, body: object, query: dict[str, str]) -> Request:
    """Return the request of a verb, whose answer is a stream. It is not sent twice: what git did once it would refuse then."""
    return Request(
        method="POST",
        path=path_of("git", verb),
        query={**query, "progress": "true"},
        body=encode_names(body),
        repeatable=False,
    )

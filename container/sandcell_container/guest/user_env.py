"""The environment that user code starts with, which may be changed while the sandbox lives."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandcell_container.errors import ErrorCode, error

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sandcell_container.memo import Memo

__all__ = ["UserEnv", "check_sizes"]

_LONGEST = (
    128 * 2**10
)  # bytes of NAME=value and its end: no program can be started with more. Source: execve(2)
_MOST = (
    2**20
)  # bytes of all changes: with the arguments of a program they have to fit into a fourth of its stack


class UserEnv(dict[str, str]):
    """The whole of it, by name; lone surrogates stand for bytes that are not UTF-8 (PEP 383).

    Made of what the sandbox was made with (`base`) and what was changed since, which `memo` keeps over a stop.
    Whoever holds it sees each change at once.
    """

    def __init__(self, base: Mapping[str, str], memo: Memo) -> None:
        super().__init__(base)
        self._memo = memo
        self._apply(memo.env)

    def change(self, changes: Mapping[str, str | None]) -> None:
        """Change variables, None takes one away. The names have been checked.

        Raises:
            InvalidRequest (TOO_LARGE): no program could be started with a value as long, or with all of them. Then nothing
                has changed.
        """
        check_sizes({**self._memo.env, **changes})
        self._memo.note_env(changes)
        self._apply(changes)

    def _apply(self, changes: Mapping[str, str | None]) -> None:
        for name, value in changes.items():
            if value is None:
                self.pop(name, None)
            else:
                self[name] = value


def check_sizes(variables: Mapping[str, str | None]) -> None:
    """Refuse what no program could be started with.

    Raises:
        InvalidRequest (TOO_LARGE): a value is as long, or all of them are together.
    """
    costs = {name: _cost(name, value) for name, value in variables.items()}
    for name, cost in costs.items():
        if cost > _LONGEST:
            raise _too_large(f"the variable {name} has more than {_LONGEST} bytes")
    if sum(costs.values()) > _MOST:
        raise _too_large(f"what was set has more than {_MOST} bytes together")


def _cost(name: str, value: str | None) -> int:
    return len(name) + 2 + len((value or "").encode(errors="surrogateescape"))


def _too_large(problem: str) -> Exception:
    return error(
        ErrorCode.TOO_LARGE,
        problem,
        hint="write it to a file, and give its path",
        details={"field": "env"},
    )

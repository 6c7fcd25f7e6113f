"""The languages that contexts speak, the names they go by, and what can be asked of each. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from sandcell.memory import LEAST_MEMORY
from sandcell_container.errors import ErrorCode, error

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sandcell_container.errors import SandcellError

__all__ = ["LANGUAGES", "Feature", "Language", "language_for", "named", "own_context_of", "unknown_language"]

# surroundings: a folder and variables of one run. objects: push and pull. memory: a limit of one context. tools: of the host.
Feature = Literal["complete", "inspect", "memory", "objects", "surroundings", "tickets", "tools", "variables"]

_ALL: frozenset[Feature] = frozenset(
    ("complete", "inspect", "memory", "objects", "surroundings", "tickets", "tools", "variables")
)
_DENO_MEMORY = 256 * 2**20
_R_MEMORY = 128 * 2**20
_NO_ID = re.compile(r"[^a-z0-9_-]")
_HINTS: dict[Feature, str] = {
    "complete": "complete() is for python, javascript, typescript, r and other kernels",
    "inspect": "inspect() is for python, r and other kernels: code in the language itself can look",
    "memory": "limit the whole sandbox: Sandbox.create(memory=...)",
    "objects": "push() and pull() are for python, javascript, typescript and r; files work in every language",
    "surroundings": "create_context(env=..., cwd=...) makes an interpreter that has them",
    "tickets": "a cell for the shell counts in a front of python",
    "tools": "host tools are for python, javascript, typescript, bash and r; tools=[] gives a run none",
    "variables": "variables() is for python: code in the language itself can list them",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Language:
    """One language, or one kernel by the name of its spec. `least_memory` in bytes: what an interpreter needs for itself."""

    name: str
    aliases: tuple[str, ...] = ()
    features: frozenset[Feature] = frozenset(("complete", "inspect", "memory"))
    least_memory: int = LEAST_MEMORY

    @property
    def own_context(self) -> str:
        """The id of a sandbox's own context for it: its name, as an id can be."""
        return _NO_ID.sub("-", self.name).strip("-_") or "kernel"

    def check(self, feature: Feature) -> None:
        """Do nothing where it has the feature.

        Raises:
            Unsupported (UNSUPPORTED): it has not; the hint says what to do instead.
        """
        if feature not in self.features:
            raise error(
                ErrorCode.UNSUPPORTED,
                f"{self.name} has no {feature}" if feature != "surroundings" else _no_surroundings(self.name),
                hint=_HINTS[feature],
                details={"language": self.name, "feature": feature},
            )


LANGUAGES = (
    Language(name="python", aliases=("py", "python3"), features=_ALL),
    Language(
        name="javascript",
        aliases=("js", "deno"),
        features=frozenset(("complete", "memory", "objects", "tools")),
        least_memory=_DENO_MEMORY,
    ),
    Language(
        name="typescript",
        aliases=("ts",),
        features=frozenset(("complete", "memory", "objects", "tools")),
        least_memory=_DENO_MEMORY,
    ),
    Language(name="bash", aliases=("sh", "shell"), features=frozenset(("surroundings", "tools"))),
    Language(
        name="r",
        aliases=("ir",),
        features=frozenset(("complete", "inspect", "memory", "objects", "tools")),
        least_memory=_R_MEMORY,
    ),
)

_BY_NAME = {name: language for language in LANGUAGES for name in (language.name, *language.aliases)}


def named(name: str) -> Language | None:
    """Return the language of this name or alias, in any case of letters; None where it is none of ours."""
    return _BY_NAME.get(name.strip().lower())


def own_context_of(name: str) -> str:
    """Return the id of a sandbox's own context for the language of this name, which may be one that is not known here."""
    return (named(name) or Language(name=name.strip().lower())).own_context


def language_for(context_id: str) -> str:
    """Return the language of a context of this name where nobody says: the one that it is the name of, else Python."""
    return (named(context_id) or LANGUAGES[0]).name


def unknown_language(name: str, there: Iterable[str]) -> SandcellError:
    """Return the error that lists the languages that there are."""
    known = list(there)
    return error(
        ErrorCode.UNKNOWN_LANGUAGE,
        f"there is no language {name[:80]!r} here",
        hint=f"one of: {', '.join(known)}",
        details={"languages": known},
    )


def _no_surroundings(name: str) -> str:
    return f"a run in {name} has the folder and the variables of its context"

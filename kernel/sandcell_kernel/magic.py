"""What a magic of ours is made of: its words and how they are written. Pure data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Magic", "Option", "Verb"]

_COUNTS = ("LINES", "N", "SECONDS")


@dataclass(frozen=True, slots=True)
class Option:
    """`name` with its dashes; `value` names what follows it, "" where nothing does."""

    name: str
    value: str = ""

    @property
    def is_number(self) -> bool:
        return self.value in _COUNTS

    def __str__(self) -> str:
        return f"[{self.name} {self.value}]" if self.value else f"[{self.name}]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verb:
    """One thing that a line magic does. `name` is one word or two. `operands` are named in its usage; between `least` and
    `most` are given. `is_errand`: the kernel process on the host does it, where there is one."""

    name: str
    summary: str
    operands: str = ""
    least: int = 0
    most: int = 0
    options: tuple[Option, ...] = ()
    is_errand: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Magic:
    """One magic, by its name with its signs. A cell magic is a line with `operands`, and code below; a line magic has
    `verbs`, or is one."""

    name: str
    summary: str
    details: str
    operands: str = ""
    most: int = 0
    least: int = 0
    options: tuple[Option, ...] = ()
    verbs: tuple[Verb, ...] = ()
    is_errand: bool = False

    @property
    def is_of_cells(self) -> bool:
        return self.name.startswith("%%")

    @property
    def first_words(self) -> list[str]:
        """The words that its verbs begin with."""
        return list(dict.fromkeys(each.name.partition(" ")[0] for each in self.verbs))

    def second_words(self, first: str) -> list[str]:
        """The words that make another verb of the word `first`."""
        return [each.name.partition(" ")[2] for each in self.verbs if each.name.startswith(f"{first} ")]

    def verb(self, name: str) -> Verb | None:
        return next((each for each in self.verbs if each.name == name), None)

    def verb_of(self, words: Sequence[str]) -> Verb | None:
        """Return the verb that a line begins with: of two words where there is one of these."""
        return self.verb(" ".join(words[:2])) or self.verb(words[0])

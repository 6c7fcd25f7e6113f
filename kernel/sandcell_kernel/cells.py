"""Where a cell runs: its first line decides. Pure text, no session and no kernel is known here."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sandcell_container.errors import SandcellError
from sandcell_container.ids import check_id
from sandcell_kernel.magics import describe_magic, magic_named, usage_of
from sandcell_kernel.words import split_words

if TYPE_CHECKING:
    from sandcell_kernel.magic import Magic, Option, Verb

__all__ = [
    "Cell",
    "ContextCell",
    "ExecCell",
    "HelpCell",
    "LineCell",
    "LineOrder",
    "ProcessCell",
    "PythonCell",
    "ShellCell",
    "Work",
    "WrongCell",
    "is_errand",
    "lines_in",
    "read_cell",
]

_DEFAULT_SESSION = "shell"
_NOT_RUN = "\nThe lines below the question were not run.\n"
_HELP = re.compile(r"(\?{0,2})(%{1,2}\w+)\s*(\?{0,2})")


@dataclass(frozen=True, slots=True)
class PythonCell:
    """A cell for the front's own context, which gets the request untouched."""


@dataclass(frozen=True, slots=True)
class ContextCell:
    """A cell for the context `context_id`, made where there is none: of `language`, None for what its name says.

    `code` is what follows the first line, and begins at the character `offset` of the cell.
    """

    context_id: str
    language: str | None
    code: str
    offset: int


@dataclass(frozen=True, slots=True)
class ShellCell:
    """A cell for the shell session `session_id`; `code` is what follows the first line."""

    session_id: str
    code: str


@dataclass(frozen=True, slots=True)
class ExecCell:
    """One command without a session."""

    code: str


@dataclass(frozen=True, slots=True)
class ProcessCell:
    """A process to start, with a new id where none is named; `is_detached`: its output is not shown."""

    process_id: str | None
    code: str
    is_detached: bool = False


@dataclass(frozen=True, slots=True)
class LineOrder:
    """One line magic: what to do, with what. `verb` is "" for a magic that has none."""

    magic: str
    verb: str
    operands: tuple[str, ...] = ()
    options: Mapping[str, str] = field(
        default_factory=dict[str, str], hash=False
    )  # by name, with dashes; "" where it has no value

    def number(self, option: str) -> float | None:
        """Return the number that stands behind an option, None where it is not given."""
        text = self.options.get(option)
        return None if text is None else float(text)


@dataclass(frozen=True, slots=True)
class LineCell:
    """Line magics of ours and nothing else, to be done one after another."""

    orders: tuple[LineOrder, ...]


@dataclass(frozen=True, slots=True)
class HelpCell:
    """A question for one of our magics; `text` answers it."""

    text: str


@dataclass(frozen=True, slots=True)
class WrongCell:
    """A cell whose first line is ours but cannot be followed; `problem` tells the user why."""

    problem: str


Work = ShellCell | ExecCell | ProcessCell | LineCell
"""What the guest does itself, without an interpreter."""

Cell = PythonCell | ContextCell | ShellCell | ExecCell | ProcessCell | LineCell | HelpCell | WrongCell


class _Wrong(Exception):
    """What the user is told of a line that cannot be followed."""


def read_cell(code: str) -> Cell:
    """Tell where `code` runs.

    A magic of ours on the first line that is not blank (as IPython looks for a cell magic) says so; a line magic only
    where nothing but such lines stands in the cell. Everything else is for the front's own context, and magics that are
    not ours are IPython's.
    """
    body = code.lstrip()
    if not body.startswith(("%", "?")):
        return PythonCell()
    first, newline, rest = body.partition("\n")
    helped = _read_help(first.strip(), rest)
    if helped is not None:
        return helped
    magic = magic_named(first.split(maxsplit=1)[0])
    if magic is None:
        return PythonCell()
    try:
        if not magic.is_of_cells:
            return LineCell(tuple(_read_lines(body)))
        return _read_cell_magic(magic, first, rest, len(code) - len(rest) if newline else len(code))
    except _Wrong as problem:
        return WrongCell(str(problem))


def lines_in(code: str) -> tuple[LineOrder, ...]:
    """Return the lines of a cell of line magics, none where it is another one."""
    cell = read_cell(code)
    return cell.orders if isinstance(cell, LineCell) else ()


def is_errand(order: LineOrder) -> bool:
    """Tell whether a line is for the kernel process on the host, where there is one."""
    magic = magic_named(order.magic)
    assert magic is not None, "it was read from our table"
    verb = magic.verb(order.verb)
    return magic.is_errand if verb is None else verb.is_errand


def _read_help(line: str, rest: str) -> HelpCell | WrongCell | None:
    """Return the answer to a question for one of our magics, None where it is none.

    What stands below a cell magic is of it; other code would be run by nobody, and is refused.
    """
    found = _HELP.fullmatch(line)
    if found is None or not (found[1] or found[3]):
        return None
    magic = magic_named(found[2])
    if magic is None:
        return None
    if rest.strip() and not magic.is_of_cells:
        return WrongCell(f"{line[:40]} needs a cell of its own")
    return HelpCell(describe_magic(magic) + (_NOT_RUN if rest.strip() else ""))


def _read_cell_magic(magic: Magic, first: str, rest: str, offset: int) -> Cell:
    words = _split(first)[1:]
    operands, options = _sort_words(words, magic.options, usage_of(magic))
    _check_count(operands, magic.least, magic.most, usage_of(magic))
    name = operands[0] if operands else None
    # A shell takes the ends of lines as Windows has them for a part of its words.
    lines = rest.replace("\r\n", "\n") if first.endswith("\r") else rest
    match magic.name:
        case "%%shell":
            return ShellCell(_id(name, "name of a session") or _DEFAULT_SESSION, lines)
        case "%%exec":
            return ExecCell(lines)
        case "%%process":
            return ProcessCell(_id(name, "id of a process"), lines, "--detach" in options)
        case _:
            context_id = _id(name, "name of a context")
            assert context_id is not None, "its magic asks for one"
            return ContextCell(context_id, options.get("--language"), rest, offset)


def _read_lines(body: str) -> list[LineOrder]:
    orders = list[LineOrder]()
    for line in filter(None, map(str.strip, body.split("\n"))):
        magic = magic_named(line.split(maxsplit=1)[0])
        if magic is not None and not magic.is_of_cells:
            orders.append(_read_order(magic, _split(line)[1:]))
        elif not line.startswith("#"):
            raise _Wrong(f"{orders[0].magic} needs a cell of its own, without {line[:40]!r}")
    return orders


def _read_order(magic: Magic, words: list[str]) -> LineOrder:
    if not magic.verbs:
        operands, options = _sort_words(words, magic.options, usage_of(magic))
        _check_count(operands, magic.least, magic.most, usage_of(magic))
        return LineOrder(magic.name, "", tuple(operands), options)
    said = words or [magic.verbs[0].name]
    verb = magic.verb_of(said)
    if verb is None:
        raise _Wrong(f"{magic.name} has no {said[0][:40]!r}: {usage_of(magic)}")
    rest = said[len(verb.name.split()) :]
    operands, options = _sort_words(rest, verb.options, usage_of(magic, verb))
    _check_count(operands, verb.least, verb.most, usage_of(magic, verb))
    _check_numbers(verb, options)
    return LineOrder(magic.name, verb.name, tuple(operands), options)


def _split(line: str) -> list[str]:
    try:
        return split_words(line)
    except ValueError as problem:
        raise _Wrong(f"{line[:80]!r} cannot be read: {problem}") from None


def _sort_words(words: list[str], known: tuple[Option, ...], usage: str) -> tuple[list[str], dict[str, str]]:
    """Return operands, and options by name; a value may stand behind `=`. Behind `--` there are only operands."""
    by_name = {option.name: option for option in known}
    operands, options = list[str](), dict[str, str]()
    left = iter(words)
    for word in left:
        if word == "--":
            return [*operands, *left], options
        name, equals, value = word.partition("=")
        option = by_name.get(name)
        if option is not None and option.value:
            options[name] = value if equals else next(left, "")
            if not options[name]:
                raise _Wrong(f"{name} needs a value: {usage}")
        elif option is not None and not equals:
            options[name] = ""
        elif word.startswith("-"):
            raise _Wrong(f"{word[:40]!r} is not known here: {usage}")
        else:
            operands.append(word)
    return operands, options


def _check_count(operands: list[str], least: int, most: int, usage: str) -> None:
    if len(operands) < least:
        raise _Wrong(f"something is missing: {usage}")
    if len(operands) > most:
        raise _Wrong(f"{' '.join(operands[most:])[:80]!r} is too much: {usage}")


def _check_numbers(verb: Verb, options: Mapping[str, str]) -> None:
    for option in verb.options:
        value = options.get(option.name)
        if value is not None and option.is_number and not re.fullmatch(r"\d{1,9}(\.\d{1,6})?", value):
            raise _Wrong(f"{option.name} of {verb.name} is a number, not {value[:40]!r}")


def _id(name: str | None, what: str) -> str | None:
    if name is None:
        return None
    try:
        return check_id(name, what=what)
    except SandcellError as problem:
        raise _Wrong(f"{problem.message}: {problem.hint}") from None

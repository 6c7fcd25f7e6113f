"""The magics that are ours: their words, what they are for, and how they are written. Pure tables and text.

Everything that is said of them, in errors, in help and in completion, comes from here. Magics that are not in this
table are IPython's.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["MAGICS", "Magic", "Option", "Verb", "describe_magic", "magic_named", "usage_of"]


@dataclass(frozen=True, slots=True)
class Option:
    """`name` with its dashes; `value` names what follows it, "" where nothing does."""

    name: str
    value: str = ""

    def __str__(self) -> str:
        return f"[{self.name} {self.value}]" if self.value else f"[{self.name}]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verb:
    """One thing that a line magic does. `operands` are named in its usage; between `least` and `most` are given."""

    name: str
    summary: str
    operands: str = ""
    least: int = 0
    most: int = 0
    options: tuple[Option, ...] = ()


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

    @property
    def is_of_cells(self) -> bool:
        return self.name.startswith("%%")

    def verb(self, name: str) -> Verb | None:
        return next((each for each in self.verbs if each.name == name), None)


_PROCESS_VERBS = (
    Verb(name="list", summary="the processes of this sandbox, those that have ended too"),
    Verb(
        name="logs",
        summary="what one has said until now",
        operands="ID",
        least=1,
        most=1,
        options=(Option("--tail", "LINES"),),
    ),
    Verb(
        name="follow", summary="what one says, until it ends or you interrupt", operands="ID", least=1, most=1
    ),
    Verb(
        name="wait",
        summary="the end of one",
        operands="ID",
        least=1,
        most=1,
        options=(Option("--timeout", "SECONDS"),),
    ),
    Verb(name="kill", summary="end some, with all that they started", operands="ID...", least=1, most=64),
)

_CONTEXT_VERBS = (
    Verb(name="list", summary="the interpreters of this sandbox"),
    Verb(
        name="restart",
        summary="start one anew: its variables are gone, files stay",
        operands="NAME",
        least=1,
        most=1,
    ),
    Verb(name="delete", summary="end one for good", operands="NAME", least=1, most=1),
)

_SANDBOX_VERBS = (
    Verb(name="info", summary="what it is: engine, image, limits, isolation"),
    Verb(name="stats", summary="what it uses of its limits"),
    Verb(name="top", summary="the processes in it"),
    Verb(name="files", summary="what is in a folder", operands="[PATH]", most=1),
    Verb(
        name="download", summary="a link that saves a file of at most 8 MiB", operands="PATH", least=1, most=1
    ),
    Verb(
        name="env",
        summary="which variables user code has; sets some",
        operands="[NAME=VALUE...]",
        most=64,
    ),
    Verb(name="ports", summary="the ports that are exposed, and whether something listens"),
    Verb(
        name="follow",
        summary="what programs run in it, live, until you interrupt",
        options=(Option("--all"),),
    ),
    Verb(
        name="pull-history",
        summary="what programs ran in it, as a new cell below",
        options=(Option("--last", "N"),),
    ),
    Verb(name="restart", summary="end all that runs in it, and start it anew: files stay"),
)

MAGICS = (
    Magic(
        name="%%shell",
        summary="Run the cell in a shell session of the sandbox.",
        operands="[SESSION]",
        most=1,
        details=(
            'The session is called "shell" where none is named, and is made where there is none. Folder, variables, '
            "functions and $? last from cell to cell. Interrupt is ^C. An exit status other than 0 is an error."
        ),
    ),
    Magic(
        name="%%exec",
        summary="Run the cell as one command that leaves nothing behind but files.",
        details="It runs under bash, in /workspace. Interrupt ends it and all that it started.",
    ),
    Magic(
        name="%%process",
        summary="Start the cell as a process of the sandbox, and show what it says.",
        operands="[ID]",
        most=1,
        options=(Option("--detach"),),
        details=(
            "It goes on when you interrupt, or close the notebook: %process follow ID shows it again, %process kill "
            "ID ends it. With --detach the cell is done as soon as it runs."
        ),
    ),
    Magic(
        name="%%context",
        summary="Run the cell in another interpreter of the sandbox.",
        operands="NAME",
        least=1,
        most=1,
        options=(Option("--language", "LANGUAGE"),),
        details=(
            "The one called NAME, made where there is none: of the language that is named, or that NAME is, else of "
            "Python. Each has variables of its own; files are everybody's. Completion works in it as well."
        ),
    ),
    Magic(
        name="%process",
        summary="See to the processes of the sandbox.",
        details="%%process starts one.",
        verbs=_PROCESS_VERBS,
    ),
    Magic(
        name="%context",
        summary="See to the interpreters of the sandbox.",
        details="%%context runs a cell in one.",
        verbs=_CONTEXT_VERBS,
    ),
    Magic(
        name="%terminal",
        summary="Make a terminal in the sandbox, and say how to open it.",
        operands="[ID]",
        most=1,
        details="It lives until its shell ends; whoever opens it sees the same screen.",
    ),
    Magic(
        name="%sandbox",
        summary="Look at the sandbox behind this notebook, and see to it.",
        details="With no verb: info.",
        verbs=_SANDBOX_VERBS,
    ),
)

_BY_NAME = {each.name: each for each in MAGICS}


def magic_named(name: str) -> Magic | None:
    """Return our magic of this name, with its signs; None where it is none of ours."""
    return _BY_NAME.get(name)


def usage_of(magic: Magic, verb: Verb | None = None) -> str:
    """Return how it is written, on one line."""
    if verb is not None:
        return " ".join(filter(None, [magic.name, verb.name, verb.operands, *map(str, verb.options)]))
    if magic.verbs:
        return f"{magic.name} {'|'.join(each.name for each in magic.verbs)}"
    return " ".join(filter(None, [magic.name, magic.operands, *map(str, magic.options)]))


def describe_magic(magic: Magic) -> str:
    """Return its help: what it does, and how each form of it is written."""
    lines = [magic.summary, "", f"    {usage_of(magic)}", "", magic.details]
    if magic.verbs:
        usages = [usage_of(magic, each) for each in magic.verbs]
        width = max(map(len, usages))
        lines += [
            "",
            *(
                f"    {usage:<{width}}  {each.summary}"
                for usage, each in zip(usages, magic.verbs, strict=True)
            ),
        ]
    return "\n".join(lines) + "\n"

"""The magics that are ours: their words, what they are for, and how they are written. Pure tables and text.

Everything that is said of them, in errors, in help and in completion, comes from here. Magics that are not in this
table are IPython's.
"""

from __future__ import annotations

from sandcell_kernel.magic import Magic, Option, Verb
from sandcell_kernel.sandbox_verbs import SANDBOX_VERBS

__all__ = ["MAGICS", "describe_magic", "magic_named", "usage_of"]


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
        summary="Open a terminal in the sandbox: a link for the browser, and the command for another terminal.",
        operands="[ID]",
        most=1,
        details=(
            "It is made where there is none of this name, and lives until its shell ends; whoever opens it sees the same "
            "screen. The link opens for the first browser that follows it, within ten minutes, on the machine that "
            "Jupyter runs on."
        ),
        is_errand=True,
    ),
    Magic(
        name="%sandbox",
        summary="Look at the sandbox behind this notebook, and see to it.",
        details=(
            "With no verb: info. What reaches your machine, or the network, is asked for in the cell. Words with blanks "
            "stand in quotes; behind -- every word is taken as it is."
        ),
        verbs=SANDBOX_VERBS,
    ),
)

_WIDTH = 40  # of the usages in help
_BY_NAME = {each.name: each for each in MAGICS}


def magic_named(name: str) -> Magic | None:
    """Return our magic of this name, with its signs; None where it is none of ours."""
    return _BY_NAME.get(name)


def usage_of(magic: Magic, verb: Verb | None = None) -> str:
    """Return how it is written, on one line."""
    if verb is not None:
        return " ".join(filter(None, [magic.name, verb.name, verb.operands, *map(str, verb.options)]))
    if magic.verbs:
        return f"{magic.name} {'|'.join(magic.first_words)}"
    return " ".join(filter(None, [magic.name, magic.operands, *map(str, magic.options)]))


def describe_magic(magic: Magic) -> str:
    """Return its help: what it does, and how each form of it is written."""
    lines = [magic.summary, "", f"    {usage_of(magic)}", "", magic.details]
    if magic.verbs:
        lines += ["", *(_describe_verb(usage_of(magic, each), each.summary) for each in magic.verbs)]
    return "\n".join(lines) + "\n"


def _describe_verb(usage: str, summary: str) -> str:
    """Return both beside each other; below each other where the usage is long."""
    if len(usage) <= _WIDTH:
        return f"    {usage:<{_WIDTH}}  {summary}"
    return f"    {usage}\n    {'':<{_WIDTH}}  {summary}"

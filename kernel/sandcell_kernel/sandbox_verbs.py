"""What `%sandbox` does: one row for each verb. A pure table."""

from __future__ import annotations

from sandcell_kernel.magic import Option, Verb

__all__ = ["SANDBOX_VERBS"]

_OVERWRITE = Option("--overwrite")

_OF_FILES = (
    Verb(name="files", summary="what is in a folder", operands="[PATH]", most=1),
    Verb(
        name="files list",
        summary="the same, of names, with all below, or by size or mtime",
        operands="[PATH]",
        most=1,
        options=(Option("--recursive"), Option("--glob", "PATTERN"), Option("--sort", "KEY")),
    ),
    Verb(
        name="files read",
        summary="what is in a file: its text, or its picture",
        operands="PATH",
        least=1,
        most=1,
        options=(Option("--lines", "FIRST-LAST"),),
    ),
    Verb(name="files stat", summary="what is known of some", operands="PATH...", least=1, most=64),
    Verb(
        name="files search",
        summary="the lines that match a regular expression",
        operands="PATTERN [PATH]",
        least=1,
        most=2,
        options=(
            Option("--glob", "PATTERN"),
            Option("--ignore-case"),
            Option("--context", "LINES"),
            Option("--limit", "N"),
        ),
    ),
    Verb(
        name="files write",
        summary="write a file; each further word is a line",
        operands="PATH [LINE...]",
        least=1,
        most=256,
    ),
    Verb(
        name="files append",
        summary="write lines behind what is in one",
        operands="PATH LINE...",
        least=2,
        most=256,
    ),
    Verb(
        name="files insert",
        summary="write lines behind line N, 0 is the start",
        operands="PATH N LINE...",
        least=3,
        most=256,
    ),
    Verb(
        name="files replace",
        summary="put one text in the place of another, which is there once",
        operands="PATH OLD NEW",
        least=3,
        most=3,
    ),
    Verb(name="files mkdir", summary="make folders", operands="PATH...", least=1, most=64),
    Verb(
        name="files copy",
        summary="copy a file or a folder",
        operands="PATH TO",
        least=2,
        most=2,
        options=(_OVERWRITE,),
    ),
    Verb(
        name="files rename",
        summary="give one another name",
        operands="PATH TO",
        least=2,
        most=2,
        options=(_OVERWRITE,),
    ),
    Verb(
        name="files remove",
        summary="remove some; folders with --recursive",
        operands="PATH...",
        least=1,
        most=64,
        options=(Option("--recursive"),),
    ),
    Verb(
        name="files backup",
        summary="write a folder to a file of your machine, as tar",
        operands="PATH LOCAL",
        least=2,
        most=2,
        is_errand=True,
    ),
    Verb(
        name="files restore",
        summary="make a folder what it was at its backup",
        operands="LOCAL PATH",
        least=2,
        most=2,
        is_errand=True,
    ),
)

SANDBOX_VERBS = (
    Verb(name="info", summary="what it is: engine, image, limits, isolation"),
    Verb(name="stats", summary="what it uses of its limits"),
    Verb(name="top", summary="the processes in it"),
    *_OF_FILES,
    Verb(
        name="upload",
        summary="copy a file or folder of your machine into it",
        operands="LOCAL [PATH]",
        least=1,
        most=2,
        is_errand=True,
    ),
    Verb(
        name="download",
        summary="copy one to your machine; without LOCAL a link, up to 8 MiB",
        operands="PATH [LOCAL]",
        least=1,
        most=2,
        is_errand=True,
    ),
    Verb(
        name="env",
        summary="which variables user code has; sets some, or unsets NAME...",
        operands="[NAME=VALUE...|NAME...]",
        most=64,
        options=(Option("--unset"),),
    ),
    Verb(name="ports", summary="the exposed ports, whether something listens, links", is_errand=True),
    Verb(
        name="ports expose",
        summary="a link to what listens on a port",
        operands="PORT",
        least=1,
        most=1,
        options=(Option("--name", "NAME"), Option("--rotate")),
        is_errand=True,
    ),
    Verb(name="ports close", summary="expose it no more", operands="PORT", least=1, most=1),
    Verb(
        name="network",
        summary="which network it has; changes it",
        operands="[none|open|HOST...]",
        most=64,
        is_errand=True,
    ),
    Verb(
        name="snapshot",
        summary="keep a copy of its files, to make others of",
        operands="NAME",
        least=1,
        most=1,
        is_errand=True,
    ),
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

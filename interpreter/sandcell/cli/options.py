"""What may stand on the command line: verbs, options, help with an example for each. Knows no verb's work."""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from sandcell.cli import examples
from sandcell.cli.examples import OWN_FAILURE
from sandcell.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    _AddParser = Callable[..., argparse.ArgumentParser]

__all__ = ["OWN_FAILURE", "parse"]


class _Parser(argparse.ArgumentParser):
    """Says what is wrong as every other failure of ours is said, so that no exit code means two things."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        hint = f"{self.prog} --help shows examples"
        self.exit(OWN_FAILURE, f"sandcell: INVALID_ARGUMENT: {message} ({hint})\n")


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Return the options of `argv`; `verb` names the command, what follows the first `--` is in `rest`.

    A command of `exec`, `shell` or `start` goes on from its first word to the end, a `--` in it too.

    Ends the process for --help and --version (0) and for what it cannot read (125).
    """
    given = list(argv)
    cut = given.index("--") if "--" in given else len(given)
    options = _parser().parse_args(given[:cut])
    options.rest = given[cut + 1 :]
    if options.verb in {"exec", "shell", "start"} and options.command:
        options.command, options.rest = options.command + given[cut:], []
    if options.verb == "run":
        _tell_file_from_arguments(options)
    return options


def _tell_file_from_arguments(options: argparse.Namespace) -> None:
    words, options.rest = [*options.args, *options.rest], []
    if options.code is None and not words:
        _Parser(prog="sandcell run", usage="sandcell run [OPTION ...] FILE [ARG ...]").error(
            "one of FILE and -c is needed"
        )
    options.file = Path(words.pop(0)) if options.code is None else None
    options.args = words


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="sandcell", description="Run code in a sandbox.", allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"sandcell {VERSION}")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="COMMAND")
    _add_run(verbs.add_parser)
    _add_diff(verbs.add_parser)
    _add_exec(verbs.add_parser)
    _add_shell(verbs.add_parser)
    _add_start(verbs.add_parser)
    _add_jobs(verbs.add_parser)
    _add_files(verbs.add_parser)
    _add_sandboxes(verbs.add_parser)
    _add_image(verbs.add_parser)
    _add_kernel(verbs.add_parser)
    doctor = _add_verb(
        verbs.add_parser,
        "doctor",
        "tell which engines work here, why others do not, and what to do",
        examples.DOCTOR,
    )
    doctor.add_argument(
        "--check", metavar="ENGINE", help="try all that it has to do, and what must not be possible"
    )
    doctor.add_argument(
        "--fix",
        action="store_true",
        help="write a configuration of Sandcell's own for Podman, where that helps",
    )
    return parser


def _add_run(add: _AddParser) -> None:
    run = _add_verb(add, "run", "run Python code or a notebook", examples.RUN + examples.EXIT_CODES)
    run.add_argument(
        "args",
        nargs="*",
        metavar="FILE ARG",
        help="a Python file, a notebook, - for standard input; sys.argv",
    )
    run.add_argument("-c", dest="code", metavar="CODE", help="code to run, in the place of a file")
    run.add_argument(
        "--language", "-l", metavar="NAME", help="default: by the end of the file's name, else python"
    )
    run.add_argument("--out", type=Path, metavar="FILE", help="where the executed notebook goes")
    run.add_argument(
        "--param",
        "-p",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a variable of the notebook, its value as JSON or as text; may be repeated",
    )
    run.add_argument(
        "--on-error",
        choices=("stop", "continue"),
        default="stop",
        help="what becomes of the rest of a notebook when a cell fails; default stop",
    )
    _add_env(run)
    run.add_argument("--cwd", metavar="FOLDER", help="where code runs, below /workspace unless absolute")
    run.add_argument("--json", action="store_true", help="print the whole result as JSON")
    _add_place(run, timeout="of code, or of each cell; default 300")


def _add_diff(add: _AddParser) -> None:
    diff = _add_verb(add, "diff", "tell what changed in the outputs of a notebook", examples.DIFF)
    diff.add_argument("before", type=Path, metavar="A.ipynb")
    diff.add_argument("after", type=Path, metavar="B.ipynb")
    diff.add_argument("--json", action="store_true", help="print the changes as JSON")


def _add_exec(add: _AddParser) -> None:
    command = _add_verb(add, "exec", "run a command", examples.EXEC + examples.EXIT_CODES)
    _add_words(command)
    command.add_argument("--stdin", action="store_true", help="give it this standard input")
    _add_env(command)
    command.add_argument(
        "--session", metavar="NAME", help="a shell of this name that keeps its state, made if there is none"
    )
    _add_place(command)


def _add_start(add: _AddParser) -> None:
    start = _add_verb(add, "start", "start a process that goes on", examples.START)
    _add_words(start)
    start.add_argument("--id", metavar="ID", help="its name; the same one and command is the same process")
    _add_env(start)
    start.add_argument("--memory", metavar="SIZE", help='for each of its processes, such as "512MiB"')
    _add_place(start, timeout="its whole tree is ended after it; default none")


def _add_jobs(add: _AddParser) -> None:
    logs = _add_verb(add, "logs", "show what a process has written", examples.LOGS)
    logs.add_argument("--follow", "-f", action="store_true", help="and what it writes, until its end")
    follow = _add_verb(
        add, "follow", "show what a process writes until its end", examples.FOLLOW + examples.EXIT_CODES
    )
    for verb in (logs, follow):
        verb.add_argument("id", metavar="ID", help="its id: sandcell ps SANDBOX lists them")
        verb.add_argument("--tail", type=_count, metavar="N", help="of what is there, the last N lines")
        verb.add_argument("--stream", choices=("stdout", "stderr"), help="of only this one")
        verb.add_argument("--timestamps", "-t", action="store_true", help="the time in front of each line")
        _add_known(verb)
    kill = _add_verb(add, "kill", "end processes and terminals", examples.KILL)
    kill.add_argument("ids", nargs="*", metavar="ID")
    kill.add_argument("--all", action="store_true", help="all processes that run in the sandbox")
    kill.add_argument("--signal", "-s", metavar="SIGNAL", help="send this, by name or number, and no other")
    kill.add_argument(
        "--grace", type=float, default=2.0, metavar="SECONDS", help="default 2; 0 kills at once"
    )
    _add_known(kill)


def _add_files(add: _AddParser) -> None:
    copy = _add_verb(add, "cp", "copy files and folders between this machine and a sandbox", examples.CP)
    copy.add_argument("source", metavar="FROM")
    copy.add_argument("target", metavar="TO")
    copy.add_argument(
        "-r", "-R", "--recursive", action="store_true", help="as cp has it: folders are whole anyway"
    )
    _add_known(copy)
    listing = _add_verb(add, "ls", "list what is in a folder of a sandbox", examples.LS)
    listing.add_argument("path", nargs="?", default=".", metavar="PATH")
    listing.add_argument("--all", "-a", action="store_true", help="also names that begin with a dot")
    listing.add_argument("--long", "-l", action="store_true", help="mode, owner, size and age in front")
    listing.add_argument("--recursive", "-R", action="store_true", help="all that is below")
    listing.add_argument(
        "--glob", action="append", default=[], metavar="PATTERN", help="only what matches; may be repeated"
    )
    listing.add_argument("--sort", choices=("name", "size", "mtime"), help="default name")
    listing.add_argument("--json", action="store_true", help="print them as JSON")
    _add_known(listing)
    show = _add_verb(add, "cat", "write files of a sandbox to standard output", examples.CAT)
    show.add_argument("paths", nargs="+", metavar="PATH")
    _add_known(show)
    edit = _add_verb(add, "edit", "edit a file of a sandbox with this machine's editor", examples.EDIT)
    edit.add_argument("path", metavar="PATH")
    _add_known(edit)


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of lines")
    return int(text)


def _network(text: str) -> str | list[str]:
    """Return a network as `Sandbox.create` takes it."""
    return text if text in ("none", "open") else text.split(",")


def _seconds(text: str) -> float:
    """Return a time in seconds; "none" is for ever."""
    try:
        return math.inf if text == "none" else float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds, and not none") from None


def _add_words(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "command", nargs=argparse.REMAINDER, metavar="COMMAND", help="all from here on is the command's"
    )
    verb.add_argument("--cwd", metavar="FOLDER", help="where it runs, below /workspace unless absolute")


def _add_env(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "--env", "-e", action="append", default=[], metavar="NAME=VALUE", help="may be repeated"
    )


def _add_known(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--sandbox", metavar="NAME", help="which sandbox; default SANDCELL_SANDBOX")


def _add_shell(add: _AddParser) -> None:
    shell = _add_verb(add, "shell", "a terminal in a sandbox", examples.SHELL)
    _add_words(shell)
    shell.add_argument("--id", metavar="ID", help="the terminal of this id, made if there is none")
    _add_env(shell)
    shell.add_argument(
        "--detach-keys", metavar="KEYS", help="what leaves it: ctrl-p,ctrl-q (default); none: nothing does"
    )
    _add_where(shell)


def _add_place(verb: argparse.ArgumentParser, *, timeout: str = "default 300") -> None:
    _add_where(verb)
    verb.add_argument("--timeout", type=_seconds, metavar="SECONDS", help=f"{timeout}; none: no limit")


def _add_network(verb: argparse._ActionsContainer) -> None:  # pyright: ignore[reportPrivateUsage] -- of parsers and groups
    verb.add_argument(
        "--network",
        type=_network,
        metavar="HOSTS",
        help='what the sandbox may reach: none (the default of a new one), open, or hosts with commas between, such as "pypi.org,*.example.org"',
    )


def _add_where(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "--sandbox", metavar="NAME", help="a sandbox of this name, made if there is none, and kept"
    )
    verb.add_argument(
        "--engine", metavar="NAME", help="auto (default), docker, podman, local, or process: no isolation"
    )
    _add_network(verb)


def _add_sandboxes(add: _AddParser) -> None:
    listing = _add_verb(add, "ps", "list the sandboxes of this machine, or what runs in one", examples.PS)
    listing.add_argument("sandbox", nargs="?", metavar="SANDBOX", help="a name or an id")
    listing.add_argument("--json", action="store_true", help="print them as JSON")
    top = _add_verb(add, "top", "list the processes in a sandbox", examples.TOP)
    _add_known(top)
    top.add_argument("--json", action="store_true", help="print them as JSON")
    port = _add_verb(add, "open", "show a port of a sandbox in the browser", examples.OPEN)
    _add_known(port)
    port.add_argument(
        "port", type=int, metavar="PORT", help="what listens in the sandbox, from 1024 to 65535"
    )
    port.add_argument("--no-browser", dest="browser", action="store_false", help="print the URL only")
    port.add_argument(
        "--rotate", action="store_true", help="with another token; the old URL is worth nothing"
    )
    update = _add_verb(add, "update", "change what a sandbox may reach and use", examples.UPDATE)
    update.add_argument("name", metavar="NAME", help="a name or an id")
    _add_network(update)
    for name in ("memory", "disk"):
        update.add_argument(f"--{name}", metavar="SIZE", help='such as "2GiB"')
    update.add_argument("--cpus", type=float, metavar="N", help="cores, such as 0.5")
    update.add_argument("--pids", type=_count, metavar="N", help="processes and threads")
    update.add_argument(
        "--idle-timeout", type=_seconds, metavar="SECONDS", help="until it is stopped or removed"
    )
    for verb, summary, said in (
        ("stop", "end what runs in sandboxes, and keep their files", examples.STOP),
        ("rm", "end sandboxes and everything in them", examples.RM),
    ):
        each = _add_verb(add, verb, summary, said)
        each.add_argument("names", nargs="+", metavar="NAME", help="a name or an id")
    snapshots = _add_verb(add, "snapshots", "list the snapshots of sandboxes", examples.SNAPSHOTS)
    snapshots.add_argument("--rm", metavar="NAME", action="append", default=[], help="remove one instead")
    prune = _add_verb(add, "prune", "clean up after programs that crashed", examples.PRUNE)
    prune.add_argument(
        "--unused-for",
        type=float,
        metavar="SECONDS",
        help="remove environments and images that nothing has used for so long; by default 30 days",
    )


def _add_image(add: _AddParser) -> None:
    image = _add_verb(add, "image", "the image of the engines docker and podman", "")
    inner = image.add_subparsers(dest="image_verb", required=True, metavar="COMMAND")
    build = _add_verb(inner.add_parser, "build", "build the runtime image", examples.IMAGE)
    build.add_argument(
        "--target",
        choices=("slim", "full"),
        default="slim",
        help="slim: Python; full: science packages, deno, a compiler",
    )
    build.add_argument(
        "--base", metavar="IMAGE", help="Debian or of its family, by default debian:bookworm-slim"
    )
    build.add_argument("--tag", metavar="NAME", help="what it is called, by default sandcell-runtime:TARGET")
    build.add_argument(
        "--packages", nargs="+", default=(), metavar="NAME", help="for the user's Python environment"
    )
    build.add_argument("--apt", nargs="+", default=(), metavar="NAME", help="Debian packages")
    build.add_argument("--preset", metavar="NAME", help="none, python, node, build, data or full")
    build.add_argument("--ca-bundle", metavar="FILE", help="certificates that pip trusts in the build alone")
    build.add_argument("--index-url", metavar="URL", help="where pip looks for packages")
    build.add_argument("--network", metavar="NAME", help="the network of the build, such as host")
    build.add_argument(
        "--engine", choices=("auto", "docker", "podman"), help="by default the first that answers"
    )


def _add_kernel(add: _AddParser) -> None:
    kernel = _add_verb(add, "kernel", "the Jupyter kernel", "")
    inner = kernel.add_subparsers(dest="kernel_verb", required=True, metavar="COMMAND")
    install = _add_verb(
        inner.add_parser, "install", "tell Jupyter of the kernel sandcell-python", examples.INSTALL
    )
    where = install.add_mutually_exclusive_group()
    where.add_argument("--sys-prefix", action="store_true", help="into this environment (default in one)")
    where.add_argument("--user", action="store_true", help="for this user (default elsewhere)")
    where.add_argument("--prefix", type=Path, metavar="FOLDER", help="below FOLDER/share/jupyter")
    install.add_argument("--name", metavar="NAME", help="a kernel sandcell-NAME beside the others")
    install.add_argument("--display-name", metavar="TEXT", help="what Jupyter shows")
    install.add_argument(
        "--language",
        action="append",
        metavar="LANGUAGE",
        help="python (default), javascript, typescript, bash, r, or all; may be repeated",
    )
    _add_kernel_options(install.add_argument_group("what it asks of the sandbox behind its notebooks"))


def _add_kernel_options(group: argparse._ArgumentGroup) -> None:  # pyright: ignore[reportPrivateUsage] -- its only name
    for name, metavar, summary in (
        ("engine", "ENGINE", "docker, podman or local"),
        ("image", "IMAGE", "what it is made from"),
        ("preset", "PRESET", "a set of packages"),
        ("memory", "SIZE", 'such as "2GiB"'),
        ("disk", "SIZE", "likewise"),
        ("sandbox", "SANDBOX", "use this one, and leave it as it is"),
        ("context", "ID", "in that one, this context"),
    ):
        group.add_argument(f"--{name}", metavar=metavar, help=summary)
    _add_network(group)
    group.add_argument("--cpus", type=float, metavar="N", help="cores, such as 0.5")
    group.add_argument("--pids", type=_count, metavar="N", help="processes and threads")
    group.add_argument(
        "--notebook-folder", choices=("ro", "rw"), help="mount the notebook's folder at /workspace/notebook"
    )
    group.add_argument(
        "--transfers", metavar="FOLDER", help="cells may copy files below it in and out without a question"
    )
    group.add_argument(
        "--network-changes", action="store_true", help="cells may change the network without a question"
    )
    for name, dest, summary in (
        ("package", "packages", "install it; may be repeated"),
        ("apt", "apt", "a package of the system; may be repeated"),
        ("mount", "mounts", "SOURCE:TARGET[:rw]; may be repeated"),
        ("publish", "publish", "PORT or HOST:PORT; may be repeated"),
    ):
        group.add_argument(
            f"--{name}", dest=dest, action="append", default=[], metavar=name.upper(), help=summary
        )
    group.add_argument("--env", action="append", default=[], metavar="NAME=VALUE", help="may be repeated")


def _add_verb(add: _AddParser, name: str, summary: str, epilog: str) -> argparse.ArgumentParser:
    return add(
        name,
        help=summary,
        description=summary[0].upper() + summary[1:] + ".",
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )

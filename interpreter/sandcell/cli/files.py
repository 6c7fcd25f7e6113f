"""`sandcell cp`, `ls`, `cat` and `edit`: files of a sandbox that has a name, which may stand before the path: NAME:PATH."""

from __future__ import annotations

import os
import shlex
import stat
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from sandcell.cli.output import table, write_stdout
from sandcell.cli.place import open_known
from sandcell.cli.progress import Progress
from sandcell.names import encode_names
from sandcell_container.errors import ErrorCode, SandcellError, error
from sandcell_container.ids import is_id
from sandcell_kernel.tables import describe_age

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Generator

    from sandcell.client.blocking.files import Files
    from sandcell.client.file_options import Sort
    from sandcell.config import Config
    from sandcell_container.file_info import FileInfo, TransferReport

__all__ = ["copy_files", "edit_file", "list_files", "show_files"]

_LETTERS = {"directory": "d", "symlink": "l", "file": "-", "other": "?"}


class _Side(NamedTuple):
    """One end of a copy: `sandbox` is None for this machine, "" for the sandbox that is named elsewhere."""

    sandbox: str | None
    path: str


def copy_files(options: argparse.Namespace, config: Config) -> int:
    """Copy a file or a folder from or to the sandbox."""
    source, target = _side(options.source), _side(options.target)
    if (source.sandbox is None) == (target.sandbox is None):
        raise error(
            ErrorCode.INVALID_ARGUMENT,
            "one of the two has to be in a sandbox, and one on this machine",
            hint="sandcell cp report.txt lab:reports/; a local name with a colon is ./a:b",
        )
    name = source.sandbox or target.sandbox or ""
    with _files(options, config, name) as files, Progress("copying", sys.stderr) as progress:
        tell = _teller(progress)
        if source.sandbox is None:
            report = files.upload(source.path, _into(files, source.path, target.path), on_progress=tell)
        else:
            report = files.download(source.path, _into_local(source.path, target.path), on_progress=tell)
    return _tell(report)


def list_files(options: argparse.Namespace, config: Config) -> int:
    """Print what is in a folder, or what is known of a file."""
    side = _side(options.path, is_inside=True)
    with _files(options, config, side.sandbox or "") as files:
        info = files.stat(side.path)
        found = [info] if info.type == "file" else _listed(files, side.path, options)
    if options.json:
        write_stdout(encode_names(found) + b"\n")
    elif options.long:
        write_stdout(table([_row(each) for each in found]) + "\n" * bool(found))
    else:
        write_stdout("".join(f"{_printable(each.relative_path)}\n" for each in found))
    return 0


def show_files(options: argparse.Namespace, config: Config) -> int:
    """Write files to standard output, byte for byte. One that cannot be read is told and passed over; returns 1 then, as cat."""
    code = 0
    for each in options.paths:
        try:
            _show_file(_side(each, is_inside=True), options, config)
        except SandcellError as problem:
            print(f"sandcell: {problem}", file=sys.stderr, flush=True)
            code = 1
    return code


def _show_file(side: _Side, options: argparse.Namespace, config: Config) -> None:
    with (
        _files(options, config, side.sandbox or "") as files,
        files.open(side.path) as opened,
    ):
        for piece in opened:
            write_stdout(piece)


def edit_file(options: argparse.Namespace, config: Config) -> int:
    """Edit a file with this machine's editor; it is written back where it has not changed in the sandbox meanwhile."""
    side = _side(options.path, is_inside=True)
    with (
        _files(options, config, side.sandbox or "") as files,
        tempfile.TemporaryDirectory(prefix="sandcell-") as folder,
    ):
        copy = Path(folder, Path(side.path).name)
        data, tag = _content(files, side.path)
        copy.write_bytes(data)
        edited = _edited(copy)
        if edited == data:
            print("sandcell: nothing was changed", file=sys.stderr)
            return 0
        try:
            files.write(side.path, edited, if_match=tag, new=tag is None)
        except SandcellError:
            print(f"sandcell: what you wrote is in {_keep(edited, copy.name)}", file=sys.stderr)
            raise
    return 0


def _content(files: Files, path: str) -> tuple[bytes, str | None]:
    """Return what is in a file and its tag; nothing, and no tag, where there is none."""
    try:
        with files.open(path) as opened:
            return opened.read(), opened.etag
    except SandcellError as problem:
        if problem.code is not ErrorCode.FILE_NOT_FOUND:
            raise
        return b"", None


@contextmanager
def _files(options: argparse.Namespace, config: Config, name: str) -> Generator[Files]:
    """Yield the files of the sandbox that is named before a path, or else by the options."""
    options.sandbox = name or options.sandbox
    with open_known(options, config) as place:
        yield place.sandbox.files


def _side(text: str, *, is_inside: bool = False) -> _Side:
    """Return what `NAME:PATH` says; without a colon, or what no sandbox can be called before it, it is on this machine,
    unless only a sandbox can be meant."""
    name, colon, path = text.partition(":")
    if not colon or (name and not is_id(name)):
        return _Side("" if is_inside else None, text)
    return _Side(name, path or ".")


def _into(files: Files, source: str, target: str) -> str:
    """Return where a copy goes: into a folder that is there, or else to this very name."""
    is_folder = target.endswith("/")
    try:
        if not is_folder:
            files.list_page(target, limit=1)
            is_folder = True
    except SandcellError as problem:
        if problem.code not in {ErrorCode.FILE_NOT_FOUND, ErrorCode.NOT_A_DIRECTORY}:
            raise
    return os.path.join(target, os.path.basename(os.path.abspath(source))) if is_folder else target


def _into_local(source: str, target: str) -> str:
    name = os.path.basename(os.path.normpath(source))
    return os.path.join(target, name) if target.endswith("/") or os.path.isdir(target) else target


def _teller(progress: Progress) -> Callable[[int, int | None], None]:
    def tell(done: int, total: int | None) -> None:
        share = "" if total is None else f" of {total / 2**20:.0f}"
        progress.label(f"copying, {done / 2**20:.0f}{share} MiB")

    return tell


def _tell(report: TransferReport) -> int:
    for each in report.skipped:
        print(f"sandcell: left out: {_printable(each)}", file=sys.stderr)
    return 0


def _listed(files: Files, path: str, options: argparse.Namespace) -> list[FileInfo]:
    sort: Sort = options.sort or "name"
    return files.list(path, recursive=options.recursive, hidden=options.all, glob=options.glob, sort=sort)


def _row(info: FileInfo) -> tuple[str, ...]:
    arrow = f" -> {_printable(info.target)}" if info.target is not None else ""
    return (
        _LETTERS[info.type] + stat.filemode(info.mode)[1:],
        info.owner,
        str(info.size),
        describe_age(time.time() - info.mtime),
        _printable(info.relative_path) + arrow,
    )


def _printable(text: str) -> str:
    """Return a name that does nothing to a terminal: user code may have put anything into it."""
    return "".join(each if each.isprintable() else "?" for each in text)


def _edited(copy: Path) -> bytes:
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    try:
        code = subprocess.run([*shlex.split(editor), str(copy)], check=False).returncode
    except OSError as problem:
        raise error(
            ErrorCode.INVALID_ARGUMENT, f"the editor {editor!r} does not start: {problem}", hint="set EDITOR"
        ) from problem
    if code:
        raise error(ErrorCode.INVALID_ARGUMENT, f"the editor ended with {code}; nothing was written")
    return copy.read_bytes()


def _keep(data: bytes, name: str) -> str:
    descriptor, path = tempfile.mkstemp(suffix=f"-{name}", prefix="sandcell-")
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
    return path

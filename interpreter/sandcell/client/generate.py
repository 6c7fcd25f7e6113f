"""Make the blocking client out of the asyncio one: `python -m sandcell.client.generate [--check]`.

Each file of `aio/` but the rim becomes the file of the same name in `blocking/`: unasync takes the words of
asyncio out, names lose their `Async`, ruff puts the lines in order. A tool for developers; it needs the
packages `unasync` and `ruff`.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

import unasync  # type: ignore[import-untyped]  # it has no types

__all__ = ["generate", "main"]

HERE = Path(__file__).parent
RIM = {"__init__.py", "channel.py"}  # written by hand on both sides
NOTE = "# Made from ../aio/{name} by `python -m sandcell.client.generate`: change that file, not this one.\n"

_NAMES = {
    "aio": "blocking",
    "aclosing": "closing",
    "anext": "next",
    "asynccontextmanager": "contextmanager",
}


def generate() -> dict[Path, str]:
    """Return what each generated file is to hold."""
    sources = [each for each in sorted((HERE / "aio").glob("*.py")) if each.name not in RIM]
    names = _NAMES | {name: name.removeprefix("Async") for each in sources for name in _async_names(each)}
    with tempfile.TemporaryDirectory() as folder:
        made = [_turn(each, Path(folder), names) for each in sources]
        return {HERE / "blocking" / each.name: _tidy(each) for each in made}


def _async_names(source: Path) -> set[str]:
    return set(re.findall(r"\bAsync[A-Z]\w*", source.read_text())) - {
        "AsyncIterator",
        "AsyncIterable",
        "AsyncGenerator",
    }


def _turn(source: Path, folder: Path, names: dict[str, str]) -> Path:
    copy = folder / "aio" / source.name
    copy.parent.mkdir(exist_ok=True)
    copy.write_text(source.read_text())
    rule = unasync.Rule("/aio/", "/blocking/", additional_replacements=names)
    unasync.unasync_files([str(copy)], [rule])
    made = folder / "blocking" / source.name
    made.write_text(NOTE.format(name=source.name) + made.read_text())
    return made


def _tidy(made: Path) -> str:
    """Return the text with its imports and `__all__` sorted by their new names, and formatted."""
    # As if it lay where it goes: what is first party and which rules hold depends on the place.
    place = ["--stdin-filename", str(HERE / "blocking" / made.name), "-"]
    text = made.read_text()
    for command in (["check", "-q", "--fix", "--select", "I001,RUF022", *place], ["format", "-q", *place]):
        ruff = [sys.executable, "-m", "ruff", *command]
        text = subprocess.run(ruff, input=text, capture_output=True, text=True, check=True, cwd=HERE).stdout
    return text


def main() -> int:
    """Write the files; with `--check` only tell which are not fresh. Returns the exit code."""
    stale = {path: text for path, text in generate().items() if not path.exists() or path.read_text() != text}
    if "--check" in sys.argv[1:]:
        for path in stale:
            sys.stderr.write(f"{path} is not fresh: run python -m sandcell.client.generate\n")
        return 1 if stale else 0
    for path, text in stale.items():
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())

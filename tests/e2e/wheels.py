"""Wheels for tests that install something, made on the spot: no index is asked."""

from __future__ import annotations

import zipfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["write_wheel"]


def write_wheel(folder: Path, name: str, *, source: str = "") -> None:
    """Write version 1 of a package with one module of its own name, and a program `NAME-says` that prints its `WORD`."""
    about = f"{name}-1.dist-info"
    files = {
        f"{name}.py": f"WORD = 'word of {name}'\n{source}\ndef say():\n    print(WORD)\n",
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{about}/entry_points.txt": f"[console_scripts]\n{name}-says = {name}:say\n",
    }
    record = "".join(f"{path},,\n" for path in (*files, f"{about}/RECORD"))
    with zipfile.ZipFile(folder / f"{name}-1-py3-none-any.whl", "w") as wheel:
        for path, text in {**files, f"{about}/RECORD": record}.items():
            wheel.writestr(path, text)

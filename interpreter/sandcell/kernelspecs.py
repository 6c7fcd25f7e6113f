"""The kernels that are installed in the user's environment: Jupyter's kernelspecs, read with the user's rights."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from string import Template
from typing import TYPE_CHECKING, Literal

import msgspec

from sandcell_container.errors import SandcellError
from sandcell_container.guest.files import ListPlan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sandcell_container.guest.files import Files

__all__ = ["KernelSpec", "KernelSpecs", "folders_of", "parse_kernelspec"]

log = logging.getLogger(__name__)

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,61}")
_MOST_SPECS = 100
_MOST_BYTES = 64 * 2**10
# As whoever starts kernels for Jupyter says it: without, an ipykernel thinks that a person has started it, and prints how to
# connect. With 1 it does not look whether its parent has changed.
_JUPYTER = {"JPY_PARENT_PID": "1"}
_OWN = "sandcell.launch_kernel"  # a kernel of ours, which would make a sandbox in the sandbox


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelSpec:
    """How a kernel is started. `language` as the spec has it, `env` beside the user's."""

    name: str
    argv: tuple[str, ...]
    language: str = ""
    display_name: str = ""
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    interrupts: Literal["signal", "message"] = "signal"
    folder: str = ""

    def command(self, connection_file: str) -> tuple[str, ...]:
        """Return the words of its command. Source: Jupyter's "Making kernels for Jupyter"."""
        places = {"{connection_file}": connection_file, "{resource_dir}": self.folder}
        return tuple(_fill(word, places) for word in self.argv)

    def environment(self, env: Mapping[str, str]) -> dict[str, str]:
        """Return `env` with the spec's own, where ${NAME} stands for a variable of `env`."""
        return {**env, **{name: Template(value).safe_substitute(env) for name, value in self.env.items()}}


class _SpecFile(msgspec.Struct):
    argv: list[str]
    language: str = ""
    display_name: str = ""
    env: dict[str, str] = {}
    interrupt_mode: str = "signal"


class KernelSpecs:
    """The specs in some folders, the first folder first; looked up anew each time, as code may install one."""

    def __init__(self, files: Files, folders: Sequence[str]) -> None:
        self._files = files
        self._folders = tuple(folders)

    async def find(self, name: str) -> KernelSpec | None:
        """Return the spec of this name, or the first whose language is called so; None where there is none."""
        wanted = name.strip().lower()
        specs = await self.all()
        same = (each for each in specs if each.name == wanted)
        speaks = (each for each in specs if each.language.lower() == wanted)
        return next(same, None) or next(speaks, None)

    async def all(self) -> list[KernelSpec]:
        """Return what there is; a spec that cannot be read is left out, and hides none of the same name."""
        found: dict[str, KernelSpec] = {}
        for folder in self._folders:
            for name in await self._names_in(folder):
                spec = await self._read(folder, name) if name.lower() not in found else None
                if spec is not None:
                    found[spec.name] = spec
        return list(found.values())

    async def _names_in(self, folder: str) -> list[str]:
        try:
            page = await self._files.list(folder, ListPlan(limit=_MOST_SPECS))
        except SandcellError as problem:
            log.debug("no kernelspecs folder=%s code=%s", folder, problem.code)
            return []
        return [each.name for each in page.files if _NAME.fullmatch(each.name.lower())]

    async def _read(self, folder: str, name: str) -> KernelSpec | None:
        path = f"{folder}/{name}"
        try:
            file = await self._files.read(f"{path}/kernel.json")
        except SandcellError as problem:
            log.debug("no kernelspec path=%s code=%s", path, problem.code)
            return None
        try:
            text = bytearray()
            async for chunk in file.chunks():
                text += chunk
                if len(text) > _MOST_BYTES:
                    return None
        finally:
            await file.aclose()
        return parse_kernelspec(name.lower(), bytes(text), folder=path)


def parse_kernelspec(name: str, text: bytes, *, folder: str = "") -> KernelSpec | None:
    """Return the spec in the text of a kernel.json, None where it is none that can be started here."""
    try:
        read = msgspec.json.decode(text, type=_SpecFile)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    if not read.argv or not all(read.argv[:1]) or _OWN in read.argv:
        return None
    return KernelSpec(
        name=name,
        argv=tuple(read.argv),
        language=read.language,
        display_name=read.display_name,
        env={**_JUPYTER, **read.env},
        interrupts="message" if read.interrupt_mode == "message" else "signal",
        folder=folder,
    )


def folders_of(env: Mapping[str, str]) -> list[str]:
    """Return the folders of kernelspecs that belong to an environment of user code, the user's own first."""
    prefixes = [
        folder[: -len("/bin")] for folder in env.get("PATH", "").split(":") if folder.endswith("/bin")
    ]
    homes = [f"{env['HOME']}/.local"] if "HOME" in env else []
    return list(dict.fromkeys(f"{place}/share/jupyter/kernels" for place in (*homes, *prefixes)))


def _fill(word: str, places: Mapping[str, str]) -> str:
    for mark, value in places.items():
        word = word.replace(mark, value)
    return word

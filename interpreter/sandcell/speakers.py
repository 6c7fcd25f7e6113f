"""Which languages there are in a sandbox, and who makes the kernels of each."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from sandcell.kernelspecs import KernelSpec, KernelSpecs
from sandcell.languages import LANGUAGES, Language, named, unknown_language
from sandcell.life import ProcessMaker
from sandcell.spec_starter import ForeignLanguage, SpecStarter
from sandcell_container.errors import ErrorCode, error
from sandcell_container.guest.files import Files
from sandcell_container.guest.spawn import Spawner
from sandcell_kernel.deno import DenoDialect
from sandcell_kernel.dialects import RDialect

if TYPE_CHECKING:
    from sandcell.life import KernelMaker

__all__ = ["ForeignKernels", "Speakers"]

_DENO = KernelSpec(
    name="deno",
    argv=("deno", "jupyter", "--kernel", "--conn", "{connection_file}"),
    env={"DENO_NO_UPDATE_CHECK": "1", "NO_COLOR": "1"},
    interrupts="message",  # SIGINT ends it
)
_DENO_GRACE_S = 1.0  # code that computes stops within milliseconds, code that waits never does
_DENO_RESERVED = 2**30
_INSTALL_DENO = "pip install deno, in the environment that user code gets"
_INSTALL_R = "apt-get install r-base-core r-cran-irkernel, or IRkernel::installspec() where R is"
_MOST_LEARNT = 100


@dataclass(frozen=True, slots=True)
class ForeignKernels:
    """Makes the kernels that are not ours: Deno's, R's, and those of kernelspecs."""

    spawner: Spawner
    files: Files
    specs: KernelSpecs

    def of(self, name: str) -> KernelMaker:
        """Return who makes the kernels of this language, which is neither python nor bash."""
        return ProcessMaker(SpecStarter(self._language(name), self.spawner, self.files))

    def _language(self, name: str) -> ForeignLanguage:
        match name:
            case "javascript" | "typescript":
                return ForeignLanguage(
                    name=name,
                    find=_find_deno,
                    install=_INSTALL_DENO,
                    dialect=partial(DenoDialect, name),
                    grace=_DENO_GRACE_S,
                    reserved=_DENO_RESERVED,
                )
            case "r":
                return ForeignLanguage(
                    name=name, find=partial(self.specs.find, "r"), install=_INSTALL_R, dialect=RDialect
                )
            case _:
                return ForeignLanguage(
                    name=name, find=partial(self.specs.find, name), install="install its kernel again"
                )


class Speakers:
    """All languages of a sandbox. Without `foreign` and `shells` there is python alone.

    A name that is not one of ours has to be learnt before it is one: its kernelspec is looked up.
    """

    def __init__(self, *, foreign: ForeignKernels | None = None, shells: KernelMaker | None = None) -> None:
        self._foreign = foreign
        self._makers: dict[str, KernelMaker] = {"bash": shells} if shells is not None else {}
        self._learnt: dict[str, Language] = {}

    def language(self, name: str) -> Language:
        """Return the language of this name or alias.

        Raises:
            InvalidRequest (UNKNOWN_LANGUAGE): there is none, or it was not learnt yet.
        """
        found = named(name) or self._learnt.get(name.strip().lower())
        if found is None or not self._has(found):
            raise unknown_language(name, self._known())
        return found

    async def learn(self, name: str) -> None:
        """Look up the kernelspec of a name that is not known yet.

        Raises:
            InvalidRequest (UNKNOWN_LANGUAGE): there is none; the error lists what there is.
        """
        wanted = name.strip().lower()
        if named(wanted) is not None or wanted in self._learnt or self._foreign is None:
            return
        spec = await self._foreign.specs.find(wanted)
        if spec is None:
            there = [each.name for each in await self._foreign.specs.all() if named(each.name) is None]
            raise unknown_language(name, [*self._known(), *there])
        if len(self._learnt) >= _MOST_LEARNT:
            raise error(ErrorCode.QUOTA_EXCEEDED, f"{_MOST_LEARNT} kernels were used by their names")
        self._learnt[wanted] = self._learnt.get(spec.name) or Language(name=spec.name)
        self._learnt[spec.name] = self._learnt[wanted]

    def maker(self, language: Language) -> KernelMaker | None:
        """Return who makes its kernels, None for python."""
        if language.name == "python" or (self._foreign is None and language.name not in self._makers):
            return None
        if language.name not in self._makers and self._foreign is not None:
            self._makers[language.name] = self._foreign.of(language.name)
        return self._makers[language.name]

    def _has(self, language: Language) -> bool:
        return language.name in ("python", *self._makers) or (
            self._foreign is not None and language.name != "bash"
        )

    def _known(self) -> list[str]:
        return [each.name for each in LANGUAGES if self._has(each)]


async def _find_deno() -> KernelSpec:
    return _DENO

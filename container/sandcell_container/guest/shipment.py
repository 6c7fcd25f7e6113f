"""The text of the worker's program: its modules, each compiled there when it is first imported.

Read while the guest is imported: once it has entered a sandbox it no longer sees its own files.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["PROGRAM"]

_PACKAGES = ("sandcell_container", "sandcell_container.guest", "sandcell_container.guest.worker")
_SHARED = (
    "drafts",
    "file_tag",
    "holes",
    "tar_folder",
    "tar_reader",
    "tar_writer",
)  # of the package itself: standard library only, too

_BOOTSTRAP = """
import sys
from _frozen_importlib import ModuleSpec
TEXTS = {texts!r}
class Shipped:
    def find_spec(self, name, path=None, target=None):
        return ModuleSpec(name, self, is_package=not TEXTS[name]) if name in TEXTS else None
    def create_module(self, spec):
        return None
    def exec_module(self, module):
        name = module.__name__
        exec(compile(TEXTS[name], name, "exec"), module.__dict__)
sys.meta_path.insert(0, Shipped())
from sandcell_container.guest.worker.program import main
main()
"""


def _read_texts() -> dict[str, str]:
    guest = Path(__file__).parent
    texts: dict[str, str] = dict.fromkeys(_PACKAGES, "")
    for path in sorted((guest / "worker").glob("*.py")):
        if path.stem != "__init__":
            texts[f"sandcell_container.guest.worker.{path.stem}"] = path.read_text("utf-8")
    for name in _SHARED:
        texts[f"sandcell_container.{name}"] = (guest.parent / f"{name}.py").read_text("utf-8")
    return texts


PROGRAM = _BOOTSTRAP.format(texts=_read_texts())

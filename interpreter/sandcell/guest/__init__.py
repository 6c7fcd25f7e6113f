"""The guest: the one server of a sandbox. Thin handlers over contexts, commands and files.

An engine that starts guests by forking imports PRELOAD before it forks; after a guest has entered its sandbox
nothing more can be imported. The last one imports all others: they stand for themselves because what an engine is asked for
is begun between two of them.
"""

from importlib.util import find_spec

__all__ = ["MODULE", "PRELOAD", "runtime_dir"]

MODULE = "sandcell.guest.main"
PRELOAD = (
    "asyncio",
    "tornado.web",
    "sandcell_container.guest.files",
    "sandcell.context",
    "sandcell.guest.git_handler",
    "sandcell.guest.port_handlers",
    "sandcell.guest.app",
    MODULE,
)


def runtime_dir() -> str:
    """Return the folder of `sandcell_runtime`, which runs in the user's interpreter."""
    found = find_spec("sandcell_runtime")
    places = list(found.submodule_search_locations or ()) if found else []
    return places[0]

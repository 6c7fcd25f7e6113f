"""The program of a kernel on the host: `python -m sandcell.launch_kernel -f CONNECTION_FILE`, started by Jupyter.

Before a cell runs, two processes import for as long as a plain kernel does: this one, and the one that guests are forked from. So
that one is started here, before anything heavy is imported, and both import at the same time.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sandcell.guest import PRELOAD, runtime_dir
from sandcell_container.engines.zygote_process import ZygoteProcess
from sandcell_container.errors import SandcellError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["main", "needs_zygote", "start_zygote"]

_START_S = 60.0


def needs_zygote(spec: str, environ: Mapping[str, str]) -> bool:
    """Tell whether the sandbox will be forked on this machine, as far as that can be told at once. Pure but for a look whether
    containers are an option.

    `spec` is what the kernelspec asks for; a notebook may ask for neither an engine nor another sandbox. What is wrong with
    options is for others to say.
    """
    wished = dict[str, Any]()
    for options in (spec, environ.get("SANDCELL_KERNEL_OPTIONS") or "{}"):
        try:
            wished |= json.loads(options)
        except (TypeError, ValueError):
            return False
    if environ.get("SANDCELL_SANDBOX") or wished.get("sandbox") is not None:
        return False
    engine = environ.get("SANDCELL_ENGINE", "auto")
    engine = wished.get("engine", "auto") if engine == "auto" else engine
    return engine == "local" or (engine == "auto" and find_spec("docker") is None)


def start_zygote() -> ZygoteProcess:
    """Start the process that guests are forked from, and wait for nothing. It ends with this one, whatever way that ends."""
    return ZygoteProcess(PRELOAD, runtime=runtime_dir(), tie="host", timeout=_START_S)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the kernel process. Blocks until its end; without its sockets it says why, and exits with 1."""
    parser = argparse.ArgumentParser(prog="python -m sandcell.launch_kernel", description=__doc__)
    parser.add_argument("-f", dest="connection_file", type=Path, required=True, help="made by Jupyter")
    parser.add_argument("--options", default="{}", help="JSON: what the kernelspec asks of the sandbox")
    given = parser.parse_args(arguments)
    zygote = start_zygote() if needs_zygote(given.options, os.environ) else None
    gc.disable()  # until all is imported: it would find next to nothing
    from sandcell.kernel_process import serve  # most of this program: from here on two processes import

    gc.freeze()
    gc.enable()
    try:
        serve(given.connection_file, given.options, zygote)
    except (OSError, SandcellError) as problem:
        sys.exit(f"{parser.prog}: {problem}")
    finally:
        if zygote is not None:
            zygote.close()


if __name__ == "__main__":
    main()

"""What the sandbox uses right now: by its control group or its processes, and by a look at its files."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import TYPE_CHECKING

from sandcell_container.errors import SandcellError
from sandcell_container.guest.start import Start

if TYPE_CHECKING:
    from sandcell.guest.desk import Desk
    from sandcell_container.guest.spawn import Spawner
    from sandcell_container.usage import Stats

__all__ = ["measure"]

DISK_S = 2.0  # a look that takes longer is given up, and the answer says that it does not know
_DU = "/usr/bin/du"  # the system's own, which user code cannot replace
_LONGEST = 2**14
_ENV = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}


async def measure(guest: Desk) -> Stats:
    """Return what the sandbox uses of its limits. Raises Gone (SANDBOX_GONE)."""
    live = [] if guest.meter.has_group else await guest.table.read()
    folders = tuple(dict.fromkeys((guest.boot.workdir, guest.boot.home)))
    return guest.meter.stats(live, await _disk_use(guest.spawner, folders))


async def _disk_use(spawner: Spawner, folders: tuple[str, ...]) -> int | None:
    """Return the bytes on the disk of all that is below `folders`, None where that takes too long or cannot be told."""
    with os.fdopen(os.memfd_create("disk"), "rb") as said:
        start = Start(argv=(_DU, "-skx", *folders), env=_ENV, cwd="/", stdout=said.fileno())
        try:
            job = await spawner.start(start)
        except SandcellError:
            return None  # no room for another process, or no such program
        try:
            async with asyncio.timeout(DISK_S):
                await job.wait()
        except TimeoutError:
            return None
        finally:
            if not job.is_settled:
                job.signal(signal.SIGKILL, "tree")
        said.seek(0)
        return _sum_of(said.read(_LONGEST))


def _sum_of(text: bytes) -> int | None:
    """Add up what du says, in kB for each folder; it says less where it may not look, and that is not the user's either."""
    sizes = [line.partition(b"\t")[0] for line in text.splitlines()]
    return sum(map(int, sizes)) * 1024 if sizes and all(map(bytes.isdigit, sizes)) else None

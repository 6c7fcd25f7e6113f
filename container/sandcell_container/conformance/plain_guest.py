"""A guest without HTTP, contexts or leases: one JSON line in, one out, on each connection to its unix socket.

{"run": [argv]} runs a program as user code; {"see": path} lists what the guest itself finds there; {"about": "boot"} and
{"about": "process"} tell what it was told and what it is.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Literal

from sandcell_container.guest.spawn import Spawner
from sandcell_container.guest.start import Start
from sandcell_container.spec import GuestCommand

if TYPE_CHECKING:
    import socket

    from sandcell_container.guest.boot import GuestBoot

__all__ = ["command", "fail", "serve"]


def command(runtime_dir: str, *, function: Literal["serve", "fail"] = "serve") -> GuestCommand:
    """Return how an engine starts this guest."""
    return GuestCommand(module=__name__, function=function, runtime_dir=runtime_dir)


def serve(boot: GuestBoot, listener: socket.socket, spawner: socket.socket) -> None:
    """Be the guest until the spawner's end closes. Called by an engine, see `GuestCommand`."""
    asyncio.run(_serve(boot, listener, spawner))


def fail(boot: GuestBoot, listener: socket.socket, spawner: socket.socket) -> None:
    """Be a guest that ends as soon as it was called."""
    raise RuntimeError(f"the guest of {boot.name} fails on purpose")


async def _serve(boot: GuestBoot, listener: socket.socket, channel: socket.socket) -> None:
    async with Spawner(channel) as spawner:

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            question: dict[str, Any] = json.loads(await reader.readline())
            writer.write(json.dumps(await _answer(question, boot, spawner)).encode() + b"\n")
            await writer.drain()
            writer.close()

        server = await asyncio.start_unix_server(answer, sock=listener)
        await spawner.gone()
        server.close()


async def _answer(question: dict[str, Any], boot: GuestBoot, spawner: Spawner) -> object:
    match question:
        case {"run": argv}:
            return await _run(tuple(argv), boot, spawner)
        case {"see": path}:
            return _see(path)
        case {"about": "boot"}:
            return asdict(boot)
        case {"about": "process"}:
            return _about()
        case _:
            raise ValueError(f"what is {question}?")


async def _run(argv: tuple[str, ...], boot: GuestBoot, spawner: Spawner) -> dict[str, object]:
    # A file and no pipe: the end of the program counts, not that of whatever holds its output open.
    with os.fdopen(os.memfd_create("output"), "rb") as output:
        job = await spawner.start(
            Start(
                argv=argv, env=boot.base_env, cwd=boot.workdir, stdout=output.fileno(), stderr=output.fileno()
            )
        )
        ended = await job.wait()
        output.seek(0)
        text = output.read().decode(errors="replace")
    return {"output": text, "code": os.waitstatus_to_exitcode(ended.status)}


def _see(path: str) -> list[str] | str | None:
    try:
        return sorted(os.listdir(path))
    except OSError as failed:
        return failed.strerror


def _about() -> dict[str, object]:
    return {
        "pid": os.getpid(),
        "uids": os.getresuid(),
        "groups": os.getgroups(),
        "path": sys.path,
        "environ": dict(os.environ),
        "threads": threading.active_count(),
    }

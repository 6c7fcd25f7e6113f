"""The sandbox of a kernel's own: made, found again by the process that follows a restart, put aside, removed.

A restart ends the kernel process and starts another one with the same connection. The sandbox has a name that both know,
and is stopped in between: files stay, and nothing that ran does.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, cast

from sandcell.api import SandboxInfo
from sandcell.client.aio.sandbox import AsyncSandbox
from sandcell.client.aio.transport import AsyncTransport
from sandcell.client.changes import Change, ChangeOptions
from sandcell.client.host import the_host
from sandcell.client.protocol import Request, path_of
from sandcell_container.engines.hosted import HostedEngine
from sandcell_container.errors import NotFound
from sandcell_container.record_file import open_plain

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sandcell_container.engine import Updated
    from sandcell_container.engines.zygote_process import ZygoteProcess
    from sandcell_container.spec import OnRelease, SandboxSpec

__all__ = ["change_own", "hand_over", "name_for", "notebook_options", "open_own", "put_aside", "remove_own"]

_LARGEST_NOTEBOOK = 64 * 2**20


def name_for(key: str) -> str | None:
    """Return the name of the sandbox of the kernel with this key, None where it has none: then nobody finds it again."""
    return f"kernel-{hashlib.blake2s(key.encode(), digest_size=10).hexdigest()}" if key else None


async def open_own(name: str | None, options: Mapping[str, Any]) -> AsyncSandbox:
    """Return the sandbox of this name that the process before has put aside, or a new one. Raises as `Sandbox.create`."""
    sandbox = await AsyncSandbox.create(**cast("Any", {**options, "name": name, "reuse": name is not None}))
    await _set_release(sandbox, "remove")  # whatever becomes of this process
    return sandbox


async def hand_over(zygote: ZygoteProcess, engine: str) -> None:
    """Give a zygote that was started ahead to the engine of this name; one that has no use for it ends it.

    Errors: those of `Host.engine`; then it is left as it is.
    """
    opened = (await asyncio.to_thread(the_host().engine, engine)).engine
    if isinstance(opened, HostedEngine):
        opened.adopt(zygote)
    else:
        await asyncio.to_thread(zygote.close)


async def change_own(sandbox: AsyncSandbox, **options: Unpack[ChangeOptions]) -> Updated:
    """Change it as `Sandbox.update` does, whichever process has made it. Raises as that."""
    host = the_host()
    change = Change(options)
    engine = (await asyncio.to_thread(host.engine, sandbox.engine)).engine
    done = await asyncio.to_thread(engine.update, sandbox.id, change)
    if done.restarted:
        await sandbox.start()
        return done
    record = await asyncio.to_thread(engine.find, sandbox.id)
    if record is not None and record.status == "running":
        transport = AsyncTransport(
            record.address,
            record.token,
            connect_timeout=host.config.connect_timeout,
            reply_timeout=host.config.reply_timeout,
        )
        try:
            await transport.call(
                Request(method="PATCH", path=path_of("info"), body=change.body, wakes=False), SandboxInfo
            )
        finally:
            transport.close()
    return done


async def put_aside(sandbox: AsyncSandbox) -> None:
    """End all that runs in it, and keep its files for the process that follows."""
    await _set_release(sandbox, "stop")
    engine = (await asyncio.to_thread(the_host().engine, sandbox.engine)).engine
    await asyncio.to_thread(engine.stop, sandbox.id)


async def remove_own(sandbox: AsyncSandbox) -> None:
    """End it for good. One that is gone is fine."""
    engine = (await asyncio.to_thread(the_host().engine, sandbox.engine)).engine
    try:
        await asyncio.to_thread(engine.remove, sandbox.id)
    except NotFound:
        return


async def _set_release(sandbox: AsyncSandbox, on_release: OnRelease) -> None:
    engine = (await asyncio.to_thread(the_host().engine, sandbox.engine)).engine
    found = await asyncio.to_thread(engine.find, sandbox.id)
    if found is not None and found.on_release != on_release:
        await asyncio.to_thread(engine.update, sandbox.id, partial(_released, on_release))


def _released(on_release: OnRelease, spec: SandboxSpec) -> SandboxSpec:
    return replace(spec, on_release=on_release)


def notebook_options(path: str) -> dict[str, Any]:
    """Return what the notebook at `path` says of its sandbox in `metadata.sandcell`; nothing where there is no notebook
    that can be read. Its front end names it: consoles and programs that run notebooks do not.

    Where its folder is mounted, code in the sandbox may have put anything in its place."""
    if not path.endswith(".ipynb"):
        return {}
    try:
        with open(open_plain(Path(path)), "rb") as file:
            text = file.read(_LARGEST_NOTEBOOK + 1)
        if len(text) > _LARGEST_NOTEBOOK:
            return {}
        found: Any = json.loads(text)
        told = found["metadata"]["sandcell"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return {}
    return cast("dict[str, Any]", told) if isinstance(told, dict) else {}

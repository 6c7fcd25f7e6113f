"""The doors of one handle, and the thread that they are served in.

A thread, for the asyncio client as well: a page in a browser is then served while the program computes, and over the end of
one event loop and the begin of the next. It is started with the first exposure and ends with the handle.
"""

from __future__ import annotations

import asyncio
import os
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING

from sandcell.ports.door import Door

if TYPE_CHECKING:
    from sandcell.ports.tunnel import Guest

__all__ = ["Keeper"]

_END_S = 5.0


class Keeper:
    """See the module. Thread-safe; its calls block, for a moment. Of the process that made it alone: a fork has no such thread."""

    def __init__(self, guest: Guest, public_host: str | None) -> None:
        self.pid = os.getpid()
        self._guest = guest
        self._public_host = public_host
        self._lock = threading.Lock()
        self._doors = dict[int, Door]()
        self._tasks = dict[int, asyncio.Task[None]]()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._over = asyncio.Event()
        self._group = asyncio.TaskGroup()
        self._thread: threading.Thread | None = None

    def open(self, port: int, token: str) -> str:
        """Serve `port` to who has `token`, and return the URL; another token takes the place of the one before."""
        with self._lock:
            if self._loop is None:
                self._loop = self._start()
            return asyncio.run_coroutine_threadsafe(self._open(port, token), self._loop).result()

    def url(self, port: int, token: str) -> str | None:
        """Return the URL of `port` where it is served here with this token."""
        door = self._doors.get(port)
        return door.url if door is not None and door.opens_with(token) else None

    def close(self, port: int) -> None:
        """Serve `port` no more. Nothing where it is not."""
        with self._lock:
            if self._loop is not None:
                asyncio.run_coroutine_threadsafe(self._close(port), self._loop).result()

    def stop(self) -> None:
        """Serve nothing more. Twice is fine, and so is a forked child."""
        if self.pid != os.getpid():
            return
        with self._lock:
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
            if loop is not None and thread is not None:
                loop.call_soon_threadsafe(self._over.set)
                thread.join(_END_S)

    def _start(self) -> asyncio.AbstractEventLoop:
        started: Future[asyncio.AbstractEventLoop] = Future()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._run(started)), name="sandcell-ports", daemon=True
        )
        self._thread.start()
        return started.result()

    async def _run(self, started: Future[asyncio.AbstractEventLoop]) -> None:
        self._over = asyncio.Event()
        self._group = asyncio.TaskGroup()
        async with self._group:
            started.set_result(asyncio.get_running_loop())
            await self._over.wait()
            for task in self._tasks.values():
                task.cancel()
        self._doors.clear()
        self._tasks.clear()

    async def _open(self, port: int, token: str) -> str:
        door = self._doors.get(port)
        if door is None:
            door = self._doors[port] = Door(self._guest, port, token, self._public_host)
            self._tasks[port] = self._group.create_task(door.serve())
        else:
            door.change_token(token)
        return door.url

    async def _close(self, port: int) -> None:
        self._doors.pop(port, None)
        task = self._tasks.pop(port, None)
        if task is not None:
            task.cancel()
            await asyncio.wait({task})

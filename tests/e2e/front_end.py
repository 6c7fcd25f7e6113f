"""A front end for tests: cells go in, what comes of each is kept by the id of its request."""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from jupyter_client.manager import AsyncKernelManager

from sandcell_kernel.install import KERNEL_NAME

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from jupyter_client.asynchronous.client import AsyncKernelClient

__all__ = ["PATIENCE_S", "Cell", "Notebook", "open_notebook"]

PATIENCE_S = 20.0


@dataclass
class Cell:
    """What a front end has been told of a cell."""

    reply: dict[str, Any] = field(default_factory=dict[str, Any])
    outputs: list[tuple[str, dict[str, Any]]] = field(default_factory=list[tuple[str, dict[str, Any]]])
    states: list[str] = field(default_factory=list[str])

    def text(self, name: str = "stdout") -> str:
        return "".join(
            body["text"] for kind, body in self.outputs if kind == "stream" and body["name"] == name
        )

    def kinds(self) -> list[str]:
        return [kind for kind, _ in self.outputs]


class Notebook:
    """A front end: cells go in, what comes of each is kept by the id of its request."""

    def __init__(self, manager: AsyncKernelManager, client: AsyncKernelClient) -> None:
        self.manager = manager
        self.client = client
        self._cells: dict[str, Cell] = {}

    def send(self, code: str, **options: Any) -> str:
        """Send a cell off and return its id."""
        msg_id: str = self.client.execute(code, **options)
        self._cells[msg_id] = Cell()
        return msg_id

    def send_message(self, message: dict[str, Any], channel: str = "shell") -> str:
        """Send a message of the client's session, and return its id; what answers a cell is kept."""
        msg_id: str = message["header"]["msg_id"]
        if message["msg_type"] == "execute_request":
            self._cells[msg_id] = Cell()
        (self.client.shell_channel if channel == "shell" else self.client.control_channel).send(message)
        return msg_id

    async def request(self, kind: str, content: dict[str, Any], channel: str = "shell") -> dict[str, Any]:
        """Send a request that is no cell, and return the content of its reply."""
        message: dict[str, Any] = self.client.session.msg(kind, content)
        return await self.ask(channel, self.send_message(message, channel))

    async def run(self, code: str, **options: Any) -> Cell:
        return await self.finish(self.send(code, **options))

    async def finish(self, msg_id: str) -> Cell:
        """Return a cell when its reply and its idle are there."""
        cell = self._cells[msg_id]
        async with asyncio.timeout(PATIENCE_S):
            while not cell.reply:
                message: dict[str, Any] = await self.client.get_shell_msg()
                parent = message["parent_header"].get("msg_id")
                if parent in self._cells:
                    self._cells[parent].reply = message["content"]
            while "idle" not in cell.states:
                await self._read_published()
        return cell

    async def until_printed(self, msg_id: str, text: str, name: str = "stdout") -> None:
        """Return when a cell has shown `text`."""
        async with asyncio.timeout(PATIENCE_S):
            while text not in self._cells[msg_id].text(name):
                await self._read_published()

    async def ask(self, channel: str, msg_id: str) -> dict[str, Any]:
        """Return the content of the reply to a request that is no cell."""
        get = self.client.get_shell_msg if channel == "shell" else self.client.get_control_msg
        async with asyncio.timeout(PATIENCE_S):
            while True:
                message: dict[str, Any] = await get()
                if message["parent_header"].get("msg_id") == msg_id:
                    content: dict[str, Any] = message["content"]
                    return content

    async def _read_published(self) -> None:
        message: dict[str, Any] = await self.client.get_iopub_msg()
        cell = self._cells.get(message["parent_header"].get("msg_id", ""))
        if cell is None:
            return
        if message["msg_type"] == "status":
            cell.states.append(message["content"]["execution_state"])
        elif message["msg_type"] != "execute_input":
            cell.outputs.append((message["msg_type"], message["content"]))


@asynccontextmanager
async def open_notebook(*, kernel: str = KERNEL_NAME, **env: str) -> AsyncGenerator[Notebook]:
    """Start the kernel as Jupyter does, and shut it down as Jupyter does."""
    manager = AsyncKernelManager(kernel_name=kernel)
    await manager.start_kernel(env={**os.environ, **env})
    client: AsyncKernelClient = manager.client()
    client.start_channels()
    try:
        await client.wait_for_ready(timeout=PATIENCE_S)
        yield Notebook(manager, client)
    finally:
        client.stop_channels()
        await manager.shutdown_kernel(now=False)

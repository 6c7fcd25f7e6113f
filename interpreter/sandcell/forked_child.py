"""A child of a fork server on its way to be a kernel.

Knows the protocol of `sandcell_runtime.newborn`, which its docstring fixes. What a child says is user code's word,
and believed for that child alone.
"""

from __future__ import annotations

import asyncio
import json
import signal
from typing import TYPE_CHECKING, Any

import msgspec

from sandcell.starter import StartedKernel
from sandcell_kernel.channels import new_connection

if TYPE_CHECKING:
    import socket

    from sandcell.starter import KernelRequest, LastWords
    from sandcell_container.guest.job import Job
    from sandcell_kernel.channels import Connection

__all__ = ["ForkFailed", "ForkedChild", "Stale"]


class ForkFailed(Exception):
    """This kernel cannot be had from a fork server; another way may do."""


class Stale(ForkFailed):
    """What the server has in memory is not what a fresh interpreter would have.

    `kind` is "core" (what every kernel needs), "extra" (what was preloaded), or "files" (what decides of both).
    """

    def __init__(self, kind: str, names: list[str]) -> None:
        super().__init__(f"changed in the environment of user code: {', '.join(names)[:500]}")
        self.kind = kind


class ForkedChild:
    """One child, told its birth. Whoever has it takes its kernel, or closes it."""

    def __init__(
        self,
        job: Job,
        words: LastWords,
        request: KernelRequest,
        connection: Connection,
        streams: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        self.request = request
        self.job = job
        self._words = words
        self._connection = connection
        self._reader, self._writer = streams

    @classmethod
    async def be_born(
        cls, job: Job, channel: socket.socket, words: LastWords, request: KernelRequest
    ) -> ForkedChild:
        """Return the child of `job`, which begins to be what `request` says. It owns all that it is given."""
        streams = await asyncio.open_unix_connection(sock=channel)
        child = cls(job, words, request, new_connection(), streams)
        child._say(
            env=dict(request.env),
            cwd=request.cwd,
            connection=child._connection.to_dict(),
            settings=request.settings,
        )
        return child

    async def ready(self, timeout: float) -> None:
        """Return when its sockets are bound. Raises ForkFailed, Stale."""
        await self._hear("ready", timeout)

    async def attach(self, request: KernelRequest, timeout: float) -> StartedKernel:
        """Return it as the kernel of `request`, which may differ in `env` and `cwd` from what it was born as.

        May be called before it is ready. Raises ForkFailed, Stale; then it is closed.
        """
        try:
            self._say(env=dict(request.env), cwd=request.cwd)
            await self._hear("attached", timeout)
        except BaseException:
            self.close()
            raise
        self._writer.close()
        return StartedKernel(job=self.job, connection=self._connection, words=self._words)

    def close(self) -> None:
        """End it."""
        self._writer.close()
        self._words.close()
        self.job.signal(signal.SIGKILL, "tree")

    def _say(self, **fields: object) -> None:
        self._writer.write(json.dumps(fields).encode() + b"\n")

    async def _hear(self, word: str, timeout: float) -> None:
        """Read until it says `word`."""
        try:
            async with asyncio.timeout(timeout):
                while not (said := _parse(await self._reader.readline())).get(word):
                    if "stale" in said:
                        raise Stale(str(said["stale"]), [str(name) for name in said.get("names", ())])
                    if "ready" not in said:
                        raise ForkFailed(
                            str(said.get("failed", f"a child ended: {self._words.text[-1000:]}"))
                        )
        except TimeoutError:
            raise ForkFailed(f"a child was not {word} within {timeout:g} s") from None
        except (OSError, ValueError) as problem:
            raise ForkFailed(f"a child did not say {word}: {problem}") from None


def _parse(line: bytes) -> dict[str, Any]:
    """Return what a line says; an end of file says nothing. Raises ValueError."""
    return msgspec.json.decode(line, type=dict[str, Any]) if line else {}

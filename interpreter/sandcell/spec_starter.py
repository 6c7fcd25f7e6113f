"""Kernels that are not ours, started as a kernelspec says, with a connection file and TCP: what every kernel can."""

from __future__ import annotations

import json
import os
import secrets
import socket
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from sandcell.own_output import OwnOutput
from sandcell.starter import StartedKernel
from sandcell_container.errors import ErrorCode, SandcellError, error
from sandcell_container.guest.start import Start
from sandcell_kernel.channels import Connection
from sandcell_kernel.dialects import Dialect, Plain

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Iterator, Mapping

    from sandcell.kernelspecs import KernelSpec
    from sandcell.starter import KernelRequest
    from sandcell_container.guest.files import Files
    from sandcell_container.guest.job import Job
    from sandcell_container.guest.spawn import Spawner

__all__ = ["ForeignLanguage", "SpecStarter", "local_connection"]

_CHANNELS = ("shell", "iopub", "stdin", "control", "hb")
_PORTS = range(10_000, 32_000)  # below those of Linux's ip_local_port_range
_MOST_TRIES = 200
_NO_PROGRAM = "ENOENT"
_LACKS = (
    "runs have no accounting and no pipes of their own: output of children is of whatever runs when it comes, "
    "and what was written before a crash may be lost"
)


class _FindSpec(Protocol):
    def __call__(self) -> Awaitable[KernelSpec | None]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignLanguage:
    """How the kernel of one language is found and spoken to. `install` is the line that brings it where it is missing.

    `grace` is how many seconds an interrupt may take that the kernel either heeds at once or never, None as for others.
    `reserved` is how many bytes it reserves and never uses: a context's own limit leaves them out.
    """

    name: str
    find: _FindSpec
    install: str
    dialect: Callable[[], Dialect] = Plain
    grace: float | None = None
    reserved: int = 0


class SpecStarter:
    """Starts the kernels of one language."""

    warnings = ()

    def __init__(self, language: ForeignLanguage, spawner: Spawner, files: Files) -> None:
        self._language = language
        self._spawner = spawner
        self._files = files

    async def start(self, request: KernelRequest) -> StartedKernel:
        """Start a process and return; whether it is a kernel shows when it answers. Cancelling leaves nothing behind.

        Raises:
            Unsupported (UNSUPPORTED): it is not installed here; the hint says how it can be.
            InvalidRequest (CWD_NOT_FOUND), Unavailable (START_FAILED).
        """
        spec = await self._language.find()
        if spec is None:
            raise self._missing()
        connection = local_connection()
        path = f"/tmp/.sandcell-{secrets.token_hex(12)}.json"
        await self._files.write(path, _pieces(json.dumps(connection.to_dict()).encode()), mode=0o600)
        try:
            words, job = await self._spawn(request, spec.command(path), spec.environment(request.env))
        except BaseException:
            self._files.remove_soon(path)
            raise
        return StartedKernel(
            job=job,
            connection=connection,
            words=words,
            stock=f"{self._language.name} is run by a kernel of its own ({spec.argv[0].rpartition('/')[2]})",
            lacks=_LACKS,
            own_output=words,
            dialect=self._language.dialect(),
            interrupts=spec.interrupts,
            grace=self._language.grace,
            forget=lambda: self._files.remove_soon(path),
        )

    async def _spawn(
        self, request: KernelRequest, argv: tuple[str, ...], env: Mapping[str, str]
    ) -> tuple[OwnOutput, Job]:
        with ExitStack() as ends, ExitStack() as kept:
            pipes = [os.pipe(), os.pipe()]
            for ours, theirs in pipes:
                kept.callback(os.close, ours)
                ends.callback(os.close, theirs)
            start = Start(
                argv=argv,
                env=env,
                cwd=request.cwd,
                stdout=pipes[0][1],
                stderr=pipes[1][1],
                memory=None if request.memory is None else request.memory + self._language.reserved,
            )
            try:
                job = await self._spawner.start(start)
            except SandcellError as problem:
                if problem.details.get("step") != "cwd" and problem.details.get("errno") == _NO_PROGRAM:
                    raise self._missing() from problem
                raise
            kept.pop_all()
            return OwnOutput(pipes[0][0], pipes[1][0]), job

    def _missing(self) -> SandcellError:
        name = self._language.name
        return error(
            ErrorCode.UNSUPPORTED,
            f"{name} is not installed in the environment of this sandbox",
            hint=self._language.install,
            details={"language": name, "install": self._language.install},
        )


def local_connection() -> Connection:
    """Return a connection over TCP to ports of this machine that are free now. Its messages are signed.

    Between this and the kernel's own bind anybody may take one: then the kernel fails to start, and says so. The ports
    are none that the system itself gives to who connects: it would, to us, who knock until the kernel listens there.

    Raises:
        Unavailable (START_FAILED): there are not enough.
    """
    with ExitStack() as held:
        ports = iter(secrets.SystemRandom().sample(_PORTS, _MOST_TRIES))
        found = {f"{name}_port": _hold_port(held, ports) for name in _CHANNELS}
        return Connection(transport="tcp", ip="127.0.0.1", key=secrets.token_hex(32), **found)


def _hold_port(held: ExitStack, ports: Iterator[int]) -> int:
    """Return the first of the ports that is free, bound until `held` ends."""
    for port in ports:
        bound = held.enter_context(socket.socket())
        try:
            bound.bind(("127.0.0.1", port))
        except OSError:
            continue
        return port
    raise error(ErrorCode.START_FAILED, "no port is free for a kernel", hint="something takes them all")


async def _pieces(data: bytes) -> AsyncIterator[bytes]:
    yield data

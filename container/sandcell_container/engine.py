"""The engine contract: what makes sandboxes. Blocking calls with deadlines; async callers use a thread."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from sandcell_container.spec import OnRelease, Status

if TYPE_CHECKING:
    from sandcell_container.spec import SandboxSpec

__all__ = ["Engine", "Probe", "Record"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """Whether an engine can be used here: `reason` says why not, `remedies` what to do, each one line."""

    engine: str
    usable: bool
    reason: str = ""
    remedies: tuple[str, ...] = ()
    version: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One sandbox as its engine knows it. `socket` is the path of the guest's unix socket on this machine."""

    id: str
    name: str
    engine: str
    status: Status
    socket: str
    token: str
    created_at: float
    on_release: OnRelease
    image: str | None = None


class Engine(Protocol):
    """Makes, finds and ends sandboxes. Every call is thread-safe and blocks at most until its deadline."""

    @property
    def name(self) -> str: ...

    def probe(self) -> Probe:
        """Tell whether this engine works here, by trying it, without leaving anything behind."""
        ...

    def create(self, spec: SandboxSpec) -> Record:
        """Make the sandbox of `spec`; returns when its guest is listening.

        Raises:
            Conflict (EXISTS): `spec.name` or `spec.id` is taken by a live sandbox.
            Unavailable (ENGINE_UNAVAILABLE, START_FAILED, START_TIMEOUT): with the cause and remedies.
        """
        ...

    def list(self) -> list[Record]:
        """Return the sandboxes of this engine, those that died with their owner cleaned up first."""
        ...

    def remove(self, sandbox_id: str) -> None:
        """End the sandbox and everything in it, then forget it and its files. Removing twice is fine."""
        ...

    def await_end(self, sandbox_id: str, *, timeout: float) -> None:
        """Return when the sandbox has ended by itself, as it does without a lease, or `timeout` seconds later."""
        ...

    def close(self) -> None:
        """Give back what this engine object holds; sandboxes whose owner it is end as they were asked to."""
        ...

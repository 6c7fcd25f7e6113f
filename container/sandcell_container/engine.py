"""The engine contract: what makes sandboxes. Blocking calls with deadlines; async callers use a thread.

    create ──> running ── stop, or on_release="stop"/"keep" and its end ──> stopped ── remove ──> (nothing)
                 ^  '──── remove, or on_release="remove" and its end ──────────────────────────────^
                 '──────────────────────────── start ────────────────────────┘

What makes a sandbox start again as it was is its `SandboxSpec`, kept by its engine where only the engine's user can read
it, and its files. Nothing above an engine may assume that a sandbox is on this machine: it is reached by `Record.address`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from sandcell_container.end import End
from sandcell_container.spec import OnRelease, Status

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from sandcell_container.spec import SandboxSpec
    from sandcell_container.usage import Stats

__all__ = [
    "Address",
    "Deadlines",
    "Engine",
    "Probe",
    "Pruned",
    "Record",
    "Snapshot",
    "Updated",
    "pick_record",
]


class Address(NamedTuple):
    """Where a guest listens: `path` of a unix socket on this machine, else `host` and `port`."""

    path: str = ""
    host: str = ""
    port: int = 0

    def __str__(self) -> str:
        return self.path or f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadlines:
    """How long the steps of an engine may take, in seconds. A start's own is in its spec."""

    say_goodbye: float = 3.0  # of a guest that is told to stop: what it has to end has a kill grace of 2 s
    end: float = 10.0  # of what was killed: only a stuck kernel needs them
    call: float = 60.0  # one request to an engine that is another program
    probe: float = 5.0  # the same, where nothing more than an answer is wanted
    build: float = 1800.0  # of an image or environment: each step of the one, all of the other


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """Whether an engine can be used here: `reason` says why not, `remedies` what to do, each one line; of one that can be used,
    for what not every sandbox needs."""

    engine: str
    usable: bool
    reason: str = ""
    remedies: tuple[str, ...] = ()
    version: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One sandbox as its engine knows it. Times in seconds since the epoch.

    `address` and `token` are the guest's, and stay over its starts. `starts` counts them. `end` is how the last start
    came to its end, None where that is not known, and while it runs.
    """

    id: str
    name: str
    engine: str
    status: Status
    address: Address
    token: str
    created_at: float
    on_release: OnRelease
    image: str | None = None
    started_at: float | None = None
    starts: int = 0
    end: End | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Updated:
    """What a change of a sandbox came to. `restarted`: all that ran was ended for it. `warnings`: what does not hold
    as asked."""

    restarted: bool = False
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The files of a sandbox at a moment: a name that `SandboxSpec.image` takes. `size` in bytes."""

    name: str
    engine: str
    created_at: float
    size: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruned:
    """What a look after a crash found: ids of sandboxes that `live` on, of those that are `stopped`, and of those of which
    nothing is left now."""

    live: tuple[str, ...] = ()
    stopped: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()


class Engine(Protocol):
    """Makes, finds and ends sandboxes. Every call is thread-safe, may be made from several programs at once, and blocks
    at most until its deadline.

    Each that takes a `sandbox_id` raises NotFound (NOT_FOUND) where there is none but for `remove`, and Unavailable
    (ENGINE_UNAVAILABLE) where the engine cannot be asked. What an engine cannot do at all is InvalidRequest
    (UNSUPPORTED), with what to do instead in its hint.
    """

    @property
    def name(self) -> str: ...

    def probe(self) -> Probe:
        """Tell whether this engine works here, by trying it, without leaving anything behind."""
        ...

    def create(self, spec: SandboxSpec) -> Record:
        """Make the sandbox of `spec`; returns when its guest is listening. A failure leaves nothing behind.

        Raises:
            Conflict (EXISTS): `spec.name` or `spec.id` is taken, by a stopped sandbox too.
            InvalidRequest (UNSUPPORTED): something of `spec` that cannot be had, or with `strict` not as asked for.
            Unavailable (IMAGE_NOT_FOUND, START_FAILED, START_TIMEOUT): with the cause and remedies.
        """
        ...

    def start(self, sandbox_id: str) -> Record:
        """Start a stopped sandbox again with its files, environment and secrets; returns when its guest is listening.

        One that runs is returned as it is; callers at the same time share one start. A failure leaves it stopped, with
        all its files. The deadline is `spec.start_timeout`.

        Raises:
            Unavailable (START_FAILED, START_TIMEOUT): with the cause and remedies.
        """
        ...

    def stop(self, sandbox_id: str) -> None:
        """End all that runs in the sandbox, its guest politely; returns when that is over. Its files, whatever its
        `on_release`, its environment and secrets stay. Twice is fine.

        Raises:
            WaitTimeout (WAIT_TIMEOUT): something did not end.
        """
        ...

    def restart(self, sandbox_id: str) -> Record:
        """Stop and start it, with nobody else's start or removal in between. Errors: those of `start` and `stop`."""
        ...

    def is_paused(self, sandbox_id: str) -> bool:
        """Tell whether somebody holds all of it still from outside, so that its guest answers nobody until `start`. `find`
        tells of such a one as stopped."""
        ...

    def remove(self, sandbox_id: str) -> None:
        """End the sandbox and everything in it, then forget it and its files. Removing twice is fine."""
        ...

    def find(self, name_or_id: str) -> Record | None:
        """Return the sandbox with this id, else the one with this name."""
        ...

    def list(self) -> list[Record]:
        """Return the sandboxes of this engine, the oldest first, those that died with their owner cleaned up before."""
        ...

    def prune(self) -> Pruned:
        """Look after what a crash of host programs or of the machine has left, and clean it up."""
        ...

    def remove_unused(self, older_than: float) -> Sequence[str]:
        """Remove what was made for sandboxes, environments with packages and images, where nothing stands on it and nobody has
        asked for it for so many seconds; return what it was called. What is taken away is made again when it is asked for. What was made in the last ten minutes stays."""
        ...

    def stats(self, sandbox_id: str) -> Stats:
        """Return what the sandbox uses, of its limits. What the engine cannot tell is None there."""
        ...

    def update(self, sandbox_id: str, change: Callable[[SandboxSpec], SandboxSpec]) -> Updated:
        """Make the sandbox that of `change(spec)`, now and for later starts; its files stay.

        What can be changed while it runs is; else a running one is restarted. `change` is pure and may be called twice.

        Raises:
            InvalidRequest (UNSUPPORTED): as `create`, and nothing was changed.
        """
        ...

    def snapshot(self, sandbox_id: str, name: str) -> Snapshot:
        """Keep a copy of the sandbox's files as `name`, for `SandboxSpec.image`. It may run meanwhile, or be stopped.

        Raises:
            Conflict (EXISTS): there is one of that name.
            Limited (NO_SPACE): there is no room; nothing was kept.
        """
        ...

    def snapshots(self) -> Sequence[Snapshot]:
        """Return the snapshots of this engine, the oldest first."""
        ...

    def remove_snapshot(self, name: str) -> None:
        """Forget a snapshot. Sandboxes made of it go on. Removing twice is fine."""
        ...

    def copy_in(self, sandbox_id: str, path: str, archive: Iterable[bytes]) -> None:
        """Unpack a tar stream in the folder `path` of the sandbox, as its user; nothing leaves that folder."""
        ...

    def copy_out(self, sandbox_id: str, path: str) -> Iterator[bytes]:
        """Yield `path`, a file or a folder of the sandbox, as a tar stream. Symlinks are told and not followed."""
        ...

    def await_end(self, sandbox_id: str, *, timeout: float | None) -> End | None:
        """Return how the sandbox ended, as soon as it has, whoever ended it; None where it runs on after `timeout`
        seconds. One that is not there has ended: cause "lost" where nothing more is known."""
        ...

    def last_words(self, sandbox_id: str) -> str:
        """Return the last lines of what the guest of the sandbox said, a moment after its end too; "" where nothing is
        known of any."""
        ...

    def close(self) -> None:
        """Give back what this engine object holds; sandboxes whose owner it is end as they were asked to."""
        ...


def pick_record(records: Iterable[Record], name_or_id: str) -> Record | None:
    """Return the record with this id, else the one with this name."""
    found = list(records)
    by_id = (each for each in found if each.id == name_or_id)
    return next(by_id, None) or next((each for each in found if each.name == name_or_id), None)

"""What a front wants done: typed actions, carried out by whoever holds the front, in order."""

from __future__ import annotations

from dataclasses import dataclass

from sandcell_kernel.wire import Channel, ChannelMessage, Message, RequestKey

__all__ = [
    "Action",
    "AskKernelInfo",
    "Forward",
    "Interrupt",
    "Restart",
    "RunShell",
    "Shutdown",
    "Submit",
    "TakeTicket",
]


@dataclass(frozen=True, slots=True)
class Submit:
    """Run this execute request in the context; answered by `relay` and, last, by `end_run`."""

    request: Message


@dataclass(frozen=True, slots=True)
class Forward:
    """Hand this to the context's kernel; answered by `relay`. `is_limited`: call `expire` after a short while."""

    channel: Channel
    message: Message
    is_limited: bool = False


@dataclass(frozen=True, slots=True)
class AskKernelInfo:
    """Ask the context's kernel what it is; answered by `learn_kernel` or `fail`."""

    key: RequestKey


@dataclass(frozen=True, slots=True)
class TakeTicket:
    """Take an execution count from the context; answered by `start_shell` or `fail`."""

    key: RequestKey


@dataclass(frozen=True, slots=True)
class RunShell:
    """Run `code` in a shell session; answered by `show_shell` and, last, by `end_shell` or `fail`."""

    key: RequestKey
    session_id: str
    code: str


@dataclass(frozen=True, slots=True)
class Interrupt:
    """Interrupt the shell session, or the context where it is None; answered by `finish` or `fail`."""

    key: RequestKey
    session_id: str | None


@dataclass(frozen=True, slots=True)
class Restart:
    """Restart the context; answered by `finish` or `fail`."""

    key: RequestKey


@dataclass(frozen=True, slots=True)
class Shutdown:
    """The front end is done with this front."""


Action = (
    ChannelMessage | Submit | Forward | AskKernelInfo | TakeTicket | RunShell | Interrupt | Restart | Shutdown
)

"""What a front wants done: typed actions, carried out by whoever holds the front, in order."""

from __future__ import annotations

from dataclasses import dataclass

from sandcell_kernel.answers import Problem
from sandcell_kernel.cells import Work
from sandcell_kernel.wire import Channel, ChannelMessage, Message, RequestKey

__all__ = [
    "Action",
    "Answer",
    "AskComms",
    "AskKernelInfo",
    "ErrandEnded",
    "Forward",
    "Interrupt",
    "Perform",
    "Restart",
    "Shutdown",
    "Submit",
    "TakeTicket",
]


@dataclass(frozen=True, slots=True)
class Submit:
    """Run this execute request in a context; answered by `relay` and, last, by `end_run`.

    `context_id` is None for the front's own; another is made where there is none, of `language`, None for the one that
    its name says.
    """

    request: Message
    context_id: str | None = None
    language: str | None = None


@dataclass(frozen=True, slots=True)
class Forward:
    """Hand this to the kernel of a context, None for the front's own; answered by `relay`. `is_limited`: call `expire`
    after a short while."""

    channel: Channel
    message: Message
    is_limited: bool = False
    context_id: str | None = None


@dataclass(frozen=True, slots=True)
class AskKernelInfo:
    """Ask the context's kernel what it is; answered by `learn_kernel` or `fail`."""

    key: RequestKey


@dataclass(frozen=True, slots=True)
class AskComms:
    """Ask the kernels of these contexts, and the front's own, for their comms; answered by `tell_comms` or `fail`."""

    key: RequestKey
    target: str
    context_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TakeTicket:
    """Take an execution count from the context; answered by `give_ticket` or `fail`."""

    key: RequestKey


@dataclass(frozen=True, slots=True)
class Perform:
    """Do what a cell asks of the guest itself. Answered by `show_output`, `show` and `ask` and, last, by `end_work` or `fail`. `may_ask`: somebody is there who answers questions."""

    key: RequestKey
    work: Work
    may_ask: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to what the work of this cell has asked last."""

    key: RequestKey
    text: str


@dataclass(frozen=True, slots=True)
class ErrandEnded:
    """The kernel process on the host has done line `number` of this cell, or could not."""

    key: RequestKey
    number: int
    problem: Problem | None


@dataclass(frozen=True, slots=True)
class Interrupt:
    """Interrupt the cell `work`, or what runs in the front's own context where it is None; answered by `finish` or
    `fail`."""

    key: RequestKey
    work: RequestKey | None = None


@dataclass(frozen=True, slots=True)
class Restart:
    """Restart the context; answered by `finish` or `fail`."""

    key: RequestKey


@dataclass(frozen=True, slots=True)
class Shutdown:
    """The front end is done with this front."""


Action = (
    ChannelMessage
    | Submit
    | Forward
    | AskKernelInfo
    | AskComms
    | TakeTicket
    | Perform
    | Answer
    | ErrandEnded
    | Interrupt
    | Restart
    | Shutdown
)

"""Bodies of what runs commands: exec, sessions and their variables, processes, terminals. See `sandcell.api`."""

from __future__ import annotations

import struct
from typing import Literal

from msgspec import UNSET, UnsetType

from sandcell.api import Answer, Body
from sandcell_container.end import End

__all__ = [
    "EXEC_TYPE",
    "STDIN_AFTER",
    "ChangeEnv",
    "CreateProcess",
    "CreateSession",
    "CreateTerminal",
    "EnvInfo",
    "ExecRequest",
    "FoundText",
    "KillProcess",
    "PortAnswer",
    "ProcessInfo",
    "ProcessStatus",
    "Removed",
    "ResizeTerminal",
    "SendSignal",
    "SessionCommandInfo",
    "SessionExec",
    "SessionInfo",
    "TerminalInfo",
    "before_stdin",
]


# --- commands


EXEC_TYPE = "application/vnd.sandcell.exec"
"""The type of a command's body with its standard input in it: `before_stdin`, then raw bytes to the end of the body."""


class ExecRequest(Body, frozen=True, kw_only=True):
    """POST /v1/exec. `stdin` is base64, None closes it at once; more of it than a body takes comes as EXEC_TYPE.

    `stream` sends output as it comes, uncut. What an output has beyond `max_output` bytes is cut from the answer of one
    that is not a stream, and the whole goes to a file; with `stream` to a file where `max_output` is given.
    """

    command: str | tuple[str, ...]
    id: str | None = None
    cwd: str | None = None
    env: dict[str, str | None] | None = None
    stdin: bytes | None = None
    timeout: float | UnsetType | None = UNSET
    max_output: int | None = None
    stream: bool = False


def before_stdin(body: bytes) -> bytes:
    """Return what stands in front of the standard input in a body of EXEC_TYPE: an ExecRequest as JSON, its length first."""
    return STDIN_AFTER.pack(len(body)) + body


STDIN_AFTER = struct.Struct("!I")  # how many bytes of JSON come before the standard input


# --- sessions


class CreateSession(Body, frozen=True, kw_only=True):
    """POST /v1/sessions. `cwd` counts from the working directory, `env` changes the user's environment."""

    id: str | None = None
    cwd: str | None = None
    env: dict[str, str | None] | None = None


class SessionExec(Body, frozen=True, kw_only=True):
    """POST /v1/sessions/{id}/exec: as ExecRequest, in a session. `cwd` and `env` are for this command alone."""

    command: str
    id: str | None = None
    cwd: str | None = None
    env: dict[str, str | None] | None = None
    stdin: bytes | None = None
    timeout: float | UnsetType | None = UNSET
    queue_timeout: float | None = None
    max_output: int | None = None
    stream: bool = False


class SessionCommandInfo(Answer, frozen=True, kw_only=True):
    """A command of a session that runs or waits; `command` is its beginning."""

    id: str
    command: str
    created_at: float
    started_at: float | None = None


class SessionInfo(Answer, frozen=True, kw_only=True):
    """One session. `cwd` is its folder after the last command. `queue` holds the commands that wait, the next one first.
    Of one that has ended, `end` says how and `last_output` what it said last, at most 4 KiB."""

    id: str
    status: Literal["idle", "busy", "ended"]
    cwd: str
    pid: int
    created_at: float
    starts: int
    running: SessionCommandInfo | None = None
    queue: tuple[SessionCommandInfo, ...] = ()
    end: End | None = None
    last_output: str = ""


class ChangeEnv(Body, frozen=True, kw_only=True):
    """PATCH /v1/env, and with ?session=. None takes a variable away."""

    env: dict[str, str | None]


class EnvInfo(Answer, frozen=True, kw_only=True):
    """GET and PATCH /v1/env: what user code starts with."""

    env: dict[str, str]


# --- processes

ProcessStatus = Literal["running", "ended"]


class CreateProcess(Body, frozen=True, kw_only=True):
    """POST /v1/processes, and POST /v1/sessions/{id}/processes. `timeout` None is no limit. `memory` for each process of
    its tree. `on_full`: what happens when its journal is full of what nobody has read. `keep_record`: whether its record
    and output outlive its end."""

    command: str | tuple[str, ...]
    id: str | None = None
    cwd: str | None = None
    env: dict[str, str | None] | None = None
    timeout: float | None = None
    stdin: bool = False
    memory: int | None = None
    on_full: Literal["drop_oldest", "block"] = "drop_oldest"
    keep_record: bool = True


class ProcessInfo(Answer, frozen=True, kw_only=True):
    """One process. It runs until nothing of its tree is left; `end` is how the started process itself ended."""

    id: str
    command: str | tuple[str, ...]
    cwd: str
    pid: int
    status: ProcessStatus
    started_at: float
    session_id: str | None = None
    end: End | None = None
    memory: int | None = None
    warnings: tuple[str, ...] = ()  # what does not hold as asked


class SendSignal(Body, frozen=True, kw_only=True):
    """POST /v1/processes/{id}/signal. `signal` is a number or a name, with or without SIG."""

    signal: int | str
    scope: Literal["process", "group", "tree"] = "group"


class KillProcess(Body, frozen=True, kw_only=True):
    """POST /v1/processes/{id}/kill. `grace` None is the sandbox's own, 0 is none."""

    grace: float | None = None


class Removed(Answer, frozen=True, kw_only=True):
    """How many records went."""

    removed: int


class FoundText(Answer, frozen=True, kw_only=True):
    """The line in which a text was found; `cursor` is behind the piece of output that held it."""

    stream: str
    line: str
    cursor: str


class PortAnswer(Answer, frozen=True, kw_only=True):
    """What answered on a port: `status` of HTTP where that was asked for."""

    port: int
    status: int | None = None


# --- terminals


class CreateTerminal(Body, frozen=True, kw_only=True):
    """POST /v1/terminals. `command` None is a shell that reads ~/.bashrc; the size is in characters."""

    id: str | None = None
    command: str | tuple[str, ...] | None = None
    cwd: str | None = None
    env: dict[str, str | None] | None = None
    cols: int = 80
    rows: int = 24


class ResizeTerminal(Body, frozen=True, kw_only=True):
    cols: int
    rows: int


class TerminalInfo(Answer, frozen=True, kw_only=True):
    """One terminal. `viewers` counts the connections that it is told to now."""

    id: str
    command: str | tuple[str, ...] | None
    cwd: str
    cols: int
    rows: int
    pid: int
    status: Literal["running", "ended"]
    created_at: float
    viewers: int = 0
    end: End | None = None

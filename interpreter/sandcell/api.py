"""Bodies of the HTTP interface, typed once: the guest checks with them, the client decodes with them.

Times are seconds since the epoch (UTC), durations seconds, sizes bytes. Source: CONTRACT sections 1 and 3.
"""

from __future__ import annotations

import struct
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from sandcell_container.end import End, KillReport

__all__ = [
    "EXEC_TYPE",
    "STDIN_AFTER",
    "AnswerTool",
    "AskComplete",
    "AskInspect",
    "ChangeEnv",
    "Completion",
    "ContextInfo",
    "CopyFile",
    "CreateContext",
    "CreateExecution",
    "CreateFront",
    "CreateProcess",
    "CreateSession",
    "CreateTerminal",
    "EnvInfo",
    "ExecRequest",
    "ExecutionInfo",
    "ExposePort",
    "ExposedPort",
    "FilePath",
    "FoundText",
    "FrontInfo",
    "InsertText",
    "Inspection",
    "KillProcess",
    "KillReport",
    "ListFiles",
    "ObjectInfo",
    "OfferTools",
    "OsProcess",
    "PortAnswer",
    "ProcessInfo",
    "ProcessStatus",
    "Removed",
    "ReplaceText",
    "ResizeTerminal",
    "SandboxInfo",
    "SearchFiles",
    "SendInput",
    "SendSignal",
    "SessionCommandInfo",
    "SessionExec",
    "SessionInfo",
    "TerminalInfo",
    "TextEdit",
    "Ticket",
    "UpdateSandbox",
    "Variable",
    "Variables",
    "before_stdin",
]


class Body(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A request body: an unknown field is an error, because it is a misspelt one."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """A response body: unknown fields are ignored, so a newer guest can say more."""


# --- host tools


class ToolSpec(Body, frozen=True, kw_only=True):
    """A function of the client's that a run may call. `schema` is the JSON Schema of its arguments, an object. `timeout` of one
    call; None is the sandbox's own."""

    name: str
    description: str = ""
    schema: dict[str, Any] = {}
    timeout: float | None = None


class OfferTools(Body, frozen=True, kw_only=True):
    """The functions that a run may call. `key` is a secret of the client that answers: who answers, or follows so that there is
    somebody to ask, says it. `client` is what its lease says: while that is open calls wait for who follows. `required`: a run that could not call them is refused."""

    key: str
    tools: tuple[ToolSpec, ...]
    client: str = ""
    required: bool = False


class ToolFailure(Body, frozen=True, kw_only=True):
    """Why a call has no result: what the function `raised`, `arguments` that do not fit, or nobody who could answer."""

    name: str
    message: str = ""
    kind: Literal["raised", "arguments", "unavailable"] = "raised"


class AnswerTool(Body, frozen=True, kw_only=True):
    """POST /v1/executions/{id}/tools/{call}: the `result`, any JSON, or an `error`; neither says that the call is begun."""

    key: str
    result: msgspec.Raw | UnsetType = UNSET
    error: ToolFailure | None = None


ToolState = Literal["called", "done", "failed", "abandoned"]


class ToolCallInfo(Answer, frozen=True, kw_only=True):
    """One call of a host tool."""

    id: str
    name: str
    state: ToolState


# --- executions and contexts


class CreateExecution(Body, frozen=True, kw_only=True):
    """POST /v1/executions. An unset `timeout` is the sandbox's default, None is no limit."""

    code: str
    id: str | None = None
    language: str = "python"
    context: str | None = None
    fresh: bool = False
    env: dict[str, str | None] | None = None
    cwd: str | None = None
    timeout: float | UnsetType | None = UNSET
    queue_timeout: float | None = None
    on_busy: Literal["wait", "reject"] = "wait"
    on_disconnect: Literal["continue", "interrupt"] = "continue"
    allow_stdin: bool = False
    store_history: bool = True
    origin: str = "sdk"
    # Extras of results, which Jupyter's own runs do not ask for; with any of them, what is too large goes into files.
    want: tuple[Literal["value", "data", "chart"], ...] = ("value", "data", "chart")
    tools: OfferTools | None = None


class ExecutionInfo(Answer, frozen=True, kw_only=True):
    """One execution: `position` in its queue while it waits. `code` is told of one that is asked for alone."""

    id: str
    context_id: str
    origin: str
    status: Literal["queued", "running", "ended"]
    created_at: float
    started_at: float | None = None
    position: int | None = None
    end: End | None = None
    code: str | None = None


class SendInput(Body, frozen=True, kw_only=True):
    text: str


class CreateContext(Body, frozen=True, kw_only=True):
    language: str = "python"
    id: str | None = None
    cwd: str = "/workspace"
    env: dict[str, str | None] | None = None
    memory: int | None = None


class ContextInfo(Answer, frozen=True, kw_only=True):
    id: str
    language: str
    status: Literal["starting", "idle", "busy", "dead", "deleted"]
    cwd: str
    created_at: float
    pid: int | None = None
    execution_count: int = 0
    queued: int = 0
    starts: int = 0
    end: End | None = None
    memory: int | None = None  # bytes that its interpreter may have
    warnings: tuple[str, ...] = ()  # what does not hold as asked


class Ticket(Answer, frozen=True, kw_only=True):
    """POST /v1/contexts/{id}/ticket: the execution count of a cell that runs elsewhere."""

    execution_count: int


class AskComplete(Body, frozen=True, kw_only=True):
    """POST /v1/contexts/{id}/complete. `cursor_pos` counts code points, by default to the end."""

    code: str
    cursor_pos: int | None = None


class Completion(Answer, frozen=True, kw_only=True):
    """What could stand in place of `code[start:end]`; nothing is known where `matches` is empty."""

    matches: tuple[str, ...]
    start: int
    end: int


class AskInspect(Body, frozen=True, kw_only=True):
    """POST /v1/contexts/{id}/inspect. `detail_level` 1 asks for the source, too."""

    code: str
    cursor_pos: int | None = None
    detail_level: Literal[0, 1] = 0


class Inspection(Answer, frozen=True, kw_only=True):
    """What is known of the name at the cursor: `data` by MIME type, and its `text` without colours. Empty where nothing is."""

    found: bool
    text: str = ""
    data: dict[str, str] = {}


class Variable(Answer, frozen=True, kw_only=True):
    """One variable. `size` in bytes without those of its parts, `shape` of what has one. `preview` is one line that no
    code of the user's has made: empty for what only such code could show."""

    name: str
    type: str
    shape: tuple[int, ...] | None = None
    size: int | None = None
    preview: str = ""


class Variables(Answer, frozen=True, kw_only=True):
    """GET /v1/contexts/{id}/variables: the first thousand of `total`, in the order of their making."""

    variables: tuple[Variable, ...]
    total: int


class ObjectInfo(Answer, frozen=True, kw_only=True):
    """PUT /v1/contexts/{id}/objects/{name}: the variable that was made, and the MIME type of what it was made of."""

    name: str
    form: str


# --- fronts


class CreateFront(Body, frozen=True, kw_only=True):
    """POST /v1/fronts: a Jupyter kernel as a front end sees it, on the context `context` (default: the sandbox's own)."""

    id: str | None = None
    context: str | None = None
    language: str = "python"


class FrontInfo(Answer, frozen=True, kw_only=True):
    id: str
    context_id: str
    language: str
    epoch: str
    created_at: float
    connections: int = 0


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


# --- files


_Limit = Annotated[int, msgspec.Meta(ge=1, le=10_000)]
_Patterns = Annotated[tuple[str, ...], msgspec.Meta(max_length=100)]


class FilePath(Body, frozen=True, kw_only=True):
    path: str


class ListFiles(Body, frozen=True, kw_only=True):
    """POST /v1/files/list. `glob`: patterns, one of which a name or relative path has to match. `cursor` is the
    `next_cursor` of the page before."""

    path: str = "."
    recursive: bool = False
    hidden: bool = True
    glob: _Patterns = ()
    sort: Literal["name", "size", "mtime"] = "name"
    limit: _Limit = 1000
    cursor: str | None = None


class CopyFile(Body, frozen=True, kw_only=True):
    """POST /v1/files/copy and /rename. `overwrite`: what is at `to` is replaced."""

    path: str
    to: str
    overwrite: bool = False


class TextEdit(Body, frozen=True, kw_only=True):
    """`old` has to be there exactly once."""

    old: str
    new: str


class ReplaceText(Body, frozen=True, kw_only=True):
    """POST /v1/files/replace. All edits are done, one after another, or none. `if_match`: tags, one of which the file
    has to have."""

    path: str
    edits: tuple[TextEdit, ...]
    if_match: tuple[str, ...] | None = None


class InsertText(Body, frozen=True, kw_only=True):
    """POST /v1/files/insert. Behind line `line`: 0 is the start, beyond the end appends."""

    path: str
    line: Annotated[int, msgspec.Meta(ge=0, le=2**53)]
    text: str
    if_match: tuple[str, ...] | None = None


class SearchFiles(Body, frozen=True, kw_only=True):
    """POST /v1/files/search. `pattern` is a regular expression of Python's `re`, for each line. `everywhere`: also in `.git`,
    `node_modules` and `.cache`. `timeout` in seconds."""

    pattern: Annotated[str, msgspec.Meta(min_length=1, max_length=10_000)]
    path: str = "."
    glob: _Patterns = ()
    exclude: _Patterns = ()
    everywhere: bool = False
    hidden: bool = True
    ignore_case: bool = False
    context: Annotated[int, msgspec.Meta(ge=0, le=10)] = 0
    limit: _Limit = 200
    timeout: Annotated[float, msgspec.Meta(gt=0, le=300)] = 20.0


# --- ports


class ExposePort(Body, frozen=True, kw_only=True):
    """POST /v1/ports. `name`: None keeps the one that it has. `rotate`: another token in the place of the one that it has."""

    port: int
    name: str | None = None
    rotate: bool = False


class ExposedPort(Answer, frozen=True, kw_only=True):
    """One exposure, and whether something listens on its port now."""

    port: int
    token: str
    listening: bool
    name: str | None = None


# --- the sandbox


class OsProcess(Answer, frozen=True, kw_only=True):
    """One live process in the sandbox. `cpu` is the seconds of processor time that it has used, `memory` the bytes that
    it holds in memory, `command` its line as it says it itself, at most 4 KiB of it, or its name in brackets. `owner` is
    the id of the context, command, session, process or terminal that it belongs to."""

    pid: int
    user: str
    cpu: float
    memory: int
    started: float
    command: str
    owner: str


class UpdateSandbox(Body, frozen=True, kw_only=True):
    """PATCH /v1/info: what the host program has changed. A limit of None is none; what is unset stays."""

    limits: dict[str, float | None] | UnsetType = UNSET
    idle_timeout: float | UnsetType | None = UNSET
    network: str | tuple[str, ...] | UnsetType = UNSET


class SandboxInfo(Answer, frozen=True, kw_only=True):
    """GET /v1/info. `memory` and `disk` speak of the sandbox, never of the host; None where unlimited. `network` is "none",
    "open", or the list of hosts that it may reach. `ports`: those that are exposed."""

    id: str
    name: str
    status: str
    engine: str
    created_at: float
    started_at: float
    version: str
    image: str | None = None
    starts: int = 1
    owner: str | None = None
    network: str | tuple[str, ...] = "none"
    limits: dict[str, Any] = {}
    isolation: dict[str, Any] = {}
    os: str = ""
    kernel: str = ""
    arch: str = ""
    hostname: str = ""
    user: str = ""
    workdir: str = ""
    python: str = ""
    node: str | None = None
    tools: tuple[str, ...] = ()
    memory: dict[str, float | None] = {}
    disk: dict[str, float | None] = {}
    ports: tuple[int, ...] = ()
    warnings: tuple[str, ...] = ()

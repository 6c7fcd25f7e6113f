"""Bodies of the HTTP interface, typed once: the guest checks with them, the client decodes with them.

Times are seconds since the epoch (UTC), durations seconds, sizes bytes. Source: CONTRACT sections 1 and 3.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from sandcell_container.end import End, KillReport

__all__ = [
    "AnswerTool",
    "AskComplete",
    "AskInspect",
    "Completion",
    "ContextInfo",
    "CreateContext",
    "CreateExecution",
    "CreateFront",
    "ExecutionInfo",
    "ExposePort",
    "ExposedPort",
    "FrontInfo",
    "Inspection",
    "KillReport",
    "ObjectInfo",
    "OfferTools",
    "OsProcess",
    "SandboxInfo",
    "SendInput",
    "Ticket",
    "UpdateSandbox",
    "Variable",
    "Variables",
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

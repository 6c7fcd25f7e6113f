"""The OpenAPI document: the routes and the same types that check the bodies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from sandcell import api, file_bodies, git_bodies, job_bodies
from sandcell.guest.request import ApiHandler
from sandcell.version import VERSION
from sandcell_container.end import End
from sandcell_container.file_info import FileInfo, FilePage, SearchResult, TransferReport
from sandcell_container.git_info import GitBranch, GitCommit, GitDiff, GitHead, GitStatus
from sandcell_container.usage import Stats

__all__ = ["OPERATIONS", "OpenApiHandler", "Operation", "make_document"]

JOURNAL = "application/vnd.sandcell.journal"
BYTES = "application/octet-stream"
TAR = "application/x-tar"
_SESSION = ("session",)


@dataclass(frozen=True, slots=True)
class OneOf:
    """One of several types."""

    kinds: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one path. `body` and `answer` are a type, OneOf several, the MIME type of raw bytes, or nothing.
    `raw_body`: the MIME type of what may be there instead of `body`."""

    method: str
    path: str
    summary: str
    answer: Any = None
    body: Any = None
    status: int = 200
    query: tuple[str, ...] = ()
    raw_body: str = ""


OPERATIONS: tuple[Operation, ...] = (
    Operation("get", "/v1/health", "Tell that the guest answers."),
    Operation("get", "/v1/info", "What the sandbox is.", api.SandboxInfo),
    Operation("patch", "/v1/info", "Have other limits and times.", api.SandboxInfo, api.UpdateSandbox),
    Operation("get", "/v1/stats", "What the sandbox uses, of its limits.", Stats),
    Operation("get", "/v1/top", "The processes in the sandbox, and whose they are.", list[api.OsProcess]),
    Operation(
        "get",
        "/v1/events",
        "News of the sandbox; with `lease` a lease, of the `client`.",
        JOURNAL,
        query=("lease", "client", "cursor"),
    ),
    Operation("get", "/openapi.json", "This document."),
    Operation("get", "/v1/contexts", "The contexts.", list[api.ContextInfo]),
    Operation("post", "/v1/contexts", "Start a context.", api.ContextInfo, api.CreateContext, 201),
    Operation("get", "/v1/contexts/{id}", "One context.", api.ContextInfo),
    Operation("delete", "/v1/contexts/{id}", "End a context."),
    Operation("post", "/v1/contexts/{id}/interrupt", "Interrupt what runs in it.", api.ContextInfo),
    Operation("post", "/v1/contexts/{id}/restart", "Start its interpreter anew.", api.ContextInfo),
    Operation("post", "/v1/contexts/{id}/ticket", "A count for a cell that runs elsewhere.", api.Ticket),
    Operation(
        "post",
        "/v1/contexts/{id}/complete",
        "What could stand at the cursor.",
        api.Completion,
        api.AskComplete,
    ),
    Operation("post", "/v1/contexts/{id}/inspect", "What a name means.", api.Inspection, api.AskInspect),
    Operation("get", "/v1/contexts/{id}/variables", "The variables, also while a cell runs.", api.Variables),
    Operation(
        "put",
        "/v1/contexts/{id}/objects/{name}",
        "Make a variable; Content-Type says of what: JSON, bytes, .npy or an Arrow stream.",
        api.ObjectInfo,
        BYTES,
        201,
    ),
    Operation("get", "/v1/contexts/{id}/objects/{name}", "A variable, in the form that it has.", BYTES),
    Operation(
        "get",
        "/v1/executions",
        "The runs that are known, oldest first.",
        list[api.ExecutionInfo],
        query=("context", "origin"),
    ),
    Operation(
        "post",
        "/v1/executions",
        "Run code: its events; with `follow=false` 201 and the run.",
        JOURNAL,
        api.CreateExecution,
        query=("follow",),
    ),
    Operation("get", "/v1/executions/{id}", "One run, with its code.", api.ExecutionInfo),
    Operation(
        "get",
        "/v1/executions/{id}/events",
        "The events of a run; with `tools`, its key, by who answers its calls.",
        JOURNAL,
        query=("cursor", "follow", "tools"),
    ),
    Operation("post", "/v1/executions/{id}/interrupt", "Interrupt a run.", api.ExecutionInfo),
    Operation("post", "/v1/executions/{id}/input", "Answer its question.", api.ExecutionInfo, api.SendInput),
    Operation(
        "post",
        "/v1/executions/{id}/tools/{name}",
        "Answer a call to a tool of the client's, or begin to.",
        api.ToolCallInfo,
        api.AnswerTool,
    ),
    Operation("get", "/v1/fronts", "The fronts.", list[api.FrontInfo]),
    Operation("post", "/v1/fronts", "Make a front on a context.", api.FrontInfo, api.CreateFront, 201),
    Operation("get", "/v1/fronts/{id}", "One front.", api.FrontInfo),
    Operation("delete", "/v1/fronts/{id}", "End a front; its context lives."),
    Operation(
        "post",
        "/v1/exec",
        "Run a command: its output and its end.",
        JOURNAL,
        job_bodies.ExecRequest,
        raw_body=job_bodies.EXEC_TYPE,
    ),
    Operation(
        "get", "/v1/processes", "The processes.", list[job_bodies.ProcessInfo], query=("session", "status")
    ),
    Operation(
        "post", "/v1/processes", "Start a process.", job_bodies.ProcessInfo, job_bodies.CreateProcess, 201
    ),
    Operation(
        "delete",
        "/v1/processes",
        "End all that run; with `status=ended` forget those that have ended.",
        OneOf((api.KillReport, job_bodies.Removed)),
        query=("status",),
    ),
    Operation("get", "/v1/processes/{id}", "One process.", job_bodies.ProcessInfo),
    Operation("delete", "/v1/processes/{id}", "End a process and forget it.", api.KillReport),
    Operation(
        "get",
        "/v1/processes/{id}/events",
        "Its output and its end: as they come, or with `follow=false` a page.",
        JOURNAL,
        query=("cursor", "follow", "stream", "limit", "tail"),
    ),
    Operation(
        "get",
        "/v1/processes/{id}/wait",
        "Wait until it ends, says a text, or answers on a port.",
        OneOf((End, job_bodies.FoundText, job_bodies.PortAnswer)),
        query=("for", "timeout", "text", "port", "http"),
    ),
    Operation("post", "/v1/processes/{id}/stdin", "Write to it.", None, BYTES, query=("timeout", "close")),
    Operation(
        "post", "/v1/processes/{id}/signal", "Send a signal.", job_bodies.ProcessInfo, job_bodies.SendSignal
    ),
    Operation("post", "/v1/processes/{id}/kill", "End its tree.", api.KillReport, job_bodies.KillProcess),
    Operation("get", "/v1/terminals", "The terminals.", list[job_bodies.TerminalInfo]),
    Operation(
        "post", "/v1/terminals", "Open a terminal.", job_bodies.TerminalInfo, job_bodies.CreateTerminal, 201
    ),
    Operation("get", "/v1/terminals/{id}", "One terminal.", job_bodies.TerminalInfo),
    Operation("delete", "/v1/terminals/{id}", "End a terminal and all that runs on it.", End),
    Operation(
        "get",
        "/v1/terminals/{id}/events",
        "What came out: with `follow=false` what is there, waited for `wait` seconds at most.",
        JOURNAL,
        query=("cursor", "follow", "wait"),
    ),
    Operation("post", "/v1/terminals/{id}/input", "Type these bytes.", job_bodies.TerminalInfo, BYTES),
    Operation(
        "post",
        "/v1/terminals/{id}/resize",
        "Change its size.",
        job_bodies.TerminalInfo,
        job_bodies.ResizeTerminal,
    ),
    Operation(
        "get",
        "/v1/terminals/{id}/wait",
        "How it ended, once it has.",
        End,
        query=("timeout",),
    ),
    Operation(
        "get", "/v1/sessions", "The sessions, also those that have ended.", list[job_bodies.SessionInfo]
    ),
    Operation(
        "post", "/v1/sessions", "Make a session.", job_bodies.SessionInfo, job_bodies.CreateSession, 201
    ),
    Operation(
        "get", "/v1/sessions/{id}", "One session: what runs, what waits, its folder.", job_bodies.SessionInfo
    ),
    Operation("delete", "/v1/sessions/{id}", "End a session and its processes.", query=("keep_processes",)),
    Operation(
        "post",
        "/v1/sessions/{id}/exec",
        "Run a command in its turn: its output and its end.",
        JOURNAL,
        job_bodies.SessionExec,
    ),
    Operation(
        "post",
        "/v1/sessions/{id}/processes",
        "Start a process from the state of a session.",
        job_bodies.ProcessInfo,
        job_bodies.CreateProcess,
        201,
    ),
    Operation("post", "/v1/sessions/{id}/restart", "Start its shell anew.", job_bodies.SessionInfo),
    Operation(
        "post", "/v1/sessions/{id}/interrupt", "Interrupt the command that runs.", job_bodies.SessionInfo
    ),
    Operation(
        "post",
        "/v1/git/{id}",
        "Clone, status, diff, add, commit, push, pull, branches or checkout; with `progress` as a stream.",
        OneOf((GitHead, GitStatus, GitDiff, GitCommit, list[GitBranch])),
        OneOf(
            (
                git_bodies.CloneRepository,
                git_bodies.GitPath,
                git_bodies.ShowDiff,
                git_bodies.AddFiles,
                git_bodies.CommitStaged,
                git_bodies.PushBranch,
                git_bodies.PullBranch,
                git_bodies.CheckOut,
            )
        ),
        query=("session", "progress"),
    ),
    Operation("get", "/v1/ports", "The exposed ports, and whether something listens.", list[api.ExposedPort]),
    Operation("post", "/v1/ports", "Expose a port.", api.ExposedPort, api.ExposePort, 201),
    Operation("delete", "/v1/ports/{id}", "Expose it no more."),
    Operation(
        "post",
        "/v1/ports/{id}/connect",
        "With `Upgrade: tcp`, turn the connection into one to the port.",
        BYTES,
        status=101,
    ),
    *(
        Operation(method, "/v1/ports/{id}/proxy/{name}", "Ask what listens on the port.", BYTES)
        for method in ("get", "head", "post", "put", "patch", "delete")
    ),
    Operation("get", "/v1/env", "What user code starts with.", job_bodies.EnvInfo),
    Operation(
        "patch",
        "/v1/env",
        "Change variables for all, or of one session.",
        OneOf((job_bodies.EnvInfo, job_bodies.SessionInfo)),
        job_bodies.ChangeEnv,
        query=("session",),
    ),
    Operation("get", "/v1/files", "The bytes of a file.", BYTES, query=("path", "session", "lines")),
    Operation("head", "/v1/files", "What is known of a file, as headers.", query=("path", "session")),
    Operation("put", "/v1/files", "Write a file.", FileInfo, BYTES, 201, query=("path", "mode", "session")),
    Operation(
        "patch", "/v1/files", "Write behind what is in a file.", FileInfo, BYTES, query=("path", "session")
    ),
    Operation("delete", "/v1/files", "Remove a file or a folder.", query=("path", "session", "recursive")),
    Operation(
        "get",
        "/v1/files/descriptor",
        "A file itself, opened, for a client on this machine.",
        FileInfo,
        query=("path", "session"),
    ),
    Operation(
        "put",
        "/v1/files/descriptor",
        "The draft of a file, for a client on this machine to write; the end of the body keeps it.",
        FileInfo,
        BYTES,
        201,
        query=("path", "mode", "session"),
    ),
    Operation(
        "post", "/v1/files/list", "What is in a folder.", FilePage, file_bodies.ListFiles, query=_SESSION
    ),
    Operation(
        "post", "/v1/files/stat", "What is known of a file.", FileInfo, file_bodies.FilePath, query=_SESSION
    ),
    Operation(
        "post", "/v1/files/mkdir", "Make a folder.", FileInfo, file_bodies.FilePath, 201, query=_SESSION
    ),
    Operation(
        "post", "/v1/files/rename", "Give another name.", FileInfo, file_bodies.CopyFile, query=_SESSION
    ),
    Operation(
        "post",
        "/v1/files/copy",
        "Copy a file or a folder.",
        FileInfo,
        file_bodies.CopyFile,
        201,
        query=_SESSION,
    ),
    Operation(
        "post",
        "/v1/files/replace",
        "Replace texts in a file.",
        FileInfo,
        file_bodies.ReplaceText,
        query=_SESSION,
    ),
    Operation(
        "post",
        "/v1/files/insert",
        "Insert lines into a file.",
        FileInfo,
        file_bodies.InsertText,
        query=_SESSION,
    ),
    Operation(
        "post", "/v1/files/search", "Search in files.", SearchResult, file_bodies.SearchFiles, query=_SESSION
    ),
    Operation(
        "get",
        "/v1/files/watch",
        "What changes in a folder: as it comes, or with `follow=false` what there is.",
        JOURNAL,
        query=(
            "path",
            "session",
            "id",
            "cursor",
            "recursive",
            "include",
            "exclude",
            "debounce",
            "follow",
            "wait",
        ),
    ),
    Operation("get", "/v1/files/archive", "A folder as tar.", TAR, query=("path", "session", "exclude")),
    Operation(
        "put",
        "/v1/files/archive",
        "Make in a folder what is in a tar; with `replace` that alone.",
        TransferReport,
        TAR,
        201,
        query=("path", "session", "replace"),
    ),
)

_TEMPLATE = "#/components/schemas/{name}"
_ERROR = {
    "type": "object",
    "properties": {
        "error": {
            "type": "object",
            "required": ["code", "message", "hint", "details", "retryable"],
            "properties": {
                "code": {"type": "string"},
                "message": {"type": "string"},
                "hint": {"type": "string"},
                "details": {"type": "object"},
                "retryable": {"type": "boolean"},
            },
        }
    },
}


class OpenApiHandler(ApiHandler):
    """GET /openapi.json"""

    def get(self) -> None:
        self.reply(make_document())


def make_document() -> dict[str, Any]:
    """Return the document of OPERATIONS."""
    types = [
        kind
        for operation in OPERATIONS
        for each in (operation.body, operation.answer)
        for kind in _types_of(each)
    ]
    _, components = msgspec.json.schema_components(types, ref_template=_TEMPLATE)
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method] = _describe(operation)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Sandcell guest", "version": VERSION},
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "schemas": {**components, "Error": _ERROR},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _describe(operation: Operation) -> dict[str, Any]:
    described: dict[str, Any] = {
        "summary": operation.summary,
        "parameters": _parameters(operation),
        "responses": {
            str(operation.status): {"description": "done", **_content(operation.answer)},
            "default": {
                "description": "refused or failed",
                "content": {"application/json": {"schema": {"$ref": _TEMPLATE.format(name="Error")}}},
            },
        },
    }
    if operation.body is not None:
        body = _content(operation.body)
        if operation.raw_body:
            body["content"] |= _content(operation.raw_body)["content"]
        described["requestBody"] = {"required": True, **body}
    return described


def _parameters(operation: Operation) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [
        {"name": name, "in": "query", "schema": {"type": "string"}} for name in operation.query
    ]
    found += [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in ("id", "name")
        if f"{{{name}}}" in operation.path
    ]
    return found


def _content(kind: Any) -> dict[str, Any]:
    if kind is None:
        return {"content": {"application/json": {"schema": {"type": "object"}}}}
    if isinstance(kind, str):
        return {"content": {kind: {"schema": {"type": "string", "format": "binary"}}}}
    schemas, _ = msgspec.json.schema_components(_types_of(kind), ref_template=_TEMPLATE)
    schema = schemas[0] if len(schemas) == 1 else {"oneOf": list(schemas)}
    return {"content": {"application/json": {"schema": schema}}}


def _types_of(kind: Any) -> tuple[Any, ...]:
    """Return the types of a body or an answer; raw bytes and nothing have none."""
    if kind is None or isinstance(kind, str):
        return ()
    return kind.kinds if isinstance(kind, OneOf) else (kind,)

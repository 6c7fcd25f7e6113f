"""What the caller asks for, checked and turned into plain requests. Pure: the same for both clients."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal, TypedDict, cast

from msgspec import UNSET, UnsetType

from sandcell.api import CreateContext, CreateExecution
from sandcell.client.checks import (
    check_bytes_as_text,
    check_callbacks,
    check_count,
    check_number,
    check_path,
    check_text,
    check_timeout,
    env_of,
    wrong,
)
from sandcell.client.container_options import container_fields
from sandcell.events import Event
from sandcell.job_bodies import ExecRequest
from sandcell.results import ExecutionError, Result
from sandcell_container.errors import ErrorCode, SandcellError, error
from sandcell_container.guest.user_env import check_sizes
from sandcell_container.ids import check_id, new_id
from sandcell_container.spec import Limits, SandboxSpec, parse_size

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sandcell.client.tool_offer import Offer
    from sandcell.config import Config
    from sandcell.tools import ToolLike
    from sandcell_container.openings import Mount, PublishedPort
    from sandcell_container.spec import OnRelease

__all__ = [
    "LATER",
    "MAX_READ",
    "NOT_GIVEN",
    "Callbacks",
    "CreateOptions",
    "NotGiven",
    "OnBusy",
    "OnDisconnect",
    "RunOptions",
    "check_command",
    "given_id",
    "make_command",
    "make_context",
    "make_execution",
    "make_limits",
    "make_spec",
    "refuse_later",
    "too_large",
    "too_large_to_pull",
]

NotGiven = UnsetType
NOT_GIVEN = UNSET

OnBusy = Literal["wait", "reject"]
OnDisconnect = Literal["continue", "interrupt"]

MAX_READ = 256 * 2**20
"""Bytes of a file or object that is returned at once: what user code wrote must not choose the memory of its caller."""

_ON_RELEASE = ("remove", "stop", "keep")


def given_id(text: str | None, *, prefix: Any, what: str) -> str:
    """Return the id that the caller gave, checked, else a new one."""
    return new_id(prefix) if text is None else check_id(text, what=what)


def too_large(path: str, limit: int) -> SandcellError:
    """Return the error of a file that has more bytes than may be returned at once."""
    return error(
        ErrorCode.TOO_LARGE,
        f"{path[:80]!r} has more than {limit} bytes",
        hint="download() takes it in pieces; a higher max_bytes returns it at once",
        details={"field": "max_bytes", "limit": limit},
    )


def too_large_to_pull(name: str, limit: int) -> SandcellError:
    """Return the error of an object that has more bytes than may be returned at once."""
    return error(
        ErrorCode.TOO_LARGE,
        f"{name[:80]} has more than {limit} bytes",
        hint="pull a part of it, or write it to a file and download that; a higher max_bytes returns it at once",
        details={"field": "max_bytes", "limit": limit},
    )


def refuse_later(**asked: object) -> None:
    """Refuse what this version does not do: nothing that was asked for is ever ignored.

    Raises:
        InvalidRequest (UNSUPPORTED): one of `asked` is neither None nor empty.
    """
    for name, value in asked.items():
        if value is not None and value is not False and value != () and value != {}:
            raise error(
                ErrorCode.UNSUPPORTED,
                f"{name}={value!r} is not there yet in this version"[:200],
                hint=f"leave out {name}",
                details={"field": name},
            )


class RunOptions(TypedDict, total=False):
    """How code is run: see `Sandbox.run_code`."""

    id: str | None
    fresh: bool
    env: Mapping[str, str | None] | None
    cwd: str | None
    timeout: float | NotGiven | None
    queue_timeout: float | None
    on_busy: OnBusy
    on_disconnect: OnDisconnect


@dataclass(frozen=True, slots=True, kw_only=True)
class Callbacks:
    """What is called while a run goes on, in the order of its events and where the caller stands."""

    on_stdout: Callable[[str], object] | None = None
    on_stderr: Callable[[str], object] | None = None
    on_result: Callable[[Result], object] | None = None
    on_error: Callable[[ExecutionError], object] | None = None
    on_input: Callable[[str], object] | None = None
    on_event: Callable[[Event], object] | None = None  # ours, before the others: each event, and nobody waits

    def __post_init__(self) -> None:
        check_callbacks(**{each.name: getattr(self, each.name) for each in fields(self)})


def make_execution(
    code: str,
    *,
    language: str = "python",
    context: str | None = None,
    allow_stdin: bool = False,
    id: str | None = None,
    fresh: bool = False,
    env: Mapping[str, str | None] | None = None,
    cwd: str | None = None,
    timeout: float | NotGiven | None = NOT_GIVEN,
    queue_timeout: float | None = None,
    on_busy: OnBusy = "wait",
    on_disconnect: OnDisconnect = "continue",
    offer: Offer | None = None,
) -> CreateExecution:
    """Return the request of one run.

    Raises:
        InvalidRequest: INVALID_ARGUMENT, INVALID_NAME, INVALID_ENV_NAME.
    """
    queue = check_timeout(queue_timeout, what="queue_timeout")
    return CreateExecution(
        code=check_text(code, what="code"),
        id=given_id(id, prefix="run", what="id of an execution"),
        language=check_text(language, what="language"),
        context=context if context is None else check_id(context, what="id of a context"),
        fresh=fresh,
        env=None if env is None else env_of(env),
        cwd=None if cwd is None else check_bytes_as_text(cwd, what="cwd"),
        timeout=check_timeout(timeout),
        queue_timeout=None if isinstance(queue, UnsetType) else queue,
        on_busy=on_busy,
        on_disconnect=on_disconnect,
        allow_stdin=allow_stdin,
        tools=None if offer is None else offer.body,
    )


def make_context(
    *,
    language: str,
    id: str | None,
    cwd: str,
    env: Mapping[str, str | None] | None,
    memory: str | int | None,
) -> CreateContext:
    """Return the request of one context.

    Raises:
        InvalidRequest: INVALID_ARGUMENT, INVALID_NAME, INVALID_ENV_NAME.
    """
    return CreateContext(
        language=check_text(language, what="language"),
        id=given_id(id, prefix="ctx", what="id of a context"),
        cwd=check_bytes_as_text(cwd, what="cwd"),
        env=None if env is None else env_of(env),
        memory=None if memory is None else parse_size(memory, what="memory"),
    )


def make_command(
    command: str | Sequence[str],
    *,
    cwd: str | None,
    env: Mapping[str, str | None] | None,
    stdin: bytes | None,
    timeout: float | NotGiven | None,
    max_output: int | None,
    stream: bool,
) -> ExecRequest:
    """Return the request of one command.

    Raises:
        InvalidRequest: INVALID_ARGUMENT, INVALID_NAME, INVALID_ENV_NAME.
    """
    return ExecRequest(
        command=check_command(command),
        id=new_id("exe"),
        cwd=None if cwd is None else check_path(cwd, what="cwd"),
        env=None if env is None else env_of(env),
        stdin=stdin,
        timeout=check_timeout(timeout),
        max_output=max_output,
        stream=stream,
    )


def check_command(command: object) -> str | tuple[str, ...]:
    """Return a command: a line for bash, or the program and its arguments.

    Raises:
        InvalidRequest (INVALID_ARGUMENT): it is neither, or empty.
    """
    hint = "a line for bash, or the program and its arguments"
    if isinstance(command, str):
        words: str | tuple[str, ...] = _word(command)
    elif isinstance(command, bytes) or not isinstance(command, Iterable):
        problem = f"has to be text or a list of texts, not {type(command).__name__}"
        raise wrong("command", problem, hint=hint)
    else:
        words = tuple(_word(each) for each in cast("Iterable[object]", command))
    if not words:
        raise wrong("command", "is empty", hint=hint)
    return words


def _word(given: object) -> str:
    # As names of files are: an argument may be one that is no UTF-8.
    return check_bytes_as_text(given, what="command")


class CreateOptions(TypedDict, total=False):
    """What a sandbox is to be: see `Sandbox.create`. Those of LATER are UNSUPPORTED in this version."""

    name: str | None
    reuse: bool
    engine: str
    cpus: float | None
    memory: str | int | None
    disk: str | int | None
    pids: int | None
    strict: bool
    network: Any
    env: Mapping[str, str] | None
    hostname: str | None
    python: str | None
    default_timeout: float | None
    idle_timeout: float | None
    on_release: OnRelease
    start_timeout: float
    url: str | None
    token: str | None
    packages: Sequence[str]
    apt: Sequence[str]
    preset: str | None
    secrets: Mapping[str, str] | None
    pass_env: Sequence[str]
    mounts: Sequence[str | Mount]
    publish: Sequence[int | str | PublishedPort]
    dns: Sequence[str]
    read_only: bool
    runtime: str | None
    tools: Sequence[ToolLike]


# Measured: with less one interpreter does not start, and dies with an error that says nothing.
_LEAST_MEMORY = 128 * 2**20
_LEAST_PIDS = 16
# More the system does not take, or has not. Source: PID_MAX_LIMIT of the kernel; no machine has as many cores.
_MOST_PIDS = 2**22
_MOST_CPUS = 2**16

LATER = ("url", "token", "pass_env")


def make_spec(config: Config, image: str | None, options: CreateOptions) -> SandboxSpec:
    """Return the sandbox as an engine is asked for it. What is not given comes from `config`.

    Raises:
        TypeError: there is no such option.
        InvalidRequest: INVALID_NAME, INVALID_ARGUMENT, INVALID_ENV_NAME; TOO_LARGE: more variables than a program can be
            given; UNSUPPORTED: not in this version.
    """
    _check_options(config, options)
    if image is not None:
        check_text(image, what="image")
    sandbox_id = new_id("sbx")
    name = options.get("name")
    env = {key: value for key, value in env_of(options.get("env")).items() if value is not None}
    secrets = _secrets_of(options.get("secrets"))
    check_sizes({**env, **secrets})
    start = check_timeout(options.get("start_timeout", config.start_timeout), what="start_timeout")
    return SandboxSpec(
        id=sandbox_id,
        name=check_id(name, what="name of a sandbox") if name is not None else sandbox_id,
        image=image if image is not None else config.image,
        limits=make_limits(options),
        strict=options.get("strict", False),
        env=env,
        secrets=secrets,
        **container_fields(cast("Mapping[str, Any]", options)),
        python=options.get("python"),
        default_timeout=_seconds(options.get("default_timeout", config.default_timeout), "default_timeout"),
        idle_timeout=_seconds(options.get("idle_timeout", config.idle_timeout), "idle_timeout"),
        grace=config.lease_grace,
        on_release=options.get("on_release", "remove"),
        start_timeout=start if isinstance(start, float) else config.start_timeout,
    )


def _secrets_of(given: object) -> dict[str, str]:
    """Return secrets by name, nothing for None. No error says a value."""
    secrets = env_of(given, what="secrets")
    if None in secrets.values():
        raise wrong("secrets", "hold None", hint="leave out what there is not")
    return {name: value for name, value in secrets.items() if value is not None}


def make_limits(options: CreateOptions) -> Limits:
    """Return the limits as numbers.

    Raises:
        InvalidRequest (INVALID_ARGUMENT): one is no size or number, or too small for anything to run.
    """
    cpus, memory, disk, pids = (options.get(name) for name in ("cpus", "memory", "disk", "pids"))
    return Limits(
        cpus=None if cpus is None else _few_cpus(cpus),
        memory=None if memory is None else _enough_memory(memory),
        disk=None if disk is None else parse_size(disk, what="disk"),
        pids=None if pids is None else _few_pids(pids),
    )


def _few_cpus(given: Any) -> float:
    cores = check_number(given, what="cpus", hint="cores, such as 0.5 or 2")
    if cores > _MOST_CPUS:
        raise wrong("cpus", f"= {given!r} is more than any machine has", hint="None is no limit")
    return cores


def _few_pids(given: Any) -> int:
    count = check_count(given, what="pids", least=_LEAST_PIDS)
    if count > _MOST_PIDS:
        raise wrong("pids", f"= {given!r} is more than any machine has", hint="None is no limit")
    return count


def _enough_memory(given: Any) -> int:
    size = parse_size(given, what="memory")
    if size < _LEAST_MEMORY:
        raise wrong("memory", f"= {given!r} is too little for one interpreter", hint="at least 128MiB")
    return size


def _check_options(config: Config, options: CreateOptions) -> None:
    unknown = options.keys() - CreateOptions.__annotations__.keys()
    if unknown:
        raise TypeError(f"Sandbox.create() has no option {', '.join(sorted(unknown))}")
    refuse_later(**{name: options.get(name) for name in LATER} | {"url": options.get("url") or config.url})
    for name in ("engine", "python"):
        if options.get(name) is not None:
            check_text(options.get(name), what=name)
    on_release = options.get("on_release", "remove")
    if on_release not in _ON_RELEASE:
        raise error(
            ErrorCode.INVALID_ARGUMENT,
            f"on_release={on_release!r} is none of {', '.join(_ON_RELEASE)}",
            details={"field": "on_release"},
        )


def _seconds(timeout: float | None, name: str) -> float | None:
    checked = check_timeout(timeout, what=name)
    return None if isinstance(checked, UnsetType) else checked

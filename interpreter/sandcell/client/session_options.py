"""What the caller asks of sessions, checked and turned into plain requests. Pure: the same for both clients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import UnsetType

from sandcell.client.checks import (
    check_bytes_as_text,
    check_data,
    check_path,
    check_timeout,
    env_of,
    wrong,
)
from sandcell.client.options import given_id
from sandcell.job_bodies import CreateSession, SessionExec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sandcell.client.options import NotGiven

__all__ = ["make_session", "make_session_exec"]


def make_session(id: str | None, *, cwd: str | None, env: Mapping[str, str | None] | None) -> CreateSession:
    """Return the request of one session.

    Raises:
        InvalidRequest: INVALID_ARGUMENT, INVALID_NAME, INVALID_ENV_NAME.
    """
    return CreateSession(
        id=given_id(id, prefix="ses", what="id of a session"),
        cwd=None if cwd is None else check_path(cwd, what="cwd"),
        env=None if env is None else env_of(env),
    )


def make_session_exec(
    command: str,
    *,
    cwd: str | None,
    env: Mapping[str, str | None] | None,
    stdin: str | bytes | None,
    timeout: float | NotGiven | None,
    queue_timeout: float | None,
    max_output: int | None,
    stream: bool,
) -> SessionExec:
    """Return the request of one command of a session.

    Raises:
        InvalidRequest: INVALID_ARGUMENT, INVALID_ENV_NAME.
    """
    queue = check_timeout(queue_timeout, what="queue_timeout")
    return SessionExec(
        command=_line(command),
        id=given_id(None, prefix="exe", what="id of a command"),
        cwd=None if cwd is None else check_path(cwd, what="cwd"),
        env=None if env is None else env_of(env),
        stdin=None if stdin is None else check_data(stdin, what="stdin"),
        timeout=check_timeout(timeout),
        queue_timeout=None if isinstance(queue, UnsetType) else queue,
        max_output=max_output,
        stream=stream,
    )


def _line(command: object) -> str:
    if isinstance(command, list | tuple):
        problem = "has to be text, not words"
        raise wrong("command", problem, hint="a session takes a line of shell; Sandbox.exec() takes words")
    return check_bytes_as_text(command, what="command")

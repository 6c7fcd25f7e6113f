"""What the caller asks of terminals, checked and turned into plain requests. Pure: the same for both clients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandcell.client.checks import check_bytes_as_text, check_count, env_of
from sandcell.client.options import check_command, given_id
from sandcell.job_bodies import CreateTerminal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["make_terminal"]


def make_terminal(
    id: str | None,
    *,
    command: str | Sequence[str] | None,
    cwd: str | None,
    env: Mapping[str, str | None] | None,
    cols: int,
    rows: int,
) -> CreateTerminal:
    """Return the request of one terminal. A generated id makes it safe to send twice.

    Raises:
        InvalidRequest: INVALID_ARGUMENT, INVALID_NAME, INVALID_ENV_NAME.
    """
    return CreateTerminal(
        id=given_id(id, prefix="trm", what="id of a terminal"),
        command=None if command is None else check_command(command),
        cwd=None if cwd is None else check_bytes_as_text(cwd, what="cwd"),
        env=None if env is None else env_of(env),
        cols=check_count(cols, what="cols", least=1),
        rows=check_count(rows, what="rows", least=1),
    )

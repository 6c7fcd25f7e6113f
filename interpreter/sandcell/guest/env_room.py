"""The environment of user code as clients see and change it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandcell.environment import check_env

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sandcell.context import Contexts
    from sandcell_container.guest.session import Sessions
    from sandcell_container.guest.user_env import UserEnv

__all__ = ["EnvRoom"]


class EnvRoom:
    """See the module. What starts from now on has `env`; what lives is told of each change."""

    def __init__(self, env: UserEnv, contexts: Contexts, sessions: Sessions) -> None:
        self._env = env
        self._contexts = contexts
        self._sessions = sessions

    def whole(self) -> dict[str, str]:
        """Return all of it."""
        return dict(self._env)

    def change(self, changes: Mapping[str, str | None]) -> None:
        """Change variables for all that starts, for live sessions before their next command and for live contexts before
        their next run; what one of these was given itself it keeps.

        Raises:
            InvalidRequest: INVALID_ENV_NAME; TOO_LARGE: no program could be started any more. Then nothing has changed.
        """
        self._env.change(check_env(changes))
        self._sessions.inherit_env(changes)
        self._contexts.inherit_env(changes)

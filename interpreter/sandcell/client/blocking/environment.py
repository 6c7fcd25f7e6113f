# Made from ../aio/environment.py by `python -m sandcell.client.generate`: change that file, not this one.
"""What a sandbox's handle can do with the environment of user code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandcell.client.checks import env_of
from sandcell.client.protocol import Request, path_of
from sandcell.job_bodies import ChangeEnv, EnvInfo
from sandcell.names import encode_names

if TYPE_CHECKING:
    from sandcell.client.blocking.transport import Transport

__all__ = ["Environment"]


class Environment:
    """`_transport` is the handle's."""

    _transport: Transport

    def env(self) -> dict[str, str]:
        """Return the environment that user code starts with, the values of secrets as "***"."""
        return (self._transport.call(Request(method="GET", path=path_of("env")), EnvInfo)).env

    def set_env(self, **values: str | None) -> None:
        """Change variables for all that starts from now on, for live sessions before their next command and for live
        contexts before their next run; also over a stop and start. None takes one away, as `unset_env` does.

        A session or context keeps what it was given itself: by `env` when it was made, or by its own `set_env`. What runs
        already, a process or a terminal, has the environment that it began with. Values may hold anything but NUL; lone
        surrogates stand for bytes that are not UTF-8, as `os.fsdecode` has them.

        Raises:
            InvalidRequest: INVALID_ENV_NAME; INVALID_ARGUMENT: a value is no text; TOO_LARGE: one has 128 KiB, or all that
                was set 1 MiB. Then nothing has changed.
        """
        body = encode_names(ChangeEnv(env=env_of(values)))
        self._transport.call(Request(method="PATCH", path=path_of("env"), body=body), EnvInfo)

    def unset_env(self, *names: str) -> None:
        """Take variables away, as `set_env` changes them. One that is not there is fine."""
        self.set_env(**dict.fromkeys(names))

"""What `help` and `inspect.signature` show of the options of a sandbox.

The calls take `**options`, because one that is not given is another thing than one that has its default: it
comes from the settings of the program. Type checkers read `CreateOptions`; people at a prompt read this.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, TypeVar

from sandcell.client.options import LATER, CreateOptions
from sandcell.config import Config

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["option_defaults", "show_options"]

F = TypeVar("F", bound="Callable[..., Any]")

_GIVEN: dict[str, Any] = {
    "reuse": False,
    "strict": False,
    "network": "none",
    "on_release": "remove",
    "mounts": (),
    "publish": (),
    "dns": (),
    "packages": (),
    "apt": (),
    "read_only": False,
    "tools": (),
}
_CONFIGURED = ("engine", "default_timeout", "idle_timeout", "start_timeout")


def option_defaults() -> dict[str, Any]:
    """Return the options that this version honours, each with what it is where no setting says otherwise."""
    config = Config()
    known = _GIVEN | {name: getattr(config, name) for name in _CONFIGURED}
    return {name: known.get(name) for name in CreateOptions.__annotations__ if name not in LATER}


def show_options(*, required: tuple[str, ...] = ()) -> Callable[[F], F]:
    """Return a decorator: what is shown of a function's `**options` is each of them, and `**later`.

    `required`: those that have no default.
    """
    shown = [_parameter(name, default, required) for name, default in option_defaults().items()]
    later = inspect.Parameter("later", inspect.Parameter.VAR_KEYWORD)

    def show(function: F) -> F:
        signature = inspect.signature(function)
        own = [each for each in signature.parameters.values() if each.kind is not each.VAR_KEYWORD]
        function.__dict__["__signature__"] = signature.replace(parameters=[*own, *shown, later])
        return function

    return show


def _parameter(name: str, default: object, required: tuple[str, ...]) -> inspect.Parameter:
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=inspect.Parameter.empty if name in required else default,
        annotation=CreateOptions.__annotations__[name].__forward_arg__,
    )

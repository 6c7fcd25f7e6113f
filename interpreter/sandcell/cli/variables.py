"""The options `--env` and `--timeout`, which several verbs have."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from sandcell_container.errors import ErrorCode, error

if TYPE_CHECKING:
    import argparse

__all__ = ["timeout_of", "variables_of"]


def timeout_of(options: argparse.Namespace) -> dict[str, float | None]:
    """Return the keyword that `--timeout` stands for, none where it is not given; "none" is no limit."""
    if options.timeout is None:
        return {}
    return {"timeout": None if options.timeout == math.inf else options.timeout}


def variables_of(options: argparse.Namespace) -> dict[str, str | None] | None:
    """Return the variables that the options name, None where they name none.

    Raises:
        InvalidRequest (INVALID_ENV_NAME): one has no value.
    """
    return dict(_variable(each) for each in options.env) or None


def _variable(text: str) -> tuple[str, str | None]:
    name, equals, value = text.partition("=")
    if not equals:
        raise error(ErrorCode.INVALID_ENV_NAME, f"--env {text[:40]} has no value", hint="--env NAME=VALUE")
    return name, value

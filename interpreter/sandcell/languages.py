"""The languages that contexts speak, and the names they go by."""

from __future__ import annotations

from dataclasses import dataclass

from sandcell_container.errors import ErrorCode, error

__all__ = ["LANGUAGES", "Language", "language_named"]


@dataclass(frozen=True, slots=True)
class Language:
    """One language. `name` is also the id of a sandbox's own context for it."""

    name: str
    aliases: tuple[str, ...] = ()


LANGUAGES = (Language("python", ("py", "python3")),)

_BY_NAME = {name: language for language in LANGUAGES for name in (language.name, *language.aliases)}


def language_named(name: str) -> Language:
    """Return the language of this name or alias, in any case of letters.

    Raises:
        InvalidRequest (UNKNOWN_LANGUAGE): there is none; the error lists those there are.
    """
    language = _BY_NAME.get(name.strip().lower())
    if language is None:
        known = [each.name for each in LANGUAGES]
        raise error(
            ErrorCode.UNKNOWN_LANGUAGE,
            f"there is no language {name[:80]!r} here",
            hint=f"one of: {', '.join(known)}",
            details={"languages": known},
        )
    return language

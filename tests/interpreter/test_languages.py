"""Names of languages, and what can be asked of each."""

from __future__ import annotations

import pytest

from sandcell.languages import LANGUAGES, named, own_context_of
from sandcell.speakers import Speakers
from sandcell_container.errors import ErrorCode, SandcellError
from sandcell_container.ids import check_id


@pytest.mark.parametrize(
    ("name", "language"),
    [
        ("python", "python"),
        ("Python", "python"),
        (" py ", "python"),
        ("python3", "python"),
        ("js", "javascript"),
        ("TS", "typescript"),
        ("sh", "bash"),
        ("R", "r"),
    ],
)
def test_a_language_goes_by_several_names(name: str, language: str) -> None:
    found = named(name)
    assert found is not None
    assert found.name == language


@pytest.mark.parametrize("name", ["", "ruby", "x" * 10_000])
async def test_an_unknown_language_says_which_there_are(name: str) -> None:
    speakers = Speakers()
    await speakers.learn(name)
    with pytest.raises(SandcellError) as raised:
        speakers.language(name)
    assert raised.value.code is ErrorCode.UNKNOWN_LANGUAGE
    assert raised.value.details == {"languages": ["python"]}
    assert "python" in raised.value.hint
    assert len(str(raised.value)) < 300


def test_names_are_distinct_and_can_be_ids_of_contexts() -> None:
    names = [name for language in LANGUAGES for name in (language.name, *language.aliases)]
    assert len(set(names)) == len(names)
    assert all(check_id(language.name, what="context") == language.own_context for language in LANGUAGES)
    assert check_id(own_context_of("julia-1.10+x"), what="context") == "julia-1-10-x"
    assert own_context_of("TS") == "typescript"


def test_what_a_language_has_not_is_told_with_what_to_do_instead() -> None:
    bash = named("bash")
    assert bash is not None
    bash.check("surroundings")
    with pytest.raises(SandcellError) as raised:
        bash.check("objects")
    assert raised.value.code is ErrorCode.UNSUPPORTED
    assert "bash" in raised.value.message
    assert raised.value.hint

"""Names of languages."""

from __future__ import annotations

import pytest

from sandcell.languages import LANGUAGES, language_named
from sandcell_container.errors import ErrorCode, SandcellError
from sandcell_container.ids import check_id


@pytest.mark.parametrize("name", ["python", "py", "python3", "Python", " py "])
def test_a_language_goes_by_several_names(name: str) -> None:
    assert language_named(name).name == "python"


@pytest.mark.parametrize("name", ["", "ruby", "x" * 10_000])
def test_an_unknown_language_says_which_there_are(name: str) -> None:
    with pytest.raises(SandcellError) as raised:
        language_named(name)
    assert raised.value.code is ErrorCode.UNKNOWN_LANGUAGE
    assert raised.value.details == {"languages": ["python"]}
    assert "python" in raised.value.hint
    assert len(str(raised.value)) < 300


def test_names_are_distinct_and_can_be_ids_of_contexts() -> None:
    names = [name for language in LANGUAGES for name in (language.name, *language.aliases)]
    assert len(set(names)) == len(names)
    assert all(check_id(language.name, what="context") for language in LANGUAGES)

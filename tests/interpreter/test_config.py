"""Settings, from the environment of a program to the guest that it makes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sandcell import kernel_process
from sandcell.config import Config, settings_of
from sandcell_container.errors import ErrorCode, InvalidRequest

if TYPE_CHECKING:
    from pathlib import Path


def test_an_empty_variable_is_no_setting() -> None:
    assert settings_of({"SANDCELL_ENGINE": "", "SANDCELL_MAX_QUEUE": "3"}) == {"max_queue": "3"}


@pytest.mark.parametrize(
    ("environ", "heeded"), [({}, ()), ({"SANDCELL_PRELOAD": "json decimal"}, ("json", "decimal"))]
)
def test_the_guest_of_a_notebook_imports_ahead_what_is_asked_and_else_nothing(
    environ: dict[str, str], heeded: tuple[str, ...]
) -> None:
    kernel_process.set_defaults(environ)
    assert Config.from_settings(settings_of(environ)).preloaded == heeded


@pytest.mark.parametrize(
    ("name", "text"),
    [("log_level", "loud"), ("interrupt_grace", "nan"), ("start_timeout", "-1"), ("max_queue", "x")],
)
def test_what_fits_no_field_is_told(name: str, text: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        Config.from_settings({name: text})
    assert refused.value.code is ErrorCode.INVALID_ARGUMENT


def test_a_level_is_meant_whatever_its_case() -> None:
    assert Config.from_settings({"log_level": "debug"}).log_level == "DEBUG"


def test_the_state_folder_is_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/ada")
    for given, folder in (
        ("", "/home/ada/.local/state"),
        ("relative/dir", "/home/ada/.local/state"),
        ("/state", "/state"),
    ):
        monkeypatch.setenv("XDG_STATE_HOME", given)
        assert str(Config().state_path) == f"{folder}/sandcell"
    assert Config(state_dir="here").state_path == tmp_path / "here"

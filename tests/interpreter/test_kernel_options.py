from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from sandcell.kernel_options import check_options, merge_options, read_options
from sandcell.kernel_sandbox import name_for, notebook_options
from sandcell_container.errors import SandcellError

if TYPE_CHECKING:
    from pathlib import Path


def test_what_comes_later_wins_option_by_option() -> None:
    spec, environ, notebook = {"memory": "1GiB", "cpus": 1}, {"memory": "2GiB"}, {"packages": ["polars"]}
    merged = merge_options(spec, environ, notebook, folder="/home/me")
    assert merged.create == {"memory": "2GiB", "cpus": 1, "packages": ["polars"]}
    assert (merged.sandbox, merged.context, merged.language) == (None, None, "python")


def test_the_folder_of_the_notebook_is_mounted_only_when_asked() -> None:
    assert "mounts" not in merge_options({}, folder="/home/me").create
    asked = {"notebook_folder": "rw", "mounts": ["/data:/data"]}
    assert merge_options(asked, folder="/home/me").create["mounts"] == [
        "/data:/data",
        "/home/me:/workspace/notebook:rw",
    ]
    with pytest.raises(SandcellError, match="INVALID_ARGUMENT"):
        merge_options({"notebook_folder": "yes"}, folder="/home/me")


def test_another_sandbox_a_context_and_a_language_can_be_chosen() -> None:
    merged = merge_options({"sandbox": "lab", "context": "c", "language": "bash"}, folder="/")
    assert (merged.sandbox, merged.context, merged.language) == ("lab", "c", "bash")


@pytest.mark.parametrize(
    "name", ["mounts", "publish", "network", "sandbox", "engine", "notebook_folder", "python", "runtime"]
)
def test_a_notebook_asks_for_nothing_that_opens_its_sandbox(name: str) -> None:
    check_options({name: "x"})
    with pytest.raises(SandcellError, match="FORBIDDEN"):
        check_options({name: "x"}, of_notebook=True)


def test_what_is_no_option_is_named() -> None:
    with pytest.raises(SandcellError, match="INVALID_ARGUMENT: a kernel has no option 'memroy'"):
        check_options({"memroy": "1GiB"})


@pytest.mark.parametrize("text", ["{", "[]", "1"])
def test_what_is_no_json_object_says_whose_it_is(text: str) -> None:
    with pytest.raises(SandcellError, match="the kernelspec"):
        read_options(text, source="the kernelspec")


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ({"metadata": {"sandcell": {"memory": "1GiB"}}}, {"memory": "1GiB"}),
        ({"metadata": {}}, {}),
        ({"metadata": {"sandcell": 7}}, {}),
        ([], {}),
    ],
)
def test_a_notebook_says_what_it_needs(tmp_path: Path, content: Any, found: dict[str, Any]) -> None:
    path = tmp_path / "a.ipynb"
    path.write_text(json.dumps(content))
    assert notebook_options(str(path)) == found


def test_what_is_no_notebook_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "broken.ipynb").write_text("{")
    os.mkfifo(tmp_path / "waits.ipynb")
    (tmp_path / "endless.ipynb").symlink_to("/dev/zero")
    for name in ("broken", "missing", "waits", "endless"):
        assert notebook_options(str(tmp_path / f"{name}.ipynb")) == {}
    for path in ("", "console-1"):
        assert notebook_options(path) == {}


def test_the_processes_of_one_kernel_know_their_sandbox_by_name() -> None:
    assert name_for("key") == name_for("key") != name_for("other")
    assert name_for("") is None

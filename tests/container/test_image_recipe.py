from __future__ import annotations

import json

import pytest

from sandcell_container.engines.docker_image import line_for_plain
from sandcell_container.engines.image_recipe import PRESETS, Recipe, recipe_of
from sandcell_container.errors import ErrorCode, SandcellError

BASE = "sha256:0"


def test_the_same_content_has_the_same_name() -> None:
    one = recipe_of(("a", "b"), ("c",), None)
    assert one.tag(BASE) == recipe_of(("b", "a"), ("c",), "python").tag(BASE)
    assert one.tag(BASE) != one.tag("sha256:1")
    assert one.tag(BASE) != recipe_of(("a", "b", "c"), (), None).tag(BASE)


def test_nothing_asked_for_is_nothing_made() -> None:
    assert recipe_of((), (), None).is_empty
    assert recipe_of((), (), "none").is_empty
    assert not recipe_of((), (), "data").is_empty


def test_a_preset_is_taken_together_with_what_else_is_asked_for() -> None:
    found = recipe_of(("pandas", "scipy"), ("graphviz",), "data")
    assert found.packages == (*PRESETS["data"].packages, "scipy")
    assert found.apt == ("graphviz",)


def test_there_is_no_other_preset() -> None:
    with pytest.raises(SandcellError) as refused:
        recipe_of((), (), "everything")
    assert refused.value.code is ErrorCode.INVALID_ARGUMENT
    assert "data" in refused.value.hint


def test_no_shell_reads_what_is_asked_for() -> None:
    recipe = Recipe(packages=('a[b]>=1; python_version < "4"',), apt=("graphviz",))
    lines = recipe.dockerfile(BASE).splitlines()
    words = [json.loads(line.removeprefix("RUN ")) for line in lines if line.startswith('RUN ["')]
    assert [each[-2:] for each in words[1:]] == [["--", "graphviz"], ["--", recipe.packages[0]]]
    assert lines[0] == f"FROM {BASE} AS base"
    assert lines[-1].startswith("COPY --from=build")


@pytest.mark.parametrize(
    ("name", "release", "line"),
    [
        ("python:3.12", 'ID=debian\nVERSION_ID="12"\n', "sandcell image build --base python:3.12 --tag sandcell-python-3.12"),
        ("a/b/mint:1", 'ID=linuxmint\nID_LIKE="ubuntu debian"\n', "--base a/b/mint:1 --tag sandcell-mint-1"),
        ("scratch", "", "sandcell image build --base scratch"),
        ("alpine:3", 'NAME="Alpine Linux"\nID=alpine\n', "it is alpine"),
        ("fedora", 'ID=fedora\nID_LIKE="rhel"\n', "--base debian:bookworm-slim"),
    ],
)  # fmt: skip
def test_a_plain_image_has_its_line(name: str, release: str, line: str) -> None:
    assert line in line_for_plain(name, release)

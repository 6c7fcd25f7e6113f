from __future__ import annotations

import pytest

from sandcell.cli.image import order_of
from sandcell.cli.options import parse
from sandcell_container.engines.image_recipe import PRESETS
from sandcell_container.errors import SandcellError


def test_the_runtime_image_has_the_name_of_its_target() -> None:
    assert order_of(parse(["image", "build"])).tag == "sandcell-runtime:slim"
    assert order_of(parse(["image", "build", "--target", "full"])).tag == "sandcell-runtime:full"


def test_what_is_asked_for_is_in_the_order() -> None:
    words = "image build --base debian:12 --tag lab --packages scipy numpy>=2 --apt graphviz --preset build"
    order = order_of(parse(words.split()))
    assert (order.base, order.tag, order.target) == ("debian:12", "lab", "slim")
    assert order.recipe.packages == ("scipy", "numpy>=2")
    assert order.recipe.apt == (*PRESETS["build"].apt, "graphviz")


@pytest.mark.parametrize("words", ["--preset everything", "--apt a;b", "--packages -r"])
def test_what_is_no_package_is_refused(words: str) -> None:
    with pytest.raises((SandcellError, SystemExit)):
        order_of(parse(["image", "build", *words.split()]))

"""Packages that a sandbox of this machine is created with: an environment made once, shared, and nobody's to write."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest
from tests.e2e.wheels import write_wheel

from sandcell import Sandbox
from sandcell.client.host import the_host
from sandcell_container.errors import ErrorCode, SandcellError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all the index there is."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    write_wheel(tmp_path, "lintel")
    return tmp_path


@pytest.fixture(params=["local", "process"])
def engine(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.mark.filterwarnings("ignore:engine process")
def test_packages_are_there_without_a_network(wheels: Path, engine: str) -> None:
    with Sandbox.create(engine=engine, packages=["lintel"]) as made:
        assert made.run_code("import lintel; lintel.WORD", check=True).value == "word of lintel"
        assert made.exec("lintel-says", check=True).stdout == "word of lintel\n"
        assert made.run_code("import ipykernel", check=True).ok  # what is below is there too
        (wheels / "lintel-1-py3-none-any.whl").unlink()  # it is not asked for again
        made.restart()
        assert made.run_code("import lintel; lintel.WORD", check=True).value == "word of lintel"
    with Sandbox.create(engine=engine, packages=["lintel"]) as other:
        assert other.run_code("import lintel; lintel.WORD", check=True).value == "word of lintel"


def test_what_is_shared_is_nobodys_to_write(wheels: Path) -> None:
    with Sandbox.create(engine="local", packages=["lintel"]) as made:
        path = made.run_code("import lintel; lintel.__file__", check=True).value
        assert str(wheels) not in str(path)
        assert not made.exec(["sh", "-c", "echo x >> $0 || rm $0", str(path)]).ok
        made.exec("pip install --no-index --no-deps nothing-at-all")  # its own environment is another one
        assert made.exec("test -w ~/.venv || test -w ~/.sandcell-venv").ok


def test_a_snapshot_has_the_packages(wheels: Path) -> None:
    with Sandbox.create(engine="local", packages=["lintel"]) as made:
        image = made.snapshot("with-lintel")
    try:
        with Sandbox.create(image, engine="local") as again:
            assert again.run_code("import lintel; lintel.WORD", check=True).value == "word of lintel"
        with pytest.raises(SandcellError, match="snapshot") as refused:
            Sandbox.create(image, engine="local", packages=["lintel"])
        assert refused.value.code is ErrorCode.UNSUPPORTED
    finally:
        the_host().remove_snapshot("with-lintel")


def test_what_nothing_stands_on_any_more_is_pruned(wheels: Path) -> None:
    state = the_host().config.state_path / "environments"

    def prune() -> list[str]:
        """Nobody asks for any for a long time, then."""
        for lock in (state / ".locks").iterdir():
            os.utime(lock, (0, 0))
        return the_host().remove_unused(60.0)

    prune()
    write_wheel(wheels, "frieze")
    with Sandbox.create(engine="local", packages=["frieze"], on_release="stop") as made:
        (folder,) = [each for each in state.iterdir() if each.name != ".locks"]
        assert the_host().remove_unused(0.0) == [] == prune(), "it runs on it"
    assert prune() == [], "it is stopped, and can be started"
    image = made.snapshot("with-frieze")
    made.remove()
    assert prune() == [], "so can the snapshot"
    the_host().remove_snapshot(image)
    assert the_host().remove_unused(60.0 + time.time()) == [], "it was asked for since"
    assert prune() == [str(folder)] and not folder.exists()
    with Sandbox.create(engine="local", packages=["frieze"]) as again:
        assert again.run_code("import frieze", check=True).ok


def test_what_cannot_be_installed_says_why_and_leaves_nothing(wheels: Path) -> None:
    (wheels / "sandstone-1.tar.gz").write_bytes(b"no matter: it would have to be built")
    for name in ("no-such-package", "sandstone"):
        with pytest.raises(SandcellError) as refused:
            Sandbox.create(engine="local", name="unmade", packages=[name])
        assert refused.value.code is ErrorCode.START_FAILED
        assert name in refused.value.details["words"]
        assert "wheels" in refused.value.hint
    assert "unmade" not in {each.name for each in Sandbox.list()}


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"apt": ["graphviz"]}, "graphviz"),
        ({"preset": "build"}, "build-essential"),
        ({"packages": ["x @ git+https://example.org/x"]}, "built"),
    ],
)
def test_what_this_machine_cannot_be_given_is_refused(options: dict[str, str], word: str) -> None:
    with pytest.raises(SandcellError, match=word) as refused:
        Sandbox.create(engine="local", **options)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType] # one after the other
    assert refused.value.code is ErrorCode.UNSUPPORTED
    assert "docker" in refused.value.hint

"""Images: which are taken, which are refused and with what line, and what is put into one on request."""

from __future__ import annotations

import io
import os
import tarfile
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import docker.errors
import pytest

from sandcell.client.host import the_host
from sandcell_container.engines import docker_unused
from sandcell_container.engines.docker_image import find_image
from sandcell_container.engines.docker_unused import remove_unused_images
from sandcell_container.engines.image_context import own_version, pack_context
from sandcell_container.engines.image_recipe import DERIVED
from sandcell_container.errors import ErrorCode, SandcellError
from sandcell_container.named_lock import named_lock

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from tests.e2e.conftest import Place

pytestmark = pytest.mark.docker

RUNTIME = "sandcell-runtime:slim"


def labelled(place: Place, version: str) -> str:
    """Make the runtime image one of another version, by its label alone; returns its name."""
    base = place.client.images.get(RUNTIME if place.name == "docker" else f"localhost/{RUNTIME}")
    name = f"sandcell-test:{version}"
    text = f"FROM {base.id}\nLABEL sandcell.version={version}\n".encode()
    context = io.BytesIO()
    with tarfile.open(fileobj=context, mode="w") as tar:
        member = tarfile.TarInfo("Dockerfile")
        member.size = len(text)
        tar.addfile(member, io.BytesIO(text))
    context.seek(0)
    place.client.images.build(fileobj=context, custom_context=True, tag=name, rm=True)
    return name


@pytest.fixture
def images(place: Place) -> Generator[list[str]]:
    """Names of images to be removed."""
    names = list[str]()
    yield names
    for name in names:
        for each in (name, f"localhost/{name}"):
            with suppress(docker.errors.NotFound):
                place.client.images.remove(each, force=True)


def test_another_minor_version_is_told(place: Place, images: list[str]) -> None:
    major, minor = own_version().split(".")[:2]
    other = f"{major}.{int(minor) + 1}.0"
    images.append(labelled(place, other))
    with place.create(images[0]) as made:
        told = [each for each in made.info().warnings if other in each]
        assert len(told) == 1
        assert own_version() in told[0]


def test_another_major_version_is_refused_with_both_and_the_line(place: Place, images: list[str]) -> None:
    other = f"{int(own_version().split('.')[0]) + 1}.0.0"
    images.append(labelled(place, other))
    with pytest.raises(SandcellError) as refused:
        place.create(images[0])
    assert refused.value.code is ErrorCode.VERSION_MISMATCH
    assert other in refused.value.message
    assert own_version() in refused.value.message
    assert "sandcell image build" in refused.value.hint


@pytest.mark.parametrize(
    ("family", "line"), [("debian", "sandcell image build --base sandcell-plain"), ("alpine", "it is alpine")]
)
def test_a_plain_image_is_refused_with_the_line(
    place: Place, images: list[str], family: str, line: str
) -> None:
    name = f"sandcell-plain{family}"
    images.append(name)
    import_image(place, name, family)
    with pytest.raises(SandcellError) as refused:
        place.create(name)
    assert refused.value.code is ErrorCode.INVALID_ARGUMENT
    assert line in refused.value.hint
    assert place.client.containers.list(all=True, filters={"ancestor": name}) == []


def import_image(place: Place, name: str, family: str) -> None:
    """Make an image of nothing but the file that names its family."""
    text = f"ID={family}\n".encode()
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        member = tarfile.TarInfo("etc/os-release")
        member.size = len(text)
        tar.addfile(member, io.BytesIO(text))
    api: Any = place.client.api  # what it returns is not typed
    answer: str = api.import_image_from_data(packed.getvalue(), repository=name, tag="latest")
    assert "error" not in answer


def test_an_image_is_fetched_only_where_the_policy_says_so(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SANDCELL_PULL", "never")
    the_host().close()
    with monkeypatch.context() as patch, pytest.raises(SandcellError) as refused:
        patch.setenv("SANDCELL_PULL", "never")
        place.create("no-such-image:1")
    assert refused.value.code is ErrorCode.IMAGE_NOT_FOUND


@pytest.mark.timeout(300)  # an index is asked, and what it has is built in
def test_packages_are_there_without_a_network(place: Place) -> None:
    with place.create(packages=["six"], start_timeout=300) as made:
        assert made.run_code("import six; six.__name__", check=True).value == "six"
        assert made.run_code("import os; os.listdir('/sys/class/net')", check=True).value == ["lo"]
        assert made.exec("test -w /opt/user/lib/python3*/site-packages && ! test -e /usr/src/ca.crt").ok
    derived = [tag for each in place.client.images.list() for tag in each.tags if "sandcell-derived" in tag]
    with place.create(packages=["six"], start_timeout=300) as made:
        assert made.run_code("import six; six.__name__", check=True).value == "six"
    again = [tag for each in place.client.images.list() for tag in each.tags if "sandcell-derived" in tag]
    assert again == derived


def test_an_image_that_nothing_uses_is_removed_after_a_while(place: Place, tmp_path: Path) -> None:
    mark = f"sandcell.test-{uuid4().hex}"

    def make(name: str) -> str:
        """Make an image of one new file, which counts as one of Sandcell's here."""
        lines = f"FROM scratch\nLABEL {mark}=1\nCOPY Dockerfile /{uuid4().hex}\n"
        context = pack_context({"Dockerfile": lines.encode()})
        place.client.images.build(fileobj=context, custom_context=True, tag=name, rm=True)
        return str(find_image(place.client, name).id)

    def prune(seconds: float) -> set[str]:
        return {each.rpartition("/")[2] for each in remove_unused_images(place.client, tmp_path, seconds)}

    tag = f"test-{uuid4().hex}"
    nameless, _ = make(f"{DERIVED}:{tag}"), make(f"{DERIVED}:{tag}")
    own = f"sandcell-test:{tag}"
    make(own)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(docker_unused, "VERSION", mark)
        assert prune(0.0) == set(), "they were made just now"
        patch.setattr(docker_unused, "SETTLING_S", -10.0)
        container = place.client.containers.create(f"{DERIVED}:{tag}", "true", network_mode="none")
        removed = prune(-10.0)  # Podman keeps steps of a build as images, which go as well
        assert nameless in removed and f"{DERIVED}:{tag}" not in removed, "a container is of it"
        container.remove()
        with named_lock(tmp_path, f"{DERIVED}-{tag}"):
            pass
        later = os.stat(tmp_path / f"{DERIVED}-{tag}").st_mtime + 1000
        os.utime(tmp_path / f"{DERIVED}-{tag}", (later, later))
        assert f"{DERIVED}:{tag}" not in prune(-10.0), "somebody has asked for it"
        os.utime(tmp_path / f"{DERIVED}-{tag}", (0, 0))
        assert f"{DERIVED}:{tag}" in prune(-10.0)
    place.client.images.remove(find_image(place.client, own).tags[0])


@pytest.mark.timeout(300)  # an index is asked, and what it has is built in
def test_what_cannot_be_put_in_says_why(place: Place) -> None:
    with pytest.raises(SandcellError) as refused:
        place.create(packages=["no-such-package-of-anybody-1"], start_timeout=300)
    assert refused.value.code is ErrorCode.START_FAILED
    assert "could not be built" in refused.value.message
    assert "no-such-package-of-anybody-1" in refused.value.details["words"]

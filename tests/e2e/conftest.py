"""What tests of the whole share: a registry of their own, and sandboxes of the engine that needs nothing installed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sandcell import Sandbox
from sandcell.client.host import the_host
from sandcell_kernel.install import install_kernelspec

if TYPE_CHECKING:
    from collections.abc import Generator


@pytest.fixture(scope="session", autouse=True)
def own_registry(tmp_path_factory: pytest.TempPathFactory) -> Generator[None]:
    """Keep the sandboxes of the tests apart from those of the user, and leave none."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SANDCELL_STATE_DIR", str(tmp_path_factory.mktemp("state")))
        patch.setenv("SANDCELL_INTERRUPT_GRACE", "1")  # the default of 5 s would be waited for by many a test
        yield
        the_host().close()


@pytest.fixture(scope="module")
def sandbox() -> Generator[Sandbox]:
    """A sandbox that the tests of a module share, each with files and contexts of its own."""
    with Sandbox.create(engine="local") as made:
        yield made


@pytest.fixture(scope="module")
def kernelspec(tmp_path_factory: pytest.TempPathFactory) -> Generator[None]:
    """The kernel, installed for a module's tests alone; its sandboxes are of the engine `local`."""
    prefix = tmp_path_factory.mktemp("prefix")
    install_kernelspec(prefix=str(prefix))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUPYTER_PATH", str(prefix / "share" / "jupyter"))
        patch.setenv("SANDCELL_ENGINE", "local")
        yield

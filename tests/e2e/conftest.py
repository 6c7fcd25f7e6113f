"""What tests of the whole share: a registry of their own, and sandboxes of the engine that needs nothing installed."""

from __future__ import annotations

import os
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import docker
import pytest

from sandcell import Sandbox, SandcellError
from sandcell.client.host import the_host
from sandcell_container.engines.tunnel import find_tunnel
from sandcell_container.registry import Registry
from sandcell_kernel.install import LANGUAGES, KernelPlan, install_kernelspec

if TYPE_CHECKING:
    from collections.abc import Generator

    from docker.models.containers import Container

    from sandcell.client.options import CreateOptions
    from sandcell_container.engine import Engine


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


class GuestProcess:
    """The guest of a sandbox as this machine sees it, from outside of the sandbox."""

    def __init__(self, sandbox: Sandbox) -> None:
        registry = Registry(the_host().config.state_path / "sandboxes")
        found = next(each for each in registry.entries() if each.record.id == sandbox.id)
        self.launcher, self.pid, self.first = (process.pid for process in found.processes)

    @property
    def memory(self) -> int:
        """Bytes that it has in memory now."""
        return self._status("VmRSS")

    @property
    def peak(self) -> int:
        """The most bytes that it has had in memory since `forget_peak`."""
        return self._status("VmHWM")

    def forget_peak(self) -> None:
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")

    @property
    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    @property
    def descriptors_of_first(self) -> int:
        """Those of the sandbox's first process, which only root may count: 0 for others."""
        return len(os.listdir(f"/proc/{self.first}/fd")) if os.geteuid() == 0 else 0

    @property
    def threads(self) -> int:
        return len(os.listdir(f"/proc/{self.pid}/task"))

    def _status(self, name: str) -> int:
        status = Path(f"/proc/{self.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith(f"{name}:"))
        return int(line.split()[1]) * 1024


@pytest.fixture(scope="module")
def guest(sandbox: Sandbox) -> GuestProcess:
    """The guest of the module's sandbox."""
    return GuestProcess(sandbox)


class EnginePlace:
    """An engine, by its name."""

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def engine(self) -> Engine:
        return the_host().engine(self.name).engine

    def create(self, image: str | None = None, **options: Unpack[CreateOptions]) -> Sandbox:
        options["engine"] = self.name
        return Sandbox.create(image, **options)


class Place(EnginePlace):
    """An engine with containers, and its daemon. `client` is the tests' own way to it."""

    def __init__(self, name: str, client: docker.DockerClient) -> None:
        super().__init__(name)
        self.client = client

    def containers(self, sandbox_id: str) -> list[Container]:
        return self.client.containers.list(all=True, filters={"label": f"sandcell.id={sandbox_id}"})


@contextmanager
def open_place(name: str) -> Generator[Place]:
    """Find the daemon of Docker or Podman, with the runtime image, that SANDCELL_TEST_DOCKER_HOST or
    SANDCELL_TEST_PODMAN_HOST names; where CI=true the absence of one is a failure."""
    variable = f"SANDCELL_TEST_{name.upper()}_HOST"
    host = os.environ.get(variable, "")
    if not host:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(f"{variable} names no daemon")
    client = docker.DockerClient(base_url=host)
    with pytest.MonkeyPatch.context() as patch, closing(client):
        patch.setenv("DOCKER_HOST" if name == "docker" else "CONTAINER_HOST", host)
        the_host().close()  # an engine looks for its daemon once
        yield Place(name, client)
        the_host().close()


@pytest.fixture(scope="module", params=["docker", "podman"])
def place(request: pytest.FixtureRequest) -> Generator[Place]:
    """Docker, then Podman."""
    with open_place(request.param) as found:
        yield found


@pytest.fixture(
    scope="module",
    params=["local", *(pytest.param(name, marks=pytest.mark.docker) for name in ("docker", "podman"))],
)
def any_place(request: pytest.FixtureRequest) -> Generator[EnginePlace]:
    """Each engine that isolates."""
    if request.param == "local":
        yield EnginePlace("local")
        return
    with open_place(request.param) as found:
        yield found


@pytest.fixture(scope="module")
def tunnel() -> None:
    """What the network takes: where CI=true it has to be there."""
    try:
        find_tunnel("open", as_root=os.geteuid() == 0)
    except SandcellError as problem:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(str(problem))


@pytest.fixture(scope="module")
def kernelspec(tmp_path_factory: pytest.TempPathFactory) -> Generator[None]:
    """The kernels of all languages, installed for a module's tests alone; their sandboxes are of the engine `local`."""
    prefix = tmp_path_factory.mktemp("prefix")
    for language in LANGUAGES:
        install_kernelspec(KernelPlan(language=language), prefix=str(prefix))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUPYTER_PATH", str(prefix / "share" / "jupyter"))
        patch.setenv("SANDCELL_ENGINE", "local")
        yield

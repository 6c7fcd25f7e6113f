"""What a kernel process does before it has imported itself."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from importlib.machinery import ModuleSpec
from typing import TYPE_CHECKING, cast

import pytest

from sandcell.client.host import OpenEngine
from sandcell.kernel_sandbox import hand_over
from sandcell.launch_kernel import needs_zygote, start_zygote

if TYPE_CHECKING:
    from sandcell_container.engine import Engine

WITHIN_S = 20.0
# A kernel process that has just started its zygote.
PROGRAM = """
import signal
from sandcell.launch_kernel import start_zygote
zygote = start_zygote()
print(zygote.pid, flush=True)
signal.pause()
"""


@pytest.mark.parametrize(
    ("spec", "environ"),
    [
        ("{}", {"SANDCELL_ENGINE": "local"}),
        ('{"engine": "local"}', {}),
        ('{"engine": "docker"}', {"SANDCELL_ENGINE": "local"}),
        ("{}", {"SANDCELL_KERNEL_OPTIONS": '{"engine": "local"}'}),
    ],
)
def test_the_zygote_is_started_ahead_where_the_sandbox_is_forked_here(
    spec: str, environ: dict[str, str]
) -> None:
    assert needs_zygote(spec, environ)


@pytest.mark.parametrize(
    ("spec", "environ"),
    [
        ('{"engine": "local"}', {"SANDCELL_ENGINE": "podman"}),
        ('{"engine": "docker"}', {"SANDCELL_ENGINE": "auto"}),
        ("{}", {"SANDCELL_KERNEL_OPTIONS": '{"engine": "process"}'}),
        ("{}", {"SANDCELL_ENGINE": "local", "SANDCELL_SANDBOX": "mine"}),
        ('{"engine": "local", "sandbox": "mine"}', {}),
        ("[1]", {"SANDCELL_ENGINE": "local"}),
        ("{", {"SANDCELL_ENGINE": "local"}),
    ],
)
def test_nothing_is_started_ahead_for_another_sandbox_or_options_that_are_wrong(
    spec: str, environ: dict[str, str]
) -> None:
    assert not needs_zygote(spec, environ)


def test_where_containers_are_an_option_nothing_is_started_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    found: ModuleSpec | None = None

    def find(_name: str) -> ModuleSpec | None:
        return found

    monkeypatch.setattr("sandcell.launch_kernel.find_spec", find)
    assert needs_zygote("{}", {})
    found = ModuleSpec("docker", None)
    assert not needs_zygote("{}", {})


@pytest.mark.parametrize(
    ("module", "unwanted"),
    [
        ("sandcell.launch_kernel", {"asyncio", "msgspec", "ssl", "zmq"}),
        ("sandcell.kernel_process", {"docker", "email", "importlib.metadata", "tornado"}),
        ("sandcell.guest.main", {"docker", "importlib.metadata", "ipykernel", "zmq"}),
        ("sandcell_container.engines.local", {"asyncio", "docker", "importlib.metadata"}),
    ],
)
def test_what_stands_before_a_first_cell_imports_no_more_than_it_needs(
    module: str, unwanted: set[str]
) -> None:
    code = f"import {module}, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not unwanted & set(done.stdout.split())


def test_a_kernel_process_that_is_killed_at_its_start_leaves_no_zygote() -> None:
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        zygote = os.pidfd_open(int(process.stdout.readline()))
        process.send_signal(signal.SIGKILL)
        assert select.select([zygote], [], [], WITHIN_S)[0]
        os.close(zygote)


async def test_an_engine_that_forks_nothing_ends_what_was_started_ahead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sandcell.kernel_sandbox.the_host", _OtherHost)
    zygote = start_zygote()
    ended = os.pidfd_open(zygote.pid)
    await hand_over(zygote, "docker")
    assert select.select([ended], [], [], 0)[0]
    os.close(ended)


class _OtherHost:
    """A host whose engine has its sandboxes elsewhere."""

    def engine(self, _name: str) -> OpenEngine:
        return OpenEngine(cast("Engine", object()), ())

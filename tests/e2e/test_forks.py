"""Interpreters from the fork server, as a user of the SDK sees them: nothing differs from plain starts but the time."""

from __future__ import annotations

import importlib
import inspect
import io
import os
import subprocess
import sys
import time
import zipfile
from typing import TYPE_CHECKING

import pytest

from sandcell import Sandbox

if TYPE_CHECKING:
    from collections.abc import Generator

    from sandcell.client.blocking.context import Context

DEADLINE = 30.0
SERVERS = "pgrep -f '[l]aunch.py fork-server'"


@pytest.fixture
def sandbox() -> Generator[Sandbox]:
    """A sandbox for one test, which changes its environment."""
    with Sandbox.create(engine="local") as made:
        yield made


def a_wheel(name: str, version: str, source: str) -> bytes:
    file = io.BytesIO()
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(file, "w") as wheel:
        wheel.writestr(f"{name}.py", source)
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    return file.getvalue()


def install(context: Context, sandbox: Sandbox, name: str, version: str, source: str) -> None:
    wheel = f"{name}-{version}-py3-none-any.whl"
    sandbox.files.write(wheel, a_wheel(name, version, source))
    done = context.run_code(f"%pip install --no-index --no-deps --force-reinstall {wheel}")
    assert f"Successfully installed {name}-{version}" in done.stdout


def a_context_with(sandbox: Sandbox, module: str) -> Context:
    """Return a context that had a module in memory when it was born: its server has grown."""
    deadline = time.monotonic() + DEADLINE
    while time.monotonic() < deadline:
        context = sandbox.create_context()
        if context.run_code(f"import sys; {module!r} in sys.modules").value:
            return context
        context.delete()
    raise AssertionError(f"no context comes with {module}")


def test_what_is_installed_in_one_context_is_there_in_the_next(sandbox: Sandbox) -> None:
    context = sandbox.create_context()
    install(context, sandbox, "fresh", "1.0", "value = 7")
    assert context.run_code("import fresh; fresh.value").value == 7
    assert sandbox.create_context().run_code("import fresh; fresh.value").value == 7
    install(context, sandbox, "fresh", "2.0", "value = 8")
    assert sandbox.create_context().run_code("import fresh; fresh.value").value == 8


def test_a_newer_version_of_what_is_in_memory_is_used_instead(sandbox: Sandbox) -> None:
    """The server has imported matplotlib, and with it cycler."""
    context = a_context_with(sandbox, "cycler")
    source = inspect.getsource(importlib.import_module("cycler"))
    install(context, sandbox, "cycler", "99.0", f"{source}\n__version__ = '99.0'\n")
    for _ in range(3):
        seen = sandbox.create_context().run_code("import cycler; cycler.__version__, cycler.__file__").value
        assert seen[0] == "99.0"
        assert seen[1].startswith("/home/user/")
    plotted = sandbox.create_context().run_code("import matplotlib.pyplot as plt; plt.plot([1, 2]);")
    assert plotted.error is None


def kill_servers(sandbox: Sandbox) -> None:
    """Kill what the server's command line is that of, but for contexts: the server, and the child that is kept ready."""
    contexts = {str(context.refresh().pid) for context in sandbox.contexts()}
    others = set(sandbox.exec(SERVERS).stdout.split()) - contexts
    sandbox.exec(["kill", "-9", *others])


@pytest.mark.short
def test_without_the_server_contexts_live_on_and_new_ones_come(sandbox: Sandbox) -> None:
    before = sandbox.create_context()
    before.run_code("kept = 1")
    for _ in range(3):
        kill_servers(sandbox)
        assert before.run_code("kept").value == 1
        assert sandbox.create_context().run_code("'kept' in globals()").value is False
    assert any("fork server has ended" in warning for warning in sandbox.info().warnings)


def test_a_bad_start_file_of_the_users_harms_no_context_that_is_there(sandbox: Sandbox) -> None:
    before = sandbox.create_context()
    before.run_code("kept = 1")
    (packages,) = sandbox.exec("echo ~/.venv/lib/python3*/site-packages").stdout.split()
    sandbox.files.write(
        f"{packages}/bad.pth", "import os; os.kill(os.getppid(), 0); raise SystemError('bad')\n"
    )
    assert before.run_code("kept").value == 1
    assert sandbox.create_context().run_code("6 * 7").value == 42
    rights = "[line for line in open('/proc/self/status') if line.startswith(('CapInh', 'CapPrm', 'CapEff', 'CapAmb'))]"
    held = sandbox.create_context().run_code(rights).value
    assert {line.split()[1] for line in held} == {"0" * 16}


PLAIN = f"""
from sandcell import Sandbox
with Sandbox.create(engine="local") as plain:
    contexts = [plain.create_context() for _ in range(2)]
    for number, context in enumerate(contexts):
        context.run_code(f"mine = {{number}}")
    print([context.run_code("mine").value for context in contexts], plain.exec({SERVERS!r}).stdout, plain.info().warnings)
"""


def test_plain_starts_do_where_no_server_is_wanted() -> None:
    """Read once for a program, so it is another one."""
    environ = {**os.environ, "SANDCELL_FORK_LINGER": "0"}
    done = subprocess.run(
        [sys.executable, "-c", PLAIN],
        env=environ,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=True,
    )
    assert done.stdout == "[0, 1]  ()\n"


def test_no_kernel_imports_what_makes_others(sandbox: Sandbox) -> None:
    context = sandbox.create_context()
    assert context.run_code("import sys; 'jupyter_client.manager' in sys.modules").value is False
    assert (
        context.run_code("import jupyter_client; jupyter_client.KernelManager.__name__").value
        == "KernelManager"
    )

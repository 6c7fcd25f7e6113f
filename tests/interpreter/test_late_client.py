"""A package that is filled late is, to who asks, what it would have been."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

KERNEL = Path(__file__).parents[2] / "kernel"
PUT_OFF = f"""
import sys
sys.path.append({str(KERNEL)!r})
from sandcell_runtime.late_client import put_off_client
put_off_client()
filled = lambda: "jupyter_client.manager" in sys.modules
"""


def output_of(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", PUT_OFF + program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_what_a_kernel_imports_does_not_fill_it() -> None:
    assert output_of("import sandcell_runtime.app; print(filled())") == "False"


@pytest.mark.parametrize(
    "program",
    [
        "import jupyter_client; jupyter_client.KernelManager",
        "from jupyter_client import KernelManager, write_connection_file",
        "from jupyter_client import *; KernelManager; AsyncKernelClient; write_connection_file",
        "import jupyter_client.manager; jupyter_client.manager.KernelManager; jupyter_client.__version__",
        "from jupyter_client import session, manager",
        "import ipykernel.kernelapp, jupyter_client.asynchronous; jupyter_client.MultiKernelManager",
    ],
)
def test_who_asks_gets_it_whole(program: str) -> None:
    assert output_of(f"{program}\nprint(filled())") == "True"


def test_it_has_the_names_that_it_has_anyway() -> None:
    names = "import jupyter_client; jupyter_client.KernelManager; print(sorted(vars(jupyter_client)))"
    plain = subprocess.run(
        [sys.executable, "-c", names.replace("jupyter_client.KernelManager;", "")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert output_of(names) == plain.stdout.strip()


def test_what_is_not_there_is_no_attribute() -> None:
    assert output_of("import jupyter_client; print(hasattr(jupyter_client, 'no_such_name'))") == "False"

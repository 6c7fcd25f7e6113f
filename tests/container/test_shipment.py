"""The text of the worker's program."""

from __future__ import annotations

import subprocess
import sys

import pytest

from sandcell_container.guest.shipment import PROGRAM
from sandcell_container.guest.worker.program import VERBS

_LONGEST_ARGUMENT = 128 * 2**10  # MAX_ARG_STRLEN of Linux


@pytest.mark.short
def test_it_fits_into_one_argument_with_room_to_grow() -> None:
    assert len(PROGRAM.encode()) < _LONGEST_ARGUMENT * 3 / 4


@pytest.mark.short
def test_each_verb_is_found_there_without_a_package_of_ours() -> None:
    """With nothing but the standard library, as `python -I -S -c` has it; and no module of it costs typing or asyncio."""
    names = ", ".join(map(repr, VERBS))
    check = f"""
import sys
from sandcell_container.guest.worker.program import find_verb
for name in ({names}):
    assert callable(find_verb(name))
print(*({{"asyncio", "typing", "dataclasses", "msgspec"}} & set(sys.modules)))
"""
    program = PROGRAM.replace("from sandcell_container.guest.worker.program import main\nmain()", check)
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, check=True, timeout=50
    )
    assert done.stdout.split() == []

"""Measures what is promised: `python -m bench.run [--engine local] [--out build/bench.json] [--check]`."""

from __future__ import annotations

import argparse
import compileall
import sys
from importlib.util import find_spec
from pathlib import Path

from bench.commands import open_command_rows
from bench.containers import open_container_rows
from bench.contexts import open_context_rows
from bench.files import open_file_rows
from bench.harness import Outcome, measure, print_table, save
from bench.life import open_life_rows
from bench.notebooks import open_notebook_rows
from bench.results import open_result_rows
from bench.rows import open_rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", default="local")
    parser.add_argument("--out", type=Path, help="keep the numbers as JSON")
    parser.add_argument("--check", action="store_true", help="exit with 1 when a promise was missed")
    options = parser.parse_args()
    _compile_ours()
    outcomes = list[Outcome]()
    for open_some in (
        open_rows,
        open_result_rows,
        open_command_rows,
        open_context_rows,
        open_life_rows,
        open_notebook_rows,
        open_container_rows,
        open_file_rows,
    ):
        with open_some(options.engine) as rows:
            outcomes += [measure(row) for row in rows]
    print_table(outcomes)
    if options.out:
        save(outcomes, options.out)
    return int(options.check and not all(each.kept for each in outcomes))


def _compile_ours() -> None:
    """Have our packages there as an installation has them: a tree that nobody installed may have no bytecode."""
    for name in ("sandcell", "sandcell_kernel", "sandcell_container", "sandcell_runtime"):
        found = find_spec(name)
        for folder in (found.submodule_search_locations or ()) if found else ():
            compileall.compile_dir(folder, quiet=2)


if __name__ == "__main__":
    sys.exit(main())

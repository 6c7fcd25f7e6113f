"""The house itself: documents and code say the same."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from sandcell.guest.app import ROUTES
from sandcell_container.errors import CODES

ROOT = Path(__file__).parents[1]


def _project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def _names(requirements: list[Any]) -> set[str]:
    return {re.split(r"[^A-Za-z0-9._-]", str(each))[0] for each in requirements}


def test_every_dependency_has_its_reason() -> None:
    project = _project()
    groups = [
        project["project"]["dependencies"],
        *project["project"]["optional-dependencies"].values(),
        project["dependency-groups"]["dev"],
    ]
    wanted = _names([each for group in groups for each in group])
    text = (ROOT / "docs" / "dependencies.md").read_text()
    rows = " ".join(line for line in text.splitlines() if line.startswith("|"))
    assert {name for name in wanted if not re.search(rf"\b{re.escape(name)}\b", rows)} == set()


def test_what_lives_in_the_users_interpreter_needs_ipykernel_alone() -> None:
    """And what that brings along: nothing else has to be in the user's environment."""
    brought = {"sandcell_runtime", "_typeshed", "ipykernel"}
    for requirement in metadata.requires("ipykernel") or ():
        name = re.split(r"[^A-Za-z0-9._-]", requirement)[0]
        if "extra ==" not in requirement:
            brought |= {name.replace("-", "_"), {"pyzmq": "zmq", "ipython": "IPython"}.get(name, name)}
    imported = set[str]()
    for path in (ROOT / "kernel" / "sandcell_runtime").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                imported |= {each.name.partition(".")[0] for each in node.names}
            elif isinstance(node, ast.ImportFrom):
                imported.add((node.module or "").partition(".")[0])
    assert imported - brought - sys.stdlib_module_names == set()


def test_every_error_code_is_in_the_document_of_the_interface() -> None:
    text = (ROOT / "docs" / "http.md").read_text()
    assert {code for code in CODES if not re.search(rf"\b{code}\b", text)} == set()


def test_every_route_is_in_the_document_of_the_interface() -> None:
    text = (ROOT / "docs" / "http.md").read_text()
    paths = {path.replace("([^/]+)", "{id}").replace("(.*)", "...") for path, _ in ROUTES}
    missing = {path for path in paths if path not in text and path.rpartition("/")[2] not in _short(text)}
    assert missing == set()


def _short(text: str) -> set[str]:
    """A row may name the second route of a noun by its last part alone."""
    return set(re.findall(r"`/(\w+)`", text))


@pytest.mark.parametrize(
    "path", sorted(ROOT.glob("*.md")) + sorted((ROOT / "docs").glob("*.md")), ids=lambda path: path.name
)
def test_links_of_documents_lead_somewhere(path: Path) -> None:
    text = re.sub(r"`[^`]*`", "", path.read_text())
    links = re.findall(r"\]\(([^)#:]+)\)", text)
    assert [link for link in links if not (path.parent / link).exists()] == []


def test_nothing_of_a_notebook_is_stored_with_it() -> None:
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        assert '"execution_count": null' in path.read_text()
        assert '"output_type"' not in path.read_text()

"""A notebook that is run, as plain data: which cells, with which parameters, and what stays of an earlier run."""

from __future__ import annotations

import math
from typing import Any

import nbformat
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandcell.events import Ended, ErrorRaised, Started, Stdout
from sandcell.notebook import (
    Notebook,
    NotebookResult,
    NotebookRun,
    check_parameters,
    inject_parameters,
    language_of,
)
from sandcell_container.end import End
from sandcell_container.errors import ErrorCode, SandcellError
from sandcell_kernel.cells import PythonCell, ShellCell

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner) | st.tuples(inner, inner)
    ),
    max_leaves=10,
)


def _code(source: str, *tags: str, **more: Any) -> dict[str, Any]:
    cell = {
        "cell_type": "code",
        "id": f"c{abs(hash(source))}",
        "metadata": {"tags": list(tags)},
        "source": source,
    }
    return {**cell, "outputs": [], "execution_count": None, **more}


def _notebook(*cells: dict[str, Any], minor: int = 5) -> Notebook:
    return {"cells": list(cells), "metadata": {}, "nbformat": 4, "nbformat_minor": minor}


def _sources(notebook: Notebook) -> list[str]:
    return [cell["source"] for cell in notebook["cells"]]


def _end(run: NotebookRun, at: int, *, problem: str = "") -> None:
    work = run.todo[at]
    work.outputs.add(Started(execution_count=at + 1, time=1.0))
    if problem:
        work.outputs.add(ErrorRaised(name=problem))
    work.outputs.add(Ended(end=End(cause="exited", code=1 if problem else 0), duration=0.5, time=1.5))
    run.finish(work)


# --- parameters


def test_parameters_go_behind_those_that_the_notebook_declares() -> None:
    notebook = _notebook(_code("import os"), _code("n = 1", "parameters"), _code("n"))
    inject_parameters(notebook, {"n": 2, "name": "it's"})
    assert _sources(notebook) == ["import os", "n = 1", '# Parameters\nn = 2\nname = "it\'s"', "n"]
    assert notebook["cells"][2]["metadata"] == {"tags": ["injected-parameters"]}
    nbformat.validate(notebook)


def test_parameters_replace_those_of_an_earlier_run_and_else_go_to_the_top() -> None:
    notebook = _notebook(_code("n"), minor=4)
    inject_parameters(notebook, {"n": 1})
    inject_parameters(notebook, {"n": 2})
    assert _sources(notebook) == ["# Parameters\nn = 2", "n"]
    inject_parameters(notebook, {})
    assert len(notebook["cells"]) == 2


@given(st.dictionaries(st.sampled_from(["a", "b", "übung"]), VALUES, min_size=1))
def test_any_parameter_arrives_as_what_it_is(parameters: dict[str, Any]) -> None:
    notebook = _notebook()
    inject_parameters(notebook, check_parameters(parameters))
    found: dict[str, Any] = {}
    exec(notebook["cells"][0]["source"], found)  # noqa: S102  # as a kernel would
    assert repr({name: found[name] for name in parameters}) == repr(parameters)  # nan is not nan


def test_parameters_are_for_python() -> None:
    notebook = _notebook()
    notebook["metadata"] = {"kernelspec": {"language": "javascript"}}
    inject_parameters(notebook, {})
    with pytest.raises(SandcellError, match="javascript") as caught:
        inject_parameters(notebook, {"n": 1})
    assert caught.value.code is ErrorCode.UNSUPPORTED


class _Loud(str):
    def __repr__(self) -> str:
        return "__import__('os').abort()"


@pytest.mark.parametrize(
    "wrong",
    [
        {"not a name": 1},
        {"class": 1},
        {"x; import os": 1},
        {"x": object()},
        {"x": [b"bytes"]},
        {1: 2},
        [("x", 1)],
        {"x": [[[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]]]},
    ],
)
def test_what_no_cell_can_be_made_of_is_refused(wrong: Any) -> None:
    with pytest.raises(SandcellError) as caught:
        check_parameters(wrong)
    assert (caught.value.code, caught.value.details) == (ErrorCode.INVALID_ARGUMENT, {"field": "parameters"})


def test_a_value_never_says_itself_what_it_is() -> None:
    notebook = _notebook()
    inject_parameters(notebook, check_parameters({"x": _Loud("quiet"), "y": math.inf}))
    assert notebook["cells"][0]["source"] == "# Parameters\nx = 'quiet'\ny = float(\"inf\")"


# --- cells


def test_old_outputs_go_at_once_and_cells_that_do_not_run_stay_empty() -> None:
    old = {"outputs": [{"output_type": "stream", "name": "stdout", "text": "old"}], "execution_count": 3}
    notebook = _notebook(
        _code("1", **old), _code(" \n", **old), _code("2", "skip-execution", **old), {"cell_type": "raw"}
    )
    run = NotebookRun(notebook)
    assert [cell.get("outputs") for cell in notebook["cells"]] == [[], [], [], None]
    assert [work.source for work in run.todo] == ["1"]
    assert [cell.status for cell in run.results()] == ["waiting", "skipped", "skipped"]


def test_the_first_line_says_where_a_cell_runs() -> None:
    run = NotebookRun(_notebook(_code("1"), _code("%%shell build\nmake")))
    assert [work.where for work in run.todo] == [PythonCell(), ShellCell("build", "make")]


def test_what_a_cell_shows_and_took_goes_into_the_notebook() -> None:
    notebook = _notebook({"cell_type": "markdown", "source": ""}, _code("print(1)"))
    run = NotebookRun(notebook)
    run.todo[0].outputs.add(Stdout(text="1\n"))
    assert run.progress(run.todo[0]).result is None
    _end(run, 0)
    progress = run.progress(run.todo[0])
    assert (progress.number, progress.total, progress.index) == (1, 1, 1)
    assert progress.result is not None
    assert (progress.result.status, progress.result.duration) == ("ok", 0.5)
    cell = notebook["cells"][1]
    assert (cell["execution_count"], cell["outputs"][0]["text"]) == (1, "1\n")
    assert cell["metadata"]["execution"]["shell.execute_reply"].startswith("1970-01-01T00:00:01.5")


def test_a_failure_is_the_first_that_may_not_be() -> None:
    run = NotebookRun(_notebook(_code("a", "raises-exception"), _code("b"), _code("c"), _code("d")))
    _end(run, 0, problem="ValueError")
    _end(run, 1)
    _end(run, 2, problem="KeyError")
    result = NotebookResult(cells=run.results(), notebook=run.notebook)
    assert [cell.status for cell in result.cells] == ["error", "ok", "error", "waiting"]
    assert result.failure is result.cells[2]
    with pytest.raises(SandcellError, match="cell 3 failed: KeyError") as caught:
        result.raise_for_error()
    assert caught.value.code is ErrorCode.CODE_FAILED
    assert result.to_dict()["cells"][2]["error"]["name"] == "KeyError"


def test_half_a_character_in_code_is_told_with_its_cell_before_anything_runs() -> None:
    with pytest.raises(SandcellError, match="source of cell 2 holds half a character") as caught:
        NotebookRun(_notebook(_code("1"), _code("'\ud800'")))
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT


def test_the_language_is_what_the_notebook_says() -> None:
    assert language_of(_notebook()) == "python"
    assert language_of({"metadata": {"language_info": {"name": "R"}}}) == "R"
    named = {"kernelspec": {"language": "typescript"}, "language_info": {"name": "javascript"}}
    assert language_of({"metadata": named}) == "typescript"
    assert language_of({"metadata": {"kernelspec": 5, "language_info": "x"}}) == "python"

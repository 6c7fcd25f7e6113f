"""Notebooks in other languages than Python: one counter over all that runs, and cells that go where they say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jupyter_kernel_test as jkt
import pytest
from tests.e2e.front_end import open_notebook
from tests.e2e.test_languages import check_installed

pytestmark = pytest.mark.usefixtures("kernelspec")


@dataclass(frozen=True)
class Speech:
    """Code in a language: prints 42, keeps a value, prints the value, fails."""

    language: str
    named: str
    prints: str
    keeps: str
    shows: str
    fails: str


SPEECHES = (
    Speech("bash", "bash", "echo 42", "x=kept", "echo $x", "false"),
    Speech(
        "javascript",
        "javascript",
        "console.log(42)",
        "let x = 'kept'",
        "console.log(x)",
        "throw new Error('no')",
    ),
    Speech("r", "R", "cat('42\\n')", "x <- 'kept'", "cat(x, '\\n', sep = '')", "stop('no')"),
)


@pytest.mark.parametrize("speech", SPEECHES, ids=lambda speech: speech.language)
async def test_a_notebook_in_another_language_has_one_counter(speech: Speech) -> None:
    check_installed(speech.language)
    async with open_notebook(kernel=f"sandcell-{speech.language}") as notebook:
        info = await notebook.request("kernel_info_request", {})
        assert info["language_info"]["name"] == speech.named
        cells = [
            await notebook.run(code)
            for code in (
                speech.prints,
                "%%shell\necho in a shell",
                speech.keeps,
                "%%context python\nprint('in Python')",
                speech.shows,
                speech.fails,
                "%%exec\necho alone",
            )
        ]
    assert [cell.text() for cell in cells] == [
        "42\n",
        "in a shell\n",
        "",
        "in Python\n",
        "kept\n",
        "",
        "alone\n",
    ]
    assert [cell.reply["execution_count"] for cell in cells] == [1, 2, 3, 4, 5, 6, 7]
    assert [cell.reply["status"] for cell in cells] == ["ok"] * 5 + ["error", "ok"]
    assert all(cell.states == ["busy", "idle"] for cell in cells)


async def test_a_language_that_the_sandbox_has_not_is_said_in_each_cell() -> None:
    options = '{"language": "cobol"}'
    async with open_notebook(SANDCELL_KERNEL_OPTIONS=options) as notebook:
        cell: Any = await notebook.run("1")
    assert cell.reply["ename"] == "UNKNOWN_LANGUAGE"


class TestBash(jkt.KernelTests):  # type: ignore[misc]  # jupyter_kernel_test has no types
    kernel_name = "sandcell-bash"
    language_name = "bash"
    file_extension = ".sh"
    code_hello_world = "echo 'hello, world'"
    code_stderr = "echo test >&2"
    code_page_something = "%%shell?"
    code_generate_error = "false"


class TestTypeScript(jkt.KernelTests):  # type: ignore[misc]  # as above
    kernel_name = "sandcell-typescript"
    language_name = "typescript"
    file_extension = ".ts"
    code_hello_world = "console.log('hello, world')"
    code_stderr = "console.error('test')"
    code_page_something = "%%shell?"
    code_generate_error = "throw new Error('no')"
    completion_samples = [{"text": "Deno.hostna", "matches": {"hostname"}}]  # noqa: RUF012 -- jupyter_kernel_test's own shape
    complete_code_samples = ["1", "const x: number = 1"]  # noqa: RUF012
    incomplete_code_samples = ["function f() {"]  # noqa: RUF012
    code_execute_result = [{"code": "1 + 2 + 3", "result": "6"}]  # noqa: RUF012
    code_display_data = [  # noqa: RUF012
        {"code": "await Deno.jupyter.display(Deno.jupyter.html`<b>test</b>`)", "mime": "text/html"}
    ]


class TestJavaScript(jkt.KernelTests):  # type: ignore[misc]  # as above
    kernel_name = "sandcell-javascript"
    language_name = "javascript"
    file_extension = ".js"
    code_hello_world = "console.log('hello, world')"
    code_stderr = "console.error('test')"
    code_page_something = "%%shell?"
    code_generate_error = "throw new Error('no')"
    completion_samples = [{"text": "Deno.hostna", "matches": {"hostname"}}]  # noqa: RUF012 -- jupyter_kernel_test's own shape
    complete_code_samples = ["1", "const x = 1"]  # noqa: RUF012
    incomplete_code_samples = ["function f() {"]  # noqa: RUF012
    code_execute_result = [{"code": "1 + 2 + 3", "result": "6"}]  # noqa: RUF012
    code_display_data = [  # noqa: RUF012
        {"code": "await Deno.jupyter.display(Deno.jupyter.html`<b>test</b>`)", "mime": "text/html"}
    ]


class TestR(jkt.KernelTests):  # type: ignore[misc]  # as above
    kernel_name = "sandcell-r"
    language_name = "R"
    file_extension = ".r"
    code_hello_world = "cat('hello, world\\n')"
    code_stderr = "message('test')"
    code_page_something = "%%shell?"
    code_generate_error = "stop('no')"
    completion_samples = [{"text": "nchar", "matches": {"nchar"}}]  # noqa: RUF012 -- jupyter_kernel_test's own shape
    complete_code_samples = ["1", "f <- function(x) {x * 2}"]  # noqa: RUF012
    incomplete_code_samples = ["f <- function(x) {"]  # noqa: RUF012
    invalid_code_samples = ["1 +* 2"]  # noqa: RUF012
    code_execute_result = [{"code": "1 + 2 + 3", "result": "[1] 6"}]  # noqa: RUF012
    code_display_data = [{"code": "IRdisplay::display_html('<b>test</b>'); 1", "mime": "text/html"}]  # noqa: RUF012
    code_inspect_sample = "nchar"
    code_clear_output = "IRdisplay::clear_output()"

    @classmethod
    def setUpClass(cls) -> None:
        check_installed("r")
        super().setUpClass()


# What their kernels have not.
_HAVE_NOT: tuple[tuple[type, tuple[str, ...]], ...] = (
    (
        TestBash,
        ("clear_output", "completion", "display_data", "execute_result", "history", "inspect", "is_complete"),
    ),
    (TestTypeScript, ("clear_output", "history", "inspect")),
    (TestJavaScript, ("clear_output", "history", "inspect")),
    (TestR, ("history",)),
)
for _tests, _names in _HAVE_NOT:
    for _each in _names:
        setattr(_tests, f"test_{_each}", None)  # a test that is None is none

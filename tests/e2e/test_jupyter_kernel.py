"""The kernel against jupyter_kernel_test: all of its tests, none left out."""

from __future__ import annotations

import jupyter_kernel_test as jkt
import pytest

from sandcell_kernel.install import KERNEL_NAME

pytestmark = [pytest.mark.usefixtures("kernelspec"), pytest.mark.short]


class TestKernel(jkt.KernelTests):  # type: ignore[misc]  # jupyter_kernel_test has no types
    kernel_name = KERNEL_NAME
    language_name = "python"
    file_extension = ".py"
    code_hello_world = "print('hello, world')"
    code_stderr = "import sys; print('test', file=sys.stderr)"
    completion_samples = [{"text": "zi", "matches": {"zip"}}]  # noqa: RUF012 -- jupyter_kernel_test's own shape
    complete_code_samples = ["1", "print('hello, world')", "def f(x):\n  return x*2\n\n\n"]  # noqa: RUF012
    incomplete_code_samples = ["print('''hello", "def f(x):\n  x*2"]  # noqa: RUF012
    invalid_code_samples = ["import = 7q"]  # noqa: RUF012
    code_page_something = "zip?"
    code_generate_error = "1/0"
    code_execute_result = [  # noqa: RUF012
        {"code": "1+2+3", "result": "6"},
        {"code": "[n*n for n in range(1, 4)]", "result": "[1, 4, 9]"},
    ]
    code_display_data = [  # noqa: RUF012
        {
            "code": "from IPython.display import HTML, display; display(HTML('<b>test</b>'))",
            "mime": "text/html",
        },
        {"code": "from IPython.display import Math, display; display(Math('x = y'))", "mime": "text/latex"},
    ]
    code_history_pattern = "1?2*"
    supported_history_operations = ("tail", "range", "search")
    code_inspect_sample = "zip"
    code_clear_output = "from IPython.display import clear_output; clear_output()"


class TestIopubWelcome(jkt.IopubWelcomeTests):  # type: ignore[misc]  # as above
    kernel_name = KERNEL_NAME
    support_iopub_welcome = True

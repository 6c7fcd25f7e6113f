"""A person at a real JupyterLab in a real Chromium. Each step leaves a picture in build/pictures."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import Browser, expect
from tests.e2e.lab import CHROMIUM, PATIENCE_S, JupyterLab, Window, jupyterlab, open_browser

from sandcell import Sandbox
from sandcell_kernel.install import KERNEL_NAME, LANGUAGES, KernelPlan, install_kernelspec

if TYPE_CHECKING:
    from collections.abc import Generator

pytestmark = [pytest.mark.usefixtures("kernelspec"), pytest.mark.timeout(180)]

_PICTURES = Path(__file__).parents[2] / "build" / "pictures"
_SHARED = "shared-sandbox"
_SHARING = KernelPlan(name="shared", options={"sandbox": _SHARED, "engine": "local"})
_LANGUAGES = ("javascript", "typescript", "bash", "r")


@pytest.fixture(scope="module")
def lab(kernelspec: None, tmp_path_factory: pytest.TempPathFactory) -> Generator[JupyterLab]:
    if CHROMIUM is None:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)("Chromium is not on this machine")
    folder = tmp_path_factory.mktemp("lab")
    for plan in (*map(_plan_of, _LANGUAGES), _SHARING):
        install_kernelspec(plan, prefix=str(folder))
    with jupyterlab(folder) as server:
        yield server


def _plan_of(language: str) -> KernelPlan:
    return KernelPlan(language=language)


@pytest.fixture(scope="module")
def browser(lab: JupyterLab) -> Generator[Browser]:
    with open_browser() as opened:
        yield opened


@pytest.fixture
def window(browser: Browser, lab: JupyterLab) -> Generator[Window]:
    """A window of a person who has never been here; its kernels end with it."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    yield Window(context.new_page(), lab, _PICTURES)
    context.close()
    lab.end_kernels()


def test_the_launcher_offers_the_kernels_with_their_logos(window: Window) -> None:
    cards = window.show_launcher()
    for language in ("python", *_LANGUAGES):
        logo = cards.filter(has_text=f"{LANGUAGES[language]} (Sandcell)").first.locator("img")
        expect(logo).to_be_visible()
        assert f"sandcell-{language}" in (logo.get_attribute("src") or "")
        assert logo.evaluate("image => image.complete && image.naturalWidth > 0")
    window.photograph("launcher")


def test_cells_run_elsewhere_and_show_what_they_print_and_plot(window: Window) -> None:
    window.lab.write(
        "plot.ipynb",
        [
            "import os\nprint(os.getcwd(), 6 * 7)",
            "import matplotlib.pyplot as plt\nplt.plot([1, 3, 2]);",
            "import pandas as pd\npd.DataFrame({'a': [1, 2]})",
            "1 / 0",
        ],
        kernel=KERNEL_NAME,
    )
    notebook = window.open("plot.ipynb")
    notebook.run(0, 4)
    notebook.expect_output(0, "/workspace 42")
    picture = notebook.output(1).locator("img")
    expect(picture).to_have_count(1, timeout=PATIENCE_S * 1000)
    assert picture.evaluate("image => image.naturalWidth") > 300
    expect(notebook.output(2).locator("table")).to_be_visible(timeout=PATIENCE_S * 1000)
    notebook.expect_output(3, "ZeroDivisionError")
    for index in range(4):
        notebook.expect_count(index, index + 1)
    window.photograph("plot")


def test_a_widget_moves_what_is_in_the_sandbox_also_after_a_reload(window: Window) -> None:
    window.lab.write(
        "widget.ipynb",
        [
            """import os, ipywidgets as widgets
slider, label = widgets.IntSlider(), widgets.Label()
slider.observe(lambda change: setattr(label, 'value', f'{os.getcwd()} {change.new}'), 'value')
widgets.VBox([slider, label])"""
        ],
        kernel=KERNEL_NAME,
    )
    notebook = window.open("widget.ipynb")
    notebook.run(0)
    handle = notebook.output(0).locator(".noUi-handle")
    handle.focus(timeout=PATIENCE_S * 1000)
    for _ in range(3):
        window.page.keyboard.press("ArrowRight")
    notebook.expect_output(0, "/workspace 3")
    window.photograph("widget")
    window.choose("File", "Save Notebook")
    window.page.reload()
    notebook.await_kernel()
    handle.focus()
    window.page.keyboard.press("ArrowRight")
    notebook.expect_output(0, "/workspace 4")
    window.photograph("widget-after-reload")


def test_a_first_line_says_where_a_cell_runs(window: Window) -> None:
    window.lab.write(
        "routing.ipynb",
        [
            "%%shell\ncd /tmp && export NAME=Ada",
            "%%shell\necho $NAME in $PWD",
            "%%process counter --detach\nseq 1 3; sleep 600",
            "%process list",
            "%%context other --language bash\necho from bash",
            "%sandbox info",
        ],
        kernel=KERNEL_NAME,
    )
    notebook = window.open("routing.ipynb")
    notebook.run(0, 6)
    notebook.expect_output(1, "Ada in /tmp")
    notebook.expect_output(3, "counter")
    expect(notebook.output(3).locator("table")).to_be_visible()
    notebook.expect_output(4, "from bash")
    expect(notebook.output(5).locator("table").first).to_be_visible(timeout=PATIENCE_S * 1000)
    notebook.expect_count(5, 6)
    window.photograph("routing")


def test_a_notebook_of_another_language(window: Window) -> None:
    window.lab.write(
        "typescript.ipynb",
        ["const basket: string[] = ['apple', 'pear'];", "console.log(basket.length); basket"],
        kernel="sandcell-typescript",
    )
    notebook = window.open("typescript.ipynb")
    notebook.run(0, 2)
    notebook.expect_output(1, "pear")
    window.photograph("typescript")


def test_completion_offers_what_the_sandbox_knows(window: Window) -> None:
    window.lab.write("complete.ipynb", ["fruit_basket = 3", ""], kernel=KERNEL_NAME)
    notebook = window.open("complete.ipynb")
    notebook.run(0)
    notebook.expect_count(0, 1)
    notebook.type(1, "fruit_basket.bit_")
    window.page.keyboard.press("Tab")
    offered = window.page.locator(".jp-Completer-list")
    expect(offered).to_contain_text("bit_count")
    window.photograph("completion")
    offered.get_by_text("bit_length").click()
    expect(notebook.cell(1).locator(".cm-content")).to_have_text("fruit_basket.bit_length")


def test_input_is_asked_for_in_the_cell(window: Window) -> None:
    window.lab.write("input.ipynb", ["name = input('Who? ')\nprint('Hello', name)"], kernel=KERNEL_NAME)
    notebook = window.open("input.ipynb")
    notebook.run(0)
    box = notebook.output(0).locator("input.jp-Stdin-input")
    box.fill("Ada")
    window.photograph("input")
    box.press("Enter")
    notebook.expect_output(0, "Hello Ada")


def test_a_cell_is_interrupted_and_its_state_lives_on(window: Window) -> None:
    window.lab.write(
        "interrupt.ipynb",
        ["kept = 5\nprint('begun')\nimport time; time.sleep(600)", "kept"],
        kernel=KERNEL_NAME,
    )
    notebook = window.open("interrupt.ipynb")
    notebook.run(0)
    notebook.expect_output(0, "begun")
    window.choose("Kernel", "Interrupt Kernel")
    notebook.expect_output(0, "KeyboardInterrupt")
    window.photograph("interrupt")
    notebook.run(1)
    notebook.expect_output(1, "5")


def test_a_restart_forgets_variables(window: Window) -> None:
    window.lab.write("restart.ipynb", ["print('x' in globals())\nx = 1"], kernel=KERNEL_NAME)
    notebook = window.open("restart.ipynb")
    for _ in range(2):
        notebook.run(0)
        notebook.expect_output(0, "False")
        notebook.expect_count(0, 1)
        window.choose("Kernel", "Restart Kernel and Clear Outputs")
        window.confirm("Restart")
        expect(notebook.output(0)).to_be_empty()
        notebook.await_kernel()
    window.photograph("restart")


def test_a_cell_goes_on_when_its_page_is_reloaded_and_its_run_has_the_rest(window: Window) -> None:
    window.lab.write(
        "reload.ipynb",
        [
            "import os, time\nprint('begun')\nwhile not os.path.exists('go'):\n    time.sleep(0.05)\nprint('rest')",
            "print('still here')",
        ],
        kernel=_SHARING.kernel_name,
    )
    with Sandbox.create(engine="local", name=_SHARED) as agent:
        notebook = window.open("reload.ipynb")
        notebook.run(0)
        notebook.expect_output(0, "begun")
        window.choose("File", "Save Notebook")
        window.page.reload()
        notebook.await_kernel("Busy|Unknown")  # it cannot be asked while it is busy
        window.photograph("reload-in-the-middle")
        agent.files.write("/workspace/go", b"")
        notebook.await_kernel()
        notebook.run(1)
        notebook.expect_output(1, "still here")
        notebook.expect_count(1, 2)
        assert "begun\nrest\n" in [run.wait(timeout=PATIENCE_S).stdout for run in agent.executions()]


def test_two_notebooks_and_an_agent_share_a_sandbox(window: Window, browser: Browser) -> None:
    for name in ("one", "two"):
        window.lab.write(
            f"{name}.ipynb", ["x = 41", "x + 1", "open('note.txt').read()"], kernel=_SHARING.kernel_name
        )
    with Sandbox.create(engine="local", name=_SHARED) as agent:
        notebook = window.open("one.ipynb")
        notebook.run(0)
        notebook.expect_count(0, 1)
        agent.files.write("/workspace/note.txt", b"from the agent")
        other = Window(window.page.context.new_page(), window.lab, _PICTURES)
        second = other.open("two.ipynb")
        second.run(1, 2)
        second.expect_output(1, "42")
        second.expect_output(2, "from the agent")
        other.photograph("two-notebooks")
        window.lab.end_kernels()
        assert agent.run_code("6 * 7").value == 42


def test_the_debugger_stops_at_a_line_and_shows_variables(window: Window) -> None:
    window.lab.write(
        "debug.ipynb",
        ["total = 0\nfor step in range(3):\n    total += step\nprint('sum', total)"],
        kernel=KERNEL_NAME,
    )
    notebook = window.open("debug.ipynb")
    window.page.locator(".jp-DebuggerBugButton").click()
    panel = window.page.locator(".jp-DebuggerSidebar")
    expect(panel).to_be_visible()
    gutter = (
        notebook.cell(0).locator(".cm-breakpoint-gutter .cm-gutterElement").nth(3)
    )  # the first holds the width
    gutter.click()
    expect(panel.locator(".jp-DebuggerBreakpoint")).to_have_count(1)
    notebook.run(0)
    expect(panel.locator(".jp-DebuggerCallstackFrame")).to_contain_text("3")
    expect(panel.locator(".jp-DebuggerVariables")).to_contain_text("total")
    window.photograph("debugger-stopped")
    panel.get_by_title("Next").click()
    expect(panel.locator(".jp-DebuggerCallstackFrame")).to_contain_text("2")
    gutter.click()
    expect(panel.locator(".jp-DebuggerBreakpoint")).to_have_count(0)
    panel.get_by_title("Continue").click()
    notebook.expect_output(0, "sum 3")
    window.photograph("debugger-gone-on")


def test_a_link_in_a_cell_opens_a_live_terminal_for_one_browser(window: Window, browser: Browser) -> None:
    (window.lab.folder / "beside.csv").write_text("a,b\n")
    upload = "%sandbox upload beside.csv\n%sandbox files"
    cells = ["%terminal desk", "%%shell\ncat typed", upload]
    window.lab.write("terminal.ipynb", cells, kernel=KERNEL_NAME)
    notebook = window.open("terminal.ipynb")
    notebook.run(0)
    link = notebook.output(0).get_by_role("link", name="open in the browser")
    with window.page.expect_popup() as opened:
        link.click(timeout=PATIENCE_S * 1000)
    page, screen = opened.value, opened.value.locator("#view")
    expect(screen).to_contain_text("$", timeout=PATIENCE_S * 1000)
    page.keyboard.type("printf '\\033[1;31m%s\\033[0m\\n' \"$PWD\" | tee typed; tput cols\n")
    red = screen.locator("#screen span", has_text="/workspace").filter(visible=True).last
    expect(screen).to_contain_text(re.compile(r"/workspace\s*\d{2,}"), timeout=PATIENCE_S * 1000)
    expect(red).to_have_css("color", "rgb(215, 95, 95)")
    window.photograph("terminal-link")
    page.screenshot(path=_PICTURES / "terminal-page.png")
    notebook.run(1, 2)
    notebook.expect_output(1, "/workspace")
    question = notebook.output(2).locator(".jp-Stdin-input")
    question.wait_for()
    window.photograph("upload-question")
    question.fill("y")
    question.press("Enter")
    notebook.expect_output(2, re.compile(r"beside\.csv.*4 B", re.DOTALL))
    window.photograph("upload")

    url = link.get_attribute("href") or ""
    page.close()
    with window.page.expect_popup() as again:
        link.click()
    expect(again.value.locator("#view")).to_contain_text("/workspace", timeout=PATIENCE_S * 1000)
    stranger = browser.new_context()
    other = stranger.new_page()
    answer = other.goto(url)
    assert answer is not None
    assert answer.status == 403
    expect(other.locator("h1")).to_have_text("This link opens nothing any more")
    stranger.close()

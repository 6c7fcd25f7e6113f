"""A real JupyterLab in a real browser: what a person does and sees, by name."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import urllib.request
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from playwright.sync_api import Browser, Locator, Page, expect, sync_playwright

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

__all__ = ["CHROMIUM", "JupyterLab", "Notebook", "Window", "jupyterlab", "open_browser"]

PATIENCE_S = 40.0
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
_TOKEN = "let-me-in"
_SETTINGS = (
    "--no-browser",
    "--ServerApp.ip=127.0.0.1",
    "--ServerApp.port=0",
    "--ServerApp.allow_root=True",
    f"--IdentityProvider.token={_TOKEN}",
    "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
)


@dataclass(frozen=True)
class JupyterLab:
    """The server: `url` without a token, and the folder that it shows."""

    url: str
    folder: Path

    def write(self, name: str, cells: Iterable[str], *, kernel: str) -> None:
        """Put a notebook into the folder."""
        usual: dict[str, Any] = {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": []}
        notebook: dict[str, Any] = {
            "cells": [{**usual, "id": f"cell-{place}", "source": code} for place, code in enumerate(cells)],
            "metadata": {"kernelspec": {"name": kernel, "display_name": kernel, "language": "python"}},
            "nbformat": 4,
            "nbformat_minor": 5,
        }
        (self.folder / name).write_bytes(msgspec.json.encode(notebook))

    def end_kernels(self) -> None:
        """Shut down what the tests so far have started, as "Shut Down All" does."""
        for session in self._ask("GET", "/api/sessions"):
            self._ask("DELETE", f"/api/sessions/{session['id']}")

    def _ask(self, method: str, path: str) -> Any:
        request = urllib.request.Request(
            self.url + path, method=method, headers={"Authorization": f"token {_TOKEN}"}
        )
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            body = answer.read()
        return msgspec.json.decode(body) if body else None


@contextmanager
def jupyterlab(folder: Path) -> Generator[JupyterLab]:
    """Start a server whose settings, data and notebooks are all below `folder`, the prefix of its kernels. It ends with them."""
    notebooks = folder / "notebooks"
    notebooks.mkdir()
    settings = folder / "settings" / "@jupyterlab" / "apputils-extension"
    settings.mkdir(parents=True)
    (settings / "notification.jupyterlab-settings").write_text('{"fetchNews": "false"}')
    environment = {**os.environ, "JUPYTER_DATA_DIR": str(folder / "share" / "jupyter")}
    for place in ("CONFIG", "RUNTIME"):
        environment[f"JUPYTER_{place}_DIR"] = str(folder / place.lower())
    for place in ("SETTINGS", "WORKSPACES"):
        environment[f"JUPYTERLAB_{place}_DIR"] = str(folder / place.lower())
    argv = [sys.executable, "-m", "jupyterlab", *_SETTINGS, f"--ServerApp.root_dir={notebooks}"]
    log = folder / "log"
    with (
        log.open("wb") as out,
        subprocess.Popen(argv, env=environment, stdout=out, stderr=subprocess.PIPE) as server,
    ):
        try:
            yield JupyterLab(_wait_for_url(server), notebooks)
        finally:
            server.terminate()
            assert server.stderr
            server.stderr.read()


def _wait_for_url(server: subprocess.Popen[bytes]) -> str:
    assert server.stderr
    said = b""
    for line in server.stderr:
        said += line
        if found := re.search(rb"(http://127\.0\.0\.1:\d+)/lab\?token", line):
            return found[1].decode()
    raise AssertionError(f"JupyterLab does not start: {said.decode()}")


@contextmanager
def open_browser() -> Generator[Browser]:
    """Chromium without a window. Root cannot have its sandbox, and the pages are ours."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


class Window:
    """One window of the browser, on one server. `pictures` is the folder that screenshots go to."""

    def __init__(self, page: Page, lab: JupyterLab, pictures: Path) -> None:
        self.page = page
        self.lab = lab
        self._pictures = pictures
        page.set_default_timeout(PATIENCE_S * 1000)

    def show_launcher(self) -> Locator:
        """Go to the launcher and return its cards."""
        self.page.goto(f"{self.lab.url}/lab?token={_TOKEN}&reset")
        cards = self.page.locator(".jp-LauncherCard")
        cards.first.wait_for()
        return cards

    def open(self, name: str) -> Notebook:
        """Open a notebook of the folder, and wait until its kernel is there."""
        self.page.goto(f"{self.lab.url}/lab/tree/{name}?token={_TOKEN}&reset")
        notebook = Notebook(self)
        notebook.await_kernel()
        return notebook

    def photograph(self, name: str) -> None:
        """Keep what the window shows now, for people to look at."""
        self._pictures.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=self._pictures / f"{name}.png", animations="disabled")

    def choose(self, *path: str) -> None:
        """Choose from a menu, as "Kernel", "Interrupt Kernel"."""
        self.page.locator(".lm-MenuBar-item", has_text=path[0]).first.click()
        for label in path[1:]:
            self.page.locator(".lm-Menu-itemLabel", has_text=label).first.click()

    def confirm(self, label: str) -> None:
        """Press a button of the dialog."""
        self.page.locator(".jp-Dialog button", has_text=label).click()


class Notebook:
    """The notebook that is open in a window; its cells are counted from 0."""

    def __init__(self, window: Window) -> None:
        self.window = window
        self.page = window.page

    def cell(self, index: int) -> Locator:
        return self.page.locator(".jp-Notebook .jp-CodeCell").nth(index)

    def output(self, index: int) -> Locator:
        return self.cell(index).locator(".jp-Cell-outputArea")

    def run(self, first: int, count: int = 1) -> None:
        """Send off `count` cells, each with Shift+Enter."""
        self.cell(first).locator(".cm-content").click()
        for _ in range(count):
            self.page.keyboard.press("Shift+Enter")

    def type(self, index: int, text: str) -> None:
        """Type at the end of a cell."""
        self.cell(index).locator(".cm-content").click()
        self.page.keyboard.press("Control+End")
        self.page.keyboard.type(text)

    def expect_output(self, index: int, text: str | re.Pattern[str]) -> None:
        expect(self.output(index)).to_contain_text(text, timeout=PATIENCE_S * 1000)

    def expect_count(self, index: int, count: int) -> None:
        """A cell has ended as number `count`."""
        prompt = self.cell(index).locator(".jp-InputPrompt")
        expect(prompt).to_have_text(f"[{count}]:", timeout=PATIENCE_S * 1000)

    def await_kernel(self, status: str = "Idle") -> None:
        """Wait until the status bar says that the kernel is there, and idle, or busy."""
        told = self.page.locator(".jp-StatusBar-TextItem", has_text=re.compile(rf"\(Sandcell\) \| {status}"))
        expect(told).to_be_visible(timeout=PATIENCE_S * 1000)

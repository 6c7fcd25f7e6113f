from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from jupyter_client.kernelspec import KernelSpecManager

from sandcell_container.errors import SandcellError
from sandcell_kernel.install import KERNEL_NAME, LANGUAGES, KernelPlan, install_kernelspec

LOGOS = {"logo-32x32.png", "logo-64x64.png", "logo-svg.svg"}


@pytest.fixture(autouse=True)
def jupyter_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "prefix" / "share" / "jupyter"))


@pytest.mark.short
def test_jupyter_finds_what_was_installed(tmp_path: Path) -> None:
    folder = install_kernelspec(prefix=str(tmp_path / "prefix"))
    assert folder == tmp_path / "prefix" / "share" / "jupyter" / "kernels" / KERNEL_NAME
    spec = KernelSpecManager().get_kernel_spec(KERNEL_NAME)
    assert Path(spec.resource_dir) == folder
    assert (spec.display_name, spec.language, spec.interrupt_mode) == (
        "Python (Sandcell)",
        "python",
        "message",
    )
    assert spec.argv == [sys.executable, "-m", "sandcell.launch_kernel", "-f", "{connection_file}"]
    assert Path(spec.argv[0]).is_absolute()
    assert spec.metadata == {"debugger": True}


def test_logos_come_with_it_and_others_may_read_it(tmp_path: Path) -> None:
    folder = install_kernelspec(prefix=str(tmp_path / "prefix"))
    assert {path.name for path in folder.iterdir()} == {"kernel.json", *LOGOS}
    assert (folder / "logo-64x64.png").read_bytes().startswith(b"\x89PNG")
    assert folder.stat().st_mode & 0o055 == 0o055


def test_installing_again_replaces(tmp_path: Path) -> None:
    folder = install_kernelspec(user=True)
    assert folder == tmp_path / "data" / "kernels" / KERNEL_NAME
    (folder / "kernel.json").write_text("{}")
    assert install_kernelspec(user=True) == folder
    assert json.loads((folder / "kernel.json").read_text())["language"] == "python"


@pytest.mark.parametrize("language", LANGUAGES)
def test_each_language_has_a_kernelspec_and_logos(tmp_path: Path, language: str) -> None:
    folder = install_kernelspec(KernelPlan(language=language), prefix=str(tmp_path / "prefix"))
    assert folder.name == f"sandcell-{language}"
    assert {path.name for path in folder.iterdir()} == {"kernel.json", *LOGOS}
    spec = json.loads((folder / "kernel.json").read_text())
    assert (spec["language"], spec["display_name"]) == (language, f"{LANGUAGES[language]} (Sandcell)")
    asked = spec["argv"][5:]
    assert asked == ([] if language == "python" else ["--options", json.dumps({"language": language})])


def test_a_kernel_of_ones_own_asks_for_its_sandbox(tmp_path: Path) -> None:
    plan = KernelPlan(name="data", options={"memory": "2GiB", "image": "lab"})
    folder = install_kernelspec(plan, prefix=str(tmp_path / "prefix"))
    spec = json.loads((folder / "kernel.json").read_text())
    assert (folder.name, spec["display_name"]) == ("sandcell-data", "data (Sandcell)")
    assert json.loads(spec["argv"][-1]) == {"memory": "2GiB", "image": "lab"}


@pytest.mark.parametrize(
    "plan", [KernelPlan(name="a b"), KernelPlan(name="../x"), KernelPlan(language="cobol")]
)
def test_what_jupyter_could_not_find_is_refused(plan: KernelPlan) -> None:
    with pytest.raises(SandcellError):
        install_kernelspec(plan, user=True)


def test_sys_prefix_is_the_running_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "prefix"))
    assert tmp_path / "prefix" in install_kernelspec(sys_prefix=True).parents


def test_only_one_place_may_be_named() -> None:
    with pytest.raises(SandcellError, match="INVALID_ARGUMENT"):
        install_kernelspec(user=True, sys_prefix=True)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
@pytest.mark.short
def test_a_folder_that_may_not_be_written_says_what_to_do(tmp_path: Path) -> None:
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o500)
    with pytest.raises(SandcellError, match="--user"):
        install_kernelspec(prefix=str(locked))

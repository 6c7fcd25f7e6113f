from __future__ import annotations

import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from sandcell_container.engines.environment import (
    base_environment,
    calling_environment,
    check_readable,
    is_below,
    make_venv,
    minimal_cover,
    query_environment,
)
from sandcell_container.errors import ErrorCode, InvalidRequest, SandcellError


def run_in(folder: Path, program: str) -> str:
    done = subprocess.run(
        [folder / "bin" / "python", "-c", program], check=True, capture_output=True, text=True, env={}
    )
    return done.stdout.strip()


def test_the_calling_environment_is_what_it_says_itself() -> None:
    ours = calling_environment()
    assert ours.prefix == sys.prefix
    assert ours == query_environment(sys.executable)
    assert os.path.realpath(ours.executable) == ours.executable


def test_another_interpreter_is_asked(tmp_path: Path) -> None:
    venv.create(tmp_path / "other", with_pip=False, symlinks=True)
    other = query_environment(str(tmp_path / "other" / "bin" / "python"))
    assert other.prefix == str(tmp_path / "other")
    assert other.site_dirs[0].startswith(other.prefix)
    assert other.prefix in other.roots


@pytest.mark.parametrize("python", ["/nowhere/python", "/bin/false", "/bin/true"])
def test_what_is_no_python_is_the_callers_mistake(python: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        query_environment(python)
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT


def test_packages_below_are_found_and_own_ones_come_first(tmp_path: Path) -> None:
    make_venv(tmp_path / "made", calling_environment(), inside=str(tmp_path / "made"))
    assert run_in(tmp_path / "made", "import sys, pytest; print(sys.prefix)") == str(tmp_path / "made")
    own = tmp_path / "made" / calling_environment().packages / "pytest.py"
    own.write_text("where = 'own'")
    assert run_in(tmp_path / "made", "import pytest; print(pytest.where)") == "own"


def test_pip_installs_into_it(tmp_path: Path) -> None:
    made = tmp_path / "made"
    make_venv(made, calling_environment(), inside=str(made))
    wheel = _wheel(tmp_path)
    subprocess.run(
        [made / "bin" / "pip", "install", "-q", "--no-index", wheel], check=True, env={"HOME": str(tmp_path)}
    )
    assert run_in(made, "import sample; print(sample.__file__)").startswith(str(made))


def _wheel(folder: Path) -> Path:
    path = folder / "sample-1-py3-none-any.whl"
    info = "sample-1.dist-info"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("sample.py", "")
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: sample\nVersion: 1\n")
        wheel.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{info}/RECORD", f"sample.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")
    return path


def test_the_users_variables_are_exactly_those_of_the_contract() -> None:
    made = base_environment(
        venv="/home/user/.venv",
        environment=calling_environment(),
        home="/home/user",
        user="user",
        temp="/tmp",
    )
    assert set(made) == {"PATH", "HOME", "USER", "LANG", "TERM", "TMPDIR", "SHELL"}
    assert made["PATH"].startswith("/home/user/.venv/bin:")
    assert made["LANG"] == "C.UTF-8"


def test_paths_are_compared_by_whole_parts() -> None:
    assert is_below("/a/b", "/a") and is_below("/a", "/a") and is_below("/a", "/")
    assert not is_below("/ab", "/a")
    assert not is_below("/a", "/a/b")


def test_a_cover_names_each_folder_once() -> None:
    folders = ["/opt/x/lib", "/opt/x", "/usr/lib/python3", "/opt/x-ray", "/opt/x"]
    assert minimal_cover(folders, covered=("/usr",)) == ["/opt/x", "/opt/x-ray"]
    assert minimal_cover([], covered=()) == []


def test_an_environment_closed_to_others_is_refused_or_told(tmp_path: Path) -> None:
    venv.create(tmp_path / "made", with_pip=False, symlinks=True)
    tmp_path.chmod(0o755)
    made = query_environment(str(tmp_path / "made" / "bin" / "python"))
    package = Path(made.site_dirs[0]) / "closed_package"
    package.mkdir()
    runtime = tmp_path / "runtime"
    runtime.mkdir()
    assert check_readable(made, str(runtime)) == ()
    package.chmod(0o700)
    assert "closed_package" in check_readable(made, str(runtime))[0]
    (tmp_path / "made" / "lib").chmod(0o700)
    with pytest.raises(SandcellError, match="lib") as caught:
        check_readable(made, str(runtime))
    assert "chmod -R o+rX" in caught.value.hint

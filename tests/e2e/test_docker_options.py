"""What a sandbox in a container may be given, and what it is bounded by."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sandcell import Mount, Sandbox
from sandcell_container.errors import ErrorCode, SandcellError

if TYPE_CHECKING:
    from collections.abc import Generator

    from tests.e2e.conftest import Place

pytestmark = pytest.mark.docker

DOCUMENT = Path(__file__).parents[2] / "docs" / "engines.md"
EXAMPLES = re.findall(r"^```py\n(.*?)^```$", DOCUMENT.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_examples_of_the_document_run(place: Place, example: str) -> None:
    program = example.replace('engine="docker"', f"engine={place.name!r}")
    argv = [sys.executable, "-W", "error", "-c", program]
    done = subprocess.run(argv, env=os.environ, capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder that is open to all, with a file in it."""
    (tmp_path / "a").write_text("here\n")
    tmp_path.chmod(0o777)
    return tmp_path


def test_a_mount_is_read_only_unless_said(place: Place, folder: Path) -> None:
    mounts: list[str | Mount] = [f"{folder}:/in", Mount(str(folder), "/out", read_only=False)]
    with place.create(mounts=mounts) as made:
        assert made.exec("cat /in/a").stdout == "here\n"
        assert "Read-only" in made.exec("touch /in/b").stderr
        made.exec("echo there > /out/c", check=True)
    assert (folder / "c").read_text() == "there\n"


def test_a_mount_cannot_be_got_out_of(place: Place, folder: Path) -> None:
    """Links that user code makes in it lead to places inside, and nowhere of the machine's."""
    (folder / "secret").symlink_to("/etc/shadow")
    with place.create(mounts=[f"{folder}:/out:rw"]) as made:
        made.exec("ln -s / /out/root; ln -s ../../../.. /out/up", check=True)
        assert "bookworm" in made.exec("cat /out/root/etc/os-release").stdout
        assert made.exec("cat /out/up/etc/hostname").stdout.strip() == "sandbox"
        assert made.exec("cat /out/secret").exit_code == 1


@pytest.mark.parametrize("source", ["gone", "."])
def test_a_source_that_is_missing_or_an_engines_socket_is_refused(
    place: Place, tmp_path: Path, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if source == ".":
        (tmp_path / "docker.sock").touch()
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with pytest.raises(SandcellError) as refused:
        place.create(mounts=[f"{tmp_path}/{source}:/in"])
    assert refused.value.code is ErrorCode.INVALID_ARGUMENT
    assert refused.value.details["field"] == "mounts"


@pytest.fixture(scope="module")
def read_only(place: Place) -> Generator[Sandbox]:
    with place.create(read_only=True, disk="64MiB", memory="512MiB", hostname="lab-1") as made:
        yield made


def test_with_a_read_only_root_user_code_still_runs(read_only: Sandbox) -> None:
    run = read_only.run_code("import tempfile; open('/workspace/a', 'w').write('x'); tempfile.mkdtemp()[:5]")
    assert run.error is None
    assert run.value == "/tmp/"
    assert read_only.exec("hostname").stdout == "lab-1\n"


def test_with_a_read_only_root_nothing_else_can_be_written(read_only: Sandbox) -> None:
    places = "/ /opt/user /etc /var /usr/local /run /opt/sandcell"
    done = read_only.exec(f"for each in {places}; do touch $each/x 2>/dev/null && echo $each; done; true")
    assert done.stdout == ""


def test_what_may_be_written_is_bounded(read_only: Sandbox) -> None:
    done = read_only.exec("head -c 100M /dev/zero > /workspace/big")
    assert "No space left" in done.stderr
    size = int(read_only.exec("stat -c %s /workspace/big; rm /workspace/big").stdout)
    assert 31 * 2**20 < size <= 32 * 2**20  # half of the disk
    assert read_only.exec("true").ok


def test_every_place_in_memory_has_a_size(read_only: Sandbox) -> None:
    sizes = read_only.exec("df --block-size=1 --output=size,target --type=tmpfs").stdout.splitlines()[1:]
    found = {target: int(size) for size, target in map(str.split, sizes)}
    writable = [each for each in found if read_only.exec(["test", "-w", each]).ok]
    assert sorted(writable) == ["/dev/shm", "/home/user", "/tmp", "/var/tmp", "/workspace"]
    assert sum(found[each] for each in writable if each != "/dev/shm") <= 64 * 2**20


def test_the_number_of_files_is_bounded_or_it_is_said_that_it_is_not(read_only: Sandbox) -> None:
    told = "the number of files is not limited" in read_only.info().warnings
    done = read_only.exec(
        "cd /workspace && mkdir many && cd many && seq 10000 | xargs touch; ls | wc -l; rm -r ../many"
    )
    assert (int(done.stdout) == 10000) is told


def test_a_disk_that_cannot_be_bounded_is_told_or_refused(place: Place) -> None:
    try:
        with place.create(disk="1GiB", strict=True) as made:
            assert made.info().warnings == ()  # a file system with quotas
    except SandcellError as refused:
        assert refused.code is ErrorCode.UNSUPPORTED
        with place.create(disk="1GiB") as made:
            assert any("disk is not limited" in each for each in made.info().warnings)


def test_limits_are_those_of_the_control_groups(place: Place) -> None:
    program = """
import os
def read(*paths):
    return next(open(path).read().split()[0] for path in paths if os.path.exists(path))
base = "/sys/fs/cgroup"
[read(f"{base}/memory/memory.limit_in_bytes", f"{base}/memory.max"),
 read(f"{base}/pids/pids.max", f"{base}/pids.max"),
 read(f"{base}/cpu/cpu.cfs_quota_us", f"{base}/cpu.max")]
"""
    with place.create(memory="512MiB", pids=300, cpus=0.5) as made:
        assert made.run_code(program, check=True).value == [str(2**29), "300", "50000"]
        swap = (
            "cat /sys/fs/cgroup/memory/memory.memsw.limit_in_bytes /sys/fs/cgroup/memory.swap.max 2>/dev/null"
        )
        assert made.exec(swap).stdout.strip() in (str(2**29), "0", "")
        assert not [each for each in made.info().warnings if "limited" in each]


def test_isolation_is_what_is_really_so(place: Place) -> None:
    with place.create() as made:
        found = made.info().isolation
    assert {name: found[name] for name in ("pid", "net", "mount", "ipc", "uts", "seccomp")} == dict.fromkeys(
        ("pid", "net", "mount", "ipc", "uts", "seccomp"), True
    )
    assert found["user"] is False  # both daemons of the tests are root's
    assert found["uid"] == 1000
    assert found["runtime"] == "runc"
    assert "outside" not in found


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"publish": [8000]}, ErrorCode.INVALID_ARGUMENT),
        ({"dns": ["192.0.2.1"]}, ErrorCode.INVALID_ARGUMENT),
        ({"runtime": "no-such"}, ErrorCode.UNSUPPORTED),
    ],
)
def test_what_would_silently_not_be_done_is_refused(
    place: Place, options: dict[str, object], code: ErrorCode
) -> None:
    with pytest.raises(SandcellError) as refused:
        place.create(**options)  # type: ignore[arg-type]  # one of each
    assert refused.value.code is code
    assert refused.value.hint


def test_a_failed_start_tells_the_last_words_and_leaves_nothing(place: Place) -> None:
    """A Python that finds none of its modules: the guest ends with a traceback."""
    with pytest.raises(SandcellError) as failed:
        place.create(mounts=["/dev/null:/usr/lib/python3.11/socket.py"])
    assert failed.value.code is ErrorCode.START_FAILED
    assert "import" in failed.value.details["words"]
    assert len(failed.value.details["words"].splitlines()) <= 50
    left = place.client.containers.list(all=True, filters={"label": "sandcell.id"})
    assert [each for each in left if each.status != "running"] == []

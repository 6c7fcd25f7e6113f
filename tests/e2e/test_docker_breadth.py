"""The heart of what is tested at length on `local`, in real containers: files, watches, git, ports, environment and secrets,
other languages, tools. One sandbox for each engine."""

from __future__ import annotations

import os
import sys
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.e2e.test_git import AUTHOR, PASSWORD, ROOT, USER

from sandcell import ErrorCode, Sandbox, SandcellError

if TYPE_CHECKING:
    from collections.abc import Generator

    from tests.e2e.conftest import Place

pytestmark = pytest.mark.docker

SECRET = "sk-live-42\"42'$x"
PATIENCE_S = 40.0


@pytest.fixture(scope="module")
def sandbox(place: Place) -> Generator[Sandbox]:
    with place.create(secrets={"TOKEN": SECRET}, env={"GIVEN": "1"}) as made:
        yield made


def test_files_are_changed_listed_and_searched(sandbox: Sandbox) -> None:
    files = sandbox.files
    files.write("src/a.py", "one = 1\ntwo = 2\n", mode=0o640)
    files.replace("src/a.py", [("one = 1", "one = 10"), ("two", "zwei")])
    files.insert("src/a.py", 1, "between")
    files.append("src/a.py", "last\n")
    assert files.read("src/a.py") == "one = 10\nbetween\nzwei = 2\nlast\n"
    assert files.read_lines("src/a.py", start=2, count=1).lines == ["between"]
    files.copy("src", "copy/of/src")
    files.rename("copy/of/src/a.py", "copy/b.py")
    assert [each.relative_path for each in files.list(".", glob="*.py", recursive=True)] == [
        "copy/b.py",
        "src/a.py",
    ]
    (match,) = files.search(r"zw\w+", "copy").matches
    assert (match.relative_path, match.line, match.match) == ("b.py", 3, "zwei")
    assert (files.stat("copy/b.py").mode, files.stat("src").owner) == (0o640, "user")
    with pytest.raises(SandcellError) as refused:
        files.write("/opt/sandcell/x", "")
    assert refused.value.code is ErrorCode.PERMISSION_DENIED
    for inside in ("/proc/1/environ", "/etc/shadow"):
        with pytest.raises(SandcellError) as refused:
            files.read(inside)
        assert refused.value.code in {ErrorCode.PERMISSION_DENIED, ErrorCode.FILE_NOT_FOUND}, inside
    files.remove("copy", recursive=True)
    assert not files.exists("copy")


def test_folders_and_large_files_go_up_and_down(sandbox: Sandbox, tmp_path: Path) -> None:
    data = os.urandom(20_000_003)
    (tmp_path / "up" / "deep").mkdir(parents=True)
    (tmp_path / "up" / "deep" / "large").write_bytes(data)
    seen = list[int]()
    assert sandbox.files.upload(tmp_path / "up", "tree").files == 1
    sandbox.files.upload(tmp_path / "up/deep/large", "large", on_progress=lambda done, _: seen.append(done))
    assert seen[-1] == len(data)
    assert sandbox.exec("cmp large tree/deep/large && stat -c %U large").stdout == "user\n"
    sandbox.files.download("large", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == data
    sandbox.files.backup("tree", tmp_path / "tar")
    sandbox.exec("rm tree/deep/large; touch tree/new")
    sandbox.files.restore(tmp_path / "tar", "tree")
    assert sandbox.exec("cmp large tree/deep/large && ls tree").stdout == "deep\n"
    sandbox.exec("rm -r large tree")


def test_a_watch_tells_what_changes(sandbox: Sandbox) -> None:
    sandbox.exec("mkdir -p watched")
    watch = sandbox.files.watch("watched", include="*.py")
    sandbox.exec("touch watched/no.txt; echo 1 > watched/a.py; mv watched/a.py watched/b.py")
    told = dict[str, str]()
    while "b.py" not in told:
        told |= {each.relative_path: each.type for each in watch.read(timeout=20)}
    assert set(told) <= {"a.py", "b.py"} and told["b.py"] in {"created", "moved"}


def test_git_clones_commits_and_pushes_with_a_password_that_nobody_sees(sandbox: Sandbox) -> None:
    make = f"git init -q --bare -b main {ROOT}/one.git; git -C {ROOT}/one.git config http.receivepack true"
    sandbox.exec(f"mkdir -p {ROOT}; {make}", check=True)
    sandbox.files.write("/tmp/git_server.py", (Path(__file__).parent / "git_server.py").read_text())
    server = sandbox.start_process(["python3", "/tmp/git_server.py", ROOT, USER, PASSWORD])
    port = server.wait_for_log(r"port (\d+)", timeout=PATIENCE_S).groups[0]
    url = f"http://127.0.0.1:{port}/private/one.git"
    sandbox.git.clone(url, username=USER, password=PASSWORD)
    sandbox.files.write("one/a.txt", "text\n")
    assert sandbox.git.status("one").untracked == ["a.txt"]
    sandbox.git.add("a.txt", path="one")
    made = sandbox.git.commit("first", path="one", **AUTHOR)
    sandbox.git.push("one", username=USER, password=PASSWORD, host=f"http://127.0.0.1:{port}")
    assert sandbox.exec(f"git -C {ROOT}/one.git rev-parse main").stdout == f"{made.sha}\n"
    with pytest.raises(SandcellError) as refused:
        sandbox.git.clone(url, path="two", username=USER, password="wrong")
    assert (refused.value.code, refused.value.details["reason"]) == (ErrorCode.GIT_FAILED, "authentication")
    assert sandbox.files.read(f"{ROOT}/seen") == ""
    server.kill()


def test_a_port_is_reached_from_outside_without_a_network(sandbox: Sandbox) -> None:
    serve = "mkdir -p web; echo hello > web/index.html; exec python3 -m http.server --directory web 8000"
    server = sandbox.start_process(serve)
    server.wait_for_port(8000, timeout=PATIENCE_S)
    assert sandbox.ports.request(8000, "GET", "/").body == b"hello\n"
    port = sandbox.ports.expose(8000, name="web")
    with urllib.request.urlopen(port.url, timeout=PATIENCE_S) as answer:
        assert answer.read() == b"hello\n"
    (told,) = sandbox.ports.list()
    assert (told.port, told.name, told.listening) == (8000, "web", True)
    server.kill()
    with pytest.raises(SandcellError) as refused:
        sandbox.ports.request(8000, "GET", "/")
    assert refused.value.code is ErrorCode.PORT_NOT_LISTENING
    sandbox.ports.close(8000)


def test_the_environment_changes_for_what_lives_and_secrets_are_masked(sandbox: Sandbox) -> None:
    session, context = sandbox.create_session(), sandbox.create_context()
    session.exec("here=1")
    sandbox.set_env(NEW="a 'b' $c\n", GIVEN=None)
    shows = 'printf "%s|" "$NEW" "${GIVEN-none}" "$TOKEN"'
    expected = "a 'b' $c\n|none|***|"
    assert sandbox.exec(shows).stdout == session.exec(shows).stdout == expected
    run = context.run_code(
        "import os; print(os.environ['TOKEN']); os.environ['NEW'], len(os.environ['TOKEN'])"
    )
    assert (run.stdout, run.value) == ("***\n", ["a 'b' $c\n", len(SECRET)])
    job = sandbox.start_process("echo $TOKEN >&2")
    job.wait(PATIENCE_S)
    assert job.output("stderr") == "***\n"
    sandbox.unset_env("NEW")
    assert sandbox.exec("echo ${NEW-none}").stdout == "none\n"


def test_code_of_other_languages_runs_or_says_what_is_missing(sandbox: Sandbox) -> None:
    assert sandbox.run_code("x=1; echo $((x + 1)) $(id -un)", language="bash").stdout == "2 user\n"
    for language, remedy in (("javascript", "deno"), ("r", "r-cran-irkernel")):
        with pytest.raises(SandcellError) as refused:
            sandbox.run_code("1", language=language)
        assert refused.value.code is ErrorCode.UNSUPPORTED
        assert remedy in refused.value.hint
    with pytest.raises(SandcellError) as refused:
        sandbox.run_code("1", language="cobol")
    assert refused.value.code is ErrorCode.UNKNOWN_LANGUAGE and "python" in refused.value.hint


def test_javascript_runs_once_deno_is_there(sandbox: Sandbox) -> None:
    deno = Path(sys.prefix) / "bin" / "deno"
    sandbox.files.upload(deno, "bin/deno")
    sandbox.exec("chmod +x bin/deno", check=True)
    sandbox.set_env(PATH=f"/workspace/bin:{sandbox.env()['PATH']}")

    def add(a: int, b: int) -> int:
        return a + b

    sandbox.run_code("let kept = 20", language="js", check=True)
    run = sandbox.run_code(
        "console.log(await tools.add({a: kept, b: 1})); kept * 2 + 2", language="js", tools=[add]
    )
    assert (run.stdout, run.value) == ("21\n", 42), run.error


def test_a_tool_that_fails_is_an_error_of_the_code(sandbox: Sandbox) -> None:
    def refuse(word: str) -> str:
        raise ValueError(f"no {word}")

    code = "try:\n    tools.refuse('way')\nexcept Exception as problem:\n    print(problem)"
    run = sandbox.run_code(code, tools=[refuse])
    assert "no way" in run.stdout
    assert [(each.name, each.arguments) for each in run.tool_calls] == [("refuse", {"word": "way"})]

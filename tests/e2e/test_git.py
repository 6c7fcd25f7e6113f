"""Git against real servers, which run inside the sandbox on its own loopback: `git http-backend` with a password, `git daemon`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypedDict

import pytest

from sandcell import AsyncSandbox, ErrorCode, Sandbox, SandcellError
from sandcell.client.host import the_host
from sandcell_container.git_info import GitChange, GitHead, GitStatus

if TYPE_CHECKING:
    from collections.abc import Generator

    from sandcell.client.blocking.git import Git

USER, PASSWORD = "ada", "s3cret/tok=en%word"


class Login(TypedDict, total=False):
    username: str
    password: str


class Author(TypedDict):
    name: str
    email: str


LOGIN = Login(username=USER, password=PASSWORD)
AUTHOR = Author(name="Ada", email="ada@example.org")
ROOT = "/workspace/served"

_MAKE = f"""
set -e
mkdir -p {ROOT} && cd {ROOT}
git init -q --bare -b main one.git
git -C one.git config http.receivepack true
git clone -q one.git /tmp/seed 2> /dev/null && cd /tmp/seed
git config user.name Seed && git config user.email seed@example.org
echo one > a.txt && git add . && git commit -q -m first && git tag v1
echo two > a.txt && git commit -q -a -m second && git push -q origin main v1
git checkout -q -b other && git push -q origin other
"""


class Served(NamedTuple):
    """The servers, and the sandbox that they are in."""

    sandbox: Sandbox
    http: str
    daemon: str

    @property
    def git(self) -> Git:
        return self.sandbox.git

    @property
    def host(self) -> str:
        return self.http

    def sh(self, command: str) -> str:
        return self.sandbox.exec(command, check=True).stdout


@pytest.fixture(scope="module")
def served(sandbox: Sandbox) -> Generator[Served]:
    sandbox.exec(_MAKE, check=True)
    script = (Path(__file__).parent / "git_server.py").read_text()
    sandbox.files.write("/tmp/git_server.py", script)
    server = sandbox.start_process(["python3", "/tmp/git_server.py", ROOT, USER, PASSWORD])
    port = server.wait_for_log(r"port (\d+)", timeout=30).groups[0]
    daemon = sandbox.start_process(
        [
            "git",
            "daemon",
            "--reuseaddr",
            "--listen=127.0.0.1",
            "--port=9418",
            "--export-all",
            f"--base-path={ROOT}",
        ]
    )
    daemon.wait_for_port(9418, timeout=30)
    yield Served(sandbox, f"http://127.0.0.1:{port}", "git://127.0.0.1")
    sandbox.kill_all()


def refused(code: ErrorCode, reason: str | None = None) -> pytest.RaisesExc[SandcellError]:
    return pytest.RaisesExc(
        SandcellError,
        check=lambda problem: problem.code is code and problem.details.get("reason") == reason,
    )


def test_a_clone_of_each_transport_goes_into_a_folder_of_its_name(served: Served) -> None:
    urls = (
        f"{served.http}/open/one.git",
        f"{served.daemon}/one.git",
        f"file://{ROOT}/one.git",
        f"{ROOT}/one.git",
    )
    for url in urls:
        lines = list[str]()
        head = served.git.clone(url, on_progress=lines.append)
        assert head.path == "/workspace/one"
        assert (head.branch, len(head.sha or "")) == ("main", 40)
        assert served.sh("cat one/a.txt; rm -r one") == "two\n"
        assert lines[0].startswith("Cloning into")


def test_a_clone_tells_its_progress_and_takes_branch_depth_and_path(served: Served) -> None:
    lines = list[str]()
    head = served.git.clone(
        f"{served.http}/open/one.git", path="deep/er", branch="v1", depth=1, on_progress=lines.append
    )
    assert head == GitHead(
        path="/workspace/deep/er", branch=None, sha=served.sh("git -C /tmp/seed rev-parse v1").strip()
    )
    assert served.sh("cat deep/er/a.txt; git -C deep/er rev-list --count HEAD") == "one\n1\n"
    assert any("100%" in line for line in lines)


def test_a_password_lets_in_and_is_nowhere_else(served: Served) -> None:
    url = f"{served.http}/private/one.git"
    head = served.git.clone(url, path="secret", **LOGIN)
    assert head.branch == "main"
    served.sh(f"test -s {ROOT}/asked")
    assert served.sh(f"cat {ROOT}/seen") == ""
    assert served.sh("git -C secret remote get-url origin").strip() == url
    served.sh("echo three > secret/a.txt")
    served.git.commit("third", path="secret", all=True, **AUTHOR)
    assert served.git.push("secret", host=served.host, **LOGIN) == served.git.pull(
        "secret", host=served.host, **LOGIN
    )
    assert served.sh(f"cat {ROOT}/seen") == ""
    found = served.sandbox.exec(["grep", "-rlF", PASSWORD, "/workspace", "/home", "/tmp/seed"]).stdout
    assert found == ""
    for path in the_host().config.state_path.rglob("*"):  # the guest's log, the record of the sandbox
        assert not path.is_file() or PASSWORD.encode() not in path.read_bytes()


def test_credentials_in_a_url_are_taken_out_of_it(served: Served) -> None:
    quoted = PASSWORD.replace("%", "%25").replace("/", "%2F")
    url = served.http.replace("://", f"://{USER}:{quoted}@") + "/private/one.git"
    served.git.clone(url, path="in_url")
    assert served.sh("git -C in_url remote get-url origin").strip() == f"{served.http}/private/one.git"


def test_a_wrong_password_and_none_are_told_as_such_and_masked(served: Served) -> None:
    url = f"{served.http}/private/one.git"
    with refused(ErrorCode.GIT_FAILED, "authentication"):
        served.git.clone(url, path="no")
    with refused(ErrorCode.GIT_FAILED, "authentication") as caught:
        served.git.clone(url, path="no", username=USER, password="another-one")
    assert "another-one" not in str(caught.value.to_dict())
    assert not served.sandbox.files.exists("no")


def test_a_server_that_says_the_password_back_is_masked(served: Served) -> None:
    lines = list[str]()
    served.sh(f"git clone -q --bare {ROOT}/one.git {ROOT}/said.git 2> /dev/null")
    served.sh(f"git -C {ROOT}/said.git config http.receivepack true")
    served.sandbox.files.write(
        f"{ROOT}/said.git/hooks/update", f"#!/bin/sh\necho '{PASSWORD}'\nexit 1\n", mode=0o755
    )
    served.git.clone(f"{served.http}/private/said.git", path="said", **LOGIN)
    served.git.checkout("new", path="said", create=True)
    with refused(ErrorCode.GIT_FAILED, "branch") as caught:
        served.git.push("said", host=served.host, on_progress=lines.append, **LOGIN)
    assert PASSWORD not in str(caught.value.to_dict())
    assert "remote: ***" in "\n".join(lines)


def test_a_password_goes_to_no_other_host_or_repository(served: Served) -> None:
    served.sh(f"rm -f {ROOT}/asked")
    with refused(ErrorCode.GIT_FAILED, "authentication"):
        served.git.clone(f"{served.http}/moved/one.git", path="moved", **LOGIN)
    served.git.clone(f"{served.http}/open/one.git", path="turned")
    with refused(ErrorCode.INVALID_ARGUMENT):
        served.git.push("turned", **LOGIN)
    with refused(ErrorCode.INVALID_ARGUMENT):
        served.git.pull("turned", host="https://example.org", **LOGIN)
    other = f"{served.http.replace('127.0.0.1', 'localhost')}/private/"
    served.sh(f"git -C turned config url.{other}.pushInsteadOf {served.http}/open/")
    with refused(ErrorCode.INVALID_ARGUMENT):
        served.git.push("turned", host=served.host, **LOGIN)
    assert served.sandbox.exec(["cat", f"{ROOT}/asked"]).stdout == ""


def test_a_server_may_lead_to_the_same_repository_with_its_ending(served: Served) -> None:
    assert served.git.clone(f"{served.http}/private/one", path="ending", **LOGIN).branch == "main"


def test_a_certificate_that_user_code_has_chosen_not_to_check_is_checked(served: Served) -> None:
    served.sh(
        "cd /tmp && openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=127.0.0.1"
        " -keyout key.pem -out cert.pem 2> /dev/null && cat key.pem cert.pem > both.pem"
    )
    server = served.sandbox.start_process(
        ["python3", "/tmp/git_server.py", ROOT, USER, PASSWORD, "/tmp/both.pem"]
    )
    port = server.wait_for_log(r"port (\d+)", timeout=30).groups[0]
    host = f"https://127.0.0.1:{port}"
    served.git.clone(f"{served.http}/open/one.git", path="tls")
    for name, value in (
        ("remote.origin.url", f"{host}/private/one.git"),
        ("http.sslVerify", "false"),
        (f"http.{host}/private/one.git.sslVerify", "false"),
    ):
        served.sandbox.exec(["git", "-C", "tls", "config", name, value], check=True)
    served.sh(f"git -C tls ls-remote {host}/open/one.git; rm -f {ROOT}/asked")
    with refused(ErrorCode.GIT_FAILED, "network"):
        served.git.push("tls", host=host, **LOGIN)
    assert not served.sandbox.files.exists(f"{ROOT}/asked")
    server.kill()


def test_no_program_that_the_repository_names_gets_near_a_password(served: Served) -> None:
    served.git.clone(f"{served.http}/private/one.git", path="hostile", **LOGIN)
    served.sh("""
cat > /tmp/spy <<'END'
#!/bin/sh
echo "$0 $*" >> /tmp/spied
{ printf 'protocol=http\\nhost=x\\n\\n' >&3 && cat <&3 >> /tmp/spied; } 2> /dev/null
case "$0" in */.venv/*) exec /usr/bin/"${0##*/}" "$@" ;; esac
exit 0
END
chmod +x /tmp/spy
cp /tmp/spy ~/.venv/bin/git
cp /tmp/spy ~/.venv/bin/cat
install -D /tmp/spy hostile/.git/hooks/pre-push
cp /tmp/spy hostile/.git/hooks/reference-transaction
git config --global credential.helper /tmp/spy
cd hostile
git config credential.helper /tmp/spy
git config core.fsmonitor /tmp/spy
git config core.askPass /tmp/spy
git config http.proxy http://127.0.0.1:1
git config core.sshCommand /tmp/spy
""")
    url = f"{served.http}/private/one.git"
    for name, value in (
        (f"credential.{url}.helper", "/tmp/spy"),
        (f"http.{url}.proxy", "http://127.0.0.1:1"),
        ("remote.origin.vcs", "spy"),
        ("remote.origin.proxy", "http://127.0.0.1:1"),
    ):
        served.sandbox.exec(["git", "-C", "hostile", "config", name, value], check=True)
    head = served.git.push("hostile", host=served.host, timeout=30, **LOGIN)
    assert head.branch == "main"
    served.git.pull("hostile", host=served.host, timeout=30, **LOGIN)
    spied = served.sandbox.exec(["cat", "/tmp/spied"]).stdout
    assert PASSWORD not in spied
    assert "pre-push" not in spied
    assert ".venv/bin/git" in spied  # it is this that the others of a verb run by
    served.sh("/usr/bin/git config --global --unset credential.helper; rm ~/.venv/bin/git ~/.venv/bin/cat")


def test_work_goes_round_from_status_to_push_and_pull(served: Served) -> None:
    git, url = served.git, f"{served.http}/open/one.git"
    git.clone(url, path="round")
    git.checkout("feature", path="round", create=True)
    served.sh("cd round && printf 'b\\n' > 'b c.txt' && echo more >> a.txt && mkdir new && touch new/x")
    status = git.status("round")
    assert status.unstaged == [GitChange(path="a.txt", change="modified")]
    assert status.untracked == ["b c.txt", "new/"]
    assert git.add("b c.txt", path="round").staged == [GitChange(path="b c.txt", change="added")]
    assert "+more" in git.diff("round").text
    assert "+b" in git.diff("round", staged=True).text
    commit = git.commit("add b\n\nand say why", path="round", **AUTHOR)
    assert (commit.branch, commit.summary) == ("feature", "add b")
    assert git.push("round") == GitHead(path="/workspace/round", branch="feature", sha=commit.sha)
    git.add(path="round")
    assert git.commit("rest", path="round", **AUTHOR).sha != commit.sha
    status = git.status("round")
    assert status == GitStatus(
        branch="feature",
        sha=status.sha,
        upstream="origin/feature",
        ahead=1,
        behind=0,
        staged=[],
        unstaged=[],
        untracked=[],
        conflicted=[],
        clean=True,
    )
    names = {(each.name, each.remote, each.current) for each in git.branches("round")}
    assert {("feature", None, True), ("main", None, False), ("origin/feature", "origin", False)} <= names
    session = served.sandbox.create_session(cwd="/workspace/round")
    assert session.git.push().sha == status.sha
    session.exec("cd new")
    assert session.git.clone(url).path == "/workspace/round/new/one"
    session.delete()


def test_settings_of_the_user_change_no_answer(served: Served) -> None:
    served.git.clone(f"{served.http}/open/one.git", path="settings")
    for name, value in (
        ("color.ui", "always"),
        ("diff.noprefix", "true"),
        ("diff.external", "false"),
        ("status.showUntrackedFiles", "no"),
        ("merge.ff", "only"),
        ("push.default", "nothing"),
        ("alias.status", "!false"),
    ):
        served.sandbox.exec(["git", "-C", "settings", "config", name, value], check=True)
    served.sh("echo more >> settings/a.txt; touch settings/new")
    assert "diff --git a/a.txt b/a.txt" in served.git.diff("settings").text
    assert served.git.status("settings").untracked == ["new"]
    assert served.git.push("settings").branch == "main"


def test_branches_that_went_apart_are_told_and_a_conflict_is_left_to_resolve(served: Served) -> None:
    git = served.git
    for folder in ("left", "right"):
        git.clone(f"{served.http}/open/one.git", path=folder, branch="other")
        served.sh(f"echo {folder} > {folder}/a.txt")
        git.commit(folder, path=folder, all=True, **AUTHOR)
    git.push("left")
    for force in (False, True):
        with refused(ErrorCode.GIT_FAILED, "branch"):
            git.push("right", force=force)
    with refused(ErrorCode.GIT_FAILED, "branch"):
        git.pull("right", how="ff-only")
    with refused(ErrorCode.GIT_FAILED, "branch"):
        git.pull("right", **AUTHOR)
    assert git.status("right").conflicted == ["a.txt"]
    served.sh("git -C right merge --abort")
    assert git.push("right", force=True).branch == "other"  # what was fetched meanwhile has been seen


def test_failures_say_of_what_kind_they_are(served: Served) -> None:
    git = served.git
    git.clone(f"{served.http}/open/one.git", path="kinds")
    with refused(ErrorCode.GIT_FAILED, "repository"):
        git.clone(f"{served.http}/open/none.git")
    with refused(ErrorCode.GIT_FAILED, "repository"):
        git.clone(f"{served.daemon}/none.git")
    with refused(ErrorCode.GIT_FAILED, "repository"):
        git.status("/tmp")
    with refused(ErrorCode.GIT_FAILED, "branch"):
        git.clone(f"{served.http}/open/one.git", path="gone", branch="gone")
    with refused(ErrorCode.GIT_FAILED, "branch"):
        git.checkout("gone", path="kinds")
    with refused(ErrorCode.GIT_FAILED, "network"):
        git.clone("https://nowhere.invalid/one.git")
    with refused(ErrorCode.GIT_FAILED, "network"):
        git.clone("http://127.0.0.1:1/one.git")
    with refused(ErrorCode.CWD_NOT_FOUND):
        git.status("nowhere")
    served.sh("touch kinds/new")
    git.add(path="kinds")
    with refused(ErrorCode.GIT_FAILED, "identity"):
        git.commit("who?", path="kinds")


def test_a_git_that_takes_too_long_is_ended(served: Served) -> None:
    with refused(ErrorCode.GIT_FAILED, "timeout"):
        served.git.clone(f"{served.http}/slow/one.git", path="slow", timeout=1)
    assert not [each for each in served.sandbox.top() if "slow" in each.command]
    assert not served.sandbox.files.exists("slow")


def test_a_call_that_is_given_up_ends_its_git(served: Served) -> None:
    class GivenUp(Exception):
        pass

    def give_up(_: str) -> None:
        raise GivenUp

    with pytest.raises(GivenUp):
        served.git.clone(f"{served.http}/slow/one.git", path="given_up", on_progress=give_up)
    for each in served.sandbox.top():
        if "given_up" in each.command:
            served.sandbox.exec(["tail", f"--pid={each.pid}", "-f", "/dev/null"], timeout=30, check=True)
    assert not served.sandbox.files.exists("given_up")


@pytest.mark.parametrize(
    "url",
    [
        "--upload-pack=id",
        "ext::sh -c id",
        "ext::id",
        "fd::3",
        "ftp://h/r",
        "https://-h/r",
        "ssh://-oProxyCommand=id/r",
        "r",
    ],
)
def test_urls_that_git_would_take_for_something_else_are_refused(sandbox: Sandbox, url: str) -> None:
    with refused(ErrorCode.INVALID_ARGUMENT):
        sandbox.git.clone(url)


def test_a_remote_that_user_code_has_turned_into_a_program_is_not_run(served: Served) -> None:
    served.git.clone(f"{served.http}/open/one.git", path="ext")
    served.sh(
        "git -C ext remote set-url origin 'ext::touch /tmp/ran'; git -C ext config protocol.ext.allow always"
    )
    with refused(ErrorCode.INVALID_ARGUMENT):
        served.git.pull("ext")
    served.sh("test ! -e /tmp/ran")


def test_a_sandbox_without_git_says_how_to_have_it() -> None:
    with Sandbox.create(engine="local", env={"PATH": "/nowhere"}) as bare:
        with refused(ErrorCode.UNSUPPORTED) as caught:
            bare.git.clone("https://example.org/r.git")
        assert "apt" in caught.value.hint


async def test_the_asyncio_client_has_the_same(served: Served) -> None:
    other = await AsyncSandbox.connect(served.sandbox.id)
    async with other:
        head = await other.git.clone(f"{served.http}/open/one.git", path="aio")
        assert (await other.git.status("aio")).sha == head.sha

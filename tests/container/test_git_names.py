"""What is taken as a URL or a name, and what is taken out of it; what is read of git's words."""

from __future__ import annotations

import pytest

from sandcell_container.errors import ErrorCode, SandcellError
from sandcell_container.guest.git.credentials import Credentials, make_credentials
from sandcell_container.guest.git.environment import git_env
from sandcell_container.guest.git.failure import reason_of
from sandcell_container.guest.git.names import (
    check_branch,
    check_commit,
    check_remote,
    folder_of,
    parse_origin,
    parse_url,
)
from sandcell_container.guest.git.parse import parse_branches, parse_status
from sandcell_container.guest.masks import masks_of


@pytest.mark.parametrize(
    ("url", "origin", "folder"),
    [
        ("https://github.com/org/repo.git", "https://github.com", "repo"),
        ("https://Host.example:8443/a/b/", "https://host.example:8443", "b"),
        ("http://[::1]:3000/r.git", "http://[::1]:3000", "r"),
        ("ssh://git@host.example:22/~/r.git", "ssh://host.example:22", "r"),
        ("git@github.com:org/repo.git", "ssh://github.com", "repo"),
        ("git://localhost/r", "git://localhost", "r"),
        ("file:///workspace/r/.git", "", "r"),
        ("/workspace/a b/r.git", "", "r"),
    ],
)
def test_urls_that_git_may_fetch_from(url: str, origin: str, folder: str) -> None:
    found = parse_url(url)
    assert (found.origin, folder_of(found)) == (origin, folder)
    assert found.url.lower() == url.lower()


@pytest.mark.parametrize(
    "url",
    [
        "",
        "-u",
        "ext::sh -c id",
        "ext::id",
        "EXT::id",
        "fd::3",
        "http::https://h/r",
        "ftp://h/r",
        "ext://h/r",
        "https:///r",
        "https://-h/r",
        "https://h:x/r",
        "https://h/r\n",
        "https://h/a b",
        "https://h/a\u00a0b",
        "/a\nb",
        "https://h/-r",
        "ssh://-oProxyCommand=id/r",
        "ssh://user:word@h/r",
        "ssh://-o@h/r",
        "-o@h:r",
        "h:-r",
        "file://h/r",
        "../r",
        "r",
        "https://h/" + "r" * 5000,
    ],
)
def test_urls_that_are_refused_and_shown_without_what_may_be_a_password(url: str) -> None:
    with pytest.raises(SandcellError) as caught:
        parse_url(url)
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT
    assert "user:word" not in caught.value.message


def test_credentials_leave_the_url() -> None:
    found = parse_url("https://ada:a%40b@h.example:1/r.git?x=1")
    assert (found.url, found.username, found.password) == ("https://h.example:1/r.git?x=1", "ada", "a@b")
    made = make_credentials(found, None, None)
    assert made is not None
    assert (made.username, made.password) == ("ada", "a@b")
    half = make_credentials(parse_url("https://ada@h.example/r"), None, "word")
    assert half is not None
    assert (half.username, half.password) == ("ada", "word")
    token = make_credentials(parse_url("https://ghp_token@h.example/r"), None, None)
    assert token is not None
    masks = masks_of(token.secrets)
    assert masks is not None
    assert masks.text("says ghp_token") == "says ***"
    with pytest.raises(SandcellError):
        make_credentials(found, "ada", "a@b")
    with pytest.raises(SandcellError):
        make_credentials(parse_url("git://h/r"), "ada", "word")
    with pytest.raises(SandcellError):
        make_credentials(parse_url("https://h/r"), "ada", None)
    with pytest.raises(SandcellError):
        make_credentials(parse_url("https://h/r"), "ada", "two\nlines")


def test_a_password_is_given_for_its_host_and_repository_alone() -> None:
    ours = Credentials(parse_url("https://h.example/a/r.git"), "ada", "word")
    asked = {"protocol": "https", "host": "h.example", "path": "a/r.git"}
    assert ours.answer(asked) == b"username=ada\npassword=word\n\n"
    assert ours.answer({**asked, "path": "a/r"}) == ours.answer(asked)
    for name, value in (("protocol", "http"), ("host", "h.example:1"), ("host", "g"), ("path", "a/s")):
        assert ours.answer({**asked, name: value}) == b"\n"
    assert ours.answer({}) == b"\n"
    odd = Credentials(ours.url, "ada", "\udcff")
    assert odd.secrets
    assert odd.answer(asked) == b"username=ada\npassword=\xff\n\n"


def test_the_environment_holds_no_password_and_nothing_that_turns_git() -> None:
    base = {
        "PATH": "/home/user/bin",
        "GIT_DIR": "/x",
        "GIT_TRACE": "/x",
        "GIT_AUTHOR_NAME": "A",
        "https_proxy": "http://p",
    }
    ours = Credentials(parse_url("https://h.example/r.git"), "ada", "pass-word")
    env = git_env(base, remote=True, credentials=ours)
    assert "pass-word" not in str(env)
    assert not {"GIT_DIR", "GIT_TRACE"} & env.keys()
    assert env["GIT_AUTHOR_NAME"] == "A"
    assert "/home" not in env["PATH"]
    assert env["GIT_ALLOW_PROTOCOL"] == "https"
    count = int(env["GIT_CONFIG_COUNT"])
    settings = [(env[f"GIT_CONFIG_KEY_{n}"], env[f"GIT_CONFIG_VALUE_{n}"]) for n in range(count)]
    assert ("http.https://h.example/r.git.proxy", "http://p") in settings
    assert ("core.hooksPath", "/dev/null") in settings
    assert "core.hooksPath" not in str(git_env(base))


@pytest.mark.parametrize(
    "name",
    [
        "",
        "-b",
        "a b",
        "a..b",
        "a:b",
        "a^",
        "a~1",
        "/a",
        "a/",
        "a.lock",
        "@{u}",
        "HEAD",
        "@",
        "a\\b",
        "x" * 300,
    ],
)
def test_branches_that_cannot_be(name: str) -> None:
    with pytest.raises(SandcellError):
        check_branch(name)


def test_names_that_can_be_and_remotes_that_are_urls() -> None:
    assert check_branch("feature/ä-1") == "feature/ä-1"
    assert check_commit("HEAD~2", what="start") == "HEAD~2"
    assert check_remote("origin") == "origin"
    for remote in ("-o", "https://h/r", "ext::id", "../r", "a b", ""):
        with pytest.raises(SandcellError):
            check_remote(remote)
    for commit in ("-f", "--", "a b", ""):
        with pytest.raises(SandcellError):
            check_commit(commit, what="start")


def test_whom_credentials_are_for() -> None:
    assert parse_origin("github.com") == "https://github.com"
    assert parse_origin("localhost:3000") == "https://localhost:3000"
    assert parse_origin("http://127.0.0.1:80/") == "http://127.0.0.1:80"
    for host in ("", "-h", "ssh://h", "https://h/r", "https://ada@h"):
        with pytest.raises(SandcellError):
            parse_origin(host)


@pytest.mark.parametrize(
    ("stderr", "reason"),
    [
        ("fatal: not a git repository (or any of the parent directories): .git", "repository"),
        ("fatal: repository 'https://h/r/' not found", "repository"),
        ("fatal: remote error: access denied or repository not exported: /r", "repository"),
        (
            "remote: HTTP Basic: Access denied\nfatal: Authentication failed for 'https://h/r/'",
            "authentication",
        ),
        (
            "git@h: Permission denied (publickey).\nfatal: Could not read from remote repository.",
            "authentication",
        ),
        ("fatal: could not read Username for 'https://h': terminal prompts disabled", "authentication"),
        ("fatal: unable to access 'https://h/': Could not resolve host: h", "network"),
        ("fatal: unable to access 'https://h/': SSL certificate problem: self-signed certificate", "network"),
        ("fatal: unable to access 'https://h/': CONNECT tunnel failed, response 403", "network"),
        ("fatal: the remote end hung up unexpectedly", "network"),
        (
            "warning: Could not find remote branch x to clone.\nfatal: Remote branch x not found in upstream origin",
            "branch",
        ),
        (" ! [rejected]        main -> main (fetch first)\nerror: failed to push some refs", "branch"),
        ("CONFLICT (content): Merge conflict in a\nAutomatic merge failed", "branch"),
        ("remote: authentication failed\nfatal: couldn't find remote ref x", "branch"),
        ("what nobody has seen before", "repository"),
    ],
)
def test_what_git_says_has_a_reason(stderr: str, reason: str) -> None:
    assert reason_of(stderr) == reason


def test_a_status_is_read_with_renames_conflicts_and_any_name() -> None:
    sha = "1" * 40
    records = [
        f"# branch.oid {sha}",
        "# branch.head main",
        "# branch.upstream origin/main",
        "# branch.ab +2 -3",
        f"1 AM N... 000000 100644 100644 {sha} {sha} a b",
        f"2 R. N... 100644 100644 100644 {sha} {sha} R100 new\nname",
        "old",
        f"1 .D N... 100644 100644 000000 {sha} {sha} gone",
        f"u UU N... 100644 100644 100644 100644 {sha} {sha} {sha} both",
        "? dir/",
    ]
    status = parse_status("\0".join(records).encode() + b"\0? \xff\0")
    assert (status.branch, status.sha, status.upstream) == ("main", sha, "origin/main")
    assert (status.ahead, status.behind, status.clean) == (2, 3, False)
    assert [(each.path, each.change, each.old_path) for each in status.staged] == [
        ("a b", "added", None),
        ("new\nname", "renamed", "old"),
    ]
    assert [(each.path, each.change) for each in status.unstaged] == [
        ("a b", "modified"),
        ("gone", "deleted"),
    ]
    assert status.conflicted == ["both"]
    assert status.untracked == ["dir/", "\udcff"]


def test_branches_are_read_and_what_points_to_another_is_none() -> None:
    lines = [
        "refs/heads/a/b\0001\0*\0origin/a/b\0",
        "refs/remotes/origin/HEAD\0001\0 \0\0refs/remotes/origin/a",
    ]
    found = parse_branches("\n".join([*lines, "refs/remotes/origin/a\0002\0 \0\0"]).encode())
    assert [(each.name, each.sha, each.current, each.remote, each.upstream) for each in found] == [
        ("a/b", "1", True, None, "origin/a/b"),
        ("origin/a", "2", False, "origin", None),
    ]

"""What git prints for programs, read. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandcell_container.git_info import GitBranch, GitChange, GitStatus

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sandcell_container.git_info import Change

__all__ = ["BRANCH_FORMAT", "parse_branches", "parse_status"]

BRANCH_FORMAT = "%(refname)%00%(objectname)%00%(HEAD)%00%(upstream:short)%00%(symref)"

_CHANGES: dict[str, Change] = {
    "A": "added",
    "M": "modified",
    "D": "deleted",
    "R": "renamed",
    "C": "copied",
    "T": "type_changed",
}


class _Found:
    """What has been read of a status."""

    def __init__(self) -> None:
        self.head = dict[str, str]()
        self.staged = list[GitChange]()
        self.unstaged = list[GitChange]()
        self.untracked = list[str]()
        self.conflicted = list[str]()

    def note(self, states: str, path: str, old_path: str | None) -> None:
        for state, changes in zip(states, (self.staged, self.unstaged), strict=True):
            if state in _CHANGES:
                moved = old_path if state in "RC" else None
                changes.append(GitChange(path=path, change=_CHANGES[state], old_path=moved))


def parse_status(output: bytes) -> GitStatus:
    """Read `git status --porcelain=v2 --branch -z`. Source: git-status(1), "Porcelain Format Version 2"."""
    found, records = _Found(), iter(_texts(output))
    for record in records:
        _read_record(found, record, records)
    head = found.head
    branch, sha = head.get("branch.head"), head.get("branch.oid")
    ahead, _, behind = head.get("branch.ab", "+0 -0").partition(" ")
    return GitStatus(
        branch=None if branch == "(detached)" else branch,
        sha=None if sha == "(initial)" else sha,
        upstream=head.get("branch.upstream"),
        ahead=int(ahead),
        behind=-int(behind),
        staged=found.staged,
        unstaged=found.unstaged,
        untracked=found.untracked,
        conflicted=found.conflicted,
        clean=not (found.staged or found.unstaged or found.untracked or found.conflicted),
    )


def _read_record(found: _Found, record: str, rest: Iterator[str]) -> None:
    kind, _, text = record.partition(" ")
    match kind:
        case "#":
            name, _, value = text.partition(" ")
            found.head[name] = value
        case "1":
            found.note(text[:2], text.split(" ", 7)[7], None)
        case "2":
            found.note(text[:2], text.split(" ", 8)[8], next(rest, None))
        case "u":
            found.conflicted.append(text.split(" ", 9)[9])
        case "?":
            found.untracked.append(text)
        case _:
            pass  # a line of a later git


def parse_branches(output: bytes) -> list[GitBranch]:
    """Read what `for-each-ref` prints in BRANCH_FORMAT; that which only points to another is no branch of its own."""
    lines = (line.split("\0") for line in output.decode(errors="surrogateescape").splitlines())
    return [_branch(*line) for line in lines if len(line) == 5 and not line[4]]


def _branch(ref: str, sha: str, head: str, upstream: str, _: str) -> GitBranch:
    _, kind, name = ref.split("/", 2)
    remote = name.partition("/")[0] if kind == "remotes" else None
    return GitBranch(name=name, sha=sha, current=head == "*", remote=remote, upstream=upstream or None)


def _texts(output: bytes) -> list[str]:
    return [each for each in output.decode(errors="surrogateescape").split("\0") if each]

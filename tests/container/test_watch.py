"""Watches of real folders, by a real worker, in both modes of the spawner."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sandcell_container.errors import ErrorCode, SandcellError
from sandcell_container.frames import Cursor, Kind
from sandcell_container.guest.files import Files
from sandcell_container.guest.user_worker import UserWorker
from sandcell_container.guest.watch import Watch, Watches, WatchPlan

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from tests.container.conftest import Place

    from sandcell_container.journal import Journal

DEADLINE_S = 20


class Post:
    """Watches of the files of a place. `told` returns what one has told, up to and with a change that is waited for."""

    def __init__(self, place: Place, files: Files, watches: Watches) -> None:
        self.place = place
        self.files = files
        self.watches = watches
        self.folder = place.outside
        self._at: dict[str, Cursor] = {}

    async def watch(self, path: str = ".", **plan: Any) -> Watch:
        return await self.watches.open("w", WatchPlan(path, **plan), resumes=False)

    async def told(self, watch: Watch, last: str) -> list[str]:
        found = list[str]()
        async with asyncio.timeout(DEADLINE_S):
            while last not in found:
                for entry in await self._next(watch.journal, watch.id):
                    if entry[0] == Kind.CHANGED:
                        found.append(_line(entry[1], self.place.workdir))
                    elif entry[0] != Kind.STARTED:
                        found.append(f"{Kind(entry[0]).name} {json.dumps(entry[1])}")
        return found

    async def write(self, path: str, data: bytes = b"x") -> None:
        async def pieces() -> AsyncIterator[bytes]:
            yield data

        await self.files.write(path, pieces())

    async def _next(self, journal: Journal, name: str) -> list[tuple[int, Any]]:
        at = self._at.get(name, journal.start)
        while not (batch := journal.read(at)):
            await journal.changed()
        self._at[name] = Cursor(journal.epoch, batch[-1].seq, batch[-1].offset)
        return [(each.kind, json.loads(each.data)) for each in batch]


def _line(told: dict[str, Any], workdir: str) -> str:
    if told["type"] == "lost":
        return "lost"
    old = told.get("old_path")
    return " ".join(
        [told["type"], *([old.removeprefix(f"{workdir}/")] if old else []), told["relative_path"]]
    )


@pytest.fixture
async def post(place: Place) -> AsyncIterator[Post]:
    async with (
        UserWorker(place.spawner, "/usr/bin/python3", deadline_s=20.0) as worker,
        Files(worker, place.workdir) as files,
        Watches(files, "epoch", memory=2**20, linger=60) as watches,
    ):
        yield Post(place, files, watches)


def change_too_much(folder: Path) -> None:
    """Change more than the system keeps for who does not read."""
    most = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    for number in range(most // 2 + 100):
        path = folder / f"{number % 50}"
        path.touch()
        path.unlink()


@pytest.mark.short
async def test_each_change_is_told_as_what_it_is(post: Post) -> None:
    await post.write("old")
    watch = await post.watch()
    steps: list[tuple[Callable[[], object], list[str]]] = [
        (lambda: (post.folder / "new").touch(), ["created new"]),
        (lambda: (post.folder / "old").write_text("more"), ["modified old"]),
        (lambda: (post.folder / "new").rename(post.folder / "moved"), ["moved new moved"]),
        (lambda: (post.folder / "moved").unlink(), ["deleted moved"]),
        (lambda: (post.folder / "d" / "e").mkdir(parents=True), ["created d", "created d/e"]),
        (lambda: (post.folder / "d" / "e" / "x").touch(), ["created d/e/x"]),
        (lambda: (post.folder / "d").rename(post.folder / "f"), ["moved d f"]),
        (lambda: (post.folder / "f" / "e" / "y").touch(), ["created f/e/y"]),
        (lambda: os.rename(post.folder / "f" / "e" / "y", post.folder / "y"), ["moved f/e/y y"]),
    ]
    for step, expected in steps:
        step()
        found = await post.told(watch, expected[-1])
        assert [each for each in found if not each.startswith("modified")] == [
            each for each in expected if not each.startswith("modified")
        ]


@pytest.mark.short
async def test_what_is_put_in_place_whole_is_created_or_modified(post: Post) -> None:
    watch = await post.watch()
    await post.write("deep/f", b"1")
    assert await post.told(watch, "created deep/f") == ["created deep", "created deep/f"]
    await post.write("deep/f", b"2")
    assert await post.told(watch, "modified deep/f") == ["modified deep/f"]
    await post.files.replace("deep/f", [("2", "3")])
    assert await post.told(watch, "modified deep/f") == ["modified deep/f"]
    await post.files.copy("deep", "copy")
    assert await post.told(watch, "created copy/f") == ["created copy", "created copy/f"]


async def test_patterns_choose_and_what_moves_between_comes_or_goes(post: Post) -> None:
    await post.write("node_modules/x.py")
    watch = await post.watch(include=("*.py",), exclude=("node_modules",))
    await post.write("node_modules/y.py")
    await post.write("a.txt")
    await post.write("sub/b.py")
    assert await post.told(watch, "created sub/b.py") == ["created sub/b.py"]
    (post.folder / "sub" / "b.py").rename(post.folder / "b.txt")
    (post.folder / "a.txt").rename(post.folder / "a.py")
    assert await post.told(watch, "created a.py") == ["deleted sub/b.py", "created a.py"]


async def test_without_recursion_what_is_below_is_not_told(post: Post) -> None:
    await post.write("sub/old")
    watch = await post.watch(recursive=False)
    await post.write("sub/new")
    await post.write("last")
    assert await post.told(watch, "created last") == ["created last"]


async def test_a_file_is_watched_through_its_replacement(post: Post) -> None:
    await post.write("f", b"1")
    watch = await post.watch("f")
    await post.write("other")
    await post.write("f", b"2")
    assert await post.told(watch, "modified f") == ["modified f"]
    (post.folder / "f").unlink()
    assert await post.told(watch, "deleted f") == ["deleted f"]
    await post.write("f", b"3")
    assert await post.told(watch, "created f") == ["created f"]


async def test_names_may_be_anything_and_links_are_not_followed(post: Post) -> None:
    (post.folder / "loop").symlink_to(".")
    watch = await post.watch()
    for name in ["new\nline", "\udcff", "漢" * 80]:
        await post.write(name)
        assert await post.told(watch, f"created {name}") == [f"created {name}"]


async def test_the_end_of_what_is_watched_is_told(post: Post) -> None:
    for name, end in [("gone", "deleted"), ("away", "moved")]:
        await post.files.mkdir(name)
        watch = await post.watches.open(name, WatchPlan(name), resumes=False)
        if end == "deleted":
            (post.folder / name).rmdir()
        else:
            (post.folder / name).rename(post.folder / "elsewhere")
        assert await post.told(watch, f'ENDED {{"why": "{end}"}}') == [f'ENDED {{"why": "{end}"}}']
        assert watch.journal.ended
        assert (
            await post.watches.open(name, WatchPlan(name), resumes=True) is watch
        )  # the end is told to who comes later


async def test_what_is_too_much_is_told_as_lost_and_watching_goes_on(post: Post) -> None:
    """More changes than the system keeps come while the worker stands still."""
    watch = await post.watch()
    (errand,) = post.files.worker._errands  # pyright: ignore[reportPrivateUsage] -- there is no other way to its process
    job = errand._job  # pyright: ignore[reportPrivateUsage]
    job.signal(19, "tree")
    await job.pids()  # the signal was sent
    change_too_much(post.folder)
    (post.folder / "made" / "meanwhile").mkdir(parents=True)
    job.signal(18, "tree")
    assert "lost" in await post.told(watch, "lost")
    (post.folder / "made" / "meanwhile" / "last").touch()
    await post.told(watch, "created made/meanwhile/last")


async def test_a_watch_is_one_for_all_that_ask_by_its_id(post: Post) -> None:
    watch = await post.watch()
    assert await post.watch() is watch
    with pytest.raises(SandcellError) as caught:
        await post.watch("/tmp")
    assert caught.value.code is ErrorCode.EXISTS


async def test_one_that_nobody_follows_ends_and_is_not_gone_on_with(post: Post) -> None:
    async with Watches(post.files, "epoch", memory=2**20, linger=0.1) as watches:
        watch = await watches.open("w", WatchPlan("."), resumes=False)
        task = watch.task
        assert task is not None
        async with asyncio.timeout(DEADLINE_S):
            await asyncio.wait({task})
        with pytest.raises(SandcellError) as caught:
            await watches.open("w", WatchPlan("."), resumes=True)
        assert caught.value.code is ErrorCode.LOST


async def test_what_cannot_be_watched_is_refused(post: Post) -> None:
    for path, code in [
        ("none", ErrorCode.FILE_NOT_FOUND),
        ("x\0y", ErrorCode.INVALID_PATH),
        ("/proc/self/root", ErrorCode.INVALID_PATH),
    ]:
        with pytest.raises(SandcellError) as caught:
            await post.watch(path)
        assert caught.value.code is code
    with pytest.raises(SandcellError) as caught:
        await post.watch(include=("[z-a]",))
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT


async def test_the_death_of_the_worker_is_told(post: Post) -> None:
    watch = await post.watch()
    (errand,) = post.files.worker._errands  # pyright: ignore[reportPrivateUsage]
    await errand._job.kill_tree()  # pyright: ignore[reportPrivateUsage]
    (told,) = await _until_end(watch.journal)
    assert told["error"]["code"] == "UNREACHABLE"


async def _until_end(journal: Journal) -> list[Any]:
    found = list[Any]()
    async with asyncio.timeout(DEADLINE_S):
        async for batch in journal.follow():
            found += [json.loads(each.data) for each in batch if each.kind == Kind.ERROR]
    return found

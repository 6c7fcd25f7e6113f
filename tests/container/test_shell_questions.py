from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

import pytest

from sandcell_container.guest.shell_questions import Question, ShellQuestions, question_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


@pytest.mark.parametrize(
    ("words", "question"),
    [
        ([], Question("", password=False)),
        (["x"], Question("", password=False)),
        (["-p", "name? ", "x"], Question("name? ", password=False)),
        (["-pname? ", "x"], Question("name? ", password=False)),
        (["-rsp", "word", "x"], Question("word", password=True)),
        (["-t", "5", "-s", "x"], Question("", password=True)),
        (["-n1", "-p", "y/n"], Question("y/n", password=False)),
        (["-d", "", "-p", "all"], Question("all", password=False)),
        (["--", "-p", "no"], Question("", password=False)),
        (["-t", "0", "x"], None),
        (["-p"], Question("", password=False)),
    ],
)
def test_the_words_of_read_are_understood(words: list[str], question: Question | None) -> None:
    assert question_of(words) == question


class Asked:
    def __init__(self, folder: Path) -> None:
        self.told: asyncio.Queue[Question | None] = asyncio.Queue()
        paths = (str(folder / "q"), str(folder / "a"))
        fds = list[int]()
        for path in paths:
            os.mkfifo(path)
            fds.append(os.open(path, os.O_RDWR | os.O_NONBLOCK))
        self.questions = ShellQuestions(paths, (fds[0], fds[1]), self.told.put_nowait)

    def write(self, data: bytes) -> None:
        with open(self.questions.paths[0], "wb", buffering=0) as file:
            file.write(data)

    async def next(self) -> Question | None:
        async with asyncio.timeout(20):
            return await self.told.get()


@pytest.fixture
async def asked(tmp_path: Path) -> AsyncIterator[Asked]:
    made = Asked(tmp_path)
    yield made
    made.questions.close()


async def test_a_question_in_pieces_is_one_and_its_answer_is_a_line(asked: Asked) -> None:
    asked.write(b"2\0-p\0na")
    asked.write(b"me? \0")
    assert await asked.next() == Question("name? ", password=False)
    asked.questions.answer("me")
    fd = os.open(asked.questions.paths[1], os.O_RDONLY | os.O_NONBLOCK)
    assert os.read(fd, 10) == b"me\n"
    os.close(fd)


async def test_an_answer_that_nobody_reads_any_more_is_taken_back(asked: Asked) -> None:
    asked.write(b"0\0")
    await asked.next()
    asked.questions.answer("late")
    asked.write(b".\0")
    assert await asked.next() is None
    fd = os.open(asked.questions.paths[1], os.O_RDONLY | os.O_NONBLOCK)
    with pytest.raises(BlockingIOError):
        os.read(fd, 10)
    os.close(fd)


async def test_nonsense_asks_nothing(asked: Asked) -> None:
    asked.write(b"-1\0x\0" + b"9" * 9000 + b"\0")
    asked.write(b"\0.\0")
    assert await asked.next() is None
    asked.questions.answer("x" * 200_000)
    asked.questions.answer("x" * 200_000)  # more than fits is dropped

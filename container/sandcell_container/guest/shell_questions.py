"""Questions of a shell's command: its `read` asks whoever runs it, where the command has no input.

In bash `read` is a function for such a command (`shell_lines`). It writes its words into one FIFO and reads the line from
another; both belong to the user, and what comes is not trusted: it is a question and nothing else.
"""

from __future__ import annotations

import asyncio
import os
import re
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sandcell_container.guest.files import Files

__all__ = ["Question", "ShellQuestions", "open_questions", "question_of"]

_LONGEST = 4096  # of words, which one write holds whole
_LONGEST_LINE = 60_000  # a FIFO takes so much at once
_OVER = b"."
_COUNT = re.compile(rb"\d{1,3}", re.ASCII)
_WITH_VALUE = "adiNnptu"  # the options of `read` that a word follows


class Question(NamedTuple):
    """What is asked; `password`: the answer is not to be seen."""

    prompt: str
    password: bool


class ShellQuestions:
    """The questions of one command. `on_question` gets each, and None when it needs no answer any more; from the loop."""

    def __init__(
        self, paths: tuple[str, str], fds: tuple[int, int], on_question: Callable[[Question | None], None]
    ) -> None:
        self.paths = paths
        self._questions, self._answers = fds
        self._on_question = on_question
        self._inbox = b""
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._questions, self._on_readable)

    def answer(self, line: str) -> None:
        """Answer what was asked last."""
        data = line.encode("utf-8", "surrogateescape")[:_LONGEST_LINE] + b"\n"
        with suppress(BlockingIOError):  # full of answers that nobody has asked for
            os.write(self._answers, data)

    def close(self) -> None:
        """Give the FIFOs back."""
        self._loop.remove_reader(self._questions)
        os.close(self._questions)
        os.close(self._answers)

    def _on_readable(self) -> None:
        with suppress(BlockingIOError):
            self._inbox = (self._inbox + os.read(self._questions, _LONGEST))[-2 * _LONGEST :]
        while b"\0" in self._inbox:
            head, *words = self._inbox.split(b"\0")
            count = int(head) if _COUNT.fullmatch(head) else 0
            if len(words) <= count:
                return  # the rest is on its way
            self._inbox = b"\0".join(words[count:])
            self._hear(head, words[:count])

    def _hear(self, head: bytes, words: list[bytes]) -> None:
        if head == _OVER:
            self._drain()
            self._on_question(None)
        elif _COUNT.fullmatch(head):
            self._on_question(question_of([os.fsdecode(word) for word in words]))

    def _drain(self) -> None:
        """Take back an answer that nobody reads any more."""
        with suppress(BlockingIOError):
            while os.read(self._answers, _LONGEST):
                pass


async def open_questions(
    files: Files, folder: str, name: str, on_question: Callable[[Question | None], None]
) -> ShellQuestions:
    """Make the FIFOs for a command called `name`. Raises SandcellError where they cannot be made."""
    paths = (f"{folder}/{name}.questions", f"{folder}/{name}.answers")
    questions = await files.open_fifo(paths[0])
    try:
        answers = await files.open_fifo(paths[1])
    except BaseException:
        os.close(questions)
        files.remove_soon(paths[0])
        raise
    return ShellQuestions(paths, (questions, answers), on_question)


def question_of(words: Sequence[str]) -> Question | None:
    """Return what `read` asks that was called with these words; None where it only looks whether there is a line."""
    prompt, password = "", False
    left = iter(words)
    for word in left:
        if not word.startswith("-") or word in ("-", "--"):
            break
        for at, letter in enumerate(word[1:], 2):
            if letter == "s":
                password = True
            elif letter in _WITH_VALUE:
                value = word[at:] or next(left, "")
                if letter == "p":
                    prompt = value
                if letter == "t" and not value.strip("0."):
                    return None
                break
    return Question(prompt, password)

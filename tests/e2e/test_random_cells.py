"""Random cells of every kind, many at once: whatever they are, what a front end is told of each has the same form."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from tests.e2e.front_end import open_notebook

if TYPE_CHECKING:
    from tests.e2e.front_end import Notebook

pytestmark = [pytest.mark.usefixtures("kernelspec"), pytest.mark.timeout(300)]

CELLS = 500
AT_ONCE = 25
SEEDS = (1,)
PATIENCE_S = 60
LATE = "LATE"


@dataclass(frozen=True)
class Kind:
    """A kind of cell: its code, for a number; what it prints, how it is answered, whether it is counted."""

    code: Callable[[int], str]
    printed: Callable[[int], str] = lambda number: ""
    status: str = "ok"
    options: dict[str, Any] = field(default_factory=dict[str, Any])
    is_counted: bool = True


KINDS = (
    Kind(lambda n: f"{n} + 1"),
    Kind(lambda n: f"print('out {n}'); {n}", lambda n: f"out {n}\n"),
    Kind(lambda n: f"import os; os.write(1, b'raw {n}\\n'); None", lambda n: f"raw {n}\n"),
    Kind(lambda n: f"print({n}); 1 / 0", lambda n: f"{n}\n", status="error"),
    Kind(lambda n: "def f(:", status="error"),
    Kind(lambda n: f"await __import__('asyncio').sleep(0); print({n})", lambda n: f"{n}\n"),
    Kind(lambda n: f"display({n}, display_id='d{n}').update('new {n}')"),
    Kind(lambda n: "%%capture\nprint(1)"),
    Kind(lambda n: "zip?"),
    Kind(
        # In one write: words and the end of their line may come apart.
        lambda n: f"import threading; threading.Timer(0.05, print, ['{LATE}'], {{'end': ''}}).start()",
    ),
    Kind(lambda n: f"print({n})", options={"silent": True}, is_counted=False, printed=lambda n: f"{n}\n"),
    Kind(
        lambda n: f"print({n}); {n}",
        lambda n: f"{n}\n",
        options={"store_history": False},
        is_counted=False,
    ),
    Kind(lambda n: f"%%shell\necho shell {n}", lambda n: f"shell {n}\n"),
    Kind(lambda n: "%%shell other\nfalse", status="error"),
    Kind(lambda n: f"%%exec\necho exec {n}; exit {n % 2 and 3}", lambda n: f"exec {n}\n", status=""),
    Kind(lambda n: f"%%context other\nprint('other {n}'); {n}", lambda n: f"other {n}\n"),
    Kind(lambda n: "%%context other\n1 / 0", status="error"),
    Kind(lambda n: f"%%process\necho job {n}", lambda n: f"job {n}\n"),
    Kind(lambda n: "%process list"),
    Kind(lambda n: "%process nonsense", status="error", is_counted=False),
    Kind(lambda n: "%%shell?", is_counted=False),
    Kind(lambda n: f"%%shell\necho {n}", lambda n: f"{n}\n", options={"silent": True}, is_counted=False),
)


@dataclass
class Told:
    """All that came for one cell."""

    number: int
    kind: Kind
    published: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    replies: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    @property
    def states(self) -> list[str]:
        return [each["content"]["execution_state"] for each in self.published if each["msg_type"] == "status"]


@pytest.mark.parametrize("seed", SEEDS)
async def test_what_is_told_of_a_cell_has_its_form(seed: int) -> None:
    chance = random.Random(seed)
    async with open_notebook() as notebook:
        all_told = list[Told]()
        for start in range(0, CELLS, AT_ONCE):
            batch = [(number, chance.choice(KINDS)) for number in range(start, start + AT_ONCE)]
            all_told += await _run(notebook, batch)
    count = 0
    for told in all_told:
        _check_form(told)
        count = _check_count(told, count)
        _check_outputs(told)


async def _run(notebook: Notebook, batch: list[tuple[int, Kind]]) -> list[Told]:
    """Send all cells at once, and return what was told of each when all are over."""
    client: Any = notebook.client
    told = dict[str, Told]()
    for number, kind in batch:
        options = {"stop_on_error": False, **kind.options}
        told[client.execute(kind.code(number), **options)] = Told(number, kind)
    while any(not each.replies for each in told.values()):
        reply = await client.get_shell_msg(timeout=PATIENCE_S)
        if reply["parent_header"]["msg_id"] in told:
            told[reply["parent_header"]["msg_id"]].replies.append(reply)
    while any("idle" not in each.states for each in told.values()):
        message = await client.get_iopub_msg(timeout=PATIENCE_S)
        parent = message["parent_header"].get("msg_id")
        if parent in told:
            told[parent].published.append(message)
    return list(told.values())


def _check_form(told: Told) -> None:
    """Busy is first, idle is last but for late output, one reply, and parents are right."""
    (reply,) = told.replies
    kinds = [each["msg_type"] for each in told.published]
    assert told.states == ["busy", "idle"], (told.kind, kinds)
    assert kinds[0] == "status"
    after = told.published[1 + next(at for at, each in enumerate(told.published) if _is_idle(each)) :]
    late = [(each["msg_type"], each["content"].get("text", "")) for each in after]
    assert all(kind == "stream" and LATE in text for kind, text in late), (told.kind.code(told.number), late)
    for each in (reply, *told.published):
        assert each["parent_header"] == reply["parent_header"]
    wanted = (told.kind.status or ("error" if told.number % 2 else "ok"),)
    assert (reply["content"]["status"],) == wanted, (told.kind.code(told.number), reply["content"])


def _is_idle(message: dict[str, Any]) -> bool:
    return bool(message["content"].get("execution_state") == "idle")


def _check_count(told: Told, before: int) -> int:
    """Counted cells count one after the other; each says its number in each place. Returns the number afterwards."""
    number = told.replies[0]["content"]["execution_count"]
    inputs = [each["content"] for each in told.published if each["msg_type"] == "execute_input"]
    results = [each["content"] for each in told.published if each["msg_type"] == "execute_result"]
    if told.kind.is_counted:
        assert number == before + 1, told.kind.code(told.number)
        assert [each["execution_count"] for each in inputs] == [number]
        assert {each["execution_count"] for each in results} <= {number}
        return before + 1
    if told.kind.options.get("silent"):
        assert inputs == []
        assert results == []
    return before


def _check_outputs(told: Told) -> None:
    texts = [each["content"]["text"] for each in told.published if each["msg_type"] == "stream"]
    printed = "".join(text for text in texts if LATE not in text and "[sandcell]" not in text)
    assert printed == told.kind.printed(told.number), told.kind.code(told.number)
    errors = [each["content"] for each in told.published if each["msg_type"] == "error"]
    assert len(errors) == int(told.replies[0]["content"]["status"] == "error")

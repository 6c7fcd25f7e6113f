"""The kernel inside the user's interpreter: as pure parts, and as a real process spoken to over its sockets."""

from __future__ import annotations

import atexit
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import venv
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
import zmq
from hypothesis import given
from hypothesis import strategies as st
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.session import Session

import sandcell_runtime
from sandcell_kernel.channels import new_connection
from sandcell_runtime.formatters import VALUE_MIME, NotPlain, plain_value
from sandcell_runtime.publishing import PublishingThread, QuickSocket
from sandcell_runtime.scope import CwdRefused, applied_cwd, applied_env

if TYPE_CHECKING:
    from collections.abc import Iterator

LAUNCHER = Path(sandcell_runtime.__file__).parent / "launch.py"
DEADLINE_S = 30
MAX_FRAME = 2**20


# --- the socket that publishes


def test_a_subscription_that_comes_while_something_is_published_is_heard() -> None:
    with zmq.Context() as context, context.socket(zmq.XPUB, socket_class=QuickSocket) as publisher:
        told: list[None] = []  # nobody waits at the descriptor here
        publisher.on_readable = lambda: told.append(None)
        place = f"ipc://@sandcell-test-{os.getpid()}"
        publisher.bind(place)
        with context.socket(zmq.SUB) as subscriber:
            subscriber.connect(place)
            subscriber.subscribe(b"")
            while not subscriber.poll(10):
                publisher.send_multipart([b"news"])
        assert told
        assert publisher.recv_multipart() == [b"\x01"]


@pytest.fixture
def published() -> Iterator[tuple[PublishingThread, zmq.Socket[bytes]]]:
    """A thread that publishes, and who subscribes to it."""
    with zmq.Context() as context:
        publisher = cast("QuickSocket", context.socket(zmq.XPUB, socket_class=QuickSocket))
        publisher.setsockopt(zmq.XPUB_NODROP, 1)
        place = f"ipc://@sandcell-test-{os.getpid()}-thread"
        publisher.bind(place)
        thread = PublishingThread(publisher, pipe=False, session=Session())
        untyped: Any = thread  # as stock has these
        untyped.start()
        atexit.unregister(thread.stop)
        with context.socket(zmq.SUB) as subscriber:
            subscriber.setsockopt(zmq.RCVTIMEO, DEADLINE_S * 1000)
            subscriber.connect(place)
            subscriber.subscribe(b"")
            assert b"iopub_welcome" in b"".join(subscriber.recv_multipart())
            yield thread, subscriber
            untyped.stop()
            untyped.close()


def test_messages_keep_their_order_whoever_sends_them(
    published: tuple[PublishingThread, zmq.Socket[bytes]],
) -> None:
    thread, subscriber = published
    done: list[int] = []
    for number in range(300):
        thread.in_code = number % 3 == 1
        if number % 7 == 0:
            thread.schedule(partial(done.append, number))
        with thread.at_once() if number % 2 else nullcontext():
            thread.send_multipart([b"topic", b"%d" % number])
    heard = [int(subscriber.recv_multipart()[1]) for _ in range(300)]
    assert heard == list(range(300))
    assert done == list(range(0, 300, 7))


def test_nothing_overtakes_what_waits_for_the_thread(
    published: tuple[PublishingThread, zmq.Socket[bytes]],
) -> None:
    thread, subscriber = published
    began, may_go_on = threading.Event(), threading.Event()

    def work() -> None:
        began.set()
        may_go_on.wait(DEADLINE_S)
        thread.send_multipart([b"first"])

    def send_more() -> None:
        for number in range(50):
            thread.send_multipart([b"%d" % number])

    thread.schedule(work)
    began.wait(DEADLINE_S)
    other = threading.Thread(target=send_more)
    other.start()
    other.join()
    may_go_on.set()
    with thread.at_once():
        thread.send_multipart([b"last"])
    heard = [subscriber.recv_multipart()[0] for _ in range(52)]
    assert [each for each in heard if each.isdigit()] == [b"%d" % number for number in range(50)]
    assert heard.index(b"last") > heard.index(b"49")


# --- values


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (None, None),
        (True, True),
        (2**70, 2**70),
        (1.5, 1.5),
        ("é", "é"),
        ((1, [2, (3,)]), [1, [2, [3]]]),
        ({"a": {"b": (None,)}}, {"a": {"b": [None]}}),
    ],
)
def test_json_safe_values_are_plain(value: object, plain: object) -> None:
    assert plain_value(value) == plain


CYCLE: list[object] = []
CYCLE.append(CYCLE)


@pytest.mark.parametrize(
    "value",
    [
        float("nan"),
        float("inf"),
        {1: 2},
        {"a": {(1, 2): 3}},
        {1, 2},
        b"bytes",
        object(),
        "\ud800",
        {"\ud800": 1},
        "x" * 2**20,
        ["x" * 2**10] * 2**10,
        list(range(2**20)),
        CYCLE,
    ],
    ids=lambda value: repr(value)[:20],
)
def test_other_values_are_not(value: object) -> None:
    with pytest.raises(NotPlain):
        plain_value(value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(JSON)
def test_json_comes_back_as_it_was(value: Any) -> None:
    plain = plain_value(value)
    assert plain == value
    assert json.loads(json.dumps(plain)) == value


# --- folder and environment of one run


def test_the_folder_is_entered_and_left(tmp_path: Path) -> None:
    before = os.getcwd()
    with applied_cwd(str(tmp_path)):
        assert os.getcwd() == str(tmp_path)
    assert os.getcwd() == before


def test_no_folder_is_no_change() -> None:
    before = os.getcwd()
    with applied_cwd(None):
        assert os.getcwd() == before


def test_a_folder_that_the_code_went_to_stays(tmp_path: Path) -> None:
    before = os.getcwd()
    try:
        with applied_cwd(str(tmp_path)):
            os.chdir("/")
        assert os.getcwd() == "/"
    finally:
        os.chdir(before)


def test_the_way_back_needs_no_name(tmp_path: Path) -> None:
    before, old = os.getcwd(), tmp_path / "old"
    old.mkdir()
    os.chdir(old)
    try:
        with applied_cwd(str(tmp_path)):
            old.rename(tmp_path / "new")
        assert os.getcwd() == str(tmp_path / "new")
    finally:
        os.chdir(before)


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("missing", "CWD_NOT_FOUND"),
        ("file", "NOT_A_DIRECTORY"),
        ("nul\0", "CWD_NOT_FOUND"),
        ("x" * 5000, "CWD_NOT_FOUND"),
    ],
)
def test_a_folder_that_cannot_be_entered_is_refused(tmp_path: Path, path: str, code: str) -> None:
    (tmp_path / "file").touch()
    before = os.getcwd()
    with pytest.raises(CwdRefused) as refused, applied_cwd(f"{tmp_path}/{path}"):
        pass
    assert refused.value.code == code
    assert os.getcwd() == before


def test_variables_are_set_and_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HELD", "old")
    monkeypatch.setenv("GONE", "old")
    value = "quotes ' \" $HOME\nünï " + "x" * 128_000
    with applied_env({"HELD": value, "GONE": None, "NEW": ""}):
        assert (os.environ["HELD"], os.environ.get("GONE"), os.environ["NEW"]) == (value, None, "")
    assert (os.environ["HELD"], os.environ["GONE"], os.environ.get("NEW")) == ("old", "old", None)


def test_variables_that_the_code_changed_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SET", "UNSET", "BACK"):
        monkeypatch.setenv(name, "old")
    with applied_env({"SET": "run", "UNSET": "run", "BACK": None}):
        os.environ["SET"] = "code"
        del os.environ["UNSET"]
        os.environ["BACK"] = "code"
    assert (os.environ["SET"], os.environ.get("UNSET"), os.environ["BACK"]) == ("code", None, "code")


# --- a real kernel


class Ran:
    """What one execute request led to."""

    def __init__(self, reply: dict[str, Any], messages: list[dict[str, Any]]) -> None:
        self.reply = reply["content"]
        self.messages = messages

    def text(self, name: str = "stdout") -> str:
        return "".join(content["text"] for content in self.all("stream") if content["name"] == name)

    def all(self, kind: str) -> list[dict[str, Any]]:
        return [message["content"] for message in self.messages if message["msg_type"] == kind]

    @property
    def data(self) -> dict[str, Any]:
        (result,) = self.all("execute_result")
        return cast("dict[str, Any]", result["data"])


class PlainProcess:
    """A kernel as `launch.py` starts it."""

    def __init__(self, told: dict[str, Any], env: dict[str, str], folder: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(LAUNCHER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=env,
            cwd=folder,
        )
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps(told).encode())
        self._process.stdin.close()
        self.said = json.loads(self._process.stdout.read())

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def end(self) -> None:
        with self._process:
            self._process.kill()


class ForkedProcess:
    """A kernel as a fork server starts it, which is there for this one alone."""

    def __init__(self, told: dict[str, Any], env: dict[str, str], folder: str) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, str(LAUNCHER), "fork-server"]
        self._server = subprocess.Popen(command, stdin=theirs.fileno(), env=env, cwd="/")
        theirs.close()
        self._ask({"home": folder, "python": None, "site": None, "spawner": None})
        assert self._hear() == {"ready": True, "missing": []}
        ours, theirs = socket.socketpair()
        with ours, theirs:
            self._ask({"fork": 1}, theirs.fileno(), 2)
            assert self._hear()["forked"] == 1
            theirs.close()
            for part in ({**told, "env": env, "cwd": "/"}, {"env": env, "cwd": folder}):
                ours.sendall(json.dumps(part).encode() + b"\n")
            with ours.makefile() as lines:
                self.said = {name: value for line in lines for name, value in json.loads(line).items()}
        assert self.said.pop("attached") is True

    def signal(self, number: int) -> None:
        signal.pidfd_send_signal(self._pidfd, number)

    def end(self) -> None:
        self.signal(signal.SIGKILL)
        os.close(self._pidfd)
        self._control.close()
        self._server.wait(DEADLINE_S)

    def _ask(self, message: dict[str, Any], *descriptors: int) -> None:
        socket.send_fds(self._control, [json.dumps(message).encode()], descriptors)

    def _hear(self) -> dict[str, Any]:
        message, descriptors, _, _ = socket.recv_fds(self._control, 2**16, 2)
        if descriptors:
            self._pidfd, *marks = descriptors
            for mark in marks:  # root has one, wherever it is
                os.close(mark)
        return cast("dict[str, Any]", json.loads(message))


class RealKernel:
    """The process of a kernel and a blocking client of it."""

    def __init__(self, start: type[PlainProcess | ForkedProcess], folder: str) -> None:
        connection: Any = new_connection().to_dict()
        told = {"connection": connection, "settings": {"max_frame": MAX_FRAME}}
        env = {"PATH": os.environ["PATH"], "HOME": folder, "GIVEN": "yes"}
        self.process = start(told, env, folder)
        self.client = BlockingKernelClient()
        self.client.load_connection_info(connection)
        self.client.start_channels(hb=False)
        self.client.wait_for_ready(timeout=DEADLINE_S)

    def run(self, code: str, *, silent: bool = False, **extras: Any) -> Ran:
        client: Any = self.client
        content: dict[str, Any] = {
            "code": code,
            "silent": silent,
            "store_history": not silent,
            "user_expressions": {},
            "allow_stdin": False,
            "stop_on_error": False,
        }
        request = client.session.msg(
            "execute_request", content, metadata={"sandcell": extras} if extras else {}
        )
        client.shell_channel.send(request)
        messages: list[dict[str, Any]] = []
        while True:
            message = client.get_iopub_msg(timeout=DEADLINE_S)
            if message["parent_header"].get("msg_id") == request["header"]["msg_id"]:
                messages.append(message)
                if message["content"].get("execution_state") == "idle":
                    break
        return Ran(client.get_shell_msg(timeout=DEADLINE_S), messages)

    def close(self) -> None:
        self.client.stop_channels()
        self.process.end()


@pytest.fixture(scope="module", params=[PlainProcess, ForkedProcess], ids=["plain", "forked"])
def kernel(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealKernel]:
    kernel = RealKernel(request.param, str(tmp_path_factory.mktemp("home")))
    yield kernel
    kernel.close()


def test_it_said_ready_and_nothing_else(kernel: RealKernel) -> None:
    assert kernel.process.said == {"ready": True}


def test_the_interpreter_is_as_the_user_would_have_it(kernel: RealKernel) -> None:
    ran = kernel.run("import os, sys; (sys.argv, sys.path, dict(os.environ))", want=["value"])
    argv, path, env = ran.data[VALUE_MIME]
    assert argv == [""]
    assert str(LAUNCHER.parent) not in path
    assert env.pop("GIVEN") == "yes"
    # Python sets the locale, ipykernel the other two: the inline backend, and a switch of its debugger
    assert set(env) <= {"PATH", "HOME", "LC_CTYPE", "MPLBACKEND", "PYDEVD_USE_FRAME_EVAL"}


def test_modules_named_as_ours_are_the_users_own(kernel: RealKernel) -> None:
    code = "open('streams.py', 'w').write('mine = 1'); import streams; streams.mine"
    assert kernel.run(code).data == {"text/plain": "1"}


def test_no_connection_file_is_on_disk(kernel: RealKernel) -> None:
    assert kernel.run("import glob; glob.glob('**/kernel*.json', recursive=True)").data["text/plain"] == "[]"


def test_history_is_in_memory_alone(kernel: RealKernel) -> None:
    kernel.run("'a line of history'")
    found = "import glob; glob.glob('**/*.sqlite*', recursive=True, include_hidden=True)"
    assert kernel.run(found).data["text/plain"] == "[]"


def test_standard_input_is_empty(kernel: RealKernel) -> None:
    assert kernel.run("import os; os.read(0, 1)").data["text/plain"] == "b''"


# values


def test_a_value_is_given_to_those_who_ask(kernel: RealKernel) -> None:
    assert kernel.run("(1, 'a')", want=["value"]).data == {"text/plain": "(1, 'a')", VALUE_MIME: [1, "a"]}


def test_others_get_a_clean_bundle(kernel: RealKernel) -> None:
    assert kernel.run("(1, 'a')").data == {"text/plain": "(1, 'a')"}
    assert kernel.run("(1, 'a')", want=["chart"]).data == {"text/plain": "(1, 'a')"}


@pytest.mark.parametrize("want", [5, "value", {"value": 1}, ["no such thing", 7]])
def test_what_is_asked_wrongly_is_not_asked(kernel: RealKernel, want: object) -> None:
    assert kernel.run("1", want=want, spill=["/tmp"]).data == {"text/plain": "1"}


LIBRARIES = ("numpy", "pandas", "polars", "matplotlib", "plotly", "altair", "bokeh")


def test_nothing_is_imported_that_the_user_did_not_import(kernel: RealKernel) -> None:
    spill = {"folder": "/nonexistent", "text": 100, "image": 100}
    kernel.run("display({'a': 1}, display_id='d'); 'x' * 1000", want=["value", "data", "chart"], spill=spill)
    imported = f"import sys; sorted(sys.modules.keys() & set({LIBRARIES}))"
    assert kernel.run(imported).data == {"text/plain": "[]"}


def test_runs_that_do_not_ask_get_what_stock_gives(kernel: RealKernel) -> None:
    """What is saved in a notebook is nothing of ours, whatever other runs of the same context ask for."""
    code = "import pandas as pd, matplotlib.pyplot as plt; plt.plot([1]); pd.DataFrame({'a': [1]})"
    asked = kernel.run(code, want=["value", "data", "chart"])
    assert set(asked.data) == {"text/plain", "text/html", "application/vnd.sandcell.data+json"}
    (figure,) = asked.all("display_data")
    assert set(figure["data"]) == {"text/plain", "image/png", "application/vnd.sandcell.chart+json"}
    plain = kernel.run(code)
    assert set(plain.data) == {"text/plain", "text/html"}
    assert plain.all("execute_result")[0]["metadata"] == {}
    (figure,) = plain.all("display_data")
    assert (set(figure["data"]), figure["metadata"]) == ({"text/plain", "image/png"}, {})
    kernel.run("%config ZMQDisplayPublisher.store_display_history = True")
    kernel.run("pd.DataFrame({'a': [1]})", want=["value", "data", "chart"])
    kept = kernel.run("str(get_ipython().history_manager.outputs)").data["text/plain"]
    assert "sandcell" not in kept


def test_a_value_that_is_hostile_is_no_error(kernel: RealKernel) -> None:
    code = "class D(dict):\n    def items(self): raise RuntimeError('no')\nD(a=1)"
    ran = kernel.run(code, want=["value"])
    assert ran.reply["status"] == "ok"
    assert VALUE_MIME not in ran.data


def test_a_value_is_of_its_own_run(kernel: RealKernel) -> None:
    kernel.run("7", want=["value"])
    assert kernel.run("8; None", want=["value"]).all("execute_result") == []


# folder and environment


def test_folder_and_environment_are_those_of_the_run_alone(kernel: RealKernel, tmp_path: Path) -> None:
    code = "import os; (os.getcwd(), os.environ.get('NAME'), os.environ.get('GIVEN'))"
    inside = kernel.run(code, cwd=str(tmp_path), env={"NAME": "x", "GIVEN": None}, want=["value"])
    assert inside.data[VALUE_MIME] == [str(tmp_path), "x", None]
    after = kernel.run(code, want=["value"])
    assert after.data[VALUE_MIME][1:] == [None, "yes"]
    assert after.data[VALUE_MIME][0] != str(tmp_path)


def test_they_are_undone_after_an_error_too(kernel: RealKernel, tmp_path: Path) -> None:
    before = kernel.run("os.getcwd()").data
    kernel.run("1/0", cwd=str(tmp_path), env={"NAME": "x"})
    assert kernel.run("os.getcwd()").data == before
    assert kernel.run("os.environ.get('NAME')").all("execute_result") == []


def test_a_missing_folder_runs_nothing(kernel: RealKernel) -> None:
    ran = kernel.run("ran_anyway = 1", cwd="/no/such/folder")
    assert ran.reply["sandcell"] == {"refused": "CWD_NOT_FOUND"}
    assert kernel.run("'ran_anyway' in globals()").data["text/plain"] == "False"


# counter


def test_a_ticket_takes_the_next_number_and_runs_nothing(kernel: RealKernel) -> None:
    first = kernel.run("1").reply["execution_count"]
    ticket = kernel.run("never", silent=True, ticket=True)
    assert ticket.reply["status"] == "ok"
    assert ticket.reply["execution_count"] == first + 1
    third = kernel.run("'third'")
    assert third.reply["execution_count"] == first + 2
    assert kernel.run(f"In[{first + 2}]").data["text/plain"] == repr("'third'")


# output, for a client that sends no pipes: in messages, as ipykernel has it


def test_text_that_no_json_can_carry_is_escaped(kernel: RealKernel) -> None:
    assert kernel.run(r"print('a\ud800b')").text() == "a\\ud800b\n"


def test_a_flood_is_whole_and_in_pieces(kernel: RealKernel) -> None:
    ran = kernel.run("print('x' * 20_000_000)")
    assert len(ran.text()) == 20_000_001
    assert max(len(content["text"]) for content in ran.all("stream")) <= 2**18


def test_many_small_prints_arrive_in_order(kernel: RealKernel) -> None:
    assert kernel.run("for i in range(20_000): print(i)").text().split() == [str(i) for i in range(20_000)]


# what is too large to send


@pytest.mark.parametrize(
    "code",
    [
        "'x' * 3_000_000",
        "from IPython.display import display; display({'text/html': 'x' * 3_000_000}, raw=True)",
    ],
)
def test_a_display_too_large_to_send_is_replaced(kernel: RealKernel, code: str) -> None:
    ran = kernel.run(code)
    (shown,) = ran.all("execute_result") + ran.all("display_data")
    note = shown["data"]["text/plain"]
    assert "bytes left out" in note
    assert shown["metadata"]["sandcell"]["left_out"] > 3_000_000
    whole = Path(note.partition(" is in ")[2].removesuffix("]"))
    assert whole.read_text().strip("'") == "x" * 3_000_000
    whole.unlink()


def test_displays_too_large_to_send_become_so_many_files_and_no_more(
    kernel: RealKernel, tmp_path: Path
) -> None:
    code = f"""import tempfile; tempfile.tempdir = {str(tmp_path)!r}
session = get_ipython().kernel.session; left, session._files_left = session._files_left, 2
for _ in range(4): display({{'text/html': 'x' * 2_000_000}}, raw=True)
tempfile.tempdir, session._files_left = None, left"""
    notes = [each["data"]["text/plain"] for each in kernel.run(code).all("display_data")]
    assert [" is in " in note for note in notes] == [True, True, False, False]
    assert len(list(tmp_path.iterdir())) == 2


def test_an_error_too_large_to_send_is_cut(kernel: RealKernel) -> None:
    ran = kernel.run("raise ValueError('x' * 3_000_000)")
    (error,) = ran.all("error")
    for told in (error, ran.reply):
        assert (told["ename"], len(told["evalue"])) == ("ValueError", 1000)


@pytest.mark.parametrize(
    "what", ["data='x' * 3_000_000", "buffers=[b'x' * 2**19] * 3", "buffers=[b''] * 20_000"]
)
def test_a_message_too_large_to_send_is_an_error_of_its_sender(kernel: RealKernel, what: str) -> None:
    ran = kernel.run(f"import comm; comm.create_comm(target_name='t', {what})")
    assert ran.reply["ename"] == "TooLargeToSend"
    assert kernel.run("1").reply["status"] == "ok"


# interrupts


def interrupt_when(kernel: RealKernel, code: str, printed: str) -> Ran:
    """Run code, and interrupt it when it has printed a line."""
    client: Any = kernel.client
    msg_id = client.execute(code, allow_stdin=False)
    messages: list[dict[str, Any]] = []
    while True:
        message = client.get_iopub_msg(timeout=DEADLINE_S)
        if message["parent_header"].get("msg_id") != msg_id:
            continue
        messages.append(message)
        if printed in message["content"].get("text", ""):
            kernel.process.signal(signal.SIGINT)
        if message["content"].get("execution_state") == "idle":
            return Ran(client.get_shell_msg(timeout=DEADLINE_S), messages)


@pytest.mark.parametrize(
    "wait",
    [
        "while True: pass",
        "import time; time.sleep(60)",
        "import subprocess; subprocess.run(['sleep', '60'])",
        "import threading; threading.Event().wait()",
    ],
)
def test_an_interrupt_reaches_the_code(kernel: RealKernel, wait: str) -> None:
    ran = interrupt_when(kernel, f"print('go')\n{wait}", "go")
    assert ran.reply["ename"] == "KeyboardInterrupt"
    assert "sandcell_runtime" not in "".join(ran.reply["traceback"])


def test_an_interrupt_ends_a_coroutine(kernel: RealKernel) -> None:
    ran = interrupt_when(kernel, "import asyncio; print('go')\nawait asyncio.sleep(60)", "go")
    assert ran.reply["status"] == "error"


def test_an_interrupt_between_runs_is_nothing(kernel: RealKernel) -> None:
    for _ in range(20):
        kernel.process.signal(signal.SIGINT)
        assert kernel.run("1").reply["status"] in {"ok", "error"}
    assert kernel.run("1").reply["status"] == "ok"


def test_a_storm_of_interrupts_leaves_the_kernel_alive(kernel: RealKernel) -> None:
    for _ in range(10):
        msg_id = kernel.client.execute("for i in range(10**5): pass", allow_stdin=False)
        for _ in range(50):
            kernel.process.signal(signal.SIGINT)
        client: Any = kernel.client
        reply = client.get_shell_msg(timeout=DEADLINE_S)
        assert reply["parent_header"]["msg_id"] == msg_id
    assert kernel.run("1 + 1").data == {"text/plain": "2"}


# history


def history(kernel: RealKernel, kind: str, **asked: Any) -> list[Any]:
    client: Any = kernel.client
    client.history(hist_access_type=kind, **{"raw": True, "output": False, **asked})
    found: list[Any] = client.get_shell_msg(timeout=DEADLINE_S)["content"]["history"]
    return found


def test_history_is_complete_though_written_in_batches(kernel: RealKernel) -> None:
    codes = [f"'of history {n}'" for n in range(5)]
    counts = [kernel.run(code).reply["execution_count"] for code in codes]
    session, _, _ = history(kernel, "tail", n=1)[0]
    lines = [[session, count, code] for count, code in zip(counts, codes, strict=True)]
    assert history(kernel, "tail", n=3) == lines[2:]
    assert history(kernel, "range", session=session, start=counts[1], stop=counts[3]) == lines[1:3]
    assert history(kernel, "range", session=0, start=counts[4]) == lines[4:]
    assert history(kernel, "search", pattern="*of history [13]*") == [lines[1], lines[3]]
    assert history(kernel, "search", pattern="*of history*", n=2) == lines[3:]
    kernel.run(codes[0])
    assert [text for _, _, text in history(kernel, "search", pattern="*of history 0*", unique=True)] == codes[
        :1
    ]


def test_history_tells_what_came_out(kernel: RealKernel) -> None:
    count = kernel.run("6 * 7").reply["execution_count"]
    _, line, (code, result) = history(kernel, "range", start=count, stop=count + 1, output=True)[0]
    assert (line, code, result) == (count, "6 * 7", "42")


def test_history_leaves_out_what_is_not_to_be_stored(kernel: RealKernel) -> None:
    kernel.run("'hidden from history'", silent=True)
    assert history(kernel, "search", pattern="*hidden from hist*") == []


# --- starts that fail


def start(python: str, told: object) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [python, str(LAUNCHER)],
        input=json.dumps(told).encode(),
        capture_output=True,
        timeout=DEADLINE_S,
        check=False,
    )


def test_an_environment_without_ipykernel_says_what_to_do(tmp_path: Path) -> None:
    venv.create(tmp_path / "env", with_pip=False)
    ran = start(str(tmp_path / "env" / "bin" / "python"), {"connection": {}})
    said = json.loads(ran.stdout)
    assert ran.returncode == 1
    assert "ipykernel cannot be imported" in said["failed"]
    assert "pip install" in said["hint"]


def test_a_launcher_that_is_told_nonsense_fails() -> None:
    assert start(sys.executable, {}).returncode != 0


def test_a_debugger_is_made_when_somebody_asks_for_one(kernel: RealKernel) -> None:
    """On control, as front ends ask."""
    client: Any = kernel.client
    arguments = {"clientID": "test", "adapterID": "", "pathFormat": "path", "linesStartAt1": True}
    body = {"type": "request", "command": "initialize", "seq": 1, "arguments": arguments}
    asked = client.session.msg("debug_request", body)
    client.control_channel.send(asked)
    reply = client.control_channel.get_msg(timeout=DEADLINE_S)
    assert reply["parent_header"]["msg_id"] == asked["header"]["msg_id"]
    assert reply["content"]["success"] is True
    assert kernel.run("1 + 1").data["text/plain"] == "2"

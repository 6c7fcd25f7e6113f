"""The checks of the kernel testbed, by their names there, against our kernel through its sockets.

Source: the list of runtimed/kernel-testbed, 28 checks in four tiers; what they ask is the messaging specification 5.5.
"""

from __future__ import annotations

import os
import queue
import time
from typing import TYPE_CHECKING, Any

import pytest
import zmq
from jupyter_client.manager import KernelManager
from jupyter_client.session import Session

from sandcell_kernel.install import KERNEL_NAME

if TYPE_CHECKING:
    from collections.abc import Generator

    from jupyter_client.blocking.client import BlockingKernelClient

pytestmark = pytest.mark.usefixtures("kernelspec")

PATIENCE_S = 20.0
Said = dict[str, Any]


class Kernel:
    """A kernel and its client; `said` is what was published for a request, up to its idle."""

    def __init__(self, manager: KernelManager, client: BlockingKernelClient) -> None:
        self.manager = manager
        self.client: Any = client  # its methods have no types

    def ask(self, kind: str, *, channel: str = "shell", **content: Any) -> tuple[Said, list[Said]]:
        """Send a request; return its reply, and all that was published for it."""
        message = self.client.session.msg(kind, content)
        getattr(self.client, f"{channel}_channel").send(message)
        msg_id: str = message["header"]["msg_id"]
        return self.reply(msg_id, channel), self.published(msg_id)

    def run(self, code: str, **options: Any) -> tuple[Said, list[Said]]:
        msg_id: str = self.client.execute(code, **options)
        return self.reply(msg_id), self.published(msg_id)

    def reply(self, msg_id: str, channel: str = "shell") -> Said:
        take = getattr(self.client, f"get_{channel}_msg")
        while True:
            message: Said = take(timeout=PATIENCE_S)
            if message["parent_header"].get("msg_id") == msg_id:
                return message

    def published(self, msg_id: str) -> list[Said]:
        found = list[Said]()
        while not found or found[-1]["content"].get("execution_state") != "idle":
            message: Said = self.client.get_iopub_msg(timeout=PATIENCE_S)
            if message["parent_header"].get("msg_id") == msg_id:
                found.append(message)
        return found


def bodies(said: list[Said], kind: str) -> list[dict[str, Any]]:
    return [each["content"] for each in said if each["msg_type"] == kind]


def text_of(said: list[Said], name: str) -> str:
    return "".join(each["text"] for each in bodies(said, "stream") if each["name"] == name)


@pytest.fixture(scope="module")
def kernel(kernelspec: None) -> Generator[Kernel]:
    manager = KernelManager(kernel_name=KERNEL_NAME)
    manager.start_kernel(env=dict(os.environ))
    client = manager.client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=PATIENCE_S)
        yield Kernel(manager, client)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=False)


# --- tier 1: basic protocol


def test_heartbeat_responds(kernel: Kernel) -> None:
    context = zmq.Context[zmq.Socket[bytes]]()
    with context, context.socket(zmq.REQ) as heart:
        heart.linger = 0
        heart.connect(f"tcp://127.0.0.1:{kernel.manager.hb_port}")
        heart.send(b"ping")
        assert heart.poll(int(PATIENCE_S * 1000))
        assert heart.recv() == b"ping"


def test_kernel_info_reply_valid(kernel: Kernel) -> None:
    reply, _ = kernel.ask("kernel_info_request")
    fields = {"implementation", "implementation_version", "banner", "help_links", "supported_features"}
    assert reply["msg_type"] == "kernel_info_reply"
    assert reply["content"]["status"] == "ok"
    assert fields <= reply["content"].keys()


def test_kernel_info_has_language_info(kernel: Kernel) -> None:
    info = kernel.ask("kernel_info_request")[0]["content"]["language_info"]
    assert (info["name"], info["file_extension"], info["mimetype"]) == ("python", ".py", "text/x-python")
    assert info["version"].startswith("3.")


def test_kernel_info_has_protocol_version(kernel: Kernel) -> None:
    assert kernel.ask("kernel_info_request", channel="control")[0]["content"]["protocol_version"] == "5.5"


def test_execute_stdout(kernel: Kernel) -> None:
    assert text_of(kernel.run("print('hello, world')")[1], "stdout") == "hello, world\n"


def test_execute_stderr(kernel: Kernel) -> None:
    assert text_of(kernel.run("import sys; print('no', file=sys.stderr)")[1], "stderr") == "no\n"


def test_execute_reply_ok(kernel: Kernel) -> None:
    content = kernel.run("x = 1")[0]["content"]
    assert content["status"] == "ok"
    assert (content["user_expressions"], content["payload"]) == ({}, [])


def test_execute_input_broadcast(kernel: Kernel) -> None:
    reply, said = kernel.run("y = 2")
    expected = {"code": "y = 2", "execution_count": reply["content"]["execution_count"]}
    assert bodies(said, "execute_input") == [expected]


def test_status_busy_idle_lifecycle(kernel: Kernel) -> None:
    for _, said in (kernel.run("print(1); 2"), kernel.ask("history_request", hist_access_type="tail", n=1)):
        states = [each["content"].get("execution_state") for each in said]
        assert (states[0], states[-1]) == ("busy", "idle")
        assert states.count("busy") == states.count("idle") == 1


def test_iopub_welcome(kernel: Kernel) -> None:
    context = zmq.Context[zmq.Socket[bytes]]()
    with context, context.socket(zmq.SUB) as late:
        late.linger = 0
        late.connect(f"tcp://127.0.0.1:{kernel.manager.iopub_port}")
        late.subscribe(b"")
        assert late.poll(int(PATIENCE_S * 1000))
        other = Session(key=kernel.client.session.key)  # the client's own takes each message once
        _, frames = other.feed_identities(late.recv_multipart())
        welcome = other.deserialize(frames)
    assert (welcome["msg_type"], welcome["parent_header"]) == ("iopub_welcome", {})
    assert welcome["content"] == {"subscription": ""}


# --- tier 2: interactive features


def test_complete_request(kernel: Kernel) -> None:
    kernel.run("wonderful = 1")
    content = kernel.ask("complete_request", code="wonderf", cursor_pos=7)[0]["content"]
    assert (content["matches"], content["cursor_start"], content["cursor_end"]) == (["wonderful"], 0, 7)


def test_inspect_request(kernel: Kernel) -> None:
    content = kernel.ask("inspect_request", code="print", cursor_pos=5, detail_level=0)[0]["content"]
    assert content["found"]
    assert "print" in content["data"]["text/plain"]


def test_is_complete_complete(kernel: Kernel) -> None:
    assert kernel.ask("is_complete_request", code="1 + 1")[0]["content"]["status"] == "complete"


def test_is_complete_incomplete(kernel: Kernel) -> None:
    content = kernel.ask("is_complete_request", code="def f():")[0]["content"]
    assert (content["status"], content["indent"]) == ("incomplete", "    ")


def test_history_request(kernel: Kernel) -> None:
    kernel.run("remembered = 1")
    asked: dict[str, Any] = {"hist_access_type": "tail", "n": 1, "output": False, "raw": True}
    ((session, line, source),) = kernel.ask("history_request", **asked)[0]["content"]["history"]
    assert (isinstance(session, int), isinstance(line, int), source) == (True, True, "remembered = 1")


def test_comm_info_request(kernel: Kernel) -> None:
    assert kernel.ask("comm_info_request", target_name="nothing")[0]["content"]["comms"] == {}


def test_error_handling(kernel: Kernel) -> None:
    reply, said = kernel.run("1 / 0")
    (error,) = bodies(said, "error")
    assert reply["content"]["status"] == "error"
    for name in ("ename", "evalue", "traceback"):
        assert reply["content"][name] == error[name]
    assert error["ename"] == "ZeroDivisionError"


# --- tier 3: rich output


def test_display_data(kernel: Kernel) -> None:
    _, said = kernel.run("from IPython.display import HTML, display; display(HTML('<b>x</b>'))")
    assert bodies(said, "display_data")[0]["data"]["text/html"] == "<b>x</b>"


def test_update_display_data(kernel: Kernel) -> None:
    _, said = kernel.run("h = display('first', display_id='d'); h.update('second')")
    (shown,), (updated,) = bodies(said, "display_data"), bodies(said, "update_display_data")
    assert shown["transient"] == updated["transient"] == {"display_id": "d"}
    assert updated["data"]["text/plain"] == "'second'"


def test_execute_result(kernel: Kernel) -> None:
    reply, said = kernel.run("6 * 7")
    (result,) = bodies(said, "execute_result")
    assert result["data"]["text/plain"] == "42"
    assert result["execution_count"] == reply["content"]["execution_count"]


def test_rich_execute_result(kernel: Kernel) -> None:
    _, said = kernel.run("from IPython.display import Markdown; Markdown('*x*')")
    assert bodies(said, "execute_result")[0]["data"]["text/markdown"] == "*x*"


# --- tier 4: advanced


def test_stdin_input_request(kernel: Kernel) -> None:
    msg_id = kernel.client.execute(
        "import getpass; print(input('name? '), getpass.getpass('word? '))", allow_stdin=True
    )
    for prompt, password, answer in (("name? ", False, "me"), ("word? ", True, "hush")):
        asked = kernel.client.get_stdin_msg(timeout=PATIENCE_S)
        assert asked["content"] == {"prompt": prompt, "password": password}
        assert asked["parent_header"]["msg_id"] == msg_id
        kernel.client.input(answer)
    assert kernel.reply(msg_id)["content"]["status"] == "ok"
    assert text_of(kernel.published(msg_id), "stdout") == "me hush\n"


def test_comms_lifecycle(kernel: Kernel) -> None:
    kernel.run(
        "from comm import get_comm_manager\n"
        "def opened(comm, message):\n"
        "    comm.on_msg(lambda message: comm.send({'heard': message['content']['data']}))\n"
        "get_comm_manager().register_target('echo', opened)"
    )
    session, channel = kernel.client.session, kernel.client.shell_channel
    steps: list[tuple[str, dict[str, Any]]] = [
        ("comm_open", {"comm_id": "c", "target_name": "echo", "data": {}}),
        ("comm_msg", {"comm_id": "c", "data": 7}),
    ]
    said = list[Said]()
    for kind, content in steps:
        message = session.msg(kind, content)
        channel.send(message)
        said = kernel.published(message["header"]["msg_id"])
    assert bodies(said, "comm_msg") == [{"comm_id": "c", "data": {"heard": 7}}]
    assert kernel.ask("comm_info_request")[0]["content"]["comms"]["c"] == {"target_name": "echo"}
    closing = session.msg("comm_close", {"comm_id": "c", "data": {}})
    channel.send(closing)
    kernel.published(closing["header"]["msg_id"])
    assert "c" not in kernel.ask("comm_info_request")[0]["content"]["comms"]


def test_interrupt_request(kernel: Kernel) -> None:
    msg_id = kernel.client.execute("print('go', flush=True)\nwhile True: pass")
    while kernel.client.get_iopub_msg(timeout=PATIENCE_S)["msg_type"] != "stream":
        pass
    reply, _ = kernel.ask("interrupt_request", channel="control")
    assert reply["content"]["status"] == "ok"
    assert kernel.reply(msg_id)["content"]["ename"] == "KeyboardInterrupt"


def test_execution_count_increments(kernel: Kernel) -> None:
    first, second = (kernel.run("1")[0]["content"]["execution_count"] for _ in range(2))
    assert second == first + 1
    assert kernel.run("1", store_history=False)[0]["content"]["execution_count"] == second
    assert kernel.run("1")[0]["content"]["execution_count"] == second + 1


def test_parent_header_correlation(kernel: Kernel) -> None:
    message = kernel.client.session.msg("execute_request", {"code": "print(1); 2", "silent": False})
    kernel.client.shell_channel.send(message)
    reply = kernel.reply(message["header"]["msg_id"])
    said = kernel.published(message["header"]["msg_id"])
    for each in (reply, *said):
        assert each["parent_header"] == reply["parent_header"]
        assert each["header"]["session"] == reply["header"]["session"] != message["header"]["session"]
    assert reply["parent_header"]["session"] == message["header"]["session"]


# --- the two that need a kernel of their own


def test_kernel_startup_and_shutdown_reply(kernelspec: None) -> None:
    """`kernel_startup`: a kernel answers its first request; `shutdown_reply`: it says so and is gone within two seconds."""
    manager = KernelManager(kernel_name=KERNEL_NAME)
    manager.start_kernel(env=dict(os.environ))
    client = manager.client()
    client.start_channels()
    try:
        kernel = Kernel(manager, client)
        assert kernel.run("1 + 1")[0]["content"]["status"] == "ok"
        began = time.monotonic()
        message = kernel.client.session.msg("shutdown_request", {"restart": False})
        kernel.client.control_channel.send(message)
        reply = kernel.reply(message["header"]["msg_id"], "control")
        told = [each["msg_type"] for each in kernel.published(message["header"]["msg_id"])]
        assert reply["content"] == {"status": "ok", "restart": False}
        assert told == ["status", "shutdown_reply", "status"]
        assert time.monotonic() - began < 2.5  # the process's own bound is below two
        with pytest.raises(queue.Empty):
            client.get_shell_msg(timeout=0)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=False)

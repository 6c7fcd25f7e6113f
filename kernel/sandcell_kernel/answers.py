"""Messages that we write ourselves in a kernel's place: status, replies, errors, streams. Pure builders."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from sandcell_kernel.plain import list_of, text_of
from sandcell_kernel.wire import EMPTY, PROTOCOL_VERSION, ChannelMessage, new_message

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sandcell_container.errors import SandcellError
    from sandcell_kernel.wire import Channel, Message

__all__ = ["Answers", "Problem", "describe_kernel", "reply_type"]

_DEBUGGER = "debugger"
_RELAYED = (_DEBUGGER, "kernel subshells")

# What a front end is told of the language while there is no kernel to ask.
_PYTHON = {
    "name": "python",
    "version": "3",
    "mimetype": "text/x-python",
    "file_extension": ".py",
    "pygments_lexer": "ipython3",
    "codemirror_mode": {"name": "ipython", "version": 3},
    "nbconvert_exporter": "python",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """An error as a front end shows it: a name, a text, and lines below it."""

    name: str
    value: str
    lines: tuple[str, ...] = ()

    @classmethod
    def of(cls, error: SandcellError) -> Problem:
        """Show an error of ours: its code, its message, and what to do."""
        return cls(name=str(error.code), value=error.message, lines=(error.hint,) if error.hint else ())

    @classmethod
    def read(cls, content: Mapping[str, Any]) -> Problem:
        """Read what `content` has written."""
        traceback = list_of(content.get("traceback"))
        lines = tuple(map(str, traceback[1:]))
        return cls(name=text_of(content.get("ename")), value=text_of(content.get("evalue")), lines=lines)

    def content(self) -> dict[str, Any]:
        traceback = [f"{self.name}: {self.value}", *self.lines]
        return {"ename": self.name, "evalue": self.value, "traceback": traceback}


def reply_type(request_type: str) -> str:
    """Return the type of the reply to `request_type`, "" where none is sent (comm messages)."""
    stem = request_type.removesuffix("_request")
    return f"{stem}_reply" if stem != request_type else ""


def describe_kernel(version: str, inner: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the content of our kernel_info_reply; `inner` is that of the context's kernel, None where there is none.

    5.5 asks for iopub_welcome, kernel_info on control and `supported_features`: of what the kernel announces, what is
    relayed. `debugger` is for front ends before 5.5.
    """
    known = inner or {}
    announced = known.get("supported_features")
    features = [each for each in _RELAYED if isinstance(announced, list) and each in announced]
    return {
        "status": "ok",
        "protocol_version": PROTOCOL_VERSION,
        "implementation": "sandcell",
        "implementation_version": version,
        "language_info": known.get("language_info") or _PYTHON,
        "banner": f"Sandcell {version}: code runs in a sandbox\n{known.get('banner', '')}",
        "help_links": known.get("help_links", []),
        "supported_features": features,
        "debugger": _DEBUGGER in features,
    }


class Answers:
    """Builds messages of one kernel session; each has the header of the request as its parent, byte for byte."""

    def __init__(self, session: str) -> None:
        self._session = session

    def starting(self) -> ChannelMessage:
        """The status that a kernel sends once, of its own accord."""
        return self._iopub("status", EMPTY, {"execution_state": "starting"})

    def status(self, request: Message, state: Literal["busy", "idle"]) -> ChannelMessage:
        return self._iopub("status", request.header, {"execution_state": state})

    def reply(self, channel: Channel, request: Message, content: dict[str, Any]) -> ChannelMessage:
        """Answer on the channel that the request came on; `status` is "ok" where `content` names none."""
        kind = reply_type(request.msg_type)
        body = content if "status" in content else {"status": "ok", **content}
        return ChannelMessage(channel, new_message(kind, body, session=self._session, parent=request.header))

    def error_reply(
        self, channel: Channel, request: Message, problem: Problem, *, count: int = 0
    ) -> ChannelMessage:
        """Answer that the request failed; `count` is the execution count of an execute request, 0 where it has none."""
        content = {"status": "error", **problem.content()}
        if request.msg_type == "execute_request":
            content |= {"execution_count": count, "user_expressions": {}, "payload": []}
        return self.reply(channel, request, content)

    def error(self, request: Message, problem: Problem) -> ChannelMessage:
        """The error as an output of a cell."""
        return self._iopub("error", request.header, problem.content())

    def stream(self, request: Message, name: Literal["stdout", "stderr"], text: str) -> ChannelMessage:
        return self._iopub("stream", request.header, {"name": name, "text": text})

    def display(
        self,
        request: Message,
        data: dict[str, Any],
        *,
        display_id: str | None = None,
        is_update: bool = False,
    ) -> ChannelMessage:
        """Something to see, by MIME type. What has a `display_id` may be replaced later by an update with the same."""
        kind = "update_display_data" if is_update else "display_data"
        transient = {"display_id": display_id} if display_id is not None else {}
        content = {"data": data, "metadata": {}, "transient": transient}
        return self._iopub(kind, request.header, content)

    def input_request(self, request: Message, prompt: str, *, password: bool) -> ChannelMessage:
        content = {"prompt": prompt, "password": password}
        return ChannelMessage(
            "stdin", new_message("input_request", content, session=self._session, parent=request.header)
        )

    def errand_request(self, request: Message, number: int) -> ChannelMessage:
        """Ask the kernel process on the host for line `number` of a cell, from 0. Between our own ends alone."""
        content = {"number": number}
        return ChannelMessage(
            "control", new_message("errand_request", content, session=self._session, parent=request.header)
        )

    def errand_reply(self, request: Message, number: int, problem: Problem | None) -> ChannelMessage:
        """Say how it went; None is well."""
        told = {"problem": problem.content()} if problem is not None else {}
        content = {"number": number, **told}
        return ChannelMessage(
            "control", new_message("errand_reply", content, session=self._session, parent=request.header)
        )

    def execute_input(self, request: Message, code: str, count: int) -> ChannelMessage:
        return self._iopub("execute_input", request.header, {"code": code, "execution_count": count})

    def copy_of_shutdown(self, request: Message, *, restart: bool) -> ChannelMessage:
        """What every other client is told of a shutdown."""
        return self._iopub("shutdown_reply", request.header, {"status": "ok", "restart": restart})

    def welcome(self, subscription: str) -> ChannelMessage:
        """What a new subscriber of iopub gets first. Source: JEP 65."""
        return self._iopub("iopub_welcome", EMPTY, {"subscription": subscription})

    def served(self, channel: Channel, request: Message, content: dict[str, Any]) -> list[ChannelMessage]:
        """Busy, the reply, idle: a request that is answered on the spot."""
        return [
            self.status(request, "busy"),
            self.reply(channel, request, content),
            self.status(request, "idle"),
        ]

    def refused(self, channel: Channel, request: Message, problem: Problem) -> list[ChannelMessage]:
        """Busy, what went wrong, idle: a request that cannot be served.

        A cell shows the error, too; a comm message, which has no reply, shows it as a line on stderr.
        """
        told = [self.status(request, "busy")]
        if request.msg_type == "execute_request":
            told.append(self.error(request, problem))
        if reply_type(request.msg_type):
            told.append(self.error_reply(channel, request, problem))
        else:
            told.append(self.stream(request, "stderr", f"{problem.name}: {problem.value}\n"))
        return [*told, self.status(request, "idle")]

    def _iopub(self, kind: str, parent: bytes, content: dict[str, Any]) -> ChannelMessage:
        return ChannelMessage("iopub", new_message(kind, content, session=self._session, parent=parent))

"""The dialect of Deno's kernel: what it says too early, does not say, or says wrongly, put right.

Its replies and its output take two ways through it, so output may come after the idle that should end it, or even as
that of the next run. So a run is over for others when a mark has come that was sent behind its output. On
the same occasion the kernel is asked for the last value, and why it could not run what it could not parse.
Source: Deno 2.9.8, its kernel's own source and what it sends.
"""

from __future__ import annotations

import json
import re
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from sandcell_kernel.dialects import INTERRUPTED, Heard, Lender, body_of, environ_of
from sandcell_kernel.wire import ChannelMessage, Message, new_message

if TYPE_CHECKING:
    from sandcell_kernel.wire import Channel

__all__ = ["VALUE_MIME", "DenoDialect"]

VALUE_MIME = (
    "application/vnd.sandcell.value+json"  # the plain value beside a result, for runs that ask for it
)

_UNSAID = "Execution failed"  # the kernel's whole answer for code that it could not parse, resolve, or was interrupted in
# In an error of code that was interrupted while Deno loaded a part of itself. That part is broken from then on.
_BROKEN = "Uncaught null"
_RESOLVE = "Deno did not say why it cannot be run, and it parses: npm: and remote imports need a network, or a cache that has them"
_OURS = 'Deno.jupyter[Symbol.for("sandcell")]'
_SESSION = "sandcell"
_MARK = "sandcell_settled"
# Read when this is imported: who speaks to kernels may not see this file any more by then.
_GREETING = Path(__file__).with_name("deno.js").read_text()
_PLACE = re.compile(r"_stdin\.ts:(\d+):(\d+)")
_SAID = re.compile(r"^(?:error: )?(?:(\w+): )?(.*)$")
_OWN_KINDS = ("status", "execute_input", "error")  # also of the request for the mark


class DenoDialect:
    """See the module. `language` is what code in this kernel is called: Deno itself always says TypeScript."""

    def __init__(self, language: Literal["javascript", "typescript"]) -> None:
        self.greeting = _GREETING
        self._language = language
        self._run: _Run | None = None
        self._lender = Lender(_lend, f"{_OURS}.link()")

    def tell(self, channel: Channel, message: Message) -> list[ChannelMessage]:
        if message.msg_type == "execute_request":
            self._run = _Run(message)
            return [*environ_of(message, _environ), *self._lender.ahead_of(message)]
        if message.msg_type == "interrupt_request" and self._run is not None:
            self._run.interrupted = True
        return []

    def hear(self, channel: Channel, message: Message) -> Heard:
        run = self._run
        if channel == "control":
            return Heard([ChannelMessage(channel, self._name(message)), _idle_after(message)], [])
        if run is None or message.parent_id != run.request.msg_id:
            return Heard([ChannelMessage(channel, self._name(message))], [])
        heard = run.hear(channel, message)
        if run.is_settled:
            self._run = None
        return heard

    def _name(self, message: Message) -> Message:
        if message.msg_type != "kernel_info_reply" or self._language == "typescript":
            return message
        content = body_of(message)
        info = {"name": "javascript", "mimetype": "text/javascript", "file_extension": ".js"}
        lexers = {"pygments_lexer": "javascript", "codemirror_mode": "javascript"}
        said = content.get("language_info")
        known = cast("dict[str, Any]", said) if isinstance(said, dict) else {}
        return message.with_content({**content, "language_info": {**known, **info, **lexers}})


class _Run:
    """One run: until its reply and its idle are there, then until the mark and what the kernel says about that are."""

    def __init__(self, request: Message) -> None:
        self.request = request
        self.interrupted = False
        self._wants_value = _wants_value(request)
        self._token = secrets.token_hex(8)
        self._reply: Message | None = None
        self._idle: Message | None = None
        self._result: Message | None = None
        self._owed: set[str] | None = None  # of the mark, once it was asked for
        self._told: dict[str, Any] = {}

    @property
    def is_settled(self) -> bool:
        return self._owed is not None and not self._owed

    def hear(self, channel: Channel, message: Message) -> Heard:
        shown = self._take(channel, message) if self._owed is None else self._settle(channel, message)
        if self._owed is None and self._reply is not None and self._idle is not None:
            self._owed = {"mark", "reply", "idle"}
            return Heard(shown, [ChannelMessage("shell", self._ask())])
        return Heard([*shown, *self._close()] if self.is_settled else shown, [])

    def _take(self, channel: Channel, message: Message) -> list[ChannelMessage]:
        kind = message.msg_type
        if kind == "execute_reply":
            # One that cannot go on does not answer, so that it is ended as one that does not stop.
            broken = self.interrupted and _BROKEN in str(body_of(message).get("evalue"))
            self._reply = None if broken else message
        elif kind == "status" and body_of(message).get("execution_state") == "idle":
            self._idle = message
        else:
            return self._show(channel, message)
        return []

    def _settle(self, channel: Channel, message: Message) -> list[ChannelMessage]:
        """Take what comes after the mark was asked for, by a request that looks like the run's own."""
        assert self._owed is not None
        kind, content = message.msg_type, body_of(message)
        if kind == "execute_reply":
            self._owed.discard("reply")
            if content.get("status") != "ok":
                self._owed.discard("mark")  # code of the user's broke what should have said it
        elif kind == _MARK and content.get("token") == self._token:
            self._told = content
            self._owed.discard("mark")
        elif kind in _OWN_KINDS:
            if content.get("execution_state") == "idle":
                self._owed.discard("idle")
        else:
            return self._show(channel, message)
        return []

    def _show(self, channel: Channel, message: Message) -> list[ChannelMessage]:
        if message.msg_type == _MARK:
            return []  # one that code of the user's has made up
        if message.msg_type == "error":
            message = _with_traceback(message)
        elif message.msg_type == "execute_result" and self._result is None:
            self._result = message  # its plain value comes with the mark
            return []
        return [ChannelMessage(channel, message)]

    @property
    def _is_unexplained(self) -> bool:
        assert self._reply is not None
        content = body_of(self._reply)
        return content.get("status") == "error" and content.get("evalue") == _UNSAID

    def _ask(self) -> Message:
        """Return the request for the mark. It has the run's own header: the kernel gives its output that of what runs."""
        call = f'settle("{self._token}")'
        if self._is_unexplained and not self.interrupted:
            code = json.dumps(body_of(self.request).get("code", ""))  # also a literal of JavaScript
            call = f'explain("{self._token}", {code})'
        content = {
            "code": f"await {_OURS}.{call}",
            "silent": True,
            "store_history": False,
            "allow_stdin": False,
        }
        asked = new_message("execute_request", content, session=_SESSION)
        return Message(self.request.header, content=asked.content)

    def _close(self) -> list[ChannelMessage]:
        assert self._reply is not None
        assert self._idle is not None
        shown = [ChannelMessage("iopub", self._valued(self._result))] if self._result is not None else []
        reply = _with_traceback(self._reply)
        if self._is_unexplained:
            told = self._explain()
            reply = reply.with_content({**body_of(reply), **told})
            shown.append(ChannelMessage("iopub", self._answer("error", told)))
        return [*shown, ChannelMessage("shell", reply), ChannelMessage("iopub", self._idle)]

    def _valued(self, result: Message) -> Message:
        if not self._wants_value or "value" not in self._told:
            return result
        content = body_of(result)
        data = content.get("data")
        known = cast("dict[str, Any]", data) if isinstance(data, dict) else {}
        return result.with_content({**content, "data": {**known, VALUE_MIME: self._told["value"]}})

    def _explain(self) -> dict[str, Any]:
        if self.interrupted:
            return {"ename": INTERRUPTED, "evalue": "", "traceback": []}
        assert self._reply is not None
        return _problem_of(str(self._told.get("problem", "")), body_of(self._reply).get("execution_count"))

    def _answer(self, msg_type: str, content: dict[str, Any]) -> Message:
        return new_message(msg_type, content, session=_SESSION, parent=self.request.header)


def _problem_of(said: str, count: object) -> dict[str, Any]:
    """Return the error that Deno's formatter has told of, a line of its own for where it is."""
    said = said.partition("Stack backtrace")[0].strip()
    if not said:
        return {"ename": "Error", "evalue": _RESOLVE, "traceback": [f"Error: {_RESOLVE}"]}
    first, *rest = said.splitlines()
    match = _SAID.match(first)
    name, value = (match[1] or "SyntaxError", match[2]) if match else ("SyntaxError", first)
    place = _PLACE.search(said)
    where = [f"Cell In[{count}], line {place[1]}, column {place[2]}"] if place else []
    shown = [line for line in rest if not _PLACE.search(line)]
    return {"ename": name, "evalue": value, "traceback": [*where, *shown, f"{name}: {value}"]}


def _with_traceback(message: Message) -> Message:
    """Return it with a traceback that says something: of what is thrown and no Error, the kernel's is empty."""
    content = body_of(message)
    if content.get("traceback") != [""]:
        return message
    return message.with_content(
        {**content, "traceback": [f"{content.get('ename')}: {content.get('evalue')}"]}
    )


def _idle_after(reply: Message) -> ChannelMessage:
    """Return the idle that the kernel leaves out of what it answers on control."""
    content = {"execution_state": "idle"}
    return ChannelMessage(
        "iopub", new_message("status", content, session=_SESSION, parent=reply.parent_header)
    )


def _environ(news: dict[str, Any]) -> str:
    return f"{_OURS}.environ({json.dumps(news)})"


def _lend(address: str, secret: str) -> str:
    return f"{_OURS}.link({json.dumps(address)}, {json.dumps(secret)})"


def _wants_value(request: Message) -> bool:
    wanted = request.extras.get("want")
    return isinstance(wanted, list) and "value" in wanted

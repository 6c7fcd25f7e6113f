"""What a front says and wants, in order: answers of ours, messages passed on, actions. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sandcell_kernel.answers import Answers, Problem, reply_type
from sandcell_kernel.wire import ChannelMessage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sandcell_kernel.actions import Action
    from sandcell_kernel.seen import Seen
    from sandcell_kernel.shell_output import StreamName
    from sandcell_kernel.wire import Channel, Message

__all__ = ["Outbox"]


class Outbox:
    """Collects actions until they are taken, and keeps replies for whoever asks again."""

    def __init__(self, session: str, seen: Seen) -> None:
        self._session = session
        self._answers = Answers(session)
        self._seen = seen
        self._actions: list[Action] = []
        self._says_idle = False

    @property
    def says_idle(self) -> bool:
        """Whether the end of a request is among what was collected."""
        return self._says_idle

    def take(self) -> list[Action]:
        """Return what was collected, and forget it."""
        actions, self._actions = self._actions, []
        self._says_idle = False
        return actions

    def do(self, action: Action) -> None:
        self._actions.append(action)

    def pass_on(self, channel: Channel, message: Message) -> None:
        """Send a message of the kernel as one of the front's session."""
        self.do(ChannelMessage(channel, message.with_session(self._session)))

    def busy(self, request: Message) -> None:
        self.do(self._answers.status(request, "busy"))

    def idle(self, request: Message, said: Message | None = None) -> None:
        """End a request; `said` is the kernel's own idle, where it sent one."""
        self._says_idle = True
        if said is not None:
            self.pass_on("iopub", said)
        else:
            self.do(self._answers.status(request, "idle"))

    def stream(self, request: Message, name: StreamName, text: str) -> None:
        self.do(self._answers.stream(request, name, text))

    def display(
        self, request: Message, data: dict[str, Any], *, display_id: str | None, is_update: bool
    ) -> None:
        self.do(self._answers.display(request, data, display_id=display_id, is_update=is_update))

    def ask(self, request: Message, prompt: str, *, password: bool) -> None:
        """Ask whoever runs the cell for a line."""
        self.do(self._answers.input_request(request, prompt, password=password))

    def send_out(self, request: Message, number: int) -> None:
        """Ask the kernel process on the host for a line of a cell."""
        self.do(self._answers.errand_request(request, number))

    def note(self, request: Message, text: str) -> None:
        """Tell a cell something on stderr, which batch tools keep."""
        self.stream(request, "stderr", f"[sandcell] {text}\n")

    def execute_input(self, request: Message, code: str, count: int) -> None:
        self.do(self._answers.execute_input(request, code, count))

    def error(self, request: Message, problem: Problem) -> None:
        self.do(self._answers.error(request, problem))

    def reply(self, channel: Channel, request: Message, content: dict[str, Any]) -> None:
        self._keep(request, self._answers.reply(channel, request, content))

    def pass_reply(self, channel: Channel, request: Message, reply: Message) -> None:
        """Send the kernel's reply to `request`."""
        self._keep(request, ChannelMessage(channel, reply.with_session(self._session)))

    def reply_ran(
        self, channel: Channel, request: Message, *, count: int, payload: Sequence[dict[str, Any]] = ()
    ) -> None:
        """Answer a cell that ran without an error; `payload` is what its front end is to do besides."""
        content: dict[str, Any] = {"execution_count": count, "user_expressions": {}, "payload": [*payload]}
        self.reply(channel, request, content)

    def reply_error(self, channel: Channel, request: Message, problem: Problem, *, count: int) -> None:
        self._keep(request, self._answers.error_reply(channel, request, problem, count=count))

    def reply_shutdown(self, channel: Channel, request: Message, *, restart: bool) -> None:
        """Answer a shutdown, and tell everyone else."""
        self.reply(channel, request, {"restart": restart})
        self.do(self._answers.copy_of_shutdown(request, restart=restart))
        self.idle(request)

    def serve(
        self, channel: Channel, request: Message, content: dict[str, Any], *, is_busy: bool = False
    ) -> None:
        """Answer a request on the spot; `is_busy`: busy was said for it already."""
        if not is_busy:
            self.busy(request)
        self.reply(channel, request, content)
        self.idle(request)

    def refuse(self, channel: Channel, request: Message, problem: Problem, *, is_busy: bool = False) -> None:
        """Say that a request is not served; a cell shows it, too."""
        busy, *told = self._answers.refused(channel, request, problem)
        if not is_busy:
            self.do(busy)
        for each in told:
            if each.channel == channel:
                self._keep(request, each)
            else:
                self.do(each)
        self.close(request)

    def close(self, request: Message) -> None:
        """Note that a request is over; one that is sent again is then answered at once."""
        self._seen.close(request)

    def repeat(self, channel: Channel, request: Message) -> None:
        """Answer a request again that was answered before; one that was not yet will be."""
        if not self._seen.is_closed(request):
            return
        reply = self._seen.reply(request)
        if reply is not None:
            self.do(reply)
        elif reply_type(request.msg_type):
            problem = Problem(name="LOST", value="this was done before; its reply is no longer kept")
            self.do(self._answers.error_reply(channel, request, problem))
        self.idle(request)

    def _keep(self, request: Message, reply: ChannelMessage) -> None:
        self._seen.close(request, reply)
        self.do(reply)

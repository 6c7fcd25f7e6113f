"""Contexts: live interpreters with state, each with a queue of what is to run in it."""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sandcell.api import ContextInfo, CreateContext
from sandcell.content import ResultLimits, content_of, take_flag, take_number
from sandcell.dispatch import Dispatcher
from sandcell.environment import merge_env
from sandcell.execution import ExecutionMachine
from sandcell.executions import Execution, Executions
from sandcell.kernel import Doom
from sandcell.languages import language_for
from sandcell.life import ProcessMaker, Workshop
from sandcell.memory import check_memory, warnings_of
from sandcell.questions import Questions
from sandcell.runs import Answer, Run, RunEnded, RunListener
from sandcell.speakers import Speakers
from sandcell.starter import KernelRequest
from sandcell_container.errors import ErrorCode, SandcellError, error
from sandcell_container.ids import check_id, new_id
from sandcell_kernel.wire import new_message

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType
    from typing import Literal, Self

    from sandcell.api import CreateExecution
    from sandcell.config import Config
    from sandcell.languages import Language
    from sandcell.starter import KernelStarter
    from sandcell_container.guest.masks import Masks
    from sandcell_kernel.wire import Channel, Message

__all__ = ["Context", "Contexts", "Execution", "Executions", "RunEnded", "RunListener"]

_SESSION = "sandcell"


class Context:
    """One interpreter, which starts when it is first needed, and again after it ended. `cwd` is absolute."""

    def __init__(
        self,
        context_id: str,
        language: Language,
        request: KernelRequest,
        workshop: Workshop,
        *,
        fresh_state: str | None = None,
    ) -> None:
        self.id = context_id
        self.language = language.name
        self.speaks = language
        self._cwd = request.cwd
        self._memory = request.memory
        self._warnings = warnings_of(request.memory, workshop.memory)
        self._config = workshop.config
        self._masks = workshop.masks
        self._created_at = time.time()
        self._deleted = False
        self._kernel_info: tuple[int, dict[str, Any]] | None = None  # by the number of the start
        self._dispatcher = Dispatcher(context_id, request, workshop, fresh_state=fresh_state)
        self.questions = Questions(self, timeout=workshop.config.inspect_timeout)

    def info(self) -> ContextInfo:
        dispatcher, life = self._dispatcher, self._dispatcher.life
        return ContextInfo(
            id=self.id,
            language=self.language,
            status=self._status(),
            cwd=self._cwd,
            created_at=self._created_at,
            pid=life.kernel.pid if life.kernel else None,
            execution_count=dispatcher.execution_count,
            queued=dispatcher.queued,
            starts=life.starts,
            memory=self._memory,
            warnings=(*self._warnings, *self._notes_of_kernel()),
            end=life.death.end if life.death and not life.kernel else None,
        )

    def _notes_of_kernel(self) -> list[str]:
        kernel = self._dispatcher.life.kernel
        return [kernel.note] if kernel is not None and kernel.note else []

    def inherit_env(self, changes: Mapping[str, str | None]) -> None:
        """Take what was changed of the sandbox's environment, before the next run; what it was given itself it keeps."""
        self._dispatcher.inherit_env(changes)

    def start_soon(self) -> None:
        """Start the interpreter, if it is not there and not on its way."""
        self._dispatcher.life.start_soon()

    async def ready(self) -> None:
        """Return when the interpreter is there.

        Raises:
            InvalidRequest (CWD_NOT_FOUND), Unavailable (START_FAILED, START_TIMEOUT): it cannot be started.
        """
        await self._dispatcher.life.ready()

    def submit(self, message: Message, execution: Execution, *, listener: RunListener | None = None) -> None:
        """Run an execute_request when its turn comes, sent byte for byte as it is; `listener` is told all of it.

        Raises:
            Gone (LOST): the context was deleted.
            Conflict (BUSY): something runs, and the execution asks not to wait.
            Limited (QUOTA_EXCEEDED): `config.max_queue` runs wait already.
                Each of these ends the execution, too.
        """
        body = content_of(message)
        silent = take_flag(body, "silent")
        run = Run(
            message,
            self._machine(silent=silent),
            self._dispatcher,
            origin=execution.origin,
            recorder=execution,
            listener=listener,
            timeout=execution.timeout,
            stops_on_error=body.get("stop_on_error") is not False and not silent,
            masks=self._masks,
        )
        execution.attach(run)
        problem = self._refusal(execution)
        if problem is not None:
            run.refuse(problem)
            raise problem
        self._dispatcher.enqueue(run, queue_timeout=execution.request.queue_timeout)

    def send(self, channel: Channel, message: Message, listener: RunListener) -> None:
        """Send anything but a run, without waiting for runs; what answers it goes to `listener`.

        An execute_request for a subshell is none: it has its own thread in the kernel, and no place in the queue.

        Raises:
            InvalidRequest (INVALID_ARGUMENT): it is an execute_request for the main shell.
            Gone (LOST): the context was deleted.
            Conflict (BUSY), Limited (QUOTA_EXCEEDED): the kernel does not get round to answering.
        """
        if message.msg_type == "execute_request" and message.head.subshell_id is None:
            raise error(ErrorCode.INVALID_ARGUMENT, "runs are submitted, so that they wait for their turn")
        self._check_alive()
        self._dispatcher.ask(channel, message, listener)

    async def kernel_info(self) -> dict[str, Any]:
        """Return the content of the kernel's kernel_info_reply; starts it where needed, asks once for each start.

        Raises:
            Gone (LOST, CONTEXT_DIED), Unavailable: there is no kernel that could answer.
        """
        self._check_alive()
        life = self._dispatcher.life
        await life.ready()
        if self._kernel_info is None or self._kernel_info[0] != life.starts:
            answer = Answer("kernel_info_reply")
            # Ours answers on control, also while a cell runs. Kernels of others may not know that request there.
            channel: Channel = "control" if "tickets" in self.speaks.features else "shell"
            self._dispatcher.ask(channel, new_message("kernel_info_request", {}, session=_SESSION), answer)
            self._kernel_info = (life.starts, await answer.content())
        return self._kernel_info[1]

    async def take_ticket(self, origin: str) -> int:
        """Return the next execution count, for a cell that runs elsewhere. Waits for its turn as a run does.

        Raises:
            Unsupported (UNSUPPORTED): the kernel of this language counts for itself.
            Gone (LOST, CONTEXT_DIED): the interpreter ended before.
            Limited (QUOTA_EXCEEDED): `config.max_queue` runs wait already.
            Unavailable (START_FAILED, START_TIMEOUT): it cannot be started.
        """
        self.speaks.check("tickets")
        count = take_number(await self.serve({"ticket": True}, origin=origin), "execution_count")
        if count is None:
            raise error(ErrorCode.INTERNAL, f"the kernel of {self.id} gave no execution count")
        return count

    async def serve(
        self, extras: dict[str, Any], *, origin: str, timeout: float | None = None, code: str = ""
    ) -> dict[str, Any]:
        """Have the runtime do what `extras` of a request's metadata ask, in its turn; return the reply's content.

        It runs no code of a cell and counts as none; `code` is for a kernel without our runtime. `timeout` in seconds,
        for its waiting and again for its doing.

        Raises:
            Gone (LOST, CONTEXT_DIED): the interpreter ended before. Conflict (BUSY): its turn did not come in time.
            Limited (QUOTA_EXCEEDED): `config.max_queue` runs wait already.
            Unavailable (START_FAILED, START_TIMEOUT): it cannot be started.
        """
        self._check_alive()
        problem = self._overload()
        if problem is not None:
            raise problem
        answer = Answer("execute_reply")
        message = new_message(
            "execute_request",
            {
                "code": code,
                "silent": not code,  # IRkernel tells no errors of code that it runs silently
                "store_history": False,
                "allow_stdin": False,
                "stop_on_error": False,
            },
            session=_SESSION,
            metadata={"sandcell": extras},
        )
        machine = self._machine(silent=True)
        run = Run(message, machine, self._dispatcher, origin=origin, listener=answer, timeout=timeout)
        self._dispatcher.enqueue(run, queue_timeout=timeout)
        return await answer.content()

    async def interrupt(self, *, who: str) -> None:
        """Interrupt the run that runs, as ^C does, and kill the interpreter where it is not heeded in time."""
        self._dispatcher.interrupt(who)

    async def restart(self, *, who: str) -> None:
        """End the interpreter with all that runs and waits, start another, and return when it is ready.

        Raises:
            Gone (LOST): the context was deleted.
            Unavailable (START_FAILED, START_TIMEOUT): another cannot be started.
        """
        self._check_alive()
        await self._dispatcher.restart(Doom(cause="replaced", who=who, reason=f"{who} restarted the context"))

    async def delete(self, *, who: str) -> None:
        """End everything in the context, for good."""
        self._deleted = True
        await self._dispatcher.close(Doom(cause="killed", who=who, reason=f"{who} deleted the context"))

    def abandon(self) -> None:
        """Begin to end everything in the context, because the sandbox ends."""
        self._deleted = True
        doom = Doom(cause="killed", reason="the sandbox is ending")
        self._dispatcher.drop_waiting(doom.cause, doom.reason)
        self._dispatcher.life.kill(doom)

    def _machine(self, *, silent: bool) -> ExecutionMachine:
        limits = ResultLimits(text=self._config.max_text_result, image=self._config.max_image_result)
        return ExecutionMachine(self.id, limits, silent=silent)

    def _status(self) -> Literal["starting", "idle", "busy", "dead", "deleted"]:
        life = self._dispatcher.life
        if self._deleted:
            return "deleted"
        if life.kernel is None:
            return "dead" if life.death is not None else "starting"
        return "busy" if self._dispatcher.running is not None else "idle"

    def _check_alive(self) -> None:
        if self._deleted:
            raise error(ErrorCode.LOST, f"the context {self.id} was deleted", hint="make another")

    def _refusal(self, execution: Execution) -> SandcellError | None:
        dispatcher = self._dispatcher
        running = dispatcher.running
        if self._deleted:
            return error(ErrorCode.LOST, f"the context {self.id} was deleted", hint="make another")
        if execution.request.on_busy == "reject" and (running is not None or dispatcher.queued):
            who = running.origin if running is not None else None
            return error(
                ErrorCode.BUSY,
                f"the context {self.id} runs something for {who or 'another'}",
                hint='wait for it, or leave out on_busy="reject"',
                details={"origin": who, "queued": dispatcher.queued},
            )
        return self._overload()

    def _overload(self) -> SandcellError | None:
        queued = self._dispatcher.queued
        if queued < self._config.max_queue:
            return None
        return error(
            ErrorCode.QUOTA_EXCEEDED,
            f"{queued} runs wait in the context {self.id} already",
            hint="wait for some of them, or use another context",
            details={"queued": queued},
        )


class Contexts:
    """All contexts of a guest. An async context manager; leaving it ends them and gives back what they hold.

    `env` is the whole environment that user code starts with, `workdir` the folder that relative ones start from,
    `memory` how many bytes each process of the sandbox may have, None where nobody knows. `masks` takes secrets out of what
    runs write.
    """

    def __init__(
        self,
        starter: KernelStarter,
        *,
        config: Config,
        env: Mapping[str, str],
        workdir: str,
        memory: int | None = None,
        why_fresh: Callable[[str], str | None] = lambda _: None,
        speakers: Speakers | None = None,
        masks: Masks | None = None,
    ) -> None:
        self.speakers = speakers or Speakers()
        self._starter = starter
        self._why_fresh = why_fresh
        self._config = config
        self._env = env
        self._workdir = workdir
        self._memory = memory
        self._masks = masks
        self._contexts: dict[str, Context] = {}
        self._workshop: Workshop

    async def __aenter__(self) -> Self:
        self._workshop = Workshop(
            maker=ProcessMaker(self._starter),
            config=self._config,
            memory=self._memory,
            masks=self._masks,
            tasks=await asyncio.TaskGroup().__aenter__(),
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        for context in self._contexts.values():
            context.abandon()
        await self._workshop.tasks.__aexit__(kind, exc, trace)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a user should know of how contexts are started here, and of those that are there."""
        told = [*self._starter.warnings]
        told += [note for context in self._contexts.values() for note in context.info().warnings]
        return tuple(dict.fromkeys(told))

    async def create(self, request: CreateContext) -> Context:
        """Make a context and start its interpreter; the same id gives the context that has it.

        Raises:
            InvalidRequest: UNKNOWN_LANGUAGE, INVALID_NAME, INVALID_ENV_NAME, INVALID_PATH, CWD_NOT_FOUND,
                INVALID_ARGUMENT: `memory`.
            Limited (QUOTA_EXCEEDED): there are too many contexts.
            Unavailable (START_FAILED, START_TIMEOUT): with what the interpreter said.
            Unsupported (UNSUPPORTED): its interpreter is not installed; the hint says how it can be.
        """
        await self.speakers.learn(request.language)
        context = self._make(request)
        try:
            await context.ready()
        except SandcellError:
            if self._contexts.get(context.id) is context and context.info().starts == 1:
                await self.delete(context.id)
            raise
        return context

    async def default(self, language: str) -> Context:
        """Return the sandbox's own context for a language, made when it is first asked for.

        Its interpreter is started at once, but not waited for. Raises InvalidRequest (UNKNOWN_LANGUAGE).
        """
        await self.speakers.learn(language)
        return self._default(language)

    def for_run(self, request: CreateExecution) -> Context:
        """Return the context that a run asks for, in a language that was learnt. Raises as `create`, and NotFound."""
        if request.fresh:
            if request.context is not None:
                raise error(
                    ErrorCode.INVALID_ARGUMENT, "a fresh context is none that exists: leave out one of both"
                )
            return self._make(CreateContext(language=request.language, id=new_id("ctx"), cwd=self._workdir))
        if request.context is None:
            return self._default(request.language)
        context = self.get(request.context)
        if self.speakers.language(request.language).name != context.language:
            raise error(ErrorCode.INVALID_ARGUMENT, f"the context {context.id} speaks {context.language}")
        return context

    def get(self, context_id: str) -> Context:
        """Return a context. Raises NotFound where there is none of this id."""
        context = self._contexts.get(context_id)
        if context is None:
            raise error(
                ErrorCode.NOT_FOUND,
                f"there is no context {context_id[:80]!r}",
                hint=f"there are: {', '.join(sorted(self._contexts)[:20]) or 'none'}",
                details={"kind": "context", "id": context_id[:80]},
            )
        return context

    async def get_or_create(self, context_id: str, language: str | None) -> Context:
        """Return the context of this id, made where there is none: of `language`, of the language that the id names, or
        of Python.

        Raises as `create`, and:
            InvalidRequest (INVALID_ARGUMENT): there is one, and it speaks another language.
        """
        known = self._contexts.get(context_id)
        if known is None:
            made = language or language_for(context_id)
            return await self.create(CreateContext(id=context_id, language=made, cwd=self._workdir))
        if language is not None:
            await self.speakers.learn(language)
        if language is not None and self.speakers.language(language).name != known.language:
            raise error(
                ErrorCode.INVALID_ARGUMENT,
                f"the context {context_id} speaks {known.language}",
                hint="leave out the language, or choose another name",
            )
        await known.ready()
        return known

    def list(self) -> list[Context]:
        return list(self._contexts.values())

    def inherit_env(self, changes: Mapping[str, str | None]) -> None:
        """Hand on what was changed of the sandbox's environment to all of them: before their next run."""
        for context in self._contexts.values():
            context.inherit_env(changes)

    async def delete(self, context_id: str, *, who: str = "sdk") -> None:
        """End a context and all that runs in it. Raises NotFound."""
        context = self.get(context_id)
        del self._contexts[context_id]
        await context.delete(who=who)

    def delete_after(self, execution: Execution, context: Context) -> None:
        """Delete a context when a run has ended."""
        self._workshop.tasks.create_task(self._delete_after(execution, context))

    async def _delete_after(self, execution: Execution, context: Context) -> None:
        await execution.wait()
        if self._contexts.get(context.id) is context:
            await self.delete(context.id, who=execution.origin)

    def _default(self, language: str) -> Context:
        spoken = self.speakers.language(language)
        name = spoken.own_context
        context = self._contexts.get(name)
        if context is None:
            why = self._why_fresh(name)
            wanted = CreateContext(language=spoken.name, id=name, cwd=self._workdir)
            context = self._make(wanted, fresh_state=why)
            context.start_soon()
        return context

    def _make(self, request: CreateContext, *, fresh_state: str | None = None) -> Context:
        context_id = check_id(request.id, what="id of a context") if request.id else new_id("ctx")
        known = self._contexts.get(context_id)
        if known is not None:
            return known
        if len(self._contexts) >= self._config.max_records:
            raise error(
                ErrorCode.QUOTA_EXCEEDED, f"there are {len(self._contexts)} contexts", hint="delete some"
            )
        language = self.speakers.language(request.language)
        if request.memory is not None:
            language.check("memory")
        shop = self._workshop
        if (maker := self.speakers.maker(language)) is not None:
            shop = replace(shop, maker=maker)
        context = self._contexts[context_id] = Context(
            context_id, language, self._kernel_request(request, language), shop, fresh_state=fresh_state
        )
        return context

    def _kernel_request(self, request: CreateContext, language: Language) -> KernelRequest:
        env = merge_env(self._env, request.env)
        cwd = os.path.join(self._workdir, request.cwd)
        # A message may have as much of buffers as of JSON.
        return KernelRequest(
            env=env,
            cwd=cwd,
            max_frame=self._config.max_message // 2,
            memory=check_memory(request.memory, least=language.least_memory, who=language.name),
            own=frozenset(request.env or ()),
        )

"""What is said to a bash that takes commands as data, and what it answers. Pure: bytes in, bytes out.

Lines of ours go to bash's standard input, a socket; so do plans, values and commands, which `read` takes from there
up to a NUL. `shell` says why it is done so. A plan is text of ours that bash runs between reading and running a
command: it reads values of its own. The only words from outside in any line are names of variables, and they are
checked here.

`\\builtin`: neither an alias nor a function of the user's can stand in between.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sandcell_container.errors import ErrorCode, error

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from sandcell_container.errors import SandcellError

__all__ = [
    "CLOSED",
    "FIRST_LINES",
    "INTERRUPTED",
    "OUR_FUNCTIONS",
    "Answer",
    "Begun",
    "Dropped",
    "Reading",
    "Refused",
    "Reported",
    "ShellOrder",
    "Taking",
    "check_names",
    "encode_order",
    "head_of",
    "not_run",
    "order_bytes",
    "parse_answer",
    "reading_lines",
    "refusal_of",
    "report_lines",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellOrder:
    """One command as bytes without NUL, and what holds for it.

    `asks` are FIFOs by which `read`, where the command has no input, asks for a line: where its words go, and where the line
    comes from. `cwd`, `env` and `stdin` (the path of a file) are for this command alone; of `cwd` and `env` stays what the command
    itself has changed. `lasting` are variables for the session; so are those of the sandbox, which are `inherited`: the
    session keeps those that are read-only in it. A value of None takes the variable away. `changes`: no command is run, and all
    of the variables for the session are changed, or none.
    """

    command: bytes
    cwd: bytes | None = None
    env: tuple[tuple[str, bytes | None], ...] = ()
    inherited: tuple[tuple[str, bytes | None], ...] = ()
    lasting: tuple[tuple[str, bytes | None], ...] = ()
    stdin: bytes | None = None
    asks: tuple[bytes, bytes] | None = None
    changes: bool = False


INTERRUPTED = 130
"""The status of a command that SIGINT has ended, or did not let begin."""

# --- lines

# Bash would heed the user's prompts, and what is to run before one, for each line of ours: they are there while a command
# runs, and hidden on its line, or behind it where bash has dropped that one and with it the status. So are functions of the
# user's named as the two words by which our lines find bash's own commands; they come back in front of the command's text.
# Where a command has closed what bash keeps above 9, its input stays the command's, and that is no socket: bash is of no use
# any more, and would say so of each line of ours in the command's stderr. Most often it keeps ours at 10.
# 61 and 62: above what bash takes for itself, and below the least `ulimit -n` that is of use.
FIRST_LINES = rb"""exec 61>&1 62>&2 >/dev/null 2>&1; PS0= PS1= PS2=; unset PROMPT_COMMAND; set +H +o history
__sandcell_own= __sandcell_functions=
__sandcell_lose() { \exec 2>/dev/null; [[ -S /dev/fd/10 ]] && \builtin printf '! closed\0' >&10; \kill -KILL "$$"; }
__sandcell_hide() {
[[ -S /dev/fd/0 ]] || __sandcell_lose
if \declare -F builtin || \declare -F command; then
__sandcell_functions=$(\declare -f builtin command) || [[ x ]]
\unset -f builtin command
__sandcell_own='{ __sandcell_restore "$?"; } 2>/dev/null; '; fi
__sandcell_ps=":;${PS0+${PS0@A};}${PS1+${PS1@A};}${PS2+${PS2@A};}${PROMPT_COMMAND[@]+${PROMPT_COMMAND[@]@A}}"
\builtin unset -v PROMPT_COMMAND || \builtin :; PS0= PS1= PS2=; }
__sandcell_restore() { __sandcell_own=; \builtin eval "$__sandcell_functions"; \return "$1"; }
__sandcell_late() { [[ ${__sandcell_ps-} ]] || { __sandcell_status=$__sandcell_last; __sandcell_hide; }; }
__sandcell_renew() { __sandcell_status=130 __sandcell_idle=1 __sandcell_refused= __sandcell_in=/dev/null; }
"""

CLOSED = "closed"
OUR_FUNCTIONS = (b"__sandcell_last", *re.findall(rb"^(__sandcell_\w+)\(\)", FIRST_LINES, re.MULTILINE))
"""What a session has of ours among the user's functions."""

# An order stands between the two lines of a here-document. Where SIGINT has made bash drop the line that was to read it,
# bash takes the order for lines, and so for a here-document of `:`.
_READING = (
    rb"""\builtin printf '< %(number)d\0' >&0; IFS= \builtin read -r __sandcell_value; """
    rb"""\builtin printf ': %(number)d %%s\0' "$__sandcell_value" >&0; """
    rb"""__sandcell_renew; """
    rb"""IFS= \builtin read -r -d '' __sandcell_plan; \builtin eval "$__sandcell_plan"; """
    rb"""IFS= \builtin read -r -d '' __sandcell_code; """
    rb"""IFS= \builtin read -r __sandcell_value; IFS= \builtin read -r __sandcell_value; """
    rb"""\builtin printf '> %(number)d\0' >&0; """
)
# The user's prompts come back with the command; see `FIRST_LINES`.
_SHOW = rb"""\builtin eval "${__sandcell_ps-}" || \builtin :; __sandcell_ps=; """
# `{ exec; } 2>`: not traced. One line, so that the numbers of a command's lines are its own.
_RUNNING = (
    rb"""\builtin [ "$__sandcell_refused" ] || \builtin . /dev/fd/9 9<<<'"""
    rb"""{ __sandcell_idle=; \exec 9<&-; } 2>/dev/null; %(last)s\builtin eval -- "$__sandcell_own$__sandcell_code"' """
    rb"""<"$__sandcell_in" >&61 2>&62 61>&- 62>&-; __sandcell_status=$?; __sandcell_hide"""
)
# The status of the command before has to be in $?, but neither `set -e` nor an ERR trap may act on it again: `||`.
_LAST = rb"""__sandcell_last() { \builtin return %d; }; { __sandcell_last; } 2>/dev/null || """
# SIGINT makes bash drop the line at hand: the last lines then tell that nothing reads any more.
# `eval )` is a syntax error on purpose. After one in a command substitution, bash 5.2 counts its open quotes from -1 and
# writes in front of its own heap; another one sets it right. No quote may stand on the lines up to there. Bare, or after
# `builtin`, which forgets the `||` behind it, it would end a shell with `set -e`.
_BEHIND = (
    b"\n__sandcell_last=$?; __sandcell_late\n"
    rb"\command eval \) || \builtin :"
    b"\n" + 2 * (rb"""\builtin printf '? %(number)d\0' >&0""" + b"\n")
)
# The second time by another way to printf, where the user's code stands in the first one.
_REPORTS = tuple(
    rb"\%s" % verb
    + rb""" printf '= %d %%d %%d %%s\0' "$__sandcell_status" "$((1 - ${__sandcell_idle:-0}))" "${PWD-}" >&0"""
    + b"\n"
    for verb in (b"builtin", b"command")
)


def reading_lines(number: int, *, before: int) -> bytes:
    """Return the lines that make bash read one order and run it; `before` is the status of the command before."""
    last = _LAST % before if before else b""
    return (_READING + _SHOW + _RUNNING + _BEHIND) % {b"number": number, b"last": last}


def report_lines(order: ShellOrder, number: int) -> bytes:
    """Return the lines that take back what held for `order` alone, and report how it ended as `number` and `number + 1`.

    Twice is as good as once: what has been taken back is left alone.
    """
    undo = b"".join(_undo(order))
    return b"".join(undo + report % (number + at) for at, report in enumerate(_REPORTS))


# --- orders and their plans

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_VALUE = rb"""IFS= \builtin read -r -d '' __sandcell_value; """
_REFUSE = rb"""{ __sandcell_refused=1; \builtin printf '! %s\0' >&0; }"""
_REFUSE_NAME = rb"""{ __sandcell_undo[%(at)d]=done __sandcell_refused=1; \builtin printf '! readonly %(name)s\0' >&0; }"""
# Unset first: a variable may be an array, a number or read-only.
_SET = rb"""if \builtin unset -v %(name)s; then \builtin export %(name)s="$__sandcell_value"; else %(refuse)s; fi; """
_UNSET = rb"""\builtin unset -v %(name)s || %(refuse)s; """
# `@A` is what bash itself has to say to make the variable again; `+`, as `set -u` refuses what is not set.
_SAVE = rb"""__sandcell_saved[%(at)d]=${%(name)s[@]+${%(name)s[@]@A}} __sandcell_undo[%(at)d]=; """
_CHECK = rb"""[[ ${%(name)s[@]+${%(name)s[@]@a}} != *r* ]] || %(refuse)s; """
_UNLESS_REFUSED = rb"""\builtin [ "$__sandcell_refused" ] || { %s}; """
_RUN_NOTHING = rb"""__sandcell_refused=1; """
_NOTE = rb"""__sandcell_given[%(at)d]=${%(name)s+${%(name)s@A}}; """
_CWD = (
    _VALUE + rb"""__sandcell_pwd=${PWD-} __sandcell_oldpwd=${OLDPWD-} __sandcell_there=; """
    rb"""if \builtin [ -d "$__sandcell_value" ]; """
    rb"""then \builtin cd -- "$__sandcell_value" && __sandcell_there=$PWD || %(forbidden)s; else %(missing)s; fi; """
)
# `function`: an alias of the name is not looked at. Where there is no question, it is bash's own `read` and nothing else.
_ASKS = (
    rb"""IFS= \builtin read -r -d '' __sandcell_questions; IFS= \builtin read -r -d '' __sandcell_answers; __sandcell_asks=1; """
    rb"""\builtin declare -F read >/dev/null || function read { """
    rb"""if \builtin [ "${__sandcell_asks-}" ] && \builtin [ /dev/fd/0 -ef /dev/null ] && [[ " $* " != *" -u"* ]]; then """
    rb"""{ \builtin printf '%s\0' "$#" "$@" >"$__sandcell_questions"; } 2>/dev/null; """
    rb"""\builtin read "$@" <"$__sandcell_answers"; \builtin set -- "$?"; """
    rb"""{ \builtin printf '.\0' >"$__sandcell_questions"; } 2>/dev/null; \builtin return "$1"; fi; \builtin read "$@"; }; """
)
_UNDO_ASKS = rb"""__sandcell_asks=; """
_STDIN = rb"""IFS= \builtin read -r -d '' __sandcell_in; """


def order_bytes(text: str, what: str) -> bytes:
    """Return the bytes of `text`, as PEP 383 has it: lone surrogates stand for bytes that are not UTF-8.

    Raises:
        InvalidRequest (INVALID_ARGUMENT): it holds a NUL character, or is no text.
    """
    if "\0" in text:
        raise error(ErrorCode.INVALID_ARGUMENT, f"{what} holds a NUL character", hint="bash cannot read one")
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as problem:
        raise error(ErrorCode.INVALID_ARGUMENT, f"{what} is no text: {problem.reason}") from None


def head_of(mark: bytes) -> bytes:
    """Return the first line of an order that ends with `mark`."""
    return b": <<'%s'" % mark


def encode_order(order: ShellOrder, mark: bytes) -> bytes:
    """Return what is sent when bash reads an order: its plan, the values that the plan reads, the command.

    `mark` is a word that no order holds.
    """
    plan, values = list[bytes](), list[bytes]()
    for name, value in order.inherited:
        plan.append(_change(name, value, 0, values, refuse=rb"\builtin :"))
    if order.changes:
        plan += _all_or_none(order.lasting, values)
    else:
        plan += [_change(name, value, len(order.env), values) for name, value in order.lasting]
    if order.cwd is not None:
        plan.append(_CWD % {b"missing": _REFUSE % b"missing", b"forbidden": _REFUSE % b"forbidden"})
        # Not looked up in CDPATH, and no option.
        values.append(order.cwd if order.cwd.startswith(b"/") else b"./" + order.cwd)
    for at, (name, value) in enumerate(order.env):
        fields: dict[bytes, bytes | int] = {b"at": at, b"name": name.encode()}
        plan += [_SAVE % fields, _change(name, value, at, values), _NOTE % fields]
    if order.stdin is not None:
        plan.append(_STDIN)
        values.append(order.stdin)
    if order.asks is not None:
        plan.append(_ASKS)
        values += order.asks
    words = b"\0".join((b"".join(plan), *values, order.command, b""))
    return b"%s\n%s\n%s\n" % (head_of(mark), words, mark)


def _change(
    name: str, value: bytes | None, at: int, values: list[bytes], *, refuse: bytes | None = None
) -> bytes:
    fields: dict[bytes, bytes | int] = {b"at": at, b"name": name.encode()}
    fields[b"refuse"] = _REFUSE_NAME % fields if refuse is None else refuse
    if value is None:
        return _UNSET % fields
    values.append(value)
    return (_VALUE + _SET) % fields


def _all_or_none(changes: Iterable[tuple[str, bytes | None]], values: list[bytes]) -> Iterator[bytes]:
    """Yield what looks for read-only variables first. Every value is read, whether or not it is of use."""
    named = [({b"at": 0, b"name": name.encode()}, value) for name, value in changes]
    for fields, _ in named:
        fields[b"refuse"] = _REFUSE_NAME % fields
        yield _CHECK % fields
    for fields, value in named:
        if value is not None:
            values.append(value)
            yield _VALUE
        yield _UNLESS_REFUSED % ((_UNSET if value is None else _SET) % fields)
    yield _RUN_NOTHING


# What was taken back has to be marked before it is begun: SIGINT may come in between, and then all of it runs again.
_UNDO = (
    rb"""\builtin [ "${__sandcell_undo[%(at)d]}" ] || { """
    rb"""\builtin [ "${%(name)s+${%(name)s@A}}" = "${__sandcell_given[%(at)d]}" ] """
    rb"""&& __sandcell_undo[%(at)d]=now || __sandcell_undo[%(at)d]=done; }; """
    rb"""\builtin [ "${__sandcell_undo[%(at)d]}" = done ] || { """
    rb"""\builtin unset -v %(name)s || \builtin :; \builtin eval "${__sandcell_saved[%(at)d]}"; __sandcell_undo[%(at)d]=done; }; """
)
_UNDO_CWD = (
    rb"""if \builtin [ "$__sandcell_there" ] && \builtin [ "${PWD-}" = "$__sandcell_there" ] """
    rb"""&& \builtin cd -- "$__sandcell_pwd"; """
    rb"""then if \builtin [ "$__sandcell_oldpwd" ]; """
    rb"""then OLDPWD=$__sandcell_oldpwd; else \builtin unset -v OLDPWD; fi; fi; __sandcell_there=; """
)


def _undo(order: ShellOrder) -> Iterator[bytes]:
    for at, (name, _) in enumerate(order.env):
        yield _UNDO % {b"at": at, b"name": name.encode()}
    if order.cwd is not None:
        yield _UNDO_CWD
    if order.asks is not None:
        yield _UNDO_ASKS


def check_names(env: Mapping[str, object]) -> None:
    """Refuse what cannot be a variable of bash, as names stand in our lines.

    Raises:
        InvalidRequest (INVALID_ENV_NAME)
    """
    for name in env:
        if _NAME.fullmatch(name) is None:
            raise error(
                ErrorCode.INVALID_ENV_NAME,
                f"{name[:80]!r} cannot be a variable",
                hint="letters, digits and _, not beginning with a digit",
            )


# --- answers


@dataclass(frozen=True, slots=True)
class Reading:
    """Bash reads an order."""

    number: int


@dataclass(frozen=True, slots=True)
class Taking:
    """It has begun to read the order, with `head` as its first line."""

    number: int
    head: bytes


@dataclass(frozen=True, slots=True)
class Begun:
    """It has read the order, and runs the command, unless it refused."""

    number: int


@dataclass(frozen=True, slots=True)
class Dropped:
    """It reads no order any more: it has run one, or SIGINT came. An order that it was not taking does nothing."""

    number: int


@dataclass(frozen=True, slots=True)
class Refused:
    """The order cannot hold; its command is not run. CLOSED as the reason: it has run, and has cost bash its descriptors."""

    reason: str


@dataclass(frozen=True, slots=True)
class Reported:
    """It has run the command: `ran` tells whether that began at all. `cwd` is its folder as it says."""

    number: int
    status: int
    ran: bool
    cwd: bytes


Answer = Reading | Taking | Begun | Dropped | Refused | Reported

_ANSWER = re.compile(
    rb"([<>?]) (\d{1,18})|: (\d{1,18}) (.{0,200})|! ([\w ]{1,200})|= (\d{1,18}) (\d{1,3}) ([01]) (.{0,4096})",
    re.DOTALL,
)
_BY_MARK: dict[bytes, type[Reading | Begun | Dropped]] = {b"<": Reading, b">": Begun, b"?": Dropped}


def parse_answer(said: bytes) -> Answer | None:
    """Return what bash said between two NULs; None where it is none of our answers, and user code wrote it."""
    found = _ANSWER.fullmatch(said)
    if found is None:
        return None
    mark, number, taken, head, reason, report, status, ran, cwd = found.groups()
    if mark is not None:
        return _BY_MARK[mark](int(number))
    if taken is not None:
        return Taking(int(taken), head)
    if reason is not None:
        return Refused(reason.decode("ascii", "replace"))
    return Reported(int(report), int(status) & 0xFF, ran == b"1", cwd)


def refusal_of(reason: str, order: ShellOrder) -> SandcellError:
    """Return what bash refused as the error that a start of a process would have."""
    folder = (order.cwd or b"").decode(errors="surrogateescape")[:200]
    match reason.split():
        case ["missing"]:
            hint = "make it first, or name another cwd"
            return error(ErrorCode.CWD_NOT_FOUND, f"there is no folder {folder!r}", hint=hint)
        case ["forbidden"]:
            hint = "name another cwd"
            return error(ErrorCode.PERMISSION_DENIED, f"the user may not enter {folder!r}", hint=hint)
        case ["readonly", name]:
            hint = "leave it out, or restart the session"
            return error(ErrorCode.INVALID_ENV_NAME, f"{name[:80]!r} is read-only in the session", hint=hint)
        case _:
            return not_run()


def not_run() -> SandcellError:
    """Return the error of a command that bash could not even begin."""
    return error(
        ErrorCode.START_FAILED,
        "bash could not begin the command",
        hint="its input or a temporary file could not be opened: look at the space in /tmp and at home",
    )

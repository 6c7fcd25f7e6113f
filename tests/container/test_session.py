"""Sessions with real bashes, started by real spawners in both modes."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from typing import TYPE_CHECKING

import pytest
from tests.container.session_house import Settings, begun, boot, open_sessions, outcome, run

from sandcell_container.errors import ErrorCode, SandcellError
from sandcell_container.guest.session_command import CommandOrder
from sandcell_container.journal import LATE, Kind

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.container.conftest import Place

    from sandcell_container.guest.session import Session, Sessions


@pytest.fixture
async def sessions(place: Place) -> AsyncIterator[Sessions]:
    async with open_sessions(place) as opened:
        yield opened


@pytest.fixture
async def session(sessions: Sessions) -> Session:
    return await sessions.get_or_create("s")


async def test_state_stays(session: Session) -> None:
    await run(session, "cd /; x=5; export y=6; f() { echo F$x; }; alias ll='echo LL'; declare -A m=([a]=1)")
    await run(session, "set -o noglob; shopt -s nullglob; trap 'echo usr' USR1; exec 7</dev/null")
    done = await run(
        session, "pwd; echo $x $(printenv y) ${m[a]} *; f; ll; kill -USR1 $$; ls -l /proc/$$/fd/7 | wc -l"
    )
    assert done.out == b"/\n5 6 1 *\nF5\nLL\nusr\n1\n"


async def test_a_slow_start_keeps_nobody_waiting_but_who_asks_for_the_same(
    sessions: Sessions, place: Place
) -> None:
    gate = place.outside / "gate"
    os.mkfifo(gate)
    os.chmod(gate, 0o644)
    await sessions.get_or_create("there")
    (place.outside / ".bashrc").write_text('[ "$SLOW" ] && read -r _ < ~/gate\n')
    slow = place.env | {"HOME": place.workdir, "SLOW": "1"}
    starting = [asyncio.ensure_future(sessions.create("slow", env=slow)) for _ in range(2)]
    async with asyncio.timeout(20.0):
        assert (await sessions.create("there")).status == "idle"
        assert (await sessions.create("quick")).status == "idle"
        assert not any(each.done() for each in starting)
        await asyncio.to_thread(gate.write_text, "\n")
        first, second = await asyncio.gather(*starting)
    assert first is second


async def test_output_is_exact_and_apart(session: Session) -> None:
    done = await run(session, r"printf 'a\0\377'; printf 'e' >&2")
    assert (done.out, done.err, done.code) == (b"a\0\xff", b"e", 0)
    assert (await run(session, "echo '漢' \udcff")).out == "漢 ".encode() + b"\xff\n"


async def test_the_status_of_the_last_command_is_there_for_the_next(session: Session) -> None:
    assert (await run(session, "(exit 3)")).code == 3
    assert (await run(session, "echo $?")).out == b"3\n"
    assert (await run(session, "echo $?")).out == b"0\n"


@pytest.mark.parametrize(
    "broken",
    ["echo 'unbalanced", 'echo "', "if true; then", "echo $(", ")", "cat <<EOF\nx", "f() {", "((", "\\"],
)
async def test_a_syntax_error_is_the_commands_own(session: Session, broken: str) -> None:
    await run(session, "x=kept")
    done = await run(session, f"echo before\n{broken}")
    assert done.out.startswith(b"before\n")
    after = await run(session, "echo $x")
    assert (after.out, after.err) == (b"kept\n", b"")


async def test_a_heredoc_and_many_lines(session: Session) -> None:
    done = await run(session, "cat <<'EOF'\n$x 'y\nEOF\nfor i in 1 2\ndo echo $i\ndone # end")
    assert done.out == b"$x 'y\n1\n2\n"


async def test_errors_name_their_own_lines(session: Session) -> None:
    assert b"line 3" in (await run(session, "echo 1\necho 2\n)")).err


async def test_the_quiet_things_stay_quiet(session: Session) -> None:
    done = await run(session, "true & wait; PS1='prompt '; PROMPT_COMMAND='echo prompt'; set -v")
    assert (done.out, done.err) == (b"", b"")
    assert (await run(session, "set +v; set -x; :; set +x")).err.endswith(b"+ :\n+++ set +x\n")
    assert (await run(session, "trap 'echo debug' DEBUG; :; trap - DEBUG")).out.count(b"debug") <= 3


async def test_errexit_and_err_traps_see_each_failure_once(session: Session) -> None:
    await run(session, "trap 'echo failed' ERR")
    await run(session, "false || true; false && true")
    assert (await run(session, "echo $?; trap - ERR")).out == b"1\n"


async def test_a_command_has_no_other_descriptor_and_no_input(session: Session) -> None:
    done = await run(session, "cat; readlink /proc/self/fd/0; ls /proc/self/fd")
    assert done.out == b"/dev/null\n0\n1\n2\n3\n"  # 3 is the folder that ls reads


async def test_exit_gives_output_code_and_the_news(sessions: Sessions, session: Session) -> None:
    done = await run(session, "trap 'echo bye' EXIT; sleep 50 & echo hi; exit 3; echo no")
    assert (done.out, done.code, done.end.end.cause) == (b"hi\nbye\n", 3, "exited")
    assert (done.end.end.state, done.end.leftovers) == ("lost", 1)
    with pytest.raises(SandcellError) as caught:
        session.run(CommandOrder(text="echo"))
    assert caught.value.code == ErrorCode.SESSION_ENDED
    again = await sessions.get_or_create("s")
    assert (await run(again, "echo new $x")).out == b"new\n"


async def test_set_e_ends_the_session_as_it_ends_a_shell(session: Session) -> None:
    done = await run(session, "set -e; echo a; false; echo b")
    assert (done.out, done.code, done.end.end.state) == (b"a\n", 1, "lost")


async def test_set_e_stays_and_later_commands_run(session: Session) -> None:
    await run(session, "set -e")
    assert (await run(session, "false || echo or")).out == b"or\n"
    assert (await run(session, "echo on; false")).end.end.state == "lost"


async def test_a_syntax_error_does_not_spoil_the_heap_of_bash(session: Session) -> None:
    """bash 5.2 writes in front of it when quotes follow one in a command substitution, and dies where they are deep."""
    deep = "x"
    for _ in range(60):
        deep = f'"${{y:-{deep}}}"'
        await run(session, "echo $(")
        assert (await run(session, f"echo {deep}")).out == b"x\n"


async def test_exec_replaces_the_shell_and_its_end_is_the_sessions(session: Session) -> None:
    done = await run(session, "exec sh -c 'echo other; exit 4'")
    assert (done.out, done.code, done.end.end.state) == (b"other\n", 4, "lost")


async def test_a_killed_shell_is_told_as_that(session: Session) -> None:
    done = await run(session, "echo x; kill -9 $$")
    assert (done.out, done.end.signal, done.end.end.cause) == (b"x\n", 9, "signaled")


async def test_background_jobs_go_on_and_hold_nothing(session: Session, place: Place) -> None:
    done = await run(session, "{ until [ -e go ]; do sleep 0.01; done; touch said; } & echo now")
    assert (done.out, done.code) == (b"now\n", 0)
    (place.outside / "go").touch()
    assert (await run(session, "wait; ls")).out == b"go\nsaid\n"


async def test_what_a_job_says_between_commands_is_late_output_of_the_last(session: Session) -> None:
    command = session.run(CommandOrder(text="{ read; echo late; } < <(sleep 0.2) & true"))
    await outcome(command)
    journal = command.journal
    assert journal.ended
    while journal.read(journal.start)[-1].kind == Kind.ENDED:
        await asyncio.wait_for(journal.changed(), 10)
    entry = journal.read(journal.start)[-1]
    assert (entry.kind, entry.flags, entry.data) == (Kind.STDOUT, LATE, b"late\n")


@pytest.mark.parametrize(
    "command",
    [
        "echo on; while :; do :; done",
        "echo on; sleep 50; echo after",
        "(echo on; sleep 50; echo in); echo after",
        "sh -c 'echo on; exec sleep 50'; echo after",
        "f() { sh -c 'echo on; exec sleep 50'; echo in; }; f; echo after",
        "(echo on; while :; do :; done); echo after",
        "echo on; while :; do sleep 0.01; done; echo after",
        "sh -c 'echo on; exec sleep 50' | cat; echo after",
        "y=$(echo on >&2; while :; do :; done); echo after",
        "sleep 20 & echo on; wait; echo after",
        "echo on; read y < <(sleep 50); echo after",
    ],
)
async def test_an_interrupt_ends_the_command_and_not_the_shell(session: Session, command: str) -> None:
    await run(session, "x=kept")
    running = session.run(CommandOrder(text=command))
    await begun(running, b"on\n")
    await session.interrupt()
    done = await outcome(running)
    assert (done.out + done.err, done.code, done.end.end.cause, done.end.end.state) == (
        b"on\n",
        130,
        "interrupted",
        "kept",
    )
    assert (await run(session, "echo $x")).out == b"kept\n"


async def test_a_program_that_takes_its_time_is_interrupted_once(session: Session) -> None:
    slow = "trap 'echo caught; sleep 0.5; exit 3' INT; echo on; while :; do sleep 0.01; done"
    running = session.run(CommandOrder(text=f'exec 3>&1; sh -c "{slow}"; echo $?'))
    await begun(running, b"on\n")
    await session.interrupt()
    assert (await outcome(running)).out.count(b"caught\n") == 1


async def test_interrupts_at_any_moment_lose_nothing(session: Session) -> None:
    for number in range(40):
        running = session.run(CommandOrder(text=f"echo {number}"))
        for _ in range(number % 7):
            await asyncio.sleep(0)
        await session.interrupt()
        done = await outcome(running)
        assert done.out in (b"", b"%d\n" % number)
    assert (await run(session, "echo alive")).out == b"alive\n"


async def test_an_interrupt_without_a_command_does_nothing(session: Session) -> None:
    await session.interrupt()
    assert (await run(session, "echo x")).out == b"x\n"


async def test_a_trapped_interrupt_is_the_users(session: Session) -> None:
    # Said by what is waited for: a trap that runs before bash waits would be run again for the next SIGINT.
    trapped = "trap 'echo caught' INT; sh -c 'echo on; exec sleep 50'; echo after"
    running = session.run(CommandOrder(text=trapped))
    await begun(running, b"on\n")
    await session.interrupt()
    assert (await outcome(running)).out == b"on\ncaught\nafter\n"


async def test_a_timeout_interrupts(session: Session) -> None:
    done = await run(session, "echo on; sleep 50; echo after", timeout=0.2)
    assert (done.out, done.end.end.cause, done.end.end.state) == (b"on\n", "timeout", "kept")
    assert (await run(session, "echo alive")).out == b"alive\n"


async def test_what_goes_on_after_an_interrupt_is_killed_with_the_session(place: Place) -> None:
    async with open_sessions(place, Settings(interrupt_grace=0.2)) as sessions:
        session = await sessions.get_or_create("s")
        done = await run(session, "trap '' INT; echo on; while :; do :; done", timeout=0.1)
        assert (done.out, done.end.end.cause, done.end.end.state) == (b"on\n", "timeout", "lost")
        assert (await run(await sessions.get_or_create("s"), "echo new")).out == b"new\n"


@pytest.mark.parametrize("how", ["interrupted", "timeout"])
async def test_no_later_line_runs_when_what_ignored_the_interrupt_is_killed(place: Place, how: str) -> None:
    settings = Settings(interrupt_grace=0.2, kill_grace=0.2)
    async with open_sessions(place, settings) as sessions:
        session = await sessions.get_or_create("s")
        timeout = 0.2 if how == "timeout" else None
        running = session.run(
            CommandOrder(text="trap '' INT; echo on; sleep 50; echo no\necho nor this", timeout=timeout)
        )
        await begun(running, b"on\n")
        if how == "interrupted":
            await session.interrupt()
        done = await outcome(running)
        assert (done.out, done.end.end.cause, done.end.end.state) == (b"on\n", how, "lost")


async def test_a_stopped_shell_is_killed_by_its_timeout(place: Place) -> None:
    async with open_sessions(place, Settings(interrupt_grace=0.2)) as sessions:
        session = await sessions.get_or_create("s")
        done = await run(session, "kill -STOP $$", timeout=0.1)
        assert (done.end.end.cause, done.end.end.state) == ("timeout", "lost")


async def test_commands_wait_for_each_other_in_a_bounded_queue(session: Session) -> None:
    first = session.run(CommandOrder(text="read -t 0.2 < <(sleep 5); echo first"))
    await asyncio.sleep(0)
    waiting = [session.run(CommandOrder(text=f"echo {number}")) for number in range(Settings.max_queue)]
    with pytest.raises(SandcellError) as caught:
        while True:
            waiting.append(session.run(CommandOrder(text="echo more")))
    assert caught.value.code == ErrorCode.QUOTA_EXCEEDED
    await waiting[1].cancel()
    assert (await outcome(first)).out == b"first\n"
    assert [(await outcome(command)).out for command in waiting[:4]] == [b"0\n", b"", b"2\n", b"3\n"]
    assert (await waiting[1].wait()).end.cause == "killed"


async def test_commands_behind_an_exit_are_lost_and_told(session: Session) -> None:
    commands = [session.run(CommandOrder(text="exit 5")), session.run(CommandOrder(text="echo never"))]
    assert (await outcome(commands[0])).code == 5
    with pytest.raises(SandcellError) as caught:
        await outcome(commands[1])
    assert caught.value.code == ErrorCode.SESSION_ENDED
    assert (caught.value.details["cause"], caught.value.details["exit_code"]) == ("exited", 5)


async def test_cancel_interrupts_what_runs(session: Session) -> None:
    running = session.run(CommandOrder(text="echo on; sleep 50"))
    await begun(running, b"on\n")
    await running.cancel()
    assert (await outcome(running)).end.end.cause == "killed"


async def test_delete_ends_all_of_it(sessions: Sessions, session: Session) -> None:
    await run(session, "trap 'echo bye' EXIT; (setsid sleep 50 &)")
    last = session.run(CommandOrder(text="echo $$; sleep 50"))
    await begun(last, b"\n")
    await sessions.delete("s")
    assert (await outcome(last)).end.end.cause == "killed"
    assert await sessions.get_or_create("s") is not session


async def test_a_lost_spawner_ends_commands_as_lost(place: Place) -> None:
    async with open_sessions(place) as sessions:
        session = await sessions.get_or_create("s")
        running = session.run(CommandOrder(text="echo on; sleep 50"))
        await begun(running, b"on\n")
        await place.spawner.__aexit__()
        assert (await outcome(running)).end.end.cause == "lost"


@pytest.mark.parametrize("command", ["a\0b", "\ud800", "x" * (2**20 + 1)])
async def test_what_bash_cannot_read_is_refused(session: Session, command: str) -> None:
    with pytest.raises(SandcellError) as caught:
        session.run(CommandOrder(text=command))
    assert caught.value.code in (ErrorCode.INVALID_ARGUMENT, ErrorCode.TOO_LARGE)
    assert (await run(session, "echo x")).out == b"x\n"


async def test_long_commands_arrive_whole(session: Session) -> None:
    text = "x" * 100_000
    assert (await run(session, f"v={text}; echo ${{#v}}")).out == b"100000\n"


async def test_the_rc_file_is_read_and_says_nothing(place: Place, sessions: Sessions) -> None:
    (place.outside / ".bashrc").write_text(
        "case $- in *i*) ;; *) return ;; esac\necho noise; alias hi='echo ho'\n"
    )
    session = await sessions.get_or_create("rc")
    done = await run(session, "hi")
    assert (done.out, done.err) == (b"ho\n", b"")


async def test_an_rc_file_that_exits_is_named(place: Place, sessions: Sessions) -> None:
    (place.outside / ".bashrc").write_text("exit 1\n")
    with pytest.raises(SandcellError) as caught:
        await sessions.get_or_create("rc")
    assert caught.value.code == ErrorCode.START_FAILED and ".bashrc" in caught.value.hint


async def test_an_rc_file_that_hangs_is_named_and_ended(
    place: Place, sessions: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sandcell_container.guest.shell._START_S", 0.3)
    (place.outside / ".bashrc").write_text("touch hanging; exec 3<>fifo; read <&3\n")
    os.mkfifo(place.outside / "fifo")
    os.chmod(place.outside / "fifo", 0o666)
    with pytest.raises(SandcellError) as caught:
        await sessions.get_or_create("rc")
    assert caught.value.code == ErrorCode.START_FAILED and "0.3 s" in caught.value.message
    (place.outside / ".bashrc").unlink()
    others = await run(
        await sessions.get_or_create("rc"), "ls /proc/[0-9]*/fd -l 2>/dev/null | grep -c /fifo"
    )
    assert others.out == b"0\n"


async def test_a_missing_folder_is_told_as_that(place: Place) -> None:
    there = boot(place)
    gone = type(there).from_json(there.to_json().replace(place.workdir.encode(), b"/no/such"))
    async with open_sessions(place, booted=gone) as sessions:
        with pytest.raises(SandcellError) as caught:
            await sessions.get_or_create("s")
    assert caught.value.code == ErrorCode.CWD_NOT_FOUND


async def test_without_bash_there_is_no_session(place: Place) -> None:
    async with open_sessions(place, booted=boot(place, {"PATH": place.workdir})) as sessions:
        with pytest.raises(SandcellError) as caught:
            await sessions.get_or_create("s")
    assert caught.value.code == ErrorCode.UNSUPPORTED


async def test_one_start_for_many_who_ask(sessions: Sessions) -> None:
    found = await asyncio.gather(*(sessions.get_or_create("s") for _ in range(5)))
    assert len(set(map(id, found))) == 1


async def test_user_functions_and_aliases_do_not_stand_in_between(session: Session) -> None:
    await run(
        session, "printf() { echo mine; }; read() { :; }; eval() { :; }; exec() { :; }; alias test=false"
    )
    assert (await run(session, "echo alive; printf")).out == b"alive\nmine\n"


@pytest.mark.parametrize("names", ["builtin", "builtin command", "builtin eval printf read cd"])
async def test_functions_named_as_what_our_lines_need_stay_the_users(session: Session, names: str) -> None:
    assert (
        await run(session, f'for f in {names}; do . /dev/stdin <<<"$f() {{ echo my $f; }}"; done')
    ).code == 0
    for status in (0, 3):
        done = await run(session, f"echo $?; for f in {names}; do $f; done; (exit 3)\n")
        assert done.out.decode().splitlines() == [str(status), *(f"my {name}" for name in names.split())]
        assert (done.code, done.err) == (3, b"")
    assert b"line 3" in (await run(session, "# 1\n# 2\n)")).err
    assert (await run(session, "true", env={"A": "1"}, cwd="/")).code == 0
    assert (await run(session, f"unset -f {names}; cd /; pwd")).out == b"/\n"
    assert (await run(session, "declare -F builtin command eval")).out == b""


@pytest.mark.parametrize("sabotage", ["exec 12>&-", "exec 11>&-", "ulimit -n 16; exec 12>&-"])
async def test_who_closes_what_bash_keeps_loses_the_session_and_reads_nothing_of_ours(
    session: Session, sabotage: str
) -> None:
    done = await run(session, f"echo said; {sabotage}")
    assert (done.out, done.end.end.cause, done.end.end.state) == (b"said\n", "lost", "lost")
    assert re.fullmatch(
        rb"(bash: \d+: Bad file descriptor\n)*", done.err
    )  # bash's own word for what was done
    with pytest.raises(SandcellError, match="has ended: lost"):
        await run(session, "echo on")


async def test_few_open_files_are_no_end_of_a_session(session: Session) -> None:
    assert (await run(session, "ulimit -n 64; echo set")).out == b"set\n"
    done = await run(session, "ulimit -n; echo to stderr >&2")
    assert (done.out, done.err, done.end.end.state) == (b"64\n", b"to stderr\n", "kept")


async def test_nothing_is_left_open(place: Place) -> None:
    before = len(os.listdir("/proc/self/fd"))
    async with open_sessions(place) as sessions:
        await run(await sessions.get_or_create("a"), "echo x")
        session = await sessions.get_or_create("b")
        await begun(session.run(CommandOrder(text="echo on; sleep 50")), b"on")
        assert signal.SIGINT
    assert len(os.listdir("/proc/self/fd")) == before


async def test_a_signal_between_two_commands_is_nobodys_loss(session: Session) -> None:
    """Somebody else's SIGINT while bash reads nothing but our lines: the next command runs as if it had not come."""
    await run(session, "x=kept")
    for _ in range(10):
        command = session.run(
            CommandOrder(text="(read -t 0.05 < <(sleep 5); kill -INT $$; echo sent) & true")
        )
        await outcome(command)
        while command.journal.read(command.journal.start)[-1].kind == Kind.ENDED:
            await asyncio.wait_for(command.journal.changed(), 10)
        assert (await run(session, "echo $x; (exit 3)")).out == b"kept\n"


async def test_signals_at_any_moment_lose_nothing_or_tell(sessions: Sessions) -> None:
    """What SIGINT hits is interrupted, as in any shell; or the session ends, and says so. Nothing hangs, nothing is made up."""
    session = await sessions.get_or_create("s")
    await run(session, "(while kill -INT $$; do sleep 0.003; done) 2>/dev/null & true")
    try:
        for number in range(60):
            done = await run(session, f"echo {number}")
            if done.end.end.state == "kept":
                assert (done.out, done.code) in {(b"%d\n" % number, 0), (b"%d\n" % number, 130), (b"", 130)}
    except SandcellError as problem:
        assert problem.code == ErrorCode.SESSION_ENDED


@pytest.mark.parametrize(
    "sabotage",
    [
        "enable -n printf",
        "enable -n read",
        "builtin() { echo mine; }",
        "command() { echo mine; }",
        'for fd in {10..40}; do eval "exec $fd>&-"; done',
        "ulimit -n 3",
        "set -t",
        "shopt -s extdebug; set -T; trap false DEBUG",
        "kill -SEGV $$",
        "suspend -f",
        "PATH= IFS=0123456789; set -fk; LC_ALL=C",
        "exec >/dev/full 2>&1",
    ],
)
async def test_who_breaks_the_shell_breaks_one_session_and_is_told(
    place: Place, sabotage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command runs, or the session ends and says so. Nothing hangs, and nothing is a success that was none."""
    monkeypatch.setattr("sandcell_container.guest.shell_life._READY_S", 0.5)
    async with open_sessions(place, Settings(interrupt_grace=0.2)) as sessions:
        session = await sessions.create("s")
        await run(session, sabotage, timeout=0.5)
        try:
            done = await run(session, "echo alive", timeout=0.5)
        except SandcellError as problem:
            assert problem.code == ErrorCode.SESSION_ENDED
        else:
            assert done.out == b"alive\n" or done.end.end.state == "lost"
        assert (await run(await sessions.create("other"), "echo fine")).out == b"fine\n"


@pytest.mark.parametrize(
    "slow",
    [
        "PROMPT_COMMAND='sleep 1000'",
        "PROMPT_COMMAND=(: 'sleep 1000')",
        "PS1='$(sleep 1000)'",
        "PS0='$(sleep 1000)'",
    ],
)
async def test_a_prompt_is_the_users_and_is_never_shown(session: Session, slow: str) -> None:
    assert (await run(session, slow)).code == 0
    name = slow.partition("=")[0]
    done = await run(session, f'echo "${{{name}[@]}}"; (exit 3)')
    assert (b"sleep 1000" in done.out, done.code) == (True, 3)
    assert (await run(session, "echo $? ${x?unset}; echo not reached")).code not in (0, 130)
    assert b"sleep 1000" in (await run(session, f'echo "${{{name}[@]}}"')).out


async def test_our_variables_are_nothing_that_an_answer_hangs_on(session: Session) -> None:
    for _ in range(2):
        assert (await run(session, "unset ${!__sandcell_*}; (exit 4)")).code == 4

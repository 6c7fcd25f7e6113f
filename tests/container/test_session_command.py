"""What holds for one command of a session, and how it is undone; what is kept of its output; its place in the queue."""

from __future__ import annotations

import asyncio
import hashlib
from typing import TYPE_CHECKING, Any

import pytest
from tests.container.session_house import Settings, begun, open_sessions, outcome, run

from sandcell_container.errors import ErrorCode, SandcellError
from sandcell_container.guest.session_command import CommandOrder, SessionCommand
from sandcell_container.journal import JournalReader, Kind

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.container.conftest import Place

    from sandcell_container.guest.session import Session, Sessions

AWKWARD = "a'b\"c\\d $HOME `id` $(id)\n\t*!漢\udcff; exit 1\n"


@pytest.fixture
async def sessions(place: Place) -> AsyncIterator[Sessions]:
    async with open_sessions(place) as opened:
        yield opened


@pytest.fixture
async def session(sessions: Sessions) -> Session:
    return await sessions.create("s")


async def refused(session: Session, command: str, **more: Any) -> SandcellError:
    with pytest.raises(SandcellError) as caught:
        await run(session, command, **more)
    return caught.value


# --- folder


async def test_a_folder_holds_for_one_command(session: Session) -> None:
    await run(session, "mkdir -p sub/deep; cd /tmp; cd - >/dev/null; old=$OLDPWD")
    assert (await run(session, "basename $PWD", cwd="sub")).out == b"sub\n"
    assert (
        await run(session, 'cd sub; cd ..; [ "$PWD" ] && cd sub/deep && pwd | tail -c 5')
    ).out == b"deep\n"
    assert (await run(session, "pwd | tail -c 4", cwd="..")).out == b"sub\n"
    assert (await run(session, "pwd | tail -c 5")).out == b"deep\n"


async def test_the_way_back_is_as_it_was(session: Session) -> None:
    await run(session, "mkdir sub; cd /tmp; cd /")
    await run(session, "true", cwd="/usr")
    assert (await run(session, "cd - >/dev/null; pwd")).out == b"/tmp\n"


async def test_a_command_that_goes_elsewhere_stays_there(session: Session) -> None:
    await run(session, "cd /tmp", cwd="/usr")
    assert (await run(session, "pwd")).out == b"/tmp\n"
    assert session.life.cwd == "/tmp"


@pytest.mark.parametrize("folder", ["no/such", "file", "a b", "-", "$HOME", "~"])
async def test_a_missing_folder_is_told_and_nothing_runs(session: Session, folder: str) -> None:
    await run(session, "touch file; (exit 3)")
    problem = await refused(session, "touch ran", cwd=folder)
    assert problem.code is ErrorCode.CWD_NOT_FOUND and repr(folder) in problem.message
    assert (await run(session, "echo $?; ls")).out == b"3\nfile\n"


async def test_folders_with_any_name(session: Session) -> None:
    await run(session, 'n=$1; mkdir "$NAME"', env={"NAME": AWKWARD})
    done = await run(session, 'printf %s "${PWD##*/}"', cwd=AWKWARD)
    assert done.out == AWKWARD.encode(errors="surrogateescape")


async def test_folders_are_not_guessed(session: Session) -> None:
    await run(session, "mkdir -p a/sub subs; shopt -s cdspell cdable_vars; CDPATH=a; v=/usr")
    assert (await refused(session, "pwd", cwd="sub")).code is ErrorCode.CWD_NOT_FOUND
    assert (await refused(session, "pwd", cwd="v")).code is ErrorCode.CWD_NOT_FOUND


async def test_a_folder_that_may_not_be_entered(session: Session) -> None:
    await run(session, "mkdir shut; chmod 0 shut")
    if (await run(session, "ls shut")).code == 0:
        pytest.skip("this user may enter any folder")
    assert (await refused(session, "pwd", cwd="shut")).code is ErrorCode.PERMISSION_DENIED


async def test_an_interrupted_command_gives_its_folder_and_variables_back(session: Session) -> None:
    await run(session, "x=old")
    running = session.run(CommandOrder(text="echo on; sleep 50", cwd="/tmp", env={"x": "new"}))
    await begun(running, b"on\n")
    await session.interrupt()
    assert (await outcome(running)).end.end.cause == "interrupted"
    done = await run(session, "echo $x ${x@a}; pwd")
    assert done.out.startswith(b"old\n") and b"/tmp\n" not in done.out


# --- variables


async def test_variables_hold_for_one_command(session: Session) -> None:
    await run(
        session,
        "plain=1; export out=2; declare -i number=3; list=(a b); declare -A map=([k]=v); unset -v gone",
    )
    names = ("plain", "out", "number", "list", "map", "gone")
    seen = await run(
        session, "printenv plain out number list map gone", env={name: f"{name}+1" for name in names}
    )
    assert seen.out == b"plain+1\nout+1\nnumber+1\nlist+1\nmap+1\ngone+1\n"
    after = await run(
        session,
        "echo $plain $number ${list[1]} ${map[k]} ${gone-none}; printenv plain out; number=1+1; echo $number",
    )
    assert after.out == b"1 3 b v none\n2\n2\n"


async def test_none_takes_a_variable_away_for_one_command(session: Session) -> None:
    await run(session, "export x=5; declare -A m=([a]=1)")
    taken = dict.fromkeys(("x", "m", "PATH", "never"))
    assert (await run(session, "echo ${x-none} ${m-none} ${PATH-none}", env=taken)).out == b"none none none\n"
    assert (
        await run(session, "printenv x; echo ${m[a]}; ls >/dev/null && echo found")
    ).out == b"5\n1\nfound\n"


async def test_what_the_command_changes_stays(session: Session) -> None:
    await run(session, "a=1; b=2; c=3; d=4")
    change = "a=mine; unset b; c=(x y); readonly d"
    await run(session, change, env=dict.fromkeys("abcd", "given"))
    assert (await run(session, "echo $a ${b-none} ${c[1]} $d")).out == b"mine none y given\n"


async def test_values_arrive_as_they_are(session: Session) -> None:
    big = "x" * 100_000
    done = await run(
        session,
        'printf %s "$A"; echo; printf %s "$B" | wc -c; echo "[$C]"',
        env={"A": AWKWARD, "B": big, "C": ""},
    )
    assert done.out == AWKWARD.encode(errors="surrogateescape") + b"\n100000\n[]\n"


@pytest.mark.parametrize(
    "setup",
    [
        "set -u",
        "set -eE; trap 'echo trapped' ERR",
        "set -x; exec 2>/dev/null",
        "set -f; IFS=abc",
        "set -o posix",
        "shopt -s nocasematch",
    ],
)
async def test_the_options_of_the_session_do_not_matter(session: Session, setup: str) -> None:
    await run(session, f"{setup}; x=old")
    done = await run(session, "echo $x $y", cwd="/tmp", env={"x": "NEW", "y": "1"})
    assert (done.out, done.code) == (b"NEW 1\n", 0)
    assert (await run(session, "echo $x ${y-none}; [ $PWD = /tmp ] || echo back")).out == b"old none\nback\n"


async def test_a_read_only_variable_is_named(session: Session) -> None:
    await run(session, "readonly r=1; x=old")
    problem = await refused(session, "touch ran", env={"x": "new", "r": "2"})
    assert problem.code is ErrorCode.INVALID_ENV_NAME and "'r'" in problem.message
    assert (await run(session, "echo $r $x; ls")).out == b"1 old\n"


@pytest.mark.parametrize("name", ["", "a b", "a=b", "a;id", "1a", "a[$(touch ran)]", "é"])
async def test_what_cannot_be_a_variable_is_refused(session: Session, name: str) -> None:
    assert (await refused(session, "ls", env={name: "x"})).code is ErrorCode.INVALID_ENV_NAME
    with pytest.raises(SandcellError):
        await session.set_env({name: "x"})
    assert (await run(session, "ls")).out == b""


async def test_set_env_of_a_read_only_variable_is_refused_whole_and_at_once(session: Session) -> None:
    await run(session, "readonly r=1; readonly -a list=(1); x=old")
    for name in ("r", "list", "UID"):
        for value in ("2", None):
            with pytest.raises(SandcellError, match=f"'{name}' is read-only") as caught:
                await session.set_env({"x": AWKWARD, name: value, "y": "1"})
            assert caught.value.code is ErrorCode.INVALID_ENV_NAME
    assert (await run(session, "(exit 3)")).code == 3
    await session.set_env({"z": "z"})
    assert (await run(session, "echo $? $r $x ${y-none} $z")).out == b"3 1 old none z\n"
    await session.restart()
    assert (await run(session, "echo ${r-none} $z")).out == b"none z\n"


async def test_set_env_while_a_command_runs_holds_for_the_next(session: Session, place: Place) -> None:
    running = session.run(
        CommandOrder(text="echo on; while [ ! -e go ]; do sleep 0.01; done; echo ${x-none}")
    )
    await begun(running, b"on\n")
    await session.set_env({"x": "new"})
    (place.outside / "go").touch()
    assert (await outcome(running)).out == b"on\nnone\n"
    assert (await run(session, "echo $x")).out == b"new\n"


async def test_set_env_holds_from_the_next_command_on(session: Session) -> None:
    await run(session, "export gone=1; x=old")
    await session.set_env({"x": "first", "y": AWKWARD})
    await session.set_env({"x": "new", "gone": None})
    assert (await run(session, 'printenv x; printf %s "$y"; echo ${gone-none}')).out == (
        b"new\n" + AWKWARD.encode(errors="surrogateescape") + b"none\n"
    )
    await run(session, "x=mine")
    assert (await run(session, "echo $x")).out == b"mine\n"
    await session.restart()
    assert (await run(session, "echo $x ${gone-none}")).out == b"new none\n"


async def test_what_comes_from_the_sandbox_leaves_a_session_s_own_alone(session: Session) -> None:
    await run(session, "readonly fixed=1; x=old")
    await session.set_env({"mine": "1"})
    session.inherit_env({"fixed": "2", "mine": "2", "x": AWKWARD, "HOME": None})
    done = await run(session, 'printf "%s|" "$x" $fixed $mine ${HOME-none}')
    assert done.out == AWKWARD.encode(errors="surrogateescape") + b"|1|1|none|"
    assert done.err == b""
    await session.restart()
    done = await run(session, 'printf "%s|" "$x" $fixed $mine ${HOME-none}')
    assert done.out == AWKWARD.encode(errors="surrogateescape") + b"|2|1|none|"


# --- input


@pytest.mark.parametrize("data", [b"", b"line\n", b"\0\xff\r\n no end", b"x" * 3_000_000])
async def test_input_is_read_to_its_end(session: Session, data: bytes, place: Place) -> None:
    done = await run(session, "md5sum", stdin=data)
    assert done.out.split()[0] == hashlib.md5(data).hexdigest().encode()
    assert (await run(session, "cat; cat <&0")).out == b""
    assert not any((place.outside / ".cache/sandcell/input").iterdir())


async def test_input_is_for_commands_in_a_row(session: Session) -> None:
    assert (await run(session, "read a; read b; echo $b $a; cat", stdin=b"1\n2\n3\n")).out == b"2 1\n3\n"


async def test_input_that_cannot_be_kept_is_told(session: Session) -> None:
    await run(session, "mkdir -p .cache; touch .cache/sandcell; x=kept")
    assert (await refused(session, "cat", stdin=b"x")).code is ErrorCode.START_FAILED
    assert (await run(session, "echo $x")).out == b"kept\n"


# --- output


async def test_long_output_is_cut_and_kept_whole_in_a_file(session: Session, place: Place) -> None:
    command = session.run(CommandOrder(text="seq 100000; echo e >&2", stream=False, max_output=10_000))
    done = await outcome(command)
    cut = done.end.truncated["stdout"]
    assert done.out.startswith(b"1\n2\n") and done.out.endswith(b"\n100000\n") and len(done.out) <= 10_000
    assert (done.err, list(done.end.truncated)) == (b"e\n", ["stdout"])
    whole = b"".join(b"%d\n" % number for number in range(1, 100_001))
    assert (cut.total_bytes, cut.bytes) == (len(whole), len(whole) - len(done.out))
    assert cut.path is not None and cut.path.endswith(f"/{command.id}.stdout")
    assert (place.outside / ".cache/sandcell/output" / f"{command.id}.stdout").read_bytes() == whole
    assert (await run(session, "echo next")).out == b"next\n"


async def test_a_stream_is_whole_and_its_file_too(session: Session) -> None:
    done = await run(session, "seq 50000", max_output=1000, stream=True)
    assert done.out == b"".join(b"%d\n" % number for number in range(1, 50_001))
    assert done.end.truncated["stdout"].path is not None


async def test_a_hundred_megabytes_pass_through(session: Session) -> None:
    command = session.run(CommandOrder(text="head -c 100000000 /dev/zero | tr '\\0' x; printf end; (exit 7)"))
    size, last = 0, b""
    with JournalReader(command.journal) as reader:
        while batch := await reader.next():
            assert all(entry.kind != Kind.GAP for entry in batch)
            said = b"".join(entry.data for entry in batch if entry.kind == Kind.STDOUT)
            size, last = size + len(said), (last + said)[-4:]
    command.journal.close()
    assert (size, last) == (100_000_003, b"xend")
    assert (await command.wait()).exit_code == 7
    assert (await run(session, "echo next")).out == b"next\n"


async def test_a_command_waits_for_a_follower_that_stands_still(session: Session) -> None:
    command = session.run(CommandOrder(text="head -c 20000000 /dev/zero; echo done >&2"))
    with JournalReader(command.journal) as reader:
        await reader.next()
        while command.journal.backlog <= 2**20:
            await command.journal.changed()
        assert not command.has_ended
        assert command.journal.backlog < 4 * 2**20
    assert (await outcome(command)).err == b"done\n"
    command.journal.close()


async def test_a_hundred_megabytes_are_cut(session: Session) -> None:
    done = await run(session, "head -c 100000000 /dev/zero", stream=False, max_output=2**20)
    assert done.end.truncated["stdout"].total_bytes == 100_000_000
    assert len(done.out) <= 2**20
    assert (await run(session, "echo next")).out == b"next\n"


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (r"printf 'no newline'", b"no newline"),
        (r"printf 'a\0b\0'", b"a\0b\0"),
        (r"printf '\xff\xfe\xc3'", b"\xff\xfe\xc3"),
        (r"printf 'bash-5.2$ \n> \n= 7 0 1 /\0'", b"bash-5.2$ \n> \n= 7 0 1 /\0"),
        (r"PS1='$ '; PS2='> '; echo 'if true'; printf '$ '", b"if true\n$ "),
        ("cat <<'A' - <<B\none\nA\ntwo $((1+1))\nB", b"two 2\n"),
        ("cat <<<$'x\\ty'", b"x\ty\n"),
        ("\n\n  # only a comment\n", b""),
        ("", b""),
        ("echo a; exec 2>&1; echo b >&2", b"a\nb\n"),
        ("exec 3>&1; echo x >&3; exec 3>&-", b"x\n"),
        ("! true; echo $?", b"1\n"),
        ("set -e; false || echo or; set +e", b"or\n"),
        ("trap 'echo bye' EXIT; trap - EXIT", b""),
        ("f() { local a=1; return 4; }; f; echo $?", b"4\n"),
        ("echo {1..3} $((2**10)) ${#PATH:+x}", b"1 2 3 1024\n"),
    ],
)
async def test_output_and_state_survive_awkward_commands(session: Session, command: str, said: bytes) -> None:
    await run(session, "kept=yes")
    done = await run(session, command)
    if "${#PATH" not in command:
        assert done.out == said
    assert (await run(session, "echo $kept")).out == b"yes\n"


async def test_answers_that_user_code_forges_harm_nobody(sessions: Sessions, session: Session) -> None:
    forge = r"""for fd in /proc/$$/fd/*; do case $(readlink $fd) in socket*) exec 9>&${fd##*/}; printf '= %d 0 1 /x\0' {1..99} >&9;; esac; done; echo said"""
    other = await sessions.create("other")
    running = session.run(CommandOrder(text=forge, timeout=5))
    await running.over()
    assert (await run(other, "echo fine")).out == b"fine\n"


# --- its place in the queue


async def order_of(commands: list[SessionCommand]) -> list[str]:
    for each in commands:
        await each.over()
    return [each.id for each in sorted(commands, key=lambda each: each.started_at or 0.0)]


async def test_commands_run_in_the_order_they_came(session: Session) -> None:
    commands = [session.run(CommandOrder(text="true", id=f"c{number}")) for number in range(4)]
    assert await order_of(commands) == ["c0", "c1", "c2", "c3"]


async def test_who_waits_too_long_is_told_and_does_not_run(session: Session) -> None:
    first = session.run(CommandOrder(text="read -t 0.5 < <(sleep 5); echo first"))
    second = session.run(CommandOrder(text="touch ran", queue_timeout=0.05))
    third = session.run(CommandOrder(text="ls", queue_timeout=20))
    with pytest.raises(SandcellError) as caught:
        await outcome(second)
    assert caught.value.code is ErrorCode.BUSY
    assert ((await outcome(first)).out, (await outcome(third)).out) == (b"first\n", b"")


async def test_a_time_to_wait_is_no_time_to_run(session: Session) -> None:
    done = await run(session, "read -t 0.3 < <(sleep 5); echo done", queue_timeout=0.1)
    assert done.out == b"done\n"


async def test_it_says_what_runs_and_what_waits(session: Session) -> None:
    assert session.status == "idle"
    running = session.run(CommandOrder(text="echo on; sleep 50", id="one"))
    waiting = [session.run(CommandOrder(text="true", id=name)) for name in ("two", "three")]
    await begun(running, b"on")
    assert session.life.running is running
    assert (session.status, session.life.waiting) == ("busy", waiting)
    await running.cancel()
    await waiting[1].over()
    assert session.status == "idle"


async def test_who_gives_up_before_its_turn_never_runs(session: Session) -> None:
    running = session.run(CommandOrder(text="echo on; sleep 50"))
    waiting = session.run(CommandOrder(text="touch ran"))
    await begun(running, b"on")
    await waiting.cancel()
    assert (await outcome(waiting)).end.end.cause == "killed"
    await session.interrupt()
    assert (await run(session, "ls")).out == b""


# --- the end of a session


async def test_a_session_that_ended_says_how_and_can_be_restarted(
    sessions: Sessions, session: Session
) -> None:
    await run(session, "x=1; echo last words; exit 5")
    assert (session.status, session.last_output) == ("ended", "last words\n")
    assert session.end is not None and (session.end.cause, session.end.code) == ("exited", 5)
    with pytest.raises(SandcellError) as caught:
        session.run(CommandOrder(text="true"))
    assert caught.value.code is ErrorCode.SESSION_ENDED
    assert caught.value.details == {"cause": "exited", "exit_code": 5, "last_output": "last words\n"}
    assert await sessions.create("s") is session
    await session.restart()
    assert session.starts == 2
    after = session.end
    assert after is None
    assert (await run(session, "echo ${x-none}")).out == b"none\n"


async def test_a_session_whose_shell_dies_alone_says_so(session: Session) -> None:
    await run(session, "(read -t 0.05 < <(sleep 5); kill -9 $$) & true")
    async with asyncio.timeout(10):
        await session.life.over()
    assert session.end is not None and (session.end.cause, session.end.signal) == ("signaled", 9)


async def test_restart_ends_what_runs_and_begins_where_it_began(sessions: Sessions, place: Place) -> None:
    session = await sessions.create("w", cwd="/tmp", env={**place.env, "MINE": "1"})
    await run(session, "cd /; MINE=2; (setsid sleep 50 &)")
    running = session.run(CommandOrder(text="echo on; sleep 50"))
    waiting = session.run(CommandOrder(text="true"))
    await begun(running, b"on")
    await session.restart()
    assert ((await outcome(running)).end.end.cause, (await outcome(waiting)).end.end.cause) == (
        "killed",
        "killed",
    )
    assert (await run(session, "pwd; echo $MINE; pgrep -c sleep || true")).out.startswith(b"/tmp\n1\n")


async def test_one_id_is_one_session(sessions: Sessions, session: Session) -> None:
    assert await sessions.create("s") is session
    with pytest.raises(SandcellError) as caught:
        await sessions.create("s", cwd="/tmp")
    assert caught.value.code is ErrorCode.EXISTS
    assert sessions.get("s") is session and sessions.list() == [session]
    await sessions.delete("s")
    with pytest.raises(SandcellError) as caught:
        sessions.get("s")
    assert caught.value.code is ErrorCode.NOT_FOUND


async def test_old_records_of_ended_sessions_go(sessions: Sessions) -> None:
    for number in range(Settings.max_records + 2):
        await run(await sessions.create(f"s{number}"), "exit")
    await sessions.create("live")
    assert [each.id for each in sessions.list()] == ["s2", "s3", "live"]

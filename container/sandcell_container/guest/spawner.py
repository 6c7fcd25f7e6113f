"""The spawner: the small trusted process that starts, owns and reaps everything that runs user code.

Run by path inside the sandbox, `PYTHON -I -S spawner.py SOCKET_FD MODE SETTINGS`, standard library only, and only
modules that load in under a millisecond: a sandbox is ready when this is ready. One file, because nothing else of
the project is visible inside. It must never know what the processes are for.

MODE "marks": PID 1 of a bwrap sandbox, with CAP_SYS_ADMIN and CAP_SYS_PTRACE in its own user namespace. Each start
gets a UTS namespace of its own, which user code cannot leave; a tree is whatever carries it.
MODE "keepers": no capability. Each start has a keeper, a subreaper that is the parent of all orphans of its tree; a
tree is what descends from its keeper. User code of the same uid can kill a keeper; what it kept is then ended.
SETTINGS: JSON `{"limits": {"memory": bytes, "pids": n, "cpus": cores, "disk": bytes}}`, each may be absent or null.

The protocol, one message a SEQPACKET record; when the socket closes, everything ends.
Requests, fields separated by NUL bytes (no argument, path or variable can hold one):
  start JOB FDS MEMORY CWD ARGC ARGV... ENV...
                                         FDS: which of "0123" come by SCM_RIGHTS, in order; without one 0 to 2 are
                                         /dev/null, and 3 is not there; or "t": a terminal, which is 0, 1 and 2 and
                                         controls the process. MEMORY: bytes for each process, 0 is no limit
  server JOB ...                         as `start`, of a fork server: in mode "marks" it can mark its children
  adopt JOB PID child|server             own what a fork server has forked; by SCM_RIGHTS come its pidfd and its mark,
                                         in mode "keepers" a socket to its keeper PID and the pidfd of that; see `keep`
  long JOB                               the request, a start, is in the memfd that comes first by SCM_RIGHTS
  signal JOB NUMBER process|group|tree
  kill JOB CALL GRACE_MS                 SIGTERM, grace, SIGKILL to the tree; no SIGTERM without a grace
  pids JOB CALL
  forks JOB CALL                         as `pids`, with how each came to be
  trees CALL                             every tree at once, each as some `tree`
Events, fields separated by spaces:
  ready PID
  started JOB PID | failed JOB ERRNO cwd|exec|adopt
  exit JOB STATUS PEAK_BYTES USER_S SYSTEM_S SETTLED     the started process was reaped; SETTLED 1: and nothing is left
  settled JOB                            nothing of the tree is left, where `exit` did not say so
  killed CALL COUNT                      how many processes were signalled
  pids CALL PID...
  forks CALL (PID PARENT FORKED)...      FORKED 1: it has run no program since it was forked
  tree CALL JOB PID...                   processes of one tree, more of which may follow; nothing of ours is in it
  trees CALL                             no more of them
"""

from __future__ import annotations

import ctypes
import errno
import gc
import os
import resource
import select
import struct
import sys
import time

TYPE_CHECKING = False  # importing typing would cost 5 ms
if TYPE_CHECKING:
    import signal
    import socket
    from collections.abc import Callable, Iterable, Sequence
    from typing import NoReturn
else:  # the C halves: their Python wrappers import enum and selectors, 9 ms more
    import _signal as signal
    import _socket as socket

CLONE_NEWUTS = 0x04000000
PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER = 4, 36
PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, PR_CAP_AMBIENT_CLEAR_ALL = 47, 2, 4
CAPABILITY_VERSION_3 = 0x20080522
CAP_SYS_PTRACE, CAP_SYS_ADMIN = 19, 21
MARKER_CAPABILITIES = (CAP_SYS_PTRACE, CAP_SYS_ADMIN)

LONGEST_MESSAGE = 2**17  # longer ones come as a memfd
USER_OOM_SCORE = 500  # user code goes first when memory is short
HARD_S = 2.0  # what a tree gets to die after SIGKILL before the answer is given anyway
AGAIN_MS = 5  # until the next look, when processes came and went during every scan of the last one
IDLE_MS = 5  # without work for so long, a keeper is made in advance
SCANS = 5
SPARE_FILES = 16
TERMINAL = -1
NUMBERS = {
    48: 0,
    49: 1,
    50: 2,
    51: 3,
    116: TERMINAL,
}  # of the child's descriptors, by their names in a request
MOST_PIDS = 8000  # in one message, which has to fit into one record
MOST_FORKS = 4000
PF_FORKNOEXEC = 0x40  # of the flags in /proc/PID/stat; source: include/linux/sched.h
LISTS = ("pids", "forks")
LAST_WORDS = 64  # messages that are heard of a keeper after its end
# what a keeper says of a job or call, and the numbers that follow: i whole, f any
KEEPER_WORDS = {"started": "i", "exit": "iiffi", "settled": "", "killed": "i"}
DEFAULT_PATH = b"/usr/local/bin:/usr/bin:/bin"
# glibc keeps 32 and 33 for itself; SIGKILL and SIGSTOP have no other disposition
RESET_SIGNALS = [n for n in range(1, 65) if n not in (9, 19, 32, 33)]

libc = ctypes.CDLL(None, use_errno=True)


def check(result: int) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


# --- what it makes of itself


def drop_capabilities(*, keep: Iterable[int] = ()) -> None:
    """Keep nothing but `keep` for this process, and nothing at all for what it starts."""
    libc.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)  # an old kernel has no ambient set to clear
    set_capabilities(sum(1 << capability for capability in keep), 0)


def lend_capability(capability: int, *, keep: Iterable[int]) -> None:
    """Let what is started from now on have `capability` too, until `drop_capabilities` takes that back."""
    set_capabilities(sum(1 << each for each in keep), 1 << capability)
    check(libc.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, capability, 0, 0))


def set_capabilities(held: int, inheritable: int) -> None:
    header = struct.pack("Ii", CAPABILITY_VERSION_3, 0)
    check(libc.capset(header, struct.pack("6I", held, held, inheritable, 0, 0, 0)))


class OomScore:
    """The spawner's own score, lent to a child while it is forked. Opened before the process is undumpable."""

    def __init__(self) -> None:
        self.fd = os.open("/proc/self/oom_score_adj", os.O_RDWR | os.O_CLOEXEC)
        self.own = os.pread(self.fd, 16, 0).strip()
        self.users = b"%d" % max(int(self.own), USER_OOM_SCORE)

    def raise_for_child(self) -> None:
        os.pwrite(self.fd, self.users, 0)

    def restore(self) -> None:
        os.pwrite(self.fd, self.own, 0)


def open_wake() -> int:
    """Return a descriptor that is readable after a SIGCHLD."""
    read_end, write_end = os.pipe()
    os.set_blocking(read_end, False)
    os.set_blocking(write_end, False)
    signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, on_child)
    return read_end


def on_child(_number: int, _frame: object) -> None:
    """A signal without a handler would not reach the wake-up descriptor."""


def drain(fd: int) -> None:
    try:
        while len(os.read(fd, 4096)) == 4096:
            continue
    except BlockingIOError:
        return


_RLIMITS = (
    ("memory", resource.RLIMIT_DATA),
    ("pids", resource.RLIMIT_NPROC),
    ("disk", resource.RLIMIT_FSIZE),
)


def apply_limits(limits: dict[str, float | None]) -> None:
    """Limit this process and all that it starts from now on.

    RLIMIT_DATA and not AS: shared mappings are not counted, so deno and threads go on working.
    """
    for name, number in _RLIMITS:
        asked = limits.get(name)
        if asked is not None:
            hard = resource.getrlimit(number)[1]
            value = int(asked) if hard == resource.RLIM_INFINITY else min(int(asked), hard)
            resource.setrlimit(number, (value, value))
    cores = limits.get("cpus")
    if cores is not None:
        usable = sorted(os.sched_getaffinity(0))
        first = os.urandom(1)[0] % len(usable)  # sandboxes of one machine should not share the same core
        count = max(1, -int(-cores // 1))
        os.sched_setaffinity(0, (usable[first:] + usable[:first])[:count])


# --- processes as /proc shows them


def pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def stat_of(pid: int) -> list[bytes]:
    """Return what /proc says of `pid` behind its name, nothing where it is gone. Source: proc(5), from field 3 on."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            return file.read(1024).rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def parent_of(pid: int) -> int:
    """Return the parent of `pid`, 0 where it has none or is gone."""
    stat = stat_of(pid)
    return int(stat[1]) if stat else 0


def descendants(of: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for pid in pids():
        children.setdefault(parent_of(pid), []).append(pid)
    found, at = list(children.get(of, ())), 0
    while at < len(found):
        found += children.get(found[at], ())
        at += 1
    return found


def is_readable(fd: int) -> bool:
    """Tell whether there is something to read, or nothing more to come; of a pidfd, whether the process has ended."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(0))


def signal_process(pid: int, number: int) -> bool:
    """Return whether `pid` was there and may be signalled (a setuid program may not)."""
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


# --- messages


class Channel:
    """One end of a SEQPACKET socket. Sending blocks: whoever reads is ours, and has to know."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.fd = sock.fileno()
        os.set_inheritable(self.fd, False)

    def send(self, text: str) -> None:
        self.send_bytes(text.encode())

    def send_bytes(self, message: bytes, fds: Sequence[int] = ()) -> None:
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack(f"{len(fds)}i", *fds))] if fds else []
        try:
            self.sock.sendmsg([message], rights)
        except (BrokenPipeError, ConnectionResetError):
            return  # the next receive says that the other end is gone

    def offer(self, message: bytes) -> bool:
        """Send without waiting; False when the other end has left too much unread."""
        try:
            self.sock.send(message, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except (BrokenPipeError, ConnectionResetError):
            pass  # the next receive says that the other end is gone
        return True

    def receive(self) -> tuple[bytes, list[int]]:
        """Return one message and its descriptors; an empty message means that the other end is gone."""
        try:
            message, ancillary, _, _ = self.sock.recvmsg(LONGEST_MESSAGE, 128, socket.MSG_CMSG_CLOEXEC)
        except ConnectionResetError:
            return b"", []
        fds: list[int] = []
        for level, kind, data in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                fds += struct.unpack(f"{len(data) // 4}i", data[: len(data) // 4 * 4])
        return message, fds


def tell_trees(channel: Channel, call: str, found: dict[str, list[int]]) -> None:
    """Send the processes of each job, in as many messages as it takes."""
    for job, members in found.items():
        for start in range(0, len(members), MOST_PIDS):
            channel.send(" ".join(["tree", call, job, *map(str, members[start : start + MOST_PIDS])]))
    channel.send(f"trees {call}")


def unfold(message: bytes, fds: list[int]) -> tuple[bytes, list[int]]:
    """Return the request that a `long` message stands for."""
    verb, _, job = message.partition(b"\0")
    if verb != b"long":
        return message, fds
    if not fds:  # too many are open to take it: a start without its descriptors is refused as that
        return b"start\0" + job + b"\x00012\x000\0/\x000", []
    with open(fds[0], "rb") as file:
        file.seek(0)
        return file.read(), fds[1:]


def leave_room(newest: int) -> None:
    """Refuse a start whose descriptor is one of the last: without them no tree could be found and ended."""
    if newest >= resource.getrlimit(resource.RLIMIT_NOFILE)[0] - SPARE_FILES:
        raise OSError(errno.EMFILE, "too many open files")


def close_all(fds: Iterable[int]) -> None:
    for fd in fds:
        os.close(fd)


# --- starting


class StartFailed(Exception):
    def __init__(self, number: int, step: str) -> None:
        self.number, self.step = number, step


def find_program(name: bytes, path: bytes) -> bytes:
    """Return the path of the program, searched in `path` as execvp does; by hand, as one failed start costs 0.6 ms."""
    if b"/" in name:
        return name
    denied = False
    for folder in path.split(b":"):
        candidate = os.path.join(folder or b".", name)
        if os.path.isfile(candidate):
            if os.access(candidate, os.X_OK):
                return candidate
            denied = True
    raise StartFailed(errno.EACCES if denied else errno.ENOENT, "exec")


def stdio_actions(descriptors: dict[int, int]) -> list[tuple[int, ...] | tuple[int, int, bytes, int, int]]:
    """Return what gives the child its descriptors.

    The child leads a new session by then, so a terminal that it opens becomes the controlling one; one that it got
    open would not. Its path may be another's where it was opened elsewhere, its descriptor is itself.
    """
    if TERMINAL in descriptors:
        return [
            (os.POSIX_SPAWN_OPEN, 0, path_of(descriptors[TERMINAL]), os.O_RDWR, 0),
            *((os.POSIX_SPAWN_DUP2, 0, number) for number in (1, 2)),
        ]
    return [(os.POSIX_SPAWN_DUP2, fd, number) for number, fd in descriptors.items()]


def path_of(fd: int) -> bytes:
    return b"/proc/self/fd/%d" % fd


def launch(
    argv: list[bytes], env: dict[bytes, bytes], cwd: bytes, descriptors: dict[int, int], memory: int
) -> int:
    """Start a program in a session of its own and return its pid. `descriptors`: its number, and which of ours it is.

    posix_spawn, so a start costs the same whatever this process weighs (vfork); every descriptor here but
    these is close-on-exec. The child inherits the folder, so this process goes there and comes back.
    """
    try:
        os.chdir(cwd)
    except OSError as problem:
        raise StartFailed(problem.errno or errno.EIO, "cwd") from problem
    try:
        program = find_program(argv[0], env.get(b"PATH", DEFAULT_PATH))
        if memory:
            return launch_limited(program, argv, env, descriptors, memory)
        actions = stdio_actions(descriptors)
        return os.posix_spawn(
            program, argv, env, file_actions=actions, setsid=True, setsigmask=(), setsigdef=RESET_SIGNALS
        )
    except OSError as problem:
        raise StartFailed(problem.errno or errno.EIO, "exec") from problem
    finally:
        os.chdir("/")


def own_peak() -> int:
    """Return the most memory that this process has had, in KiB. Linux counts it as that of a program it starts, too."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def exit_words(job: str, status: int, usage: resource.struct_rusage, *, floor: int, settled: bool) -> str:
    """Return the event of an exit. Times have fixed points: `is_number` takes few digits, and a float may have 22.

    A peak of memory up to `floor` KiB may be another's: then it is 0, not known.
    """
    times = f"{usage.ru_utime:.6f} {usage.ru_stime:.6f}"
    peak = usage.ru_maxrss * 1024 if usage.ru_maxrss > floor else 0
    return f"exit {job} {status} {peak} {times} {settled:d}"


def launch_limited(
    program: bytes, argv: list[bytes], env: dict[bytes, bytes], descriptors: dict[int, int], memory: int
) -> int:
    """Do what posix_spawn does, for a process that may have `memory` bytes, and so may each that it starts.

    By a fork, 2 ms slower: a limit that is set once the program runs can be outrun by a child that it forks.
    """
    read_end, write_end = os.pipe()
    with open(read_end, "rb", buffering=0) as failure:
        try:
            pid = os.fork()
            if pid == 0:
                become_limited(program, argv, env, descriptors, memory, write_end)
        finally:
            os.close(write_end)
        problem = failure.read()
    if problem:
        os.waitpid(pid, 0)
        raise OSError(int(problem), os.strerror(int(problem)))
    return pid


def become_limited(
    program: bytes,
    argv: list[bytes],
    env: dict[bytes, bytes],
    descriptors: dict[int, int],
    memory: int,
    failure: int,
) -> NoReturn:
    """The life of the forked child, up to its program. `failure` is closed by that, or told why it is none."""
    try:
        os.setsid()
        if TERMINAL in descriptors:
            descriptors = dict.fromkeys(range(3), os.open(path_of(descriptors[TERMINAL]), os.O_RDWR))
        for number, fd in descriptors.items():
            os.dup2(fd, number)
        for number in RESET_SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        apply_limits({"memory": memory})
        os.execve(program, argv, env)
    except OSError as problem:
        os.write(failure, b"%d" % (problem.errno or errno.EIO))
    finally:
        os._exit(127)


class Kill:
    """A tree that is being ended: who asked, what was signalled, and until when it may take."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.hit: set[int] = set()
        self.until = float("inf")
        self.hard = False


class Tree:
    """One started process and all that descends from it."""

    def __init__(self, job: str) -> None:
        self.job = job
        self.root = 0
        self.floor = 0  # KiB, what its peak of memory has from the process that started it
        self.ended: tuple[int, resource.struct_rusage] | None = None
        self.reported = False
        self.mark = ""
        self.held = -1
        self.kill: Kill | None = None


class Owner:
    """Starts processes, reaps them, and knows and ends their trees: one loop, no thread."""

    def __init__(self, channel: Channel, null: int, oom: OomScore) -> None:
        self.channel = channel
        self.null = null
        self.oom = oom
        self.wake = open_wake()
        self.trees: dict[str, Tree] = {}
        self.roots: dict[int, Tree] = {}
        self.again = False
        self.verbs: dict[bytes, Callable[[list[bytes], list[int]], None]] = {
            b"start": self.start,
            b"signal": self.signal,
            b"kill": self.begin_kill,
            b"pids": self.list_pids,
            b"forks": self.list_forks,
        }

    # what the two kinds of owner do differently

    def mark(self, tree: Tree) -> None:
        """Make the next started process the root of `tree`."""

    def members(self, tree: Tree) -> list[int]:
        """Return the live processes of `tree`."""
        raise AssertionError

    def emptied(self, trees: list[Tree]) -> list[Tree]:
        """Return those of `trees`, whose roots are gone, that have no process left; set `again` where unknown."""
        raise AssertionError

    def is_done(self) -> bool:
        return False

    # the loop

    def serve(self) -> None:
        """Work until the other end of the channel is gone, or there is nothing left to do."""
        poll = select.poll()
        poll.register(self.channel.fd, select.POLLIN)
        poll.register(self.wake, select.POLLIN)
        while not self.is_done():
            for fd, _ in poll.poll(self.pause_ms()):
                if fd == self.wake:
                    drain(fd)
                elif not self.receive():
                    return
            self.look(reaped=self.reap())

    def pause_ms(self) -> int | None:
        if self.again:
            return AGAIN_MS
        ends = [tree.kill.until for tree in self.trees.values() if tree.kill]
        return max(0, int((min(ends) - time.monotonic()) * 1000) + 1) if ends else None

    def receive(self) -> bool:
        message, fds = unfold(*self.channel.receive())
        if not message:
            return False
        verb, *fields = message.split(b"\0")
        try:
            self.verbs[verb](fields, fds)
        finally:
            close_all(fds)
        return True

    # requests

    def start(self, fields: list[bytes], fds: list[int]) -> None:
        job, which, memory, cwd, count, *rest = fields
        tree, size = Tree(job.decode()), int(count)
        argv, env = rest[:size], dict(item.split(b"=", 1) for item in rest[size:])
        descriptors = dict.fromkeys(() if which == b"t" else range(3), self.null)
        descriptors |= {NUMBERS[name]: fd for name, fd in zip(which, fds, strict=False)}
        try:
            if len(fds) < len(which):
                raise StartFailed(errno.EMFILE, "exec")
            self.make_mark(tree)
            self.oom.raise_for_child()
            try:
                tree.root = launch(argv, env, cwd, descriptors, int(memory))
                tree.floor = own_peak()
            finally:
                self.oom.restore()
        except StartFailed as problem:
            self.forget(tree)
            self.channel.send(f"failed {tree.job} {problem.number} {problem.step}")
            return
        self.own(tree)

    def make_mark(self, tree: Tree) -> None:
        try:
            self.mark(tree)
        except OSError as problem:  # too many open files, or namespaces
            raise StartFailed(problem.errno or errno.EIO, "exec") from problem

    def own(self, tree: Tree) -> None:
        self.trees[tree.job] = self.roots[tree.root] = tree
        self.channel.send(f"started {tree.job} {tree.root}")

    def signal(self, fields: list[bytes], _fds: list[int]) -> None:
        tree, number, scope = self.trees.get(fields[0].decode()), int(fields[1]), fields[2]
        if tree is None:
            return
        alive = tree.ended is None  # a reaped root's number may be another process's
        if scope == b"process" and alive:
            signal_process(tree.root, number)
        elif scope == b"group" and alive:
            signal_process(-tree.root, number)
        elif scope == b"tree":
            for pid in self.members(tree):
                signal_process(pid, number)

    def begin_kill(self, fields: list[bytes], _fds: list[int]) -> None:
        job, call, grace_ms = (field.decode() for field in fields)
        tree = self.trees.get(job)
        if tree is None:
            self.channel.send(f"killed {call} 0")
            return
        kill = tree.kill = tree.kill or Kill()
        kill.calls.append(call)
        if kill.hard:
            return
        if int(grace_ms):
            kill.until = min(kill.until, time.monotonic() + int(grace_ms) / 1000)
            self.strike(tree, kill, signal.SIGTERM)
            self.strike(tree, kill, signal.SIGCONT)  # a stopped process would sleep through the grace
        else:
            self.strike_hard(tree, kill)

    def list_pids(self, fields: list[bytes], _fds: list[int]) -> None:
        tree = self.trees.get(fields[0].decode())
        found = self.members(tree) if tree else []
        self.channel.send(" ".join(["pids", fields[1].decode(), *map(str, found[:MOST_PIDS])]))

    def list_forks(self, fields: list[bytes], _fds: list[int]) -> None:
        tree = self.trees.get(fields[0].decode())
        found = self.members(tree)[:MOST_FORKS] if tree else []
        stats = [(pid, stat) for pid in found if (stat := stat_of(pid))]
        words = (f"{pid} {int(stat[1])} {int(bool(int(stat[6]) & PF_FORKNOEXEC))}" for pid, stat in stats)
        self.channel.send(" ".join(["forks", fields[1].decode(), *words]))

    # ends

    def reap(self) -> bool:
        some = False
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return some
            if pid == 0:
                return some
            some = True
            tree = self.roots.pop(pid, None)
            if tree is not None:
                tree.ended = (status, usage)

    def look(self, *, reaped: bool) -> None:
        """Report what ended, and go on with the kills: after processes were reaped, or when a grace is over.

        The last process of a tree is always a child of this one when it ends, so nothing has to be polled.
        """
        now = time.monotonic()
        killing = [tree for tree in self.trees.values() if tree.kill and (reaped or tree.kill.until <= now)]
        if reaped or self.again:
            self.again = False
            rootless = [tree for tree in self.trees.values() if tree.ended]
            gone = self.emptied(rootless) if rootless else []
            for tree in rootless:
                self.report(tree, settled=tree in gone)
        for tree in killing:
            if tree.kill and tree.job in self.trees:
                self.go_on(tree, tree.kill, now)

    def report(self, tree: Tree, *, settled: bool) -> None:
        if tree.ended and not tree.reported:
            tree.reported = True
            self.channel.send(exit_words(tree.job, *tree.ended, floor=tree.floor, settled=settled))
        elif settled:
            self.channel.send(f"settled {tree.job}")
        if settled:
            self.answer_kill(tree)
            del self.trees[tree.job]
            self.forget(tree)

    def go_on(self, tree: Tree, kill: Kill, now: float) -> None:
        """Strike again what was forked meanwhile. What is left HARD_S after SIGKILL cannot be ended from here."""
        if kill.hard and kill.until <= now:
            self.answer_kill(tree)
        elif kill.hard or kill.until <= now:
            self.strike_hard(tree, kill)

    def strike_hard(self, tree: Tree, kill: Kill) -> None:
        if not kill.hard:
            kill.hard = True
            kill.until = time.monotonic() + HARD_S
        self.strike(tree, kill, signal.SIGKILL)

    def strike(self, tree: Tree, kill: Kill, number: int) -> None:
        kill.hit.update(pid for pid in self.members(tree) if signal_process(pid, number))

    def answer_kill(self, tree: Tree) -> None:
        if tree.kill:
            for call in tree.kill.calls:
                self.channel.send(f"killed {call} {len(tree.kill.hit)}")
            tree.kill = None

    def forget(self, tree: Tree) -> None:
        if tree.held >= 0:
            os.close(tree.held)


# --- marks


class Marker(Owner):
    """PID 1 of a sandbox. The mark of a tree is the UTS namespace that was made for it."""

    def __init__(self, channel: Channel, null: int, oom: OomScore) -> None:
        super().__init__(channel, null, oom)
        self.verbs |= {b"server": self.start_server, b"adopt": self.adopt, b"trees": self.list_trees}

    def start_server(self, fields: list[bytes], fds: list[int]) -> None:
        lend_capability(CAP_SYS_ADMIN, keep=MARKER_CAPABILITIES)
        try:
            self.start(fields, fds)
        finally:
            drop_capabilities(keep=MARKER_CAPABILITIES)

    def adopt(self, fields: list[bytes], fds: list[int]) -> None:
        """What has ended already was reaped as one of nobody's, and its number may be another's."""
        tree = Tree(fields[0].decode())
        if len(fds) < 2 or is_readable(fds[0]):
            self.channel.send(f"failed {tree.job} {errno.ESRCH} adopt")
            return
        tree.root, tree.mark = int(fields[1]), f"uts:[{os.fstat(fds[1]).st_ino}]"
        try:
            tree.held = os.dup(fds[1])
            leave_room(tree.held)
        except OSError as problem:
            self.forget(tree)
            self.channel.send(f"failed {tree.job} {problem.errno} adopt")
        else:
            self.own(tree)

    def mark(self, tree: Tree) -> None:
        check(libc.unshare(CLONE_NEWUTS))
        # held until the tree is settled: the number of a freed namespace is used again at once
        tree.held = os.open("/proc/self/ns/uts", os.O_RDONLY | os.O_CLOEXEC)
        leave_room(tree.held)
        tree.mark = os.readlink("/proc/self/ns/uts")

    def list_trees(self, fields: list[bytes], _fds: list[int]) -> None:
        found = scan_marks()[0]
        tell_trees(
            self.channel,
            fields[0].decode(),
            {job: found.get(tree.mark, []) for job, tree in self.trees.items()},
        )

    def members(self, tree: Tree) -> list[int]:
        return scan_marks()[0].get(tree.mark, [])

    def emptied(self, trees: list[Tree]) -> list[Tree]:
        """A process can fork and die between being listed and being looked at. So two scans have to agree: what the
        second could not read (gone, or a zombie) the first could not read either, and so forked nothing since."""
        before: set[int] | None = None
        for _ in range(SCANS):
            found, unknown = scan_marks()
            trees = [tree for tree in trees if tree.mark not in found]
            if not trees or not unknown or (before is not None and unknown <= before):
                return trees
            before = unknown
        self.again = True
        return []


def scan_marks() -> tuple[dict[str, list[int]], set[int]]:
    """Return the processes of each mark, and those that could not be read."""
    found: dict[str, list[int]] = {}
    unknown: set[int] = set()
    for pid in pids():
        if pid != 1:
            try:
                found.setdefault(os.readlink(f"/proc/{pid}/ns/uts"), []).append(pid)
            except OSError:
                unknown.add(pid)
    return found, unknown


# --- keepers


class Keeper(Owner):
    """The parent of one tree: forked by the spawner, does the one start that it is told, ends when it is settled."""

    had_start = False

    def __init__(self, channel: Channel, null: int, oom: OomScore) -> None:
        super().__init__(channel, null, oom)
        self.verbs[b"server"] = self.start

    def start(self, fields: list[bytes], fds: list[int]) -> None:
        self.had_start = True
        super().start(fields, fds)

    def adopt(self, job: str, root: int) -> None:
        """Have a tree whose root this process has forked before it was a keeper."""
        self.had_start = True
        tree = Tree(job)
        tree.root = root
        self.own(tree)
        self.look(reaped=self.reap())  # its end may have come before there was anything to wake

    def members(self, tree: Tree) -> list[int]:
        return descendants(os.getpid())

    def emptied(self, trees: list[Tree]) -> list[Tree]:
        """A subreaper without a child has no descendant."""
        try:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return trees
        return []

    def is_done(self) -> bool:
        return self.had_start and not self.trees

    def end(self) -> None:
        """The spawner is gone: end the tree, in bounded time, and say nothing."""
        poll = select.poll()
        poll.register(self.wake, select.POLLIN)
        until = time.monotonic() + HARD_S
        while self.trees and time.monotonic() < until:
            for pid in descendants(os.getpid()):
                signal_process(pid, signal.SIGKILL)
            poll.poll(100)  # bounded, as a process may not die from this (another uid, uninterruptible)
            drain(self.wake)
            self.look(reaped=self.reap())


def keep(fd: int, root: int) -> None:
    """Be the keeper of `root`, which this process has forked, until nothing of its tree is left.

    For a fork server, which calls it in a process of its own. On the socket `fd` first comes the job's name, when the
    spawner adopts it; from then on it is as between the spawner and a keeper that it has forked.
    """
    channel = Channel(socket.socket(fileno=fd))
    keeper = Keeper(channel, -1, OomScore())
    check(libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0))
    job = channel.receive()[0]
    keeper.adopt(job.decode(), root)
    if job:
        keeper.serve()
    keeper.end()


class Kept:
    """A keeper as the spawner sees it. `pidfd` is that of one which was adopted: no child of the spawner's."""

    def __init__(self, pid: int, channel: Channel, pidfd: int = -1) -> None:
        self.pid = pid
        self.channel = channel
        self.pidfd = pidfd
        self.is_server = False
        self.job = ""
        self.root = 0
        self.ended = ""
        self.done = False
        self.kills: dict[str, float] = {}  # calls that it has not answered, and until when it should
        self.overdue: set[str] = set()
        self.lists: dict[str, str] = {}  # calls for a list that it has not answered, and for which one

    def believe(self, message: bytes) -> bool:
        """Tell whether it can be what it says. One that was adopted was a process of the user's environment before: it
        may speak of its own job alone, and in nothing but numbers."""
        verb, *fields = message.decode(errors="replace").split(" ")
        lists = {call for call, asked in self.lists.items() if asked == verb}
        asked = lists if verb in LISTS else {"killed": {*self.kills, *self.overdue}}.get(verb, {self.job})
        kinds = "i" * (len(fields) - 1) if verb in LISTS else KEEPER_WORDS.get(verb, "?")
        known = bool(fields) and fields[0] in asked and len(kinds) == len(fields) - 1
        return known and all(map(is_number, fields[1:], kinds))


def is_number(field: str, kind: str = "i") -> bool:
    digits = field.replace(".", "", 1) if kind == "f" else field
    return digits.isascii() and digits.isdigit() and len(digits) < 20


class Relay:
    """The spawner in mode "keepers": hands each start to a keeper, and what keepers say to the guest."""

    def __init__(self, channel: Channel, null: int, oom: OomScore) -> None:
        self.channel = channel
        self.null = null
        self.oom = oom
        self.limits: dict[str, float | None] = {}
        self.wake = open_wake()
        self.poll = select.poll()
        self.poll.register(channel.fd, select.POLLIN)
        self.poll.register(self.wake, select.POLLIN)
        self.spare: Kept | None = None
        self.may_hire = True
        self.by_fd: dict[int, Kept] = {}
        self.by_pid: dict[int, Kept] = {}
        self.by_pidfd: dict[int, Kept] = {}
        self.jobs: dict[str, Kept] = {}
        self.roots: dict[int, Kept] = {}
        self.bereft: list[Kept] = []  # those whose keeper was killed

    def serve(self) -> None:
        while True:
            ready = self.poll.poll(self.pause_ms())
            for fd, _ in ready:
                if fd == self.wake:
                    drain(fd)
                elif fd == self.channel.fd:
                    if not self.receive():
                        return
                elif fd in self.by_fd:
                    self.relay(self.by_fd[fd])
                elif fd in self.by_pidfd:
                    self.bury(self.by_pidfd[fd])
            self.reap()
            self.end_stopped()
            self.may_hire = bool(ready) or (self.may_hire and self.spare is None and self.hire_spare())

    def pause_ms(self) -> int | None:
        if self.spare is None and self.may_hire:
            return IDLE_MS
        if self.bereft:
            return AGAIN_MS  # what they kept may have another parent, which hears of its end
        ends = [until for kept in self.jobs.values() for until in kept.kills.values()]
        return max(0, int((min(ends) - time.monotonic()) * 1000) + 1) if ends else None

    def hire_spare(self) -> bool:
        """Fork a keeper in advance. Where that fails the next start will tell; until then it is not tried again."""
        try:
            self.spare = self.hire()
        except OSError:
            return False
        return True

    def hire(self, received: Sequence[int] = ()) -> Kept:
        """Fork a keeper, without the descriptors just `received`. Raises OSError where no more can be forked."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        leave_room(theirs.fileno())
        self.oom.raise_for_child()
        try:
            pid = os.fork()
        finally:
            self.oom.restore()
        if pid == 0:
            ours.close()
            close_all(received)
            self.be_keeper(Channel(theirs))
        theirs.close()
        kept = Kept(pid, Channel(ours))
        self.by_fd[kept.channel.fd] = self.by_pid[pid] = kept
        self.poll.register(kept.channel.fd, select.POLLIN)
        return kept

    def be_keeper(self, channel: Channel) -> None:
        """The life of the forked child. It keeps no other descriptor: an end of file is how each learns of an end."""
        code = 1
        try:
            self.channel.sock.close()
            for kept in self.by_fd.values():
                kept.channel.sock.close()
            keeper = Keeper(channel, self.null, self.oom)
            check(libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
            apply_limits(self.limits)
            keeper.serve()
            keeper.end()
            code = 0
        finally:
            os._exit(code)

    # requests

    def receive(self) -> bool:
        message, fds = self.channel.receive()
        try:
            if message:
                self.forward(message, fds)
        finally:
            close_all(fds)
        return bool(message)

    def forward(self, message: bytes, fds: list[int]) -> None:
        verb, job, *rest = peek(message, fds)
        if verb == "trees":
            tell_trees(self.channel, job, self.trees())
            return
        if verb in ("start", "server", "long"):
            self.start(job, message, fds, is_server=verb == "server")
            return
        if verb == "adopt":
            self.adopt(job, int(rest[0]), fds, is_server=rest[1] == "server")
            return
        kept = self.jobs.get(job)
        if kept is None:
            if verb == "kill" or verb in LISTS:
                self.channel.send(f"killed {rest[0]} 0" if verb == "kill" else f"{verb} {rest[0]}")
            return
        if verb == "kill":
            kept.kills[rest[0]] = time.monotonic() + int(rest[1]) / 1000 + HARD_S + 1
        elif verb in LISTS:
            kept.lists[rest[0]] = verb
        # One that has ended is answered for by `settle`; one that takes nothing any more is ended, and then that too.
        if self.by_fd.get(kept.channel.fd) is kept and not kept.channel.offer(message):
            signal_process(kept.pid, signal.SIGKILL)

    def start(self, job: str, message: bytes, fds: list[int], *, is_server: bool) -> None:
        try:
            kept, self.spare = self.spare or self.hire(fds), None
        except OSError as problem:
            self.channel.send(f"failed {job} {problem.errno} exec")
            return
        kept.job, kept.is_server = job, is_server
        self.jobs[job] = kept
        kept.channel.send_bytes(message, fds)

    def adopt(self, job: str, pid: int, fds: list[int], *, is_server: bool) -> None:
        try:
            if len(fds) < 2 or pid in self.by_pid:
                raise ProcessLookupError(errno.ESRCH, "no such keeper")
            leave_room(fds[-1] + 2)
        except OSError as problem:
            self.channel.send(f"failed {job} {problem.errno} adopt")
            return
        channel = Channel(socket.socket(fileno=os.dup(fds[0])))
        kept = Kept(pid, channel, os.dup(fds[1]))
        kept.job, kept.is_server = job, is_server
        self.by_fd[channel.fd] = self.by_pid[pid] = self.by_pidfd[kept.pidfd] = self.jobs[job] = kept
        self.poll.register(channel.fd, select.POLLIN)
        self.poll.register(kept.pidfd, select.POLLIN)
        channel.send(job)

    def trees(self) -> dict[str, list[int]]:
        """Return the processes of each job: those whose next keeper upwards is its own. Keepers are of nobody."""
        parents = {pid: parent_of(pid) for pid in pids()}
        found: dict[str, list[int]] = {}
        for pid in parents.keys() - self.by_pid.keys():
            above = parents[pid]
            while above in parents and above not in self.by_pid:
                above = parents[above]
            if above in self.by_pid and self.by_pid[above].job:
                found.setdefault(self.by_pid[above].job, []).append(pid)
        return found

    # events

    def hang_up(self, kept: Kept) -> None:
        """Take no more of a keeper: it has closed its end, or it has ended and another may have a copy of that."""
        if self.by_fd.get(kept.channel.fd) is kept:
            del self.by_fd[kept.channel.fd]
            self.poll.unregister(kept.channel.fd)
            kept.channel.sock.close()

    def relay(self, kept: Kept) -> None:
        """Take one message of a keeper."""
        message, fds = kept.channel.receive()
        close_all(fds)
        if kept.pidfd >= 0 and message and not kept.believe(message):
            signal_process(kept.pid, signal.SIGKILL)
            return
        if not message:
            self.hang_up(kept)
            return
        verb, *rest = message.decode().split(" ")
        if verb == "started":
            kept.root = int(rest[1])
            self.roots[kept.root] = kept
        elif verb == "killed":
            kept.kills.pop(rest[0], None)
        elif verb in LISTS:
            kept.lists.pop(rest[0], None)
        elif verb == "exit":
            kept.ended = rest[1]
            self.roots.pop(kept.root, None)
        self.channel.send_bytes(message)
        if verb in ("settled", "failed") or (verb == "exit" and rest[-1] == "1"):
            kept.done = True
            self.jobs.pop(kept.job, None)

    def reap(self) -> None:
        while True:
            try:
                pid, status, _ = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            if pid in self.by_pid:
                self.bury(self.by_pid[pid])
            elif pid in self.roots:
                self.report(self.roots.pop(pid), status)
        if self.bereft:
            self.end_strangers()

    def bury(self, kept: Kept) -> None:
        """A keeper has ended: hear its last words; a job that it did not see to its end is bereft."""
        del self.by_pid[kept.pid]
        if self.by_pidfd.pop(kept.pidfd, None):
            self.poll.unregister(kept.pidfd)
            os.close(kept.pidfd)
        for _ in range(LAST_WORDS):
            if self.by_fd.get(kept.channel.fd) is kept and is_readable(kept.channel.fd):
                self.relay(kept)
        self.hang_up(kept)
        if kept is self.spare:
            self.spare = None
        if kept.job and not kept.done:
            self.bereft.append(kept)
        else:
            self.answer_for(kept, killed=0)

    def report(self, kept: Kept, status: int) -> None:
        if not kept.ended:
            kept.ended = str(status)
            self.channel.send(f"exit {kept.job} {status} 0 0 0 0")

    def end_strangers(self) -> None:
        """What a killed keeper kept has come to this process, or to the keeper of the fork server it was forked by, and
        nobody can tell whose it is: end it all."""
        servers = [kept for kept in self.jobs.values() if kept.is_server]
        homes = {os.getpid(), *(kept.pid for kept in servers)}
        known = {*self.by_pid, *(kept.root for kept in servers)}
        strangers = [p for p in descendants(os.getpid()) if p not in known and parent_of(p) in homes]
        struck = [pid for pid in strangers if signal_process(pid, signal.SIGKILL)]
        if struck:  # what has another uid is none of user code's: the guest in a container
            self.take_for_started(struck[0])
            return
        for kept in self.bereft:
            self.settle(kept)
        self.bereft.clear()

    def take_for_started(self, pid: int) -> None:
        """A keeper that was killed by what it had just started could not say so: what is found without one is that."""
        for kept in self.bereft:
            if not kept.root:
                kept.root = pid
                self.roots[pid] = kept
                self.channel.send(f"started {kept.job} {pid}")

    def settle(self, kept: Kept) -> None:
        if kept.root:
            self.report(kept, signal.SIGKILL)
            self.channel.send(f"settled {kept.job}")
        else:
            self.channel.send(f"failed {kept.job} {errno.ECHILD} exec")
        self.answer_for(kept, killed=1)
        self.roots.pop(kept.root, None)
        self.jobs.pop(kept.job, None)

    def answer_for(self, kept: Kept, *, killed: int) -> None:
        """Answer what came too late for a keeper that has ended."""
        for call in (*kept.kills, *kept.overdue):
            self.channel.send(f"killed {call} {killed}")
        for call, verb in kept.lists.items():
            self.channel.send(f"{verb} {call}")

    def end_stopped(self) -> None:
        """End a keeper that does not answer a kill in time: user code may have stopped it."""
        now = time.monotonic()
        for kept in self.jobs.values():
            if any(until <= now for until in kept.kills.values()):
                kept.overdue.update(kept.kills)
                kept.kills.clear()
                signal_process(kept.pid, signal.SIGKILL)

    def end(self) -> None:
        """The guest is gone: tell the keepers by closing, then end what is still there, in bounded time."""
        for kept in self.by_fd.values():
            kept.channel.sock.close()
        self.poll = select.poll()
        self.poll.register(self.wake, select.POLLIN)
        for number, seconds in ((0, HARD_S + 1), (signal.SIGKILL, 1.0)):
            until = time.monotonic() + seconds
            while (left := descendants(os.getpid())) and time.monotonic() < until:
                for pid in left if number else ():
                    signal_process(pid, number)
                self.poll.poll(100)
                drain(self.wake)
                wait_all()


def peek(message: bytes, fds: list[int]) -> list[str]:
    """Return the verb and the first fields of a request, which are plain text."""
    if message.startswith(b"long\0") and fds:
        message = os.pread(fds[0], 256, 0)
    return [field.decode(errors="replace") for field in message.split(b"\0", 4)[:4]]


def wait_all() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            continue
    except ChildProcessError:
        return


# --- the start of it all


def read_limits(settings: str) -> dict[str, float | None]:
    """Imported here, after the spawner has said that it is ready: json costs 6 ms, while the guest boots."""
    import json

    limits: dict[str, float | None] = json.loads(settings).get("limits") or {}
    return limits


def main(fd: int, mode: str, settings: str) -> None:
    """See the module. The order matters: the score is opened while /proc/self is still our own."""
    while (null := os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)) < 3:
        os.set_inheritable(null, True)
    channel, oom = Channel(socket.socket(fileno=fd)), OomScore()
    check(libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0))
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # PID 1 without a handler cannot be signalled from inside
    if mode == "marks":
        if os.getpid() != 1:
            raise SystemExit("mode marks needs to be PID 1: its end is kill(-1)")
        drop_capabilities(keep=MARKER_CAPABILITIES)
        owner = Marker(channel, null, oom)
        gc.freeze()
        channel.send(f"ready {os.getpid()}")
        apply_limits(read_limits(settings))
        owner.serve()
        signal_process(-1, signal.SIGKILL)
        return
    check(libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
    relay = Relay(channel, null, oom)
    gc.freeze()
    channel.send(f"ready {os.getpid()}")
    relay.limits = read_limits(settings)
    relay.serve()
    relay.end()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3])

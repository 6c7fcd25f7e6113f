"""What of a machine a sandbox is given on request: folders and ports. Pure, but for the look whether a folder is there."""

from __future__ import annotations

import ipaddress
import os
import re
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from sandcell_container.errors import ErrorCode, SandcellError, error

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = [
    "Mount",
    "PublishedPort",
    "check_targets",
    "find_source",
    "parse_mount",
    "parse_port",
    "posix_source",
]

_DRIVE = re.compile(r"([A-Za-z]):[\\/]+(.*)", re.DOTALL)
_WSL_SHARE = re.compile(
    r"[\\/]{2}(?:wsl\$|wsl\.localhost)[\\/][^\\/]+(?P<rest>.*)", re.DOTALL | re.IGNORECASE
)
_SHARE = re.compile(r"[\\/]{2}[^\\/]")
# What the sandbox stands on: a mount there would take its place.
_RESERVED = tuple(
    PurePosixPath(each)
    for each in ("/proc", "/sys", "/dev", "/run/sandcell", "/opt/sandcell", "/var/lib/sandcell")
)
# What of every image a program needs to start: below these, a mount may be.
_SYSTEM = tuple(
    PurePosixPath(each)
    for each in ("/bin", "/etc", "/lib", "/lib64", "/sbin", "/usr", "/usr/bin", "/usr/lib")
)
_LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Mount:
    """A folder or file `source` of this machine that is seen at `target`, an absolute path inside."""

    source: str
    target: str
    read_only: bool = True


@dataclass(frozen=True, slots=True)
class PublishedPort:
    """TCP port `port` of the sandbox, reached at `host`:`host_port` of this machine; 0 is any free one."""

    port: int
    host_port: int
    host: str = _LOOPBACK


def parse_mount(given: str | Mount) -> Mount:
    """Return the mount that "SOURCE:TARGET" with ":ro" (the default) or ":rw" after it means; SOURCE may be a Windows path.

    Raises:
        InvalidRequest (INVALID_ARGUMENT): it is none, or its target is nothing that can be mounted.
    """
    mount = given if isinstance(given, Mount) else _split_mount(given)
    target = PurePosixPath(os.path.normpath(mount.target))
    if not mount.target.startswith("/") or target == PurePosixPath("/"):
        raise _no_mount(given, "its target has to be an absolute path below /")
    if any(target == each or each in target.parents or target in each.parents for each in _RESERVED):
        raise _no_mount(given, f"{target} is the sandbox's own")
    if target in _SYSTEM:
        raise _no_mount(
            given, f"nothing starts without the image's own {target}; mount below it, or elsewhere"
        )
    return replace(mount, source=posix_source(mount.source), target=str(target))


def check_targets(mounts: Sequence[Mount]) -> None:
    """Refuse two mounts in one place. Raises InvalidRequest (INVALID_ARGUMENT)."""
    targets = [each.target for each in mounts]
    for each in mounts:
        if targets.count(each.target) > 1:
            raise _no_mount(each, "another mount has the same target")


def posix_source(source: str) -> str:
    r"""Return `source` as this machine names it: a Windows path as it is seen in the Windows Subsystem for Linux.

    C:\Users\me is /mnt/c/Users/me there, \\wsl$\Debian\home\me is /home/me. Any other path is returned as it is.

    Raises:
        InvalidRequest (INVALID_ARGUMENT): a share of another machine.
    """
    if match := _DRIVE.fullmatch(source):
        return f"/mnt/{match[1].lower()}/{_slashed(match[2])}".rstrip("/")
    if match := _WSL_SHARE.fullmatch(source):
        return _slashed(match["rest"]) or "/"
    if "\\" in source and _SHARE.match(source):
        raise _no_mount(source, "a share of another machine cannot be mounted; copy or mount it here first")
    return source


def find_source(mount: Mount, *, closed: Iterable[str] = ()) -> Mount:
    """Return `mount` with the real path of its source, which has to be there. IO: looks at the file system.

    `closed` are paths that no sandbox may be shown, nor anything that holds one of them or lies in it.

    Raises:
        InvalidRequest (INVALID_ARGUMENT): there is no such source, or it is closed.
    """
    source = os.path.realpath(os.path.expanduser(mount.source))
    if not os.path.exists(source):
        raise _no_mount(mount, f"there is no {source} on this machine")
    for each in closed:
        real = os.path.realpath(each)
        if os.path.commonpath((real, source)) in (real, source):
            raise _no_mount(mount, f"{source} would open {real} to user code")
    return replace(mount, source=source)


def parse_port(given: int | str | PublishedPort) -> PublishedPort:
    """Return what 8000, "8080:80", "0:80" (any free port) or "0.0.0.0:8080:80" means: on the loopback unless said.

    Raises:
        InvalidRequest (INVALID_ARGUMENT): it is none of these.
    """
    found = given if isinstance(given, PublishedPort) else _split_port(given)
    try:
        ipaddress.ip_address(found.host)
    except ValueError:
        raise _no_port(given, f"{found.host[:40]!r} is no address of this machine") from None
    if not 0 < found.port < 65536 or not 0 <= found.host_port < 65536:
        raise _no_port(given, "ports go from 1 to 65535")
    return found


def _split_mount(given: object) -> Mount:
    text = given if isinstance(given, str) else ""
    body, _, mode = text.rpartition(":")
    if mode not in ("ro", "rw"):
        body, mode = text, "ro"
    # From the right: a source may hold colons, as a drive of Windows does.
    source, _, target = body.rpartition(":")
    if not source or not target or "\0" in text:
        raise _no_mount(given, "it has no source and target")
    return Mount(source, target, read_only=mode == "ro")


def _split_port(given: object) -> PublishedPort:
    if isinstance(given, int) and not isinstance(given, bool):
        return PublishedPort(given, given)
    head, _, port = str(given).rpartition(":")
    host, _, host_port = head.rpartition(":")
    if not isinstance(given, str) or not port.isdecimal() or not (host_port or port).isdecimal():
        raise _no_port(given, "it has no port")
    return PublishedPort(int(port), int(host_port or port), host.strip("[]") or _LOOPBACK)


def _slashed(path: str) -> str:
    return re.sub(r"[\\/]+", "/", path)


def _no_mount(given: object, why: str) -> SandcellError:
    return error(
        ErrorCode.INVALID_ARGUMENT,
        f"the mount {_shown(given)} cannot be: {why}"[:300],
        hint='"SOURCE:TARGET", or "SOURCE:TARGET:rw" to let the sandbox write',
        details={"field": "mounts"},
    )


def _no_port(given: object, why: str) -> SandcellError:
    return error(
        ErrorCode.INVALID_ARGUMENT,
        f"{str(given)[:60]!r} cannot be published: {why}",
        hint='8000, or "8080:80", or "0.0.0.0:8080:80" for every address of this machine',
        details={"field": "publish"},
    )


def _shown(given: object) -> str:
    return repr(f"{given.source}:{given.target}" if isinstance(given, Mount) else given)[:120]

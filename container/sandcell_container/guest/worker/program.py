"""The worker: does with the user's rights what has to be done by the user, and passes what it opens to the guest.

`shipment` makes one text of these modules, and `user_worker` starts that by `PYTHON -I -S -c TEXT` as the user, without an
environment, with one end of a SEQPACKET socket pair as its standard input. It holds nothing that user code must not have, and
what it says counts as untrusted. Its protocol is in `reply`.
"""

from __future__ import annotations

import errno
import importlib
import os
import socket

from sandcell_container.guest.worker.opening import NotRegular, Refusal, libc
from sandcell_container.guest.worker.reply import Reply, receive

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Verb = Callable[[Reply, bytes, dict[str, Any]], None]

__all__ = ["VERBS", "main"]

PR_SET_DUMPABLE = 4

# Where each is done: a module is compiled when its first verb is asked for.
VERBS = {
    "read": "writing",
    "begin": "writing",
    "commit": "writing",
    "new": "writing",
    "fifo": "writing",
    "append": "writing",
    "stat_file": "folders",
    "mkdir": "folders",
    "remove": "folders",
    "rename": "folders",
    "list_folder": "listing",
    "copy": "copying",
    "move": "copying",
    "replace": "editing",
    "insert": "editing",
    "search": "searching",
    "pack": "streaming",
    "unpack": "streaming",
    "watch": "watching",
    "terminal": "processes",
    "processes": "processes",
}


def serve(sock: socket.socket) -> None:
    """Answer one request after another until the other end is closed."""
    reply = Reply(sock)
    while (request := receive(sock)) is not None:
        path = os.fsencode(request.get("path", ""))
        try:
            find_verb(request["do"])(reply, path, request)
        except NotRegular as problem:
            reply.fail({"errno": errno.EINVAL, "is": problem.kind, "at": os.fsdecode(problem.path)})
        except Refusal as problem:
            reply.fail({"refused": problem.code, "why": problem.why, "details": problem.details})
        except (BrokenPipeError, ConnectionResetError):
            return  # nobody waits for it any more
        except RecursionError:
            reply.fail({"errno": errno.ELOOP})  # a chain of symlinks that has hardly an end
        except OSError as problem:
            at = problem.filename if isinstance(problem.filename, bytes) else b""
            reply.fail({"errno": problem.errno or errno.EIO, "at": os.fsdecode(at)})


def find_verb(name: str) -> Verb:
    module = importlib.import_module(f"sandcell_container.guest.worker.{VERBS[name]}")
    verb: Verb = getattr(module, name)
    return verb


def main() -> None:
    """See the module. Undumpable: user code of the same uid must not get at the socket."""
    libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    with socket.socket(fileno=0) as sock:
        serve(sock)

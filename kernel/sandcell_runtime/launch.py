"""The program of a context's process: read what to be from stdin, become an IPython kernel, say ready on stdout.

stdin, to its end, is one JSON object: `{"connection": {transport, ip, key, shell_port, ...}, "settings": {...}}`.
The last line on stdout is JSON too: `{"ready": true}` once every socket is bound, so that nobody connects too
early and sleeps on ZMQ's reconnect timer; or `{"failed": reason, "hint": text}`. Then stdin and stdout are
/dev/null for the rest of the process's life. Where the environment's ipykernel lacks what the runtime needs, its own
kernel runs instead, and the line is `{"ready": true, "stock": reason}`.

With the argument `fork-server` it becomes the fork server instead; see `fork_server`.
"""

from __future__ import annotations

import faulthandler
import importlib.util
import json
import os
import sys
from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGE = "sandcell_runtime"
NEEDED = 'pip install "ipykernel>=7" in the environment that user code gets'


# What an ipykernel makes of ours that has not, or has elsewhere, what ours is built on.
LACKING = (ImportError, AttributeError, TypeError)


def main() -> None:
    match sys.argv[1:]:
        case ["fork-server"]:
            _hide_launcher()
            from sandcell_runtime.fork_server import main as serve

            serve()
        case ["stock", reason]:
            _become_stock_kernel(reason)
        case _:
            _become_kernel()


def _become_kernel() -> None:
    told, environ = sys.stdin.buffer.read(), dict(os.environ)
    request: dict[str, Any] = json.loads(told)
    answer = _take_over_standard_streams()
    _hide_launcher()
    faulthandler.enable(os.dup(2), all_threads=False)  # 2 itself becomes a pipe that dies with this process
    try:
        from sandcell_runtime.late_client import put_off_client

        put_off_client()
        from sandcell_runtime.app import make_app

        app = make_app(request["connection"], request.get("settings", {}))
    except LACKING as problem:
        name = "" if isinstance(problem, ImportError) else f"{type(problem).__name__}: "
        _start_over(told, answer, environ, f"{name}{problem}")
    else:
        _say(answer, ready=True)
        app.start()


def _start_over(told: bytes, answer: int, environ: dict[str, str], reason: str) -> None:
    """Become a stock kernel, in a process that nothing half made is left in."""
    stdin = os.memfd_create("request")
    os.write(stdin, told)
    os.lseek(stdin, 0, os.SEEK_SET)
    os.dup2(stdin, 0)
    os.dup2(answer, 1)
    os.execve(sys.executable, [sys.executable, os.path.abspath(__file__), "stock", reason], environ)


def _become_stock_kernel(reason: str) -> None:
    request: dict[str, Any] = json.load(sys.stdin)
    answer = _take_over_standard_streams()
    _hide_launcher()
    faulthandler.enable(os.dup(2), all_threads=False)
    try:
        from sandcell_runtime.stock import make_app
    except ImportError as problem:
        _say(answer, failed=f"ipykernel cannot be imported by {sys.executable}: {problem}", hint=NEEDED)
        sys.exit(1)
    app = make_app(request["connection"], request.get("settings", {}))
    _say(answer, ready=True, stock=reason)
    app.start()


def _take_over_standard_streams() -> int:
    """Point stdin and stdout at /dev/null; return a private copy of what stdout was."""
    answer = os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.close(null)
    return answer


def _hide_launcher() -> None:
    """Make the package importable without its folder on `sys.path`, where `import kernel` would find ours."""
    if sys.path and sys.path[0] == HERE:
        del sys.path[0]
    sys.argv[:] = [""]
    spec = importlib.util.spec_from_file_location(
        PACKAGE, os.path.join(HERE, "__init__.py"), submodule_search_locations=[HERE]
    )
    if spec is None or spec.loader is None:
        raise ImportError(f"{HERE} is no package")
    module = importlib.util.module_from_spec(spec)
    sys.modules[PACKAGE] = module
    spec.loader.exec_module(module)


def _say(answer: int, **fields: object) -> None:
    os.write(answer, b"\n" + json.dumps(fields).encode() + b"\n")
    os.close(answer)


if __name__ == "__main__":
    main()

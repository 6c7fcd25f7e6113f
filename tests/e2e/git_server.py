"""A server of repositories over HTTP, run inside a sandbox: `git http-backend` behind basic authentication.

`git_server.py ROOT USER PASSWORD [CERTIFICATE]` serves the repositories in ROOT on a free port, which it prints: below /open/ to all,
below /private/ to who has the password, and of a name without `.git` leads to that with it; /moved/ leads to /private/ of another name of the
host, /slow/ never answers. Once a password came it looks for it where other processes of the same user could, and writes the
places to ROOT/seen.
"""

from __future__ import annotations

import base64
import os
import ssl
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

ROOT, USER, PASSWORD, *CERTIFICATE = sys.argv[1:]
BASIC = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
FOR_EVER = threading.Event()


def look_for_password() -> list[str]:
    """Return the files of /proc in which the password stands, but for this server's own."""
    seen = list[str]()
    for folder in Path("/proc").glob("[0-9]*"):
        if folder.name == str(os.getpid()):
            continue
        for name in ("cmdline", "environ"):
            try:
                data = (folder / name).read_bytes()
            except OSError:
                continue  # it has ended
            if PASSWORD.encode() in data or BASIC[6:].encode() in data:
                seen.append(f"{folder}/{name} {data[:200]!r}")
    return seen


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.0"

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        _, area, path = url.path.split("/", 2)
        if area == "slow":
            FOR_EVER.wait()
        if area == "moved":
            host = self.headers["Host"].replace("127.0.0.1", "localhost")
            self.answer(302, {"Location": f"http://{host}/private/{path}?{url.query}"})
        elif area == "private" and ".git/" not in path:
            self.answer(302, {"Location": self.path.replace("/info/", ".git/info/")})
        elif area == "private" and not self.is_let_in():
            self.answer(401, {"WWW-Authenticate": 'Basic realm="git"'})
        else:
            self.run_backend(f"/{path}", url.query)

    do_POST = do_GET

    def is_let_in(self) -> bool:
        given = self.headers.get("Authorization", "")
        if given:
            with open(f"{ROOT}/seen", "a", encoding="utf-8") as file:
                file.writelines(f"{line}\n" for line in look_for_password())
            with open(f"{ROOT}/asked", "a", encoding="utf-8") as file:
                file.write(f"{self.headers['Host']} {self.path}\n")
        return given == BASIC

    def answer(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def run_backend(self, path: str, query: str) -> None:
        data = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        environment = {
            "PATH": os.environ["PATH"],
            "GIT_PROJECT_ROOT": ROOT,
            "GIT_HTTP_EXPORT_ALL": "1",
            "REMOTE_USER": USER,
            "REQUEST_METHOD": self.command,
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(data)),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "HTTP_GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
        }
        done = subprocess.run(
            ["git", "http-backend"], input=data, env=environment, stdout=subprocess.PIPE, check=True
        )
        head, _, body = done.stdout.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
        self.answer(int(fields.pop("Status", "200").split()[0]), fields)
        self.wfile.write(body)


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if CERTIFICATE:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(CERTIFICATE[0])
        server.socket = context.wrap_socket(server.socket, server_side=True)
    print(f"port {server.server_address[1]}", flush=True)  # noqa: T201 -- the test waits for it
    server.serve_forever()

"""A Git repository that is served by HTTP on this machine, and what is committed to it.

Flux reads neither `git daemon` nor folders, so this is Git's own `http-backend` behind a small server.
"""

from __future__ import annotations

import http.server
import os
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from slopewise.adapters.local.prometheus_server import free_loopback_port

_AUTHOR = {
    "GIT_AUTHOR_NAME": "platform",
    "GIT_AUTHOR_EMAIL": "platform@example.org",
    "GIT_COMMITTER_NAME": "platform",
    "GIT_COMMITTER_EMAIL": "platform@example.org",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
}


class GitServer:
    """One repository with the branch `main`, from entry to exit."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "platform"
        self.folder.mkdir()
        self._git("init", "--quiet", "--initial-branch=main")
        handler = type("Handler", (_Backend,), {"root": folder})
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", free_loopback_port()), handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/platform/.git"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def commit(self, message: str, files: Mapping[str, str | None]) -> str:
        """Write these files, or delete them (None), and commit; returns the revision."""
        for name, text in files.items():
            path = self.folder / name
            if text is None:
                path.unlink()
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
        self._git("add", "--all")
        self._git("commit", "--quiet", "--message", message)
        return self._git("rev-parse", "HEAD")

    def revert(self) -> str:
        """Take the newest commit back; returns the revision."""
        self._git("revert", "--no-edit", "HEAD")
        return self._git("rev-parse", "HEAD")

    def _git(self, *arguments: str) -> str:
        done = subprocess.run(
            ["git", *arguments],
            cwd=self.folder,
            env={**os.environ, **_AUTHOR},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()


class _Backend(http.server.BaseHTTPRequestHandler):
    """Hands each request to `git http-backend` as a web server hands it to a CGI program."""

    root: Path

    def do_GET(self) -> None:
        self._answer(b"")

    def do_POST(self) -> None:
        self._answer(self.rfile.read(int(self.headers.get("Content-Length", 0))))

    def _answer(self, body: bytes) -> None:
        path, _, query = self.path.partition("?")
        variables = {
            "GIT_PROJECT_ROOT": str(self.root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "REQUEST_METHOD": self.command,
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
            "REMOTE_ADDR": "127.0.0.1",
        }
        done = subprocess.run(
            ["git", "http-backend"],
            input=body,
            env={**os.environ, **_AUTHOR, **variables},
            capture_output=True,
            check=False,
        )
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n") if line)
        self.send_response(int(fields.pop("Status", "200").split()[0]))
        for name, value in fields.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Nothing on stderr."""

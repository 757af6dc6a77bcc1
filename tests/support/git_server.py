"""A Git repository that is served by HTTP on this machine, and what is committed to it.

Flux reads neither `git daemon` nor folders, so this is Git's own `http-backend` behind a small server.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler
from pathlib import Path

from support.loopback import Loopback, send

_AUTHOR = {
    "GIT_AUTHOR_NAME": "platform",
    "GIT_AUTHOR_EMAIL": "platform@example.org",
    "GIT_COMMITTER_NAME": "platform",
    "GIT_COMMITTER_EMAIL": "platform@example.org",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
}


class GitServer(Loopback):
    """One repository with the branch `main`, from when it is made until it is closed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "platform"
        self.folder.mkdir()
        self._git("init", "--quiet", "--initial-branch=main")
        super().__init__()
        self.url += "/platform/.git"

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

    def serve(self, handler: BaseHTTPRequestHandler) -> None:
        path, _, query = handler.path.partition("?")
        body = handler.rfile.read(int(handler.headers.get("Content-Length", 0)))
        variables = {
            "GIT_PROJECT_ROOT": str(self.folder.parent),
            "GIT_HTTP_EXPORT_ALL": "1",
            "REQUEST_METHOD": handler.command,
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "CONTENT_TYPE": handler.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": handler.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": handler.headers.get("Git-Protocol", ""),
            "REMOTE_ADDR": "127.0.0.1",
        }
        environment = {**os.environ, **_AUTHOR, **variables}
        done = subprocess.run(["git", "http-backend"], input=body, env=environment, capture_output=True, check=False)
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n") if line)
        send(handler, int(fields.pop("Status", "200").split()[0]), content, fields)

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

"""Grafana's HTTP API as far as Slopewise uses it: folders, dashboards, annotations; no Grafana can be had in the tests.

It answers as the documents of Grafana 10 say, over real HTTP; `answer_with` and `silent` make it misbehave.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOKEN = "glsa_of_an_editor"


class FakeGrafana(ThreadingHTTPServer):
    """Folders and dashboards behind real HTTP, as Grafana 10 answers; `answer_with` makes it misbehave."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.folders: list[dict[str, str]] = []
        self.dashboards: dict[str, dict[str, Any]] = {}
        self.annotations: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.misbehaviour: tuple[int, str, dict[str, str]] | None = None
        self.silent = threading.Event()
        self.released = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def answer_with(self, status: int, body: str, **headers: str) -> None:
        self.misbehaviour = (status, body, headers)

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        if path.endswith("/api/folders"):
            return (200, self.folders) if method == "GET" else (200, self._new_folder(body))
        if path.endswith("/api/dashboards/db") and method == "POST":
            return 200, self._save(body)
        if path.endswith("/api/annotations") and method == "POST":
            self.annotations.append(body)
            return 200, {"message": "Annotation added", "id": len(self.annotations)}
        return 404, {"message": "Not found"}

    def _new_folder(self, body: Any) -> dict[str, str]:
        folder = {"uid": f"folder-{len(self.folders)}", "title": body["title"]}
        self.folders.append(folder)
        return folder

    def _save(self, body: Any) -> dict[str, Any]:
        uid = body["dashboard"]["uid"]
        version = self.dashboards.get(uid, {}).get("version", 0) + 1
        self.dashboards[uid] = {**body, "version": version}
        return {"uid": uid, "version": version, "status": "success", "url": f"/d/{uid}/slug"}


class _Handler(BaseHTTPRequestHandler):
    server: FakeGrafana

    def _serve(self) -> None:
        grafana = self.server
        grafana.paths.append(self.path)
        if grafana.silent.is_set():
            grafana.released.wait(30)
            return
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length) or "null")
        if grafana.misbehaviour:
            self._send(*grafana.misbehaviour)
        elif self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self._send(401, json.dumps({"message": "Invalid API key"}), {})
        else:
            status, answer = grafana.answer(self.command, self.path, body)
            self._send(status, json.dumps(answer), {"Content-Type": "application/json"})

    def _send(self, status: int, body: str, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body.encode()))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body.encode())

    do_GET = do_POST = _serve  # noqa: N815

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Say nothing on stderr."""


@contextmanager
def running(server: FakeGrafana) -> Iterator[FakeGrafana]:
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.released.set()
        server.shutdown()
        thread.join()
        server.server_close()

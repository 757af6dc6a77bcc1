"""Grafana's HTTP API as far as Slopewise uses it: folders, dashboards, annotations; no Grafana can be had in the tests.

It answers as the documents of Grafana 10 say, over real HTTP; `answer_with` and `silent` make it misbehave.
"""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler
from typing import Any

from support.loopback import Loopback, send

TOKEN = "glsa_of_an_editor"


class FakeGrafana(Loopback):
    """Folders and dashboards behind real HTTP, as Grafana 10 answers; `answer_with` makes it misbehave."""

    def __init__(self) -> None:
        self.folders: list[dict[str, str]] = []
        self.dashboards: dict[str, dict[str, Any]] = {}
        self.annotations: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.misbehaviour: tuple[int, str, dict[str, str]] | None = None
        self.silent = threading.Event()
        super().__init__()

    def answer_with(self, status: int, body: str, **headers: str) -> None:
        self.misbehaviour = (status, body, headers)

    def serve(self, handler: BaseHTTPRequestHandler) -> None:
        self.paths.append(handler.path)
        if self.silent.is_set():
            self.released.wait(30)
            return
        body = json.loads(handler.rfile.read(int(handler.headers.get("Content-Length") or 0)) or "null")
        headers = {"Content-Type": "application/json"}
        if self.misbehaviour:
            status, text, headers = self.misbehaviour
        elif handler.headers.get("Authorization") != f"Bearer {TOKEN}":
            status, text = 401, json.dumps({"message": "Invalid API key"})
        else:
            status, found = self.answer(handler.command, handler.path, body)
            text = json.dumps(found)
        send(handler, status, text.encode(), headers)

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

"""An HTTP server that answers like a Prometheus, or like anything that may stand in its place."""

from __future__ import annotations

import json
import ssl
from http.server import BaseHTTPRequestHandler
from urllib.parse import parse_qs, urlsplit

from support.loopback import Loopback, Respond, send

EMPTY = {"status": "success", "data": {"resultType": "vector", "result": []}}


class FakePrometheus(Loopback):
    """Answers every query as the test sets it, and notes what it was asked."""

    protocol_version = "HTTP/1.1"

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.respond: Respond = answer(EMPTY)
        self.asked: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.headers: list[dict[str, str]] = []
        """Of each request, by lower-case name."""
        super().__init__(tls)

    def serve(self, handler: BaseHTTPRequestHandler) -> None:
        parts = urlsplit(handler.path)
        self.asked.append({name: values[0] for name, values in parse_qs(parts.query).items()})
        self.paths.append(parts.path)
        self.headers.append({name.lower(): value for name, value in handler.headers.items()})
        self.respond(handler)


def answer(document: object, status: int = 200) -> Respond:
    return lambda handler: send(handler, status, json.dumps(document).encode())


def text(body: bytes, status: int = 200) -> Respond:
    return lambda handler: send(handler, status, body)


def vector(*rows: object, **more: object) -> dict[str, object]:
    return {"status": "success", "data": {"resultType": "vector", "result": list(rows)}, **more}

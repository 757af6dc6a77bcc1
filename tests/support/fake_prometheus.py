"""An HTTP server that answers like a Prometheus, or like anything that may stand in its place."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

EMPTY = {"status": "success", "data": {"resultType": "vector", "result": []}}
Respond = Callable[[BaseHTTPRequestHandler], object]


class FakePrometheus:
    """A real HTTP server on loopback that answers every query as the test sets it, and notes what it was asked."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.respond: Respond = answer(EMPTY)
        self.asked: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.headers: list[dict[str, str]] = []
        """Of each request, by lower-case name."""
        self.released = threading.Event()
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                parts = urlsplit(self.path)
                fake.asked.append({name: values[0] for name, values in parse_qs(parts.query).items()})
                fake.paths.append(parts.path)
                fake.headers.append({name.lower(): value for name, value in self.headers.items()})
                fake.respond(self)

            def log_message(self, *_: object) -> None:
                pass

        self._server = _Server(("127.0.0.1", 0), Handler, tls)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()
        self.port = self._server.server_port
        self.url = f"{'http' if tls is None else 'https'}://127.0.0.1:{self.port}"

    def close(self) -> None:
        self.released.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], handler: Any, tls: ssl.SSLContext | None) -> None:
        self._tls = tls
        super().__init__(address, handler)

    def finish_request(self, request: Any, client_address: Any) -> None:
        """The handshake is the connection's own thread's: one that hangs holds up no other."""
        if self._tls is not None:
            request = self._tls.wrap_socket(request, server_side=True, do_handshake_on_connect=False)
            try:
                request.do_handshake()
            except OSError:
                _let_read(request)
                return
        super().finish_request(request, client_address)
        if self._tls is not None:
            request.close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that trusts no certificate of ours, or has given up, leaves a broken connection."""


def _let_read(connection: ssl.SSLSocket) -> None:
    """Wait until the client has gone: closed with unread data, the alert that says why might never reach it."""
    connection.settimeout(1.0)
    with connection, suppress(OSError):
        while socket.socket.recv(connection, 65536):
            pass


def send(
    handler: BaseHTTPRequestHandler, status: int, body: bytes, *, promised: int | None = None, **headers: str
) -> None:
    handler.send_response(status)
    handler.send_header("Content-Length", str(len(body) if promised is None else promised))
    for name, value in headers.items():
        handler.send_header(name, value)
    handler.end_headers()
    handler.wfile.write(body)


def answer(document: object, status: int = 200) -> Respond:
    return lambda handler: send(handler, status, json.dumps(document).encode())


def text(body: bytes, status: int = 200) -> Respond:
    return lambda handler: send(handler, status, body)


def vector(*rows: object, **more: object) -> dict[str, object]:
    return {"status": "success", "data": {"resultType": "vector", "result": list(rows)}, **more}

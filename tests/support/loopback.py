"""A real HTTP server on loopback, of which the tests make what stands in the place of others' servers."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

Respond = Callable[[BaseHTTPRequestHandler], object]


class Loopback:
    """Serves from when it is made until it is closed; `serve` has each request, whatever its method."""

    protocol_version = "HTTP/1.0"

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.released = threading.Event()
        """Set when it is closed: what keeps a client waiting waits for it."""
        handler = type("Handler", (_Handler,), {"owner": self, "protocol_version": self.protocol_version})
        self._server = _Server(("127.0.0.1", 0), handler, tls)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        self.port = self._server.server_port
        self.address = f"127.0.0.1:{self.port}"
        self.url = f"{'http' if tls is None else 'https'}://{self.address}"

    def serve(self, handler: BaseHTTPRequestHandler) -> None:
        raise NotImplementedError

    def close(self) -> None:
        self.released.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Handler(BaseHTTPRequestHandler):
    owner: Loopback

    def do_GET(self) -> None:
        self.owner.serve(self)

    do_POST = do_CONNECT = do_GET  # noqa: N815 - the base class's names

    def log_message(self, *_: object) -> None:
        """Silence."""


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
    handler: BaseHTTPRequestHandler,
    status: int,
    body: bytes,
    headers: Mapping[str, str] = {},
    *,
    promised: int | None = None,
) -> None:
    handler.send_response(status)
    handler.send_header("Content-Length", str(len(body) if promised is None else promised))
    for name, value in headers.items():
        handler.send_header(name, value)
    handler.end_headers()
    handler.wfile.write(body)

"""A forward proxy on loopback: it tunnels with CONNECT, forwards plain HTTP, and notes what it was sent."""

from __future__ import annotations

import select
import socket
import urllib.request
from http.server import BaseHTTPRequestHandler
from urllib.error import HTTPError

from support.loopback import Loopback, send


class ConnectProxy(Loopback):
    """Refuses with 407 where `asks_for` is a value of Proxy-Authorization that it did not get."""

    def __init__(self, asks_for: str | None = None) -> None:
        self.requests: list[tuple[str, str]] = []
        """Method and target of each."""
        self.headers: list[dict[str, str]] = []
        self._asks_for = asks_for
        super().__init__()

    def serve(self, handler: BaseHTTPRequestHandler) -> None:
        if not self._let_in(handler):
            handler.send_response(407)
            handler.end_headers()
        elif handler.command == "CONNECT":
            host, _, port = handler.path.rpartition(":")
            with socket.create_connection((host, int(port)), 5) as upstream:
                handler.send_response(200)
                handler.end_headers()
                _pump(handler.connection, upstream)
        else:
            _forward(handler)

    def _let_in(self, handler: BaseHTTPRequestHandler) -> bool:
        """Note the request; whether its client says who it is."""
        self.requests.append((handler.command, handler.path))
        self.headers.append({name.lower(): value for name, value in handler.headers.items()})
        return self._asks_for in (None, handler.headers.get("Proxy-Authorization"))


def _forward(handler: BaseHTTPRequestHandler) -> None:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(handler.path, timeout=5) as answer:
            status, body = answer.status, answer.read()
    except HTTPError as error:
        status, body = error.code, error.read()
    send(handler, status, body)


def _pump(one: socket.socket, other: socket.socket) -> None:
    while True:
        for ready in select.select([one, other], [], [], 30)[0]:
            data = ready.recv(65536)
            if not data:
                return
            (other if ready is one else one).sendall(data)

"""A forward proxy on loopback: it tunnels with CONNECT, forwards plain HTTP, and notes what it was sent."""

from __future__ import annotations

import select
import socket
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.error import HTTPError


class ConnectProxy:
    """Refuses with 407 where `asks_for` is a value of Proxy-Authorization that it did not get."""

    def __init__(self, asks_for: str | None = None) -> None:
        self.requests: list[tuple[str, str]] = []
        """Method and target of each."""
        self.headers: list[dict[str, str]] = []
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            def do_CONNECT(self) -> None:
                if not proxy.let_in(self):
                    return
                host, _, port = self.path.rpartition(":")
                with socket.create_connection((host, int(port)), 5) as upstream:
                    self.send_response(200)
                    self.end_headers()
                    _pump(self.connection, upstream)

            def do_GET(self) -> None:
                if not proxy.let_in(self):
                    return
                opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
                try:
                    with opener.open(self.path, timeout=5) as answer:
                        status, body = answer.status, answer.read()
                except HTTPError as error:
                    status, body = error.code, error.read()
                self.send_response(status)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._asks_for = asks_for
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()
        self.address = f"127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def let_in(self, handler: BaseHTTPRequestHandler) -> bool:
        """Note the request, and refuse a client that does not say who it is."""
        self.requests.append((handler.command, handler.path))
        self.headers.append({name.lower(): value for name, value in handler.headers.items()})
        if self._asks_for in (None, handler.headers.get("Proxy-Authorization")):
            return True
        handler.send_response(407)
        handler.end_headers()
        return False


def _pump(one: socket.socket, other: socket.socket) -> None:
    while True:
        for ready in select.select([one, other], [], [], 30)[0]:
            data = ready.recv(65536)
            if not data:
                return
            (other if ready is one else one).sendall(data)

"""What a training pushes to in tests: one HTTP server that keeps requests and gives the answers that a test wants."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self

from support.certificates import Pair


@dataclass(frozen=True)
class Pushed:
    """One request."""

    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True)
class Answer:
    status: int = 200
    body: bytes = b"{}"
    headers: Mapping[str, str] = field(default_factory=lambda: {"Content-Type": "application/json"})


HTML = Answer(200, b"<html>Log in to go on</html>", {"Content-Type": "text/html; charset=utf-8"})


class PushReceiver:
    """A context manager. `hold` makes answers wait until `release` or the end."""

    def __init__(self, certificate: Pair | None = None) -> None:
        self.pushed: list[Pushed] = []
        self.answer = Answer()
        self._released = threading.Event()
        self._released.set()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.pushed.append(Pushed(self.path, dict(self.headers), body))
                receiver._released.wait()
                self._answer()

            def do_GET(self) -> None:  # what a redirect ends in
                receiver.pushed.append(Pushed(self.path, dict(self.headers), b""))
                self._answer()

            def _answer(self) -> None:
                answer = receiver.answer
                self.send_response(answer.status)
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(answer.body)))
                self.end_headers()
                self.wfile.write(answer.body)

            def log_message(self, *_: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_: object) -> None:
                pass  # a client that hangs up, or does not trust the certificate

        self._server = Server(("127.0.0.1", 0), Handler)
        self._scheme = "http"
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate.certificate, certificate.key)
            # The handshake of a client that says nothing must not hold up the others: it is made on its own thread.
            self._server.socket = context.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
            self._scheme = "https"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self._server.server_port}"

    def hold(self) -> None:
        """Answer nothing from now on."""
        self._released.clear()

    def release(self) -> None:
        """Answer what was held, and all that comes."""
        self._released.set()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

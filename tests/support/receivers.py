"""What a training pushes to in tests: one HTTP server that keeps requests and gives the answers that a test wants."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler

from support.certificates import Pair
from support.loopback import Loopback, send


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


class PushReceiver(Loopback):
    """`hold` makes answers wait until `release` or the end."""

    def __init__(self, certificate: Pair | None = None) -> None:
        self.pushed: list[Pushed] = []
        self.answer = Answer()
        self._flowing = threading.Event()
        self._flowing.set()
        tls = None
        if certificate is not None:
            tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            tls.load_cert_chain(certificate.certificate, certificate.key)
        super().__init__(tls)

    def serve(self, handler: BaseHTTPRequestHandler) -> None:
        """A GET is what a redirect ends in."""
        body = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        self.pushed.append(Pushed(handler.path, dict(handler.headers), body))
        self._flowing.wait()
        send(handler, self.answer.status, self.answer.body, self.answer.headers)

    def hold(self) -> None:
        """Answer nothing from now on."""
        self._flowing.clear()

    def release(self) -> None:
        """Answer what was held, and all that comes."""
        self._flowing.set()

    def close(self) -> None:
        self.release()
        super().close()

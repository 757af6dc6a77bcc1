"""A gateway between the controller and a real server: it forwards HTTP, lets a test look, and lets it interfere.

In front of the API server it also confines the controller: what is asked of the whole cluster is asked of the test's
namespace instead, so that a controller under test never acts on anybody else's policies. Prometheus may hang
behind it. `controller_process.py` runs a controller behind one.
"""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlencode, urlsplit

from support.api_server import Reply

from slopewise.adapters.kube.client.protocol import resource_of

TEST_LABEL = "slopewise.dev/test-namespace"
"""On a policy: the namespace of the test that made it. Only these are shown to the test's controller."""

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_PATIENCE_SECONDS = 60.0
_CHUNK_BYTES = 64 * 1024
_HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length", "host", "accept-encoding"}
_NAMESPACED = {
    "/api/v1/pods": "/api/v1/namespaces/{}/pods",
    "/apis/batch/v1/jobs": "/apis/batch/v1/namespaces/{}/jobs",
    "/apis/slopewise.dev/v1alpha1/jobgrowths": "/apis/slopewise.dev/v1alpha1/namespaces/{}/jobgrowths",
}
_POLICIES = "/apis/slopewise.dev/v1alpha1/trainingpolicies"


@dataclass(frozen=True)
class Request:
    """One request of the controller. `body`: as JSON, where it is that."""

    method: str
    path: str
    query: str
    body: Any
    at_seconds: float = field(default_factory=time.monotonic)

    @property
    def kind(self) -> str:
        """What is asked, as in the controller's own metrics, e.g. `patch pods/resize`."""
        return f"{_VERBS.get(self.method, 'get')} {resource_of(self.path)[0]}"

    @property
    def writes(self) -> bool:
        return self.method in _VERBS

    @property
    def acts(self) -> bool:
        """Whether it changes what somebody else may see: no lease, which comes and goes with time, and no event."""
        return self.writes and not self.kind.endswith((" leases", " events"))


class DroppedError(Exception):
    """Raised by a hook: the connection is closed without an answer, or this is answered instead of the server's."""

    def __init__(self, instead: Reply | None = None) -> None:
        super().__init__()
        self.instead = instead


def drop(_: Request) -> None:
    """As if nothing listened."""
    raise DroppedError


class Gateway:
    """Serves on a free port of the loopback device until it is closed. The hooks may be changed at any time.

    `before` receives each request before it is forwarded, and `after` each one that the server has answered, before
    the controller receives the answer.
    """

    def __init__(
        self,
        upstream: str,
        ca_file: str | None = None,
        confine_to: str | None = None,
        on_answer: Callable[[Request, int], None] = lambda *_: None,
    ) -> None:
        """`on_answer` receives what `after` does, and no test changes it."""
        self.on_answer = on_answer
        self.upstream = urlsplit(upstream)
        self.confine_to = confine_to
        self.before: Callable[[Request], None] = lambda _: None
        self.after: Callable[[Request, int], None] = lambda *_: None
        self.requests: list[Request] = []
        self._context = None if ca_file is None else ssl.create_default_context(cafile=ca_file)
        self._flowing = threading.Event()
        self._flowing.set()
        self._connections: set[http.client.HTTPConnection] = set()
        self._server = _Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"gateway": self}))
        threading.Thread(target=self._server.serve_forever, name="gateway", daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def name(self) -> str:
        """By which the audit log names it."""
        return f"gateway-{self._server.server_address[1]}"

    def close(self) -> None:
        self._flowing.set()
        self._server.shutdown()
        self._server.server_close()
        for connection in list(self._connections):
            _hang_up(connection)

    @contextmanager
    def hanging(self) -> Iterator[None]:
        """Nothing goes in or out; sockets stay open. What was asked meanwhile is forwarded afterwards."""
        self._flowing.clear()
        try:
            yield
        finally:
            self._flowing.set()

    @contextmanager
    def interfering(self, before: Callable[[Request], None]) -> Iterator[None]:
        """With this hook for a while."""
        former, self.before = self.before, before
        try:
            yield
        finally:
            self.before = former

    def writes(self, kind: str = "", since: float = 0.0) -> list[Request]:
        """The writes that were sent since then (monotonic seconds), of one kind where it is named."""
        return [each for each in self.requests if each.writes and each.at_seconds >= since and kind in each.kind]

    def note_answer(self, request: Request, status: int) -> None:
        """What the server made of a request; raises DroppedError where the controller is not to know."""
        self.on_answer(request, status)
        self.after(request, status)

    def wait_until_flowing(self) -> None:
        self._flowing.wait()

    def connect(self) -> http.client.HTTPConnection:
        """A connection to the server, which `close` ends."""
        host, port = self.upstream.hostname or "", self.upstream.port
        if self._context is None:
            connection = http.client.HTTPConnection(host, port, timeout=_PATIENCE_SECONDS)
        else:
            connection = http.client.HTTPSConnection(host, port, timeout=_PATIENCE_SECONDS, context=self._context)
        self._connections.add(connection)
        return connection

    def disconnect(self, connection: http.client.HTTPConnection) -> None:
        self._connections.discard(connection)
        connection.close()

    def target(self, request: Request) -> str:
        """Where a request goes to: what is asked of the whole cluster is narrowed to the test's own."""
        path, query = request.path, request.query
        if self.confine_to is not None:
            path = _NAMESPACED.get(path, path).format(self.confine_to)
            if path == _POLICIES:
                query = "&".join(filter(None, [query, urlencode({"labelSelector": f"{TEST_LABEL}={self.confine_to}"})]))
        return f"{path}?{query}" if query else path


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A controller that was killed leaves broken connections behind."""


class _Handler(BaseHTTPRequestHandler):
    """One connection of the controller."""

    gateway: Gateway
    protocol_version = "HTTP/1.1"
    upstream: http.client.HTTPConnection

    def setup(self) -> None:
        super().setup()
        self.upstream = self.gateway.connect()

    def finish(self) -> None:
        self.gateway.disconnect(self.upstream)
        super().finish()

    def _handle(self) -> None:
        size = int(self.headers.get("Content-Length") or 0)
        raw = self.rfile.read(size) if size else b""
        parts = urlsplit(self.path)
        request = Request(self.command, parts.path, parts.query, _parsed(raw))
        self.gateway.wait_until_flowing()
        try:
            self.gateway.before(request)
            self.gateway.requests.append(request)
            self._forward(request, raw)
        except DroppedError as dropped:
            self._drop(dropped.instead)
        except (OSError, http.client.HTTPException):
            self.close_connection = True

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _handle  # noqa: N815 - names of the base class

    def _drop(self, instead: Reply | None) -> None:
        if instead is None:
            self.close_connection = True
        else:
            body = instead.body if isinstance(instead.body, bytes) else json.dumps(instead.body).encode()
            self._reply(instead.status, {"Content-Type": "application/json", **instead.headers}, body)

    def _forward(self, request: Request, raw: bytes) -> None:
        headers = {name: value for name, value in self.headers.items() if name.lower() not in _HOP_BY_HOP}
        headers["User-Agent"] = f"{self.headers.get('User-Agent', '')} {self.gateway.name}"
        self.upstream.request(request.method, self.gateway.target(request), raw or None, headers)
        response = self.upstream.getresponse()
        if "watch=true" in request.query and response.status == HTTPStatus.OK:
            self._stream(response)
            return
        body = response.read()
        self.gateway.wait_until_flowing()
        self.gateway.note_answer(request, response.status)
        kept = {name: value for name, value in response.getheaders() if name.lower() not in _HOP_BY_HOP}
        self._reply(response.status, kept, body)

    def _stream(self, response: http.client.HTTPResponse) -> None:
        self.send_response(response.status)
        self.send_header("Content-Type", response.getheader("Content-Type", "application/json"))
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        while chunk := response.read1(_CHUNK_BYTES):
            self.gateway.wait_until_flowing()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
        self.wfile.write(b"0\r\n\r\n")

    def _reply(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Not to the test's output."""


def _parsed(raw: bytes) -> Any:
    try:
        return json.loads(raw) if raw else None
    except ValueError:
        return None


def _hang_up(connection: http.client.HTTPConnection) -> None:
    with suppress(OSError, AttributeError):  # it has ended by itself
        connection.sock.shutdown(socket.SHUT_RDWR)

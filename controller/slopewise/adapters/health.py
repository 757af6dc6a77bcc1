"""The controller's own endpoint: `/healthz` and `/readyz` for the kubelet, `/metrics` for Prometheus; and others."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry

from slopewise.errors import SlopewiseError
from slopewise.telemetry.families import page

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


SERVER = "slopewise"
"""Of the header of that name; the library's names Python and its version."""


class _Quiet(WSGIRequestHandler):
    timeout = 10
    """A client that says nothing for 10 s loses its connection, not the controller a thread."""

    def version_string(self) -> str:
        """Of answers to requests that cannot be read."""
        return SERVER

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """A line for each scrape and probe would drown the log line of each pass."""


class HealthServer(AbstractContextManager["HealthServer"]):
    """Serves on `address:port` (port 0: a free one) until it is closed."""

    def __init__(
        self,
        registry: CollectorRegistry,
        is_alive: Callable[[], bool],
        address: str,
        port: int,
        not_ready_reason: Callable[[], str | None] = lambda: None,
        more: Mapping[str, WSGIApplication] | None = None,
    ) -> None:
        """`not_ready_reason`: None once it may be counted on; else what it still waits for, in words.

        `more`: applications by their path.
        """
        paths = dict(more or {})

        def app(environ: WSGIEnvironment, plain_start: StartResponse) -> Iterable[bytes]:
            def start_response(status: str, headers: list[tuple[str, str]], *more: Any) -> Callable[[bytes], object]:
                return plain_start(status, [*headers, ("Server", SERVER)], *more)

            if environ["PATH_INFO"] == "/metrics":
                accept, encodings = environ.get("HTTP_ACCEPT", ""), environ.get("HTTP_ACCEPT_ENCODING", "")
                headers, body = page(registry, accept, encodings)
                start_response("200 OK", headers)
                return [body]
            if (there := paths.get(environ["PATH_INFO"])) is not None:
                return there(environ, start_response)
            status, text = _answer(environ["PATH_INFO"], is_alive, not_ready_reason)
            start_response(status, [("Content-Type", "text/plain; charset=utf-8")])
            return [text.encode()]

        try:
            self._server = make_server(address, port, app, server_class=_Server, handler_class=_Quiet)
        except OSError as error:
            raise SlopewiseError(
                f"{address}:{port} cannot serve /healthz, /readyz and /metrics ({error.strerror}); choose another port."
            ) from error
        self.port: int = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, name="health", daemon=True)
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop serving and free the port."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _answer(path: str, is_alive: Callable[[], bool], not_ready_reason: Callable[[], str | None]) -> tuple[str, str]:
    if path == "/healthz":
        return _verdict(None if is_alive() else "no pass for three intervals, or a thread that hangs")
    if path == "/readyz":
        return _verdict(not_ready_reason())
    return "404 Not Found", "not found: use /healthz, /readyz or /metrics\n"


def _verdict(trouble: str | None) -> tuple[str, str]:
    return ("200 OK", "ok\n") if trouble is None else ("503 Service Unavailable", f"{trouble}\n")

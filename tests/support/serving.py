"""Real servers of ASGI and WSGI applications, in threads of the test's process, and clients that load them."""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from socketserver import ThreadingMixIn
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import uvicorn

from slopewise_exporter.responses import ResponseReporter


@contextmanager
def uvicorn_of(app: Any) -> Iterator[str]:
    """The address of a uvicorn."""
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="critical", lifespan="on"))
    thread = threading.Thread(target=server.run)
    thread.start()
    give_up_at = time.monotonic() + 60
    while not server.started and time.monotonic() < give_up_at:
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


class _Server(ThreadingMixIn, WSGIServer):
    request_queue_size = 64

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients of these tests hang up."""


class _Handler(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name that it has
        """Nothing: a hundred requests are a hundred lines."""

    def get_stderr(self) -> Any:
        """Where wsgiref prints what applications raise."""
        return io.StringIO()


@contextmanager
def wsgiref_of(app: Any) -> Iterator[str]:
    """The address of a wsgiref with a thread for each request."""
    with make_server("127.0.0.1", 0, app, server_class=_Server, handler_class=_Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def statuses_of(url: str, paths: Iterable[str], clients: int = 16) -> list[int]:
    """What so many clients at a time are answered, in the order of the paths."""

    def ask(path: str) -> int:
        try:
            with urlopen(f"{url}{path}", timeout=30) as answer:
                answer.read()
                return int(answer.status)
        except HTTPError as error:
            return error.code

    with ThreadPoolExecutor(clients) as pool:
        return list(pool.map(ask, paths))


def counts(reporter: ResponseReporter) -> tuple[int, int, int]:
    """Responses that succeeded, that failed, and requests in flight."""
    record = reporter.record
    return sum(record.counts["ok"]), sum(record.counts["failed"]), record.in_flight

"""Serves one model over HTTP: `/predict/N` answers request number N, `/metrics` tells how long answers took.

Before it: a predictor of `models.py`. After it: `load.py`, which asks, and Prometheus, which scrapes. One port for
both, as model servers have it. HTTP/1.0, a connection and a thread for each request: 0.5 ms of CPU beside the 60
and more that an answer takes.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Sequence
from http import HTTPStatus
from socketserver import ThreadingTCPServer
from time import perf_counter
from types import TracebackType
from typing import Any

from prometheus_client import CollectorRegistry, Histogram, MetricsHandler, ProcessCollector

from controller.errors import SlopewiseError

BUCKETS_SECONDS = (0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""From a request at a whole core to one at a hundredth of it."""

_PREDICT = "/predict/"


class _Handler(MetricsHandler):
    """prometheus_client's handler, and predictions beside it."""

    timeout = 10
    """A client that says nothing for 10 s is dropped: the server's end would wait for it."""
    server: ModelServer

    def do_GET(self) -> None:  # noqa: N802 - the name that http.server calls
        """Answer a request; it counts from here to the moment its answer was handed to the kernel."""
        began = perf_counter()
        number = self.path.removeprefix(_PREDICT)
        if self.path == "/metrics":
            self.registry = self.server.registry
            super().do_GET()
        elif self.path.startswith(_PREDICT) and number.isdecimal():
            self._predict(int(number))
            self.server.durations.observe(perf_counter() - began)
        else:
            self.send_error(HTTPStatus.NOT_FOUND)

    def _predict(self, request: int) -> None:
        body = json.dumps({"predictions": self.server.answer(request)}).encode()
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class ModelServer(ThreadingTCPServer):
    """Serves until it is closed. Closing waits for the answers under way: numpy dislikes threads killed at exit."""

    allow_reuse_address = True

    def __init__(self, address: str, port: int, answer: Callable[[int], Sequence[int]]) -> None:
        """Port 0: a free one, see `url`. SlopewiseError when the port cannot be had."""
        self.registry = CollectorRegistry()
        self.answer = answer
        self.durations = Histogram(
            "inference_response_duration_seconds",
            "From a request to its answer.",
            buckets=BUCKETS_SECONDS,
            registry=self.registry,
        )
        ProcessCollector(registry=self.registry)
        try:
            super().__init__((address, port), _Handler)
        except OSError as error:
            raise SlopewiseError(
                f"{address}:{port} cannot be served ({error.strerror}); choose another port."
            ) from error
        self._thread = threading.Thread(target=self.serve_forever, name="model-server")

    @property
    def url(self) -> str:
        """Where it answers."""
        address, port = self.server_address[:2]
        return f"http://{address!s}:{port}"

    def __enter__(self) -> ModelServer:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hung up is its own business; anything else is a fault of ours, and told."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)

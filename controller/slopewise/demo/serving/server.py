"""Serves one model over HTTP: `/predict/N` answers request number N, `/metrics` has the response times.

One port for both, as model servers have it. HTTP/1.0, a connection and a thread for each request: 0.5 ms of CPU beside
the 60 and more that an answer takes. Requests beyond a bound are refused with 503, so that a server that is offered
more than it can answer does not fill up with threads. A response that fails is counted apart from those that succeed.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from socketserver import ThreadingTCPServer
from time import perf_counter
from types import TracebackType
from typing import Any, Self

from prometheus_client import CollectorRegistry, Gauge, Histogram, MetricsHandler, ProcessCollector

from slopewise.errors import SlopewiseError

BUCKETS_SECONDS = (0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""From a request at a whole core to one at a hundredth of it."""

MAX_IN_FLIGHT = 64
"""Requests that wait for their answers at once; each is a thread."""

OK, FAILED = "ok", "failed"
"""Values of the label `outcome`."""

_PREDICT = "/predict/"

Answer = Callable[[int], Sequence[int]]
"""From the number of a request to its predictions."""


class RequestFailedError(Exception):
    """The request gets no predictions; the server answers 500."""


class _Handler(MetricsHandler):
    """prometheus_client's handler, and predictions beside it."""

    timeout = 10
    """A client that sends nothing for 10 s is dropped, because the server's end would wait for it."""
    server: ModelServer

    def do_GET(self) -> None:  # noqa: N802 - the name that http.server calls
        """Answer a request; it counts from here to the moment its answer was handed to the kernel."""
        number = self.path.removeprefix(_PREDICT)
        if self.path == "/metrics":
            self.registry = self.server.registry
            super().do_GET()
        elif self.path.startswith(_PREDICT) and number.isdecimal():
            self._predict_and_count(int(number))
        else:
            self.send_error(HTTPStatus.NOT_FOUND)

    def _predict_and_count(self, request: int) -> None:
        """A client that hangs up before its answer counts as a response that failed."""
        began, outcome = perf_counter(), FAILED
        try:
            with self.server.admitted() as admitted:
                if admitted:
                    self._predict(request)
                    outcome = OK
                else:
                    self.send_error(HTTPStatus.SERVICE_UNAVAILABLE)
        except RequestFailedError:
            self.send_error(HTTPStatus.INTERNAL_SERVER_ERROR)
        finally:
            self.server.durations.labels(outcome).observe(perf_counter() - began)

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
    request_queue_size = 128
    """Connections that the kernel keeps until they are accepted; of more than the 5 of `socketserver`, none is lost."""

    def __init__(self, address: str, port: int, answer: Answer, max_in_flight: int = MAX_IN_FLIGHT) -> None:
        """Port 0: a free one, see `url`. SlopewiseError when the port cannot be had."""
        self.registry = CollectorRegistry()
        self.answer = answer
        self.durations = Histogram(
            "inference_response_duration_seconds",
            "From a request to its answer.",
            ["outcome"],
            buckets=BUCKETS_SECONDS,
            registry=self.registry,
        )
        for outcome in (OK, FAILED):  # a series that begins at 0 says that nothing has failed
            self.durations.labels(outcome)
        self._in_flight = Gauge(
            "inference_requests_in_flight", "Received and not yet answered.", registry=self.registry
        )
        self._slots = threading.BoundedSemaphore(max_in_flight)
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

    @contextmanager
    def admitted(self) -> Iterator[bool]:
        """Whether a request may wait for its answer; False: as many wait as may at once."""
        if not self._slots.acquire(blocking=False):
            yield False
            return
        try:
            with self._in_flight.track_inprogress():
                yield True
        finally:
            self._slots.release()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a client that hung up; print any other error."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)

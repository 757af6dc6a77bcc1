"""Serves one model over HTTP and sends it one request after another.

`/predict/N` answers request number N and `/metrics` has the response times, on one port as model servers have it. The
client is a thread of the same process, so that it has the model's cgroup and takes no other job's CPU; it never works
while an answer is computed.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from itertools import count
from socketserver import ThreadingTCPServer
from time import monotonic
from typing import Any, Self

from prometheus_client import CollectorRegistry, Gauge, Histogram, MetricsHandler, ProcessCollector

from slopewise.errors import SlopewiseError

BUCKETS_SECONDS = (0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""From a request at a whole core to one at a hundredth of it."""

OK = "ok"
"""Value of the label `outcome`."""

_PREDICT = "/predict/"

Answer = Callable[[int], Sequence[int]]
"""From the number of a request to its predictions."""


class Handler(MetricsHandler):
    """prometheus_client's handler, and predictions beside it."""

    timeout = 10
    """A client that sends nothing for 10 s is dropped, because the server's end would wait for it."""
    server: ModelServer

    def do_GET(self) -> None:  # noqa: N802 - the name that http.server calls
        """Answer a request."""
        number = self.path.removeprefix(_PREDICT)
        if self.path == "/metrics":
            self.registry = self.server.registry
            super().do_GET()
        elif self.path.startswith(_PREDICT) and number.isdecimal():
            self.predict(int(number))
        else:
            self.send_error(HTTPStatus.NOT_FOUND)

    def predict(self, request: int) -> None:
        """Send the predictions; counted until they were handed to the kernel."""
        with self.server.in_flight.track_inprogress(), self.server.durations.labels(OK).time():
            self.send_predictions(request)

    def send_predictions(self, request: int) -> None:
        """As JSON."""
        body = json.dumps({"predictions": self.server.answer(request)}).encode()
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class ModelServer(ThreadingTCPServer):
    """Serves until it is closed. Closing waits for the answers under way: numpy dislikes threads killed at exit."""

    allow_reuse_address = True
    handler: type[Handler] = Handler

    def __init__(self, address: str, port: int, answer: Answer) -> None:
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
        self.durations.labels(OK)  # a series that begins at 0
        self.in_flight = Gauge("inference_requests_in_flight", "Received and not yet answered.", registry=self.registry)
        ProcessCollector(registry=self.registry)
        try:
            super().__init__((address, port), self.handler)
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

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a client that hung up; print any other error."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


def keep_busy(url: str, end_at: float) -> None:
    """Send the next request once the last is answered, until `end_at` (`time.monotonic`).

    SlopewiseError for a request that fails, since an idle server measures nothing.
    """
    with closing(HTTPConnection(url.removeprefix("http://"))) as connection:
        for number in count():
            if (left := end_at - monotonic()) <= 0:
                return
            connection.timeout = left
            try:
                connection.request("GET", f"{_PREDICT}{number}")
                connection.getresponse().read()
            except TimeoutError:
                return
            except (OSError, HTTPException) as error:
                raise SlopewiseError(f"request {number} failed ({error}); see what stands above.") from error

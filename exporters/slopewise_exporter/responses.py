"""Counts and times the responses of a served model, and serves them as Prometheus metrics on a port of its own.

`asgi` and `wsgi` call it for each request. The names are the contract of docs/metrics.md in the Slopewise repository:
`inference_response_duration_seconds{outcome}` and `inference_requests_in_flight`. Nothing here raises into the server.
"""

from __future__ import annotations

import os
import threading
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import accumulate
from time import perf_counter
from typing import TYPE_CHECKING, Any

from slopewise_exporter import lifecycle
from slopewise_exporter.environment import (
    DEFAULT_PORT,
    endpoint_settings,
    listening_advice,
    reports_here,
    write_file,
)
from slopewise_exporter.values import Checker

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from slopewise_exporter.endpoint import MetricsEndpoint

BUCKETS_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)

OK, FAILED = "ok", "failed"
"""Values of the label `outcome`."""

FIRST_FAILED_STATUS = 400

UNTIMED_PATHS = ("/health", "/healthz", "/livez", "/metrics", "/ping", "/readyz", "/v2/health/live", "/v2/health/ready")
"""What kubelets and Prometheus ask for; the last two are those of the Open Inference Protocol."""


class ResponseRecord:
    """Plain numbers; the families of Prometheus are made of them at a scrape."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.in_flight = 0
        self.counts = {outcome: [0] * (len(BUCKETS_SECONDS) + 1) for outcome in (OK, FAILED)}
        self.seconds = {OK: 0.0, FAILED: 0.0}

    def renew_lock(self) -> None:
        """In a forked child: the lock may be held by a thread that is not here."""
        self._lock = threading.Lock()

    def begin(self) -> None:
        """A request was received."""
        with self._lock:
            self.in_flight += 1

    def end(self, seconds: float, outcome: str) -> None:
        """It was answered."""
        with self._lock:
            self.in_flight -= 1
            self.counts[outcome][bisect_left(BUCKETS_SECONDS, seconds)] += 1
            self.seconds[outcome] += seconds

    def collect(self) -> Iterator[Any]:
        """Both families, of one moment; called by prometheus_client, which is imported by then."""
        from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily

        with self._lock:
            in_flight, seconds = self.in_flight, dict(self.seconds)
            counts = {outcome: list(each) for outcome, each in self.counts.items()}
        durations = HistogramMetricFamily(
            "inference_response_duration_seconds", "From a request to its answer.", labels=["outcome"]
        )
        bounds = [*map(str, BUCKETS_SECONDS), "+Inf"]
        for outcome, each in counts.items():
            durations.add_metric([outcome], list(zip(bounds, accumulate(each))), seconds[outcome])
        yield durations
        yield GaugeMetricFamily("inference_requests_in_flight", "Received and not yet answered.", value=in_flight)


class Request:
    """One request that is timed. Its end counts once, whoever reports it first."""

    __slots__ = ("_began", "_record")

    def __init__(self, record: ResponseRecord) -> None:
        self._record: ResponseRecord | None = record
        record.begin()
        self._began = perf_counter()

    def end(self, *, failed: bool) -> None:
        """It is answered, or it failed; further calls do nothing."""
        record, self._record = self._record, None
        if record is not None:
            record.end(perf_counter() - self._began, FAILED if failed else OK)


def _paths(value: object) -> list[str]:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise TypeError(value)
    paths = list(value)
    if not all(isinstance(path, str) and path.startswith("/") for path in paths):
        raise ValueError(paths)
    return paths


class ResponseReporter:
    """Serves the record of one process. The endpoint opens with the first request, or with `open`.

    A server that forks its workers after it has loaded the application so has the endpoint in the worker that answers.

    Args:
        port: TCP port of the endpoint; 0 takes a free one. `SLOPEWISE_EXPORTER_PORT` overrides it.
        address: where to listen. `SLOPEWISE_EXPORTER_ADDRESS` overrides it.
    """

    def __init__(self, port: int = DEFAULT_PORT, *, address: str = "0.0.0.0") -> None:  # noqa: S104 - a pod is scraped
        self.check = Checker()
        self.record = ResponseRecord()
        self._arguments = (port, address)
        self._opening = threading.Lock()
        self._tried = False
        self._endpoint: MetricsEndpoint | None = None

    @property
    def port(self) -> int | None:
        """The TCP port that is being served; None where nothing is reported."""
        return self._endpoint.port if self._endpoint else None

    def open(self) -> None:
        """Serve from now on; where that cannot be, one line says why, and requests are answered all the same."""
        if self._tried:
            return
        with self._opening:
            if not self._tried:
                self._try_to_open()
            self._tried = True

    def begin(self) -> Request:
        """A request was received: count it until its `end`."""
        if not self._tried:
            self.open()
        return Request(self.record)

    def close(self) -> None:
        """Serve no more."""
        self.end(failed=False, linger=False)

    def end(self, *, failed: bool, linger: bool) -> None:
        """The process ends."""
        endpoint, self._endpoint = self._endpoint, None
        lifecycle.closed(self)
        if endpoint is not None:
            endpoint.close(0.0)

    def abandon_after_fork(self) -> None:
        """In a forked child: hold no port of the parent's, and count from nothing. The next request opens its own."""
        endpoint, self._endpoint = self._endpoint, None
        if endpoint is not None:
            endpoint.abandon_after_fork()
        self.record.renew_lock()  # the request that forks, if one does, ends in the child too
        self.record = ResponseRecord()
        self._opening = threading.Lock()
        self._tried = False

    def _try_to_open(self) -> None:
        if not reports_here(os.environ, self.check):
            return
        port, address = self._arguments
        settings = endpoint_settings(os.environ, self.check, port=port, address=address, linger_seconds=0.0)
        try:
            from slopewise_exporter.endpoint import MetricsEndpoint

            self._endpoint = MetricsEndpoint(settings.address, settings.port, self._registry)
        except Exception as error:
            advice = listening_advice(settings, error, process="server", by="ResponseTimes")
            self.check.warn("endpoint", f"{advice}. Requests are answered without metrics")
            return
        self.check.inform(f"metrics on {self._endpoint.url}")
        lifecycle.opened(self)
        port = self._endpoint.port
        write_file(settings.port_file, str(port), f"the port {port}", self.check)

    def _registry(self) -> CollectorRegistry:
        from prometheus_client import CollectorRegistry

        from slopewise_exporter.exposition import ProcessFacts

        registry = CollectorRegistry(auto_describe=True)
        registry.register(self.record)
        registry.register(ProcessFacts())
        return registry


class Middleware:
    """What those around ASGI and WSGI applications have in common.

    Args:
        app: the application.
        port: TCP port of the metrics; 0 takes a free one. `SLOPEWISE_EXPORTER_PORT` overrides it.
        address: where the metrics are served. `SLOPEWISE_EXPORTER_ADDRESS` overrides it.
        until: `end`, or `first-byte` for streams of which the begin is what users wait for.
        exclude: paths that are not timed; `/docs/*` is every path that begins with `/docs/`.
        reporter: one that several middlewares of a process share, in place of `port` and `address`.
    """

    def __init__(
        self,
        app: Any,
        *,
        port: int = DEFAULT_PORT,
        address: str = "0.0.0.0",  # noqa: S104 - a pod is scraped from outside; nothing can be changed through it
        until: str = "end",
        exclude: Iterable[str] = UNTIMED_PATHS,
        reporter: ResponseReporter | None = None,
    ) -> None:
        self.app = app
        self.reporter = reporter or ResponseReporter(port, address=address)
        read = self.reporter.check.read
        paths = read("exclude", exclude, _paths, list(UNTIMED_PATHS), "a list of paths such as /healthz or /docs/*")
        self._untimed = frozenset(path.rstrip("/") or "/" for path in paths if not path.endswith("*"))
        self._prefixes = tuple(path[:-1] for path in paths if path.endswith("*"))
        ways: dict[object, str] = {"end": "end", "first-byte": "first-byte"}
        self._first_byte = read("until", until, ways.__getitem__, "end", "'end' or 'first-byte'") == "first-byte"

    def _times(self, path: object) -> bool:
        """Whether requests of this path count."""
        text = path if isinstance(path, str) else ""
        return (text.rstrip("/") or "/") not in self._untimed and not text.startswith(self._prefixes)

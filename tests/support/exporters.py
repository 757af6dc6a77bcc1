"""What a real Prometheus scrapes in tests: pages that a test writes."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from itertools import count
from pathlib import Path
from typing import Any

from support.loopback import Loopback, send
from support.queriers import Asked, prometheus_and_asked

from slopewise.adapters.local.prometheus_server import PrometheusBinaries, PrometheusServer, TargetGroup
from slopewise.adapters.prometheus.client import PrometheusHttp, Row
from slopewise.adapters.prometheus.queries import AnyOf
from slopewise.adapters.prometheus.reader import PrometheusReader
from slopewise.config.metric_mappings import EvaluationMapping

SCRAPE_SECONDS = 0.5
WINDOW_SECONDS = 2.0


class Exporters(Loopback):
    """Each path is the page of one process, and a path without a page is a process that is gone."""

    def __init__(self, pages: dict[str, str] | None = None) -> None:
        self.pages: dict[str, str] = {} if pages is None else pages
        super().__init__()

    def serve(self, handler: BaseHTTPRequestHandler) -> None:
        content = self.pages.get(handler.path)
        headers = {"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
        send(handler, 503 if content is None else 200, (content or "").encode(), headers)


@dataclass
class Scraped:
    """A real Prometheus, and the pages that it scrapes twice a second."""

    server: PrometheusServer
    exporters: Exporters
    asked: Asked
    targets: list[TargetGroup] = field(default_factory=list)
    _numbers: Iterator[int] = field(default_factory=count)
    _of_pods: dict[tuple[str, str], TargetGroup] = field(default_factory=dict)

    def add(self, labels: Mapping[str, str], content: str | None) -> TargetGroup:
        """One more target, of which Prometheus learns with the next `publish`."""
        path = f"/{next(self._numbers)}"
        target: TargetGroup = {"targets": [self.exporters.address], "labels": {**labels, "__metrics_path__": path}}
        self.targets.append(target)
        self.show(target, content)
        return target

    def show(self, target: TargetGroup, content: str | None) -> None:
        """Change what a process exports; None: it is gone."""
        path = target["labels"]["__metrics_path__"]
        if content is None:
            self.exporters.pages.pop(path, None)
        else:
            self.exporters.pages[path] = content

    def put(self, pod: str, content: str | None = None, *, instance: str = "a:1", namespace: str = "flowcon") -> None:
        """What a process of a pod exports from now on; None: it is gone, or not there yet."""
        if (target := self._of_pods.get((pod, instance))) is not None:
            self.show(target, content)
        else:
            labels = {"namespace": namespace, "pod": pod, "instance": instance}
            self._of_pods[pod, instance] = self.add(labels, content)

    def reader(
        self, matchers: Mapping[str, str | AnyOf], *mappings: EvaluationMapping, **more: Any
    ) -> PrometheusReader:
        """One of these mappings, else of the contract; `more` is handed on."""
        return PrometheusReader(
            self.asked.url, matchers, SCRAPE_SECONDS, mappings or [EvaluationMapping()], WINDOW_SECONDS, **more
        )

    def rows(self, query: str) -> list[Row]:
        """What a query is answered now."""
        http = PrometheusHttp(self.asked.url, 5.0)
        http.begin()
        try:
            return http.ask(query, time.time())
        finally:
            http.close()

    def publish(self) -> None:
        """Have Prometheus scrape all targets and no others; it takes about five seconds to see new ones."""
        self.server.set_targets(self.targets)
        self.asked.set_targets(self.targets)


@contextmanager
def scraped(binaries: PrometheusBinaries, folder: Path) -> Iterator[Scraped]:
    """A Prometheus without any target; it and the pages are gone afterwards."""
    with Exporters() as exporters, prometheus_and_asked(binaries, folder, SCRAPE_SECONDS) as (server, asked):
        yield Scraped(server, exporters, asked)

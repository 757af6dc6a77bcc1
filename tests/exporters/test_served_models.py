"""A model behind each middleware, under load, scraped by a real Prometheus and read as the controller reads it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from support.exporters import SCRAPE_SECONDS, scraped
from support.serving import statuses_of, uvicorn_of, wsgiref_of
from support.waiting import wait_for

from slopewise.adapters.local.prometheus_server import PrometheusBinaries
from slopewise.adapters.prometheus.evaluations import JobKey
from slopewise.adapters.prometheus.reader import JobSeries, PrometheusReader
from slopewise.config.metric_mappings import EvaluationMapping
from slopewise_exporter import asgi, wsgi
from slopewise_exporter.responses import ResponseReporter

pytestmark = pytest.mark.processes

PACE_SECONDS = 0.05


async def asgi_model(scope: asgi.Scope, receive: asgi.Receive, send: asgi.Send) -> None:
    if scope["type"] != "http":
        for _ in range(2):
            await send({"type": f"{(await receive())['type']}.complete"})
        return
    time.sleep(PACE_SECONDS)  # noqa: ASYNC251 - a prediction occupies the process
    failed = scope["path"] == "/fails"
    await send({"type": "http.response.start", "status": 500 if failed else 200, "headers": []})
    await send({"type": "http.response.body", "body": b"{}"})


def wsgi_model(environ: wsgi.Environ, start_response: wsgi.StartResponse) -> Iterable[bytes]:
    time.sleep(PACE_SECONDS)
    start_response("500 x" if environ["PATH_INFO"] == "/fails" else "200 OK", [("Content-Type", "application/json")])
    return [b"{}"]


Served = Callable[[ResponseReporter], AbstractContextManager[str]]


@pytest.mark.parametrize(
    "served",
    [
        lambda reporter: uvicorn_of(asgi.ResponseTimes(asgi_model, reporter=reporter)),
        lambda reporter: wsgiref_of(wsgi.ResponseTimes(wsgi_model, reporter=reporter)),
    ],
    ids=["asgi", "wsgi"],
)
def test_a_served_model_is_read_with_its_response_times(
    prometheus_binaries: PrometheusBinaries, tmp_path: Path, reporter: ResponseReporter, served: Served
) -> None:
    with served(reporter) as url, scraped(prometheus_binaries, tmp_path) as pages:
        statuses_of(url, ["/predict"])
        target: Any = {"targets": [f"127.0.0.1:{reporter.port}"], "labels": {"namespace": "n", "pod": "model"}}
        pages.targets.append(target)
        pages.publish()

        def read() -> JobSeries:
            with PrometheusReader(
                pages.asked.url, {"namespace": "n"}, SCRAPE_SECONDS, [EvaluationMapping()], 2.0
            ) as one:
                return one.read(time.time()).jobs.get(JobKey("n", "model"), JobSeries())

        first = wait_for("its first response", read, lambda job: job.responses is not None)
        assert first.responses is not None
        assert (first.responses.count_total, first.responses.in_flight) == (1, 0)
        statuses_of(url, ["/predict"] * 30 + ["/fails"] * 10, clients=4)
        last = wait_for("all responses", read, _has_answered_all)
    assert last.responses is not None
    mean = (last.responses.seconds_total - first.responses.seconds_total) / 30
    assert PACE_SECONDS <= mean < 100 * PACE_SECONDS
    assert last.process_started_at_seconds is not None
    assert not last.restarted


def _has_answered_all(job: JobSeries) -> bool:
    of = job.responses
    return of is not None and (of.count_total, of.failed_total, of.in_flight) == (31, 10, 0)


@pytest.fixture
def reporter() -> Iterator[ResponseReporter]:
    one = ResponseReporter(0, address="127.0.0.1")
    yield one
    one.close()

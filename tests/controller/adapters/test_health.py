"""The controller's endpoint: alive or not, and its metrics."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import requests
from prometheus_client import CollectorRegistry, Gauge

from slopewise.adapters.health import HealthServer
from slopewise.errors import SlopewiseError

LOOPBACK = "127.0.0.1"


class Liveness:
    alive = True

    def __call__(self) -> bool:
        return self.alive


@pytest.fixture
def liveness() -> Liveness:
    return Liveness()


@pytest.fixture
def server(liveness: Liveness) -> Iterator[HealthServer]:
    registry = CollectorRegistry()
    Gauge("slopewise_test", "A figure.", registry=registry).set(7)
    server = HealthServer(registry, liveness, LOOPBACK, 0)
    yield server
    server.close()


def get(server: HealthServer, path: str) -> requests.Response:
    return requests.get(f"http://{LOOPBACK}:{server.port}{path}", timeout=10)


def test_it_says_whether_passes_run_serves_metrics_and_no_other_path(server: HealthServer, liveness: Liveness) -> None:
    answers = [get(server, path) for path in ("/healthz", "/metrics", "/admin")]
    assert [each.status_code for each in answers] == [200, 200, 404]
    assert {each.headers["Server"] for each in answers} == {"slopewise"}, "and not the language it is written in"
    assert "slopewise_test 7.0" in answers[1].text
    liveness.alive = False
    answer = get(server, "/healthz")
    assert (answer.status_code, answer.text) == (503, "no pass for three intervals, or a thread that hangs\n")


def test_a_port_in_use_is_one_sentence(server: HealthServer, liveness: Liveness) -> None:
    with pytest.raises(SlopewiseError, match=rf"127\.0\.0\.1:{server.port} cannot serve .*choose another port"):
        HealthServer(CollectorRegistry(), liveness, LOOPBACK, server.port)

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


def test_healthz_is_ok_while_passes_run_and_503_when_they_do_not(server: HealthServer, liveness: Liveness) -> None:
    assert get(server, "/healthz").status_code == 200
    liveness.alive = False
    answer = get(server, "/healthz")
    assert (answer.status_code, answer.text) == (503, "no pass for three intervals, or a thread that hangs\n")


def test_metrics_are_served_in_prometheus_text(server: HealthServer) -> None:
    assert "slopewise_test 7.0" in get(server, "/metrics").text


def test_another_path_is_not_found(server: HealthServer) -> None:
    assert get(server, "/admin").status_code == 404


def test_a_port_in_use_is_one_sentence(server: HealthServer, liveness: Liveness) -> None:
    with pytest.raises(SlopewiseError, match=rf"127\.0\.0\.1:{server.port} cannot serve .*choose another port"):
        HealthServer(CollectorRegistry(), liveness, LOOPBACK, server.port)


@pytest.mark.parametrize("path", ["/healthz", "/metrics", "/nowhere"])
def test_no_answer_names_the_language_it_is_written_in(server: HealthServer, path: str) -> None:
    assert get(server, path).headers["Server"] == "slopewise"

"""Behind a Thanos Querier two replicas are read as one, and an answer that lacks a store is no answer."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import requests
import yaml
from support.certificates import LOOPBACK, Authority
from support.exporters import SCRAPE_SECONDS, Exporters
from support.locked_prometheus import PASSWORDS, USER
from support.queriers import Replica, Thanos
from support.waiting import wait_for

from slopewise.adapters.http.config import Endpoint
from slopewise.adapters.local.prometheus_server import PrometheusBinaries, TargetGroup
from slopewise.adapters.prometheus.evaluations import JobKey
from slopewise.adapters.prometheus.reader import PrometheusReader, PrometheusReading
from slopewise.config.training_policy import EvaluationSettings
from slopewise.errors import ObservationError

JOB = JobKey("flowcon", "steady")
PAGE = """\
training_loss{stage="eval"} 0.5
training_steps_total 10
training_state{state="training"} 1
process_start_time_seconds 1000
inference_response_duration_seconds_count 40
inference_response_duration_seconds_sum 8
"""


def read(endpoint: Endpoint | str) -> PrometheusReading:
    with PrometheusReader(endpoint, {"namespace": "flowcon"}, SCRAPE_SECONDS, [EvaluationSettings()], 2.0) as reader:
        return reader.read(time.time())


def rows(url: str, query: str, **parameters: str) -> int:
    """How many rows the server gives."""
    answer = requests.get(f"{url}/api/v1/query", {"query": query, **parameters}, timeout=10).json()
    return len(answer["data"]["result"])


@pytest.fixture(scope="module")
def replicas(
    prometheus_binaries: PrometheusBinaries, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[Replica]]:
    folder = tmp_path_factory.mktemp("replicas")
    exporters = Exporters()
    exporters.pages["/metrics"] = PAGE
    targets: list[TargetGroup] = [{"targets": [exporters.address], "labels": {"namespace": "flowcon", "pod": "steady"}}]
    both = [Replica(prometheus_binaries, folder, name, SCRAPE_SECONDS) for name in ("a", "b")]
    try:
        with both[0], both[1]:
            for each in both:
                each.set_targets(targets)
            for each in both:
                wait_for("a full window", partial(rows, each.url, "training_loss offset 2s"), bool)
            yield both
    finally:
        exporters.close()


@pytest.mark.parametrize("engine", ["prometheus", "thanos"])
def test_two_replicas_are_read_as_one(replicas: list[Replica], tmp_path: Path, engine: str) -> None:
    with Thanos(tmp_path, replicas, f"--query.promql-engine={engine}") as thanos:
        job = read(thanos.url).jobs[JOB]
        apart = rows(thanos.url, "training_loss", dedup="false")
    assert apart == 2, "there is nothing to deduplicate"
    assert job.evaluation is not None
    assert (job.evaluation.level, job.evaluation.series) == (0.5, 'training_loss{stage="eval"}')
    assert job.evaluation.sample_count in (3, 4, 5)
    assert job.responses is not None
    assert (job.responses.count_total, job.steps_total, job.restarted, job.warnings) == (40, 10, False, ())


def test_an_answer_without_one_of_the_stores_is_held(replicas: list[Replica], tmp_path: Path) -> None:
    with Thanos(tmp_path, replicas) as thanos:
        assert JOB in read(thanos.url).jobs
        thanos.sidecars[1].kill()
        for _ in range(3):
            with pytest.raises(ObservationError, match=r"a part of the answer and warned: .*; nothing is changed"):
                read(thanos.url)
        of_one = thanos.query(thanos.sidecars[0].grpc_address)
        assert JOB in wait_for("an answer", lambda: _jobs(Endpoint(f"http://127.0.0.1:{of_one.port}")), bool)


def test_one_with_a_lock_and_a_path_is_read_with_an_http_config(replicas: list[Replica], tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    server = authority.sign("server", *LOOPBACK)
    tls = {"cert_file": str(server.certificate), "key_file": str(server.key)}
    lock = {"tls_server_config": tls, "basic_auth_users": {USER: PASSWORDS["first-password"]}}
    (tmp_path / "web.yml").write_text(json.dumps(lock))
    config = {
        "basic_auth": {"username": USER, "password_file": "password"},
        "tls_config": {"ca_file": str(authority.certificate)},
    }
    (tmp_path / "http.yaml").write_text(yaml.safe_dump(config))
    (tmp_path / "password").write_text("first-password")

    with Thanos(tmp_path, replicas) as thanos:
        locked = thanos.query(
            *(sidecar.grpc_address for sidecar in thanos.sidecars),
            options=(f"--http.config={tmp_path / 'web.yml'}", "--web.route-prefix=/thanos"),
        )
        endpoint = Endpoint(f"https://127.0.0.1:{locked.port}/thanos", tmp_path / "http.yaml")
        assert JOB in wait_for("an answer", lambda: _jobs(endpoint), bool)
        (tmp_path / "password").write_text("second-password")
        with pytest.raises(ObservationError, match=r"answered 401 \(Unauthorized\); correct basic_auth in "):
            read(endpoint)


def _jobs(endpoint: Endpoint) -> list[JobKey]:
    try:
        return list(read(endpoint).jobs)
    except ObservationError:
        return []

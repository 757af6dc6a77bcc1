"""A real Prometheus under `--web.config.file`: what it asks for it gets, and what it refuses is reported."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from support.certificates import LOOPBACK, Authority, Pair
from support.exporters import Exporters
from support.locked_prometheus import USER, LockedPrometheus
from support.waiting import wait_for

from slopewise.adapters.http.config import Endpoint
from slopewise.adapters.local.prometheus_server import PrometheusBinaries
from slopewise.adapters.prometheus.evaluations import JobKey
from slopewise.adapters.prometheus.reader import PrometheusReader
from slopewise.config.training_policy import EvaluationSettings
from slopewise.errors import ObservationError

pytestmark = pytest.mark.processes

PAGE = 'training_loss{stage="eval"} 0.5\ntraining_steps_total 10\nprocess_start_time_seconds 1000\n'


class Locked:
    """The server, and an http_config for it whose password a test may rewrite."""

    def __init__(self, server: LockedPrometheus, authority: Authority, client: Pair, folder: Path) -> None:
        self.server = server
        self.password = folder / "password"
        self.config = folder / "http.yaml"
        self.password.write_text("first-password\n")
        files = {"ca_file": authority.certificate, "cert_file": client.certificate, "key_file": client.key}
        document = {
            "basic_auth": {"username": USER, "password_file": "password"},
            "tls_config": {key: str(path) for key, path in files.items()},
        }
        self.config.write_text(yaml.safe_dump(document))

    def reader(self) -> PrometheusReader:
        endpoint = Endpoint(self.server.url, self.config)
        return PrometheusReader(endpoint, {"namespace": "flowcon"}, 0.5, [EvaluationSettings()], 2.0)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def client(authority: Authority) -> Pair:
    return authority.sign("client")


@pytest.fixture(scope="module")
def server(
    prometheus_binaries: PrometheusBinaries,
    authority: Authority,
    client: Pair,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[LockedPrometheus]:
    exporters = Exporters()
    exporters.pages["/metrics"] = PAGE
    target = {"targets": [exporters.address], "labels": {"namespace": "flowcon", "pod": "steady"}}
    made = LockedPrometheus(
        prometheus_binaries,
        tmp_path_factory.mktemp("prometheus"),
        authority.sign("server", *LOOPBACK),
        path="/shared/prometheus",
        clients_of=authority,
        scrape_configs=[{"job_name": "trainers", "static_configs": [target]}],
    )
    try:
        with made.running(ready=client):
            yield made
    finally:
        exporters.close()


@pytest.fixture
def locked(server: LockedPrometheus, authority: Authority, client: Pair, tmp_path: Path) -> Locked:
    server.let_in("first-password")
    return Locked(server, authority, client, tmp_path)


def test_with_password_authority_client_certificate_and_path_it_is_read(locked: Locked) -> None:
    with locked.reader() as reader:
        jobs = wait_for("a job", lambda: reader.read(time.time()).jobs, lambda jobs: jobs)
    evaluation = jobs[JobKey("flowcon", "steady")].evaluation
    assert evaluation is not None
    assert evaluation.level == 0.5


def test_a_password_that_rotates_holds_readings_until_the_file_has_it(locked: Locked) -> None:
    with locked.reader() as reader:
        reader.read(time.time())
        locked.server.let_in("second-password")
        with pytest.raises(ObservationError) as caught:
            reader.read(time.time())
        locked.password.write_text("second-password\n")
        reader.read(time.time())
    assert f"answered 401 (Unauthorized); correct basic_auth in {locked.config}; nothing" in str(caught.value)

"""A real Prometheus, started, killed, restarted and gone without a trace."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
import requests

from slopewise.adapters.local.crash_journal import Journal, journal_path
from slopewise.adapters.local.launcher import Command, Launcher, ManagedProcess, start_unrecorded
from slopewise.adapters.local.prometheus_server import (
    PrometheusBinaries,
    PrometheusServer,
    TargetGroup,
    free_loopback_port,
)
from slopewise.errors import DataSourceError, UsageError

pytestmark = pytest.mark.processes


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]


def is_ready(server: PrometheusServer) -> bool:
    return requests.get(f"{server.url}/-/ready", timeout=5).ok


def noting(pids: list[int]) -> Callable[[Command], ManagedProcess]:
    def start(command: Command) -> ManagedProcess:
        process = start_unrecorded(command)
        pids.append(process.pid)
        return process

    return start


def pretender(path: Path, script: str) -> PrometheusBinaries:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return PrometheusBinaries(path, None, "2.42.0")


def test_it_answers_after_a_kill_and_leaves_nothing(prometheus_binaries: PrometheusBinaries, tmp_path: Path) -> None:
    first: TargetGroup = {"targets": ["127.0.0.1:1"], "labels": {"pod": "größe"}}
    second: TargetGroup = {"targets": ["127.0.0.1:2"], "labels": {"pod": 'a"b'}}
    data = tmp_path / "data"
    journal = Journal.open(tmp_path / "state", f"{os.getpid()}-{tmp_path.name}")
    start = Launcher(journal).start
    with PrometheusServer(prometheus_binaries, data, targets=[first], start_process=start) as server:
        url, pid = server.url, server.pid
        assert is_ready(server)
        assert f'"pid":{pid},' in journal_path(tmp_path / "state", journal.run_id).read_text()
        environment = psutil.Process(pid).environ()
        assert (environment["SLOPEWISE_RUN_ID"], environment["GOMAXPROCS"]) == (journal.run_id, "1")
        listening = [one.laddr for one in psutil.Process(pid).net_connections() if one.status == "LISTEN"]
        assert [address.ip for address in listening] == ["127.0.0.1"]
        obeyed = requests.get(f"{url}/api/v1/status/config", timeout=5).json()["data"]["yaml"]
        assert "honor_labels: true" not in obeyed, "a target does not choose its own labels"

        assert json.loads((data / "targets.json").read_text()) == [first]
        server.set_targets([first, second])
        assert json.loads((data / "targets.json").read_text()) == [first, second]
        assert not list(data.glob("*.draft"))

        server.kill()
        pid_when_killed = server.pid
        assert pid_when_killed is None
        assert (data / "tsdb").exists()
        server.restart()
        assert server.url == url
        assert is_ready(server)
        restarted = server.pid
        assert restarted is not None
    assert server.pid is None
    assert not psutil.pid_exists(restarted)
    assert not data.exists()
    server.stop()
    assert journal.close() == []


def test_another_prometheus_at_a_port_is_not_ours(prometheus_binaries: PrometheusBinaries, tmp_path: Path) -> None:
    with PrometheusServer(prometheus_binaries, tmp_path / "first") as first:
        theirs = int(first.url.rpartition(":")[2])
        ports = iter([theirs, free_loopback_port()])
        with PrometheusServer(prometheus_binaries, tmp_path / "second", free_port=lambda: next(ports)) as second:
            assert second.url != first.url
        assert is_ready(first)


def test_when_every_port_is_taken_it_says_so_and_leaves_nothing(
    prometheus_binaries: PrometheusBinaries, tmp_path: Path, taken_port: int
) -> None:
    with pytest.raises(DataSourceError, match="found its port taken 5 times"):
        PrometheusServer(prometheus_binaries, tmp_path / "data", free_port=lambda: taken_port).start()
    assert list(tmp_path.iterdir()) == []


def test_one_that_ends_at_once_is_reported_with_the_end_of_its_log(tmp_path: Path) -> None:
    broken = pretender(tmp_path / "prometheus", "echo first; echo 'unknown flag' >&2; exit 3")
    with pytest.raises(DataSourceError, match="ended with 3; its log ends with: unknown flag"):
        PrometheusServer(broken, tmp_path / "data").start()
    assert not (tmp_path / "data").exists()


def test_one_that_never_gets_ready_is_ended(tmp_path: Path) -> None:
    noted: list[int] = []
    sleeper = pretender(tmp_path / "prometheus", "exec sleep 60")
    server = PrometheusServer(sleeper, tmp_path / "data", start_process=noting(noted), ready_timeout_seconds=0.2)
    with pytest.raises(DataSourceError, match=r"was not ready within 0\.2 s"):
        server.start()
    assert not psutil.pid_exists(noted[0])
    assert not (tmp_path / "data").exists()


def test_interrupted_while_it_is_waited_for_it_ends_and_leaves_no_data(tmp_path: Path) -> None:
    noted: list[int] = []

    def start(command: Command) -> ManagedProcess:
        process = noting(noted)(command)
        poll = process.poll

        def interrupt() -> None:
            process.poll = poll  # type: ignore[method-assign]
            raise KeyboardInterrupt

        process.poll = interrupt  # type: ignore[method-assign]
        return process

    sleeper = pretender(tmp_path / "prometheus", "exec sleep 60")
    with pytest.raises(KeyboardInterrupt):
        PrometheusServer(sleeper, tmp_path / "data", start_process=start).start()
    assert not psutil.pid_exists(noted[0])
    assert not (tmp_path / "data").exists()


def test_a_folder_with_other_files_is_refused(prometheus_binaries: PrometheusBinaries, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("precious")
    with pytest.raises(UsageError, match="is not empty"):
        PrometheusServer(prometheus_binaries, tmp_path).start()
    assert (tmp_path / "thesis.txt").exists()


def test_a_target_chooses_its_labels_where_allowed(prometheus_binaries: PrometheusBinaries, tmp_path: Path) -> None:
    with PrometheusServer(prometheus_binaries, tmp_path / "data", honor_labels=True) as server:
        obeyed = requests.get(f"{server.url}/api/v1/status/config", timeout=5).json()["data"]["yaml"]
    assert "honor_labels: true" in obeyed

"""`slopewise history` against an API server: what was done, in order, of all workloads or of one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.api_server import ApiServer
from support.stored import action, put_growth

from slopewise.adapters.kube.connection import Connection
from slopewise.adapters.kube.state.job_growth_object import growth_path
from slopewise.errors import UsageError
from slopewise.operate.growths import read_history


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer() as running:
        yield running


@pytest.fixture
def connection(server: ApiServer, tmp_path: Path) -> Connection:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(server.kubeconfig)
    return Connection(kubeconfig)


def put_moves(server: ApiServer, namespace: str, name: str, *seconds: int) -> None:
    times = {second: f"2026-11-21T15:00:{second:02d}Z" for second in seconds}
    moves = [action(f"n{second} to n{second + 1}", "no step lost", time=at) for second, at in times.items()]
    put_growth(server, name, namespace, history=moves)


def test_the_actions_of_all_workloads_come_in_the_order_of_time(server: ApiServer, connection: Connection) -> None:
    put_moves(server, "team-a", "train", 1, 5)
    put_moves(server, "team-b", "tune", 3)
    lines = read_history(connection, None)
    assert [(line.namespace, line.workload, line.action.change) for line in lines] == [
        ("team-a", "train", "n1 to n2"),
        ("team-b", "tune", "n3 to n4"),
        ("team-a", "train", "n5 to n6"),
    ]


@pytest.mark.parametrize("named", ["train", "team-a/train"])
def test_one_workload_is_named_with_or_without_its_namespace(
    server: ApiServer, connection: Connection, named: str
) -> None:
    put_moves(server, "team-a", "train", 1)
    put_moves(server, "team-a", "other", 2)
    assert [line.workload for line in read_history(connection, named)] == ["train"]


def test_only_one_namespace_is_asked_for_where_there_is_no_right_beyond_it(
    server: ApiServer, connection: Connection
) -> None:
    put_moves(server, "team-a", "train", 1)
    put_moves(server, "team-b", "train", 2)
    there = Connection(connection.kubeconfig, namespace="team-b")
    assert [line.namespace for line in read_history(there, None)] == ["team-b"]
    assert {request.path.partition("?")[0] for request in server.asked("GET")} == {growth_path("team-b")}


def test_a_workload_that_is_not_managed_is_a_mistake_and_one_without_actions_is_not(
    server: ApiServer, connection: Connection
) -> None:
    put_moves(server, "team-a", "train")
    assert read_history(connection, "train") == []
    with pytest.raises(UsageError, match="no workload nope is managed in the cluster"):
        read_history(connection, "nope")


def test_a_status_that_somebody_else_has_written_into_is_passed_over(server: ApiServer, connection: Connection) -> None:
    put_moves(server, "team-a", "train", 1)
    put_growth(server, "odd", history="not a list")
    assert [line.workload for line in read_history(connection, None)] == ["train"]

"""`slopewise history` against an API server: what was done, in order, of all workloads or of one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.api_server import ApiServer
from support.stored import action, put_growth

from slopewise.adapters.kube.connection import Connection
from slopewise.adapters.kube.state.job_growth_object import growth_path, memory_text
from slopewise.errors import UsageError
from slopewise.estimators.level_range import begin, learn
from slopewise.model import Anchor, JobMemory, Levels, Points, PolicyMemory
from slopewise.operate.growths import read_history, read_studies


@pytest.fixture
def connection(reach: tuple[str, str]) -> Connection:
    return Connection(Path(reach[1]))


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
def test_a_workload_is_named_with_or_without_namespace(server: ApiServer, connection: Connection, named: str) -> None:
    put_moves(server, "team-a", "train", 1)
    put_moves(server, "team-a", "other", 2)
    assert [line.workload for line in read_history(connection, named)] == ["train"]


def test_one_namespace_is_asked_for_without_a_right_beyond_it(server: ApiServer, connection: Connection) -> None:
    put_moves(server, "team-a", "train", 1)
    put_moves(server, "team-b", "train", 2)
    there = Connection(connection.kubeconfig, namespace="team-b")
    assert [line.namespace for line in read_history(there, None)] == ["team-b"]
    assert {request.path.partition("?")[0] for request in server.asked("GET")} == {growth_path("team-b")}


def test_an_unmanaged_workload_is_a_mistake_and_an_idle_one_is_not(server: ApiServer, connection: Connection) -> None:
    put_moves(server, "team-a", "train")
    assert read_history(connection, "train") == []
    with pytest.raises(UsageError, match="no workload nope is managed in the cluster"):
        read_history(connection, "nope")


def test_a_status_that_somebody_else_has_written_into_is_passed_over(server: ApiServer, connection: Connection) -> None:
    put_moves(server, "team-a", "train", 1)
    put_growth(server, "odd", history="not a list")
    assert [line.workload for line in read_history(connection, None)] == ["train"]


def put_trial(
    server: ApiServer,
    namespace: str,
    name: str,
    loss: float,
    cpu_seconds: float,
    levels: Levels | None = None,
    **status: Any,
) -> None:
    """At half of its plan of 100 steps, with a loss that was twice as high at the start."""
    pairs = np.array([[3.0, 2 * loss], [4.0, 1.5 * loss], [50.0, loss]], "<f4").tobytes()
    points = Points("steps", "loss", packed=pairs, steps=50.0, cpu_seconds=cpu_seconds)
    memory = memory_text(JobMemory(levels=levels or Levels(first=2 * loss, best=loss), points=points), 1)
    pods = [{"slot": "0", "name": f"{name}-x", "memory": memory}]
    status = {"state": "Training", "loss": loss, "progressRatio": 0.5, "pods": pods, **status}
    put_growth(server, name, namespace, study="lr", **status)


class TestStudies:
    def test_trials_are_ranked_with_cpu_and_what_asha_stops(self, server: ApiServer, connection: Connection) -> None:
        for number in range(1, 5):
            put_trial(server, "team-a", f"t{number}", 0.1 * number, 10.0 * number, reason="first: best so far")
        put_growth(server, "other", "team-a", state="Training", loss=0.001)
        (ranking,) = read_studies(connection, "lr")
        assert ranking.study == "team-a/lr"
        assert next((each.name, each.state, each.reason) for each in ranking.trials) == (
            "t1", "Training", "first: best so far",
        )  # fmt: skip
        assert [each.name for each in ranking.trials] == ["t1", "t2", "t3", "t4"]
        assert ranking.as_json()["cpu_seconds_of_rest"] == 90.0
        assert ranking.stopped == dict.fromkeys(("t2", "t3", "t4"), 1 / 27)

    def test_one_rising_loss_does_not_turn_the_ranking(self, server: ApiServer, connection: Connection) -> None:
        levels = Levels()
        for level in (2.3, 5.0, 9.0):
            levels = begin(levels, level) if levels.first is None else learn(levels, level, "min")
            levels = levels.altered(anchor=Anchor(1.0, level, None))
        put_trial(server, "team-a", "diverges", 9.0, 1.0, levels)
        put_trial(server, "team-a", "good", 0.1, 1.0)
        (ranking,) = read_studies(connection, "lr")
        assert [each.name for each in ranking.trials] == ["good", "diverges"]

    def test_a_metric_that_rises_has_its_highest_first(self, server: ApiServer, connection: Connection) -> None:
        for name, best in (("a", 0.8), ("b", 0.9)):
            put_trial(server, "team-a", name, best, 1.0, Levels(first=0.1, best=best))
        (ranking,) = read_studies(connection, "lr")
        assert [each.name for each in ranking.trials] == ["b", "a"]

    def test_one_that_has_diverged_is_last_and_different_metrics_are_not_ranked(
        self, server: ApiServer, connection: Connection
    ) -> None:
        put_trial(server, "team-a", "nan", 0.1, 1.0, Levels(series="loss", first=0.2, best=0.1, finite=False))
        put_trial(server, "team-a", "good", 0.3, 1.0, Levels(series="loss", first=0.6, best=0.3))
        (ranking,) = read_studies(connection, "lr")
        assert [(each.name, each.loss) for each in ranking.trials] == [("good", 0.3), ("nan", None)]
        assert ranking.trials[1].reason == "its loss is not finite"
        put_trial(server, "team-a", "other", 0.2, 1.0, Levels(series="accuracy", first=0.6, best=0.3))
        (ranking,) = read_studies(connection, "lr")
        assert [each.name for each in ranking.trials] == ["good", "nan", "other"]
        assert ranking.differ == "other reports accuracy, and nan loss"

    def test_each_namespace_has_studies_of_its_own(self, server: ApiServer, connection: Connection) -> None:
        put_trial(server, "team-a", "a", 0.1, 1.0)
        put_trial(server, "team-b", "b", 0.1, 1.0)
        assert [each.study for each in read_studies(connection, "lr")] == ["team-a/lr", "team-b/lr"]

    def test_each_index_of_an_indexed_job_is_a_trial(self, server: ApiServer, connection: Connection) -> None:
        put_trial(server, "team-a", "sweep", 0.1, 1.0)
        stored = server.get(growth_path("team-a", "sweep"))
        (pod,) = stored["status"]["pods"]
        pairs = np.array([[3.0, 2.0], [4.0, 1.5], [25.0, 1.0]], "<f4").tobytes()
        behind = memory_text(JobMemory(points=Points("steps", "loss", packed=pairs, steps=25.0)), 1)
        more = {"1": "zlib:nonsense", "2": behind}
        stored["status"]["pods"] = [pod, *({**pod, "slot": slot, "memory": memory} for slot, memory in more.items())]
        server.put(growth_path("team-a"), stored)
        (ranking,) = read_studies(connection, "lr")
        assert [(each.name, each.loss) for each in ranking.trials] == [
            ("sweep:0", pytest.approx(0.1)),
            ("sweep:2", 1.0),
            ("sweep:1", None),
        ]
        assert ranking.trials[1].rungs == {0: pytest.approx(1.65, abs=0.01)}, "of the plan of 100 steps, at 3.7"

    def test_ranks_of_one_training_are_a_trial_with_the_cpu_of_all(
        self, server: ApiServer, connection: Connection
    ) -> None:
        put_trial(server, "team-a", "ranks", 0.1, 3.0)
        stored = server.get(growth_path("team-a", "ranks"))
        (pod,) = stored["status"]["pods"]
        stored["status"]["pods"] = [pod, {**pod, "slot": "1"}]
        server.put(growth_path("team-a"), stored)
        (trial,) = read_studies(connection, "lr")[0].trials
        assert (trial.name, trial.loss, trial.cpu_seconds) == ("ranks", 0.1, 6.0)

    def test_the_chance_is_shown_while_a_trial_runs(self, server: ApiServer, connection: Connection) -> None:
        for name, chance in (("runs", 0.7), ("ended", None)):
            known = JobMemory(decided=PolicyMemory(chance=0.7), levels=Levels(first=1.0, best=0.1))
            pods = [{"slot": "0", "name": name, "memory": memory_text(known, 1)}]
            put_growth(server, name, "team-a", study="lr", chance=chance, pods=pods)
        (ranking,) = read_studies(connection, "lr")
        assert {each.name: each.chance for each in ranking.trials} == {"runs": 0.7, "ended": None}

    def test_one_that_there_is_not_is_a_mistake_of_the_users(self, connection: Connection) -> None:
        with pytest.raises(UsageError, match=r"there is no study 'lr'; `kubectl get growth -A -o wide` lists studies"):
            read_studies(connection, "lr")

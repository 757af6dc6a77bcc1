"""kube-default: the least allocated node by requests, as Kubernetes' scheduler scores it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from support.worlds import START, a_job, a_snapshot

from slopewise.estimators.growth import Measuring, measure
from slopewise.model import Arrival, Decisions, Job, MemoryState, Node
from slopewise.policies import Setting
from slopewise.policies.kube_default import Parameters, Policy

GIB = 2.0**30


def node(name: str, cpu_cores: float = 16.0, gib: int = 64, bound: int | None = None) -> Node:
    return Node(name, cpu_cores, gib * 2**30, bound)


def pod(uid: str, on: str, millicores: int, gib: float | None = None) -> Job:
    return a_job(uid, node=on, request=millicores).altered(memory_request_bytes=None if gib is None else gib * GIB)


def arrival(millicores: int = 0, gib: float | None = None) -> Arrival:
    return Arrival("new", "new", "team", START, millicores, None if gib is None else gib * GIB)


def decide(nodes: Sequence[Node], jobs: Sequence[Job], waiting: Sequence[Arrival], requests: str = "pods") -> Decisions:
    snapshot = replace(a_snapshot(jobs, nodes), waiting=tuple(waiting))
    policy = Policy(Parameters(requests=requests), Setting(20.0, "limits"))
    return policy.decide(snapshot, measure(snapshot, MemoryState(), Measuring(20.0)))


def targets(decisions: Decisions) -> list[str]:
    return [move.node for move in decisions.moves]


def test_the_score_is_the_mean_free_fraction_of_cpu_and_memory_with_the_new_pod() -> None:
    decisions = decide([node("n1")], [pod("a", "n1", 4000, 8)], [arrival(millicores=4000, gib=8)])
    assert decisions.moves[0].reason == "least allocated: score 62.5 of 100 with it"  # (50 + 75) / 2


def test_requests_decide_and_not_how_many_pods_there_are() -> None:
    jobs = [pod("a", "n1", 8000, 8), *(pod(f"b{i}", "n2", 1000, 1) for i in range(4))]
    nodes, waiting = [node("n1"), node("n2")], [arrival(millicores=1000, gib=1)]
    assert targets(decide(nodes, jobs, waiting)) == ["n2"]
    assert targets(decide(nodes, jobs, waiting, requests="none")) == ["n1"]


def test_a_pod_without_requests_counts_as_a_tenth_of_a_core_and_200_mebibytes() -> None:
    tiny = node("n1", cpu_cores=1.0, gib=1)
    decisions = decide([tiny], [], [arrival()])
    assert decisions.moves[0].reason == f"least allocated: score {(90 + 100 * (1 - 200 / 1024)) / 2:.3g} of 100 with it"


@pytest.mark.parametrize("requests", ["pods", "none"])
def test_where_requests_reserve_something_a_pod_goes_only_where_they_fit(requests: str) -> None:
    nodes = [node("n1", bound=4000), node("n2", bound=16_000)]
    jobs = [pod("a", "n1", 3500), pod("b", "n2", 14_500)]
    assert targets(decide(nodes, jobs, [arrival(millicores=1000)], requests)) == ["n2"]
    assert targets(decide(nodes, jobs, [arrival(millicores=2000)], requests)) == []


def test_within_a_node_everything_is_left_alone() -> None:
    decisions = decide([node("n1")], [pod("a", "n1", 100)], [])
    assert (decisions.policy, decisions.resizes) == ("kube-default", ())
    assert decisions.reasons == {"a": "fair sharing: unchanged"}

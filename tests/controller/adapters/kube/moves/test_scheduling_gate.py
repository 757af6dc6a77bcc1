"""Taking our gate off a pod over real HTTP: what is sent, and what each answer means."""

from __future__ import annotations

import pytest
from support.api_server import ApiServer, Drop, Reply, refusal
from support.gated_pods import Stage, is_gated, pinned_nodes, wished_nodes
from support.managed_pods import PODS

from slopewise.adapters.kube.cache.parsing import parse_pod
from slopewise.adapters.kube.cache.records import PLACED
from slopewise.adapters.kube.moves.node_predicates import pinned
from slopewise.adapters.kube.moves.scheduling_gate import Aim, GateRelease

ZONES = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [
                {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]},
                {"matchExpressions": [{"key": "gpu", "operator": "Exists"}]},
            ]
        },
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 5, "preference": {"matchExpressions": [{"key": "fast", "operator": "Exists"}]}}
        ],
    },
    "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "host"}]},
}


@pytest.fixture
def stage(server: ApiServer) -> Stage:
    stage = Stage(server)
    stage.put_pod("p", gated=True)
    return stage


def opened(stage: Stage, aim: Aim | None = None) -> GateRelease:
    return stage.gate_releaser.release(parse_pod(stage.pod("p")), aim)


def test_a_wish_is_no_pin_and_comes_beside_the_owners_wishes(stage: Stage) -> None:
    stage.put_pod("p", gated=True, affinity=ZONES)
    assert opened(stage, Aim("node-b", pin=False)).detail == "goes to node-b if that takes it"
    pod = stage.pod("p")
    assert (is_gated(pod), pinned_nodes(pod), wished_nodes(pod)) == (False, [], ["node-b"])
    assert PLACED not in pod["metadata"]["annotations"]
    node_affinity = pod["spec"]["affinity"]["nodeAffinity"]
    assert [each["weight"] for each in node_affinity["preferredDuringSchedulingIgnoredDuringExecution"]] == [5, 100]
    assert len(node_affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]) == 2


def test_the_gates_of_others_stay(stage: Stage) -> None:
    raw = stage.pod("p")
    raw["spec"]["schedulingGates"].append({"name": "kueue.x-k8s.io/admission"})
    stage.server.put(PODS, raw)
    opened(stage)
    assert stage.pod("p")["spec"]["schedulingGates"] == [{"name": "kueue.x-k8s.io/admission"}]


def test_a_pod_that_has_changed_or_is_gone_is_read_as_it_is_now(stage: Stage) -> None:
    before, aim = parse_pod(stage.pod("p")), Aim("node-b", pin=True)
    stage.put_pod("p", gated=True, affinity=ZONES)
    outcome = stage.gate_releaser.release(before, aim)
    assert (outcome.result, outcome.detail) == ("applied", "may run on node-b only")
    pod = stage.pod("p")
    assert (pod["spec"]["affinity"], pod["metadata"]["annotations"][PLACED]) == (pinned(ZONES, "node-b"), "node-b")
    stage.put_pod("p", node=None)
    outcome = stage.gate_releaser.release(before, aim)
    assert (outcome.result, outcome.over, pinned_nodes(stage.pod("p"))) == ("failed", True, []), (
        "somebody has opened it"
    )
    stage.server.remove(f"{PODS}/p")
    assert stage.gate_releaser.release(before) == GateRelease("failed", "its pod is gone", over=True)
    stage.put_pod("p", gated=True, created="2026-01-01T00:10:00Z")
    assert stage.gate_releaser.release(before).over
    assert is_gated(stage.pod("p"))


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (refusal(403, "Forbidden", "no patch on pods"), "apply manifests/components/moves"),
        (refusal(422, "Invalid", "spec.affinity: Forbidden"), "spec.affinity: Forbidden"),
    ],
)
def test_what_is_refused_for_good_is_infeasible_and_says_why(stage: Stage, reply: Reply, words: str) -> None:
    stage.server.fault(reply, method="PATCH")
    outcome = opened(stage, Aim("node-b", pin=True))
    assert (outcome.result, outcome.over) == ("infeasible", False)
    assert words in outcome.detail


def test_an_answer_that_was_lost_is_not_taken_for_a_yes(stage: Stage) -> None:
    stage.server.fault(Drop(after=True), method="PATCH")
    outcome = opened(stage)
    assert (outcome.result, outcome.over) == ("failed", False)
    assert not is_gated(stage.pod("p"))

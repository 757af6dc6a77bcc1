"""Pods behind our gate under a whole leader: placed by the policy that selects them, or let go after its pass."""

from __future__ import annotations

import pytest
from support.gated_pods import JOBS, a_raw_job, is_gated, pinned_nodes, wished_nodes
from support.managed_pods import PODS, a_raw_pod
from support.replicas import Json, RunningReplica, Town, wait_for

GATE = [{"name": "slopewise.dev/place"}]


@pytest.fixture
def town(empty_town: Town) -> Town:
    return empty_town


def put_gated_pod(town: Town, job: str | None = None) -> None:
    raw = a_raw_pod()
    raw["metadata"] |= {"name": "new", "annotations": {}}
    if job is not None:
        uid = f"uid-of-{job}"
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": uid, "controller": True}
        raw["metadata"]["ownerReferences"] = [owner]
    del raw["spec"]["nodeName"]
    raw["spec"]["schedulingGates"] = GATE
    raw["status"] = {"phase": "Pending", "qosClass": "Burstable"}
    town.server.put(PODS, raw)


def pod(town: Town) -> Json:
    return town.server.get(f"{PODS}/new")


def test_one_that_the_policy_does_not_place_is_let_go_after_its_pass(town: Town, replica: RunningReplica) -> None:
    town.policy()
    put_gated_pod(town)
    wait_for(lambda: not is_gated(pod(town)), "the gate is taken off", town)
    assert "affinity" not in pod(town)["spec"]
    assert "slopewise.dev/placed" not in pod(town)["metadata"].get("annotations", {})


def test_a_policy_that_places_has_its_way(town: Town, replica: RunningReplica) -> None:
    town.policy(policy={"name": "procon"})
    town.server.put(JOBS, a_raw_job())
    put_gated_pod(town, job="train")
    wait_for(lambda: not is_gated(pod(town)), "the gate is taken off", town)
    assert pinned_nodes(pod(town)) == ["node-a"]


def test_in_a_namespace_that_does_not_opt_in_a_placed_pod_is_not_tied(town: Town, replica: RunningReplica) -> None:
    town.label_namespace({})
    town.policy(policy={"name": "procon"})
    town.server.put(JOBS, a_raw_job())
    put_gated_pod(town, job="train")
    wait_for(lambda: not is_gated(pod(town)), "the gate is taken off", town)
    assert (pinned_nodes(pod(town)), wished_nodes(pod(town))) == ([], ["node-a"])

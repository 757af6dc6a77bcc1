"""The one leader and the policies: obeyed, changed, refused, deleted, and what is left of those that are gone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from support.api_objects import Address
from support.api_server import refusal
from support.managed_pods import NAMESPACE, PODS, resized_by
from support.replicas import GROWTHS, ORIGINAL, POLICIES, SHARE, RunningReplica, Town, is_held, wait_for, write_policy


def test_a_policy_in_auto_is_held_before_its_first_pod_is_changed(town: Town, leader: RunningReplica) -> None:
    writes = town.writes()
    finalizer = writes.index(f"PATCH {POLICIES}/p")
    original = writes.index(f"POST {GROWTHS}")
    resize = next(i for i, write in enumerate(writes) if write.endswith("/pods/a/resize"))
    assert finalizer < resize
    assert original < resize
    assert is_held(town)


def test_a_pods_cpu_is_shown_as_its_kubelet_reports_it_and_at_once(town: Town, replica: RunningReplica) -> None:
    def shown() -> tuple[str | None, str | None]:
        status = town.found(f"{GROWTHS}/a").get("status", {})
        found = (each for each in status.get("conditions", []) if each["type"] == "InEffect")
        return status.get("cpu"), next((each["status"] for each in found), None)

    town.server.objects.kubelets_follow = False
    town.policy(behaviour={"intervalSeconds": 600})
    wait_for(lambda: town.limit() == SHARE, "the API server accepts a share", town)
    wait_for(lambda: shown() == ("0.3 → 2", "False"), "what was accepted is not taken for what it has", town)
    assert replica.metric("slopewise_unconfirmed_pods", job_node="node-a") == 1
    passes = replica.passes()

    town.server.objects.follow(Address.of(f"{PODS}/a"))
    wait_for(lambda: shown() == ("2", "True"), "what is in effect is shown", town)
    assert replica.passes() == passes
    assert replica.metric("slopewise_unconfirmed_pods", job_node="node-a") is None


def test_a_pod_that_somebody_else_resizes_too_is_a_conflict_of_its_policy(town: Town, leader: RunningReplica) -> None:
    raw = town.server.get(f"{PODS}/a")
    raw["metadata"]["managedFields"] = [resized_by("kubectl-patch")]
    town.server.put(PODS, raw)
    wait_for(lambda: town.condition("Conflict").get("reason") == "OtherResizer", "it is reported", town)
    assert town.condition("Conflict")["message"] == (
        "1 pod is resized by kubectl-patch too, and not by Slopewise: team-a/a; stop one of the two"
    )
    del raw["metadata"]["managedFields"]
    town.server.put(PODS, raw)
    wait_for(lambda: town.condition("Conflict").get("reason") == "NoConflict", "it is over", town)


def managed(town: Town) -> tuple[str | None, str | None, str | None]:
    """Status and reason of the pod's condition Managed, and its CPU as it is shown."""
    status = town.found(f"{GROWTHS}/a").get("status", {})
    found: dict[str, Any] = next((each for each in status.get("conditions", []) if each["type"] == "Managed"), {})
    return found.get("status"), found.get("reason"), status.get("cpu")


def test_a_pod_whose_label_is_false_gets_its_original(town: Town, replica: RunningReplica) -> None:
    town.policy()
    wait_for(lambda: managed(town) == ("True", "Managed", SHARE), "the pod gets its share", town)

    town.label("false")

    wait_for(lambda: town.limit() == ORIGINAL, "its original resources are restored", town)
    wait_for(lambda: not town.is_there(f"{GROWTHS}/a"), "nothing is shown of it", town)


def test_a_pod_whose_label_is_removed_counts_as_gone_and_keeps_what_it_has(town: Town, replica: RunningReplica) -> None:
    town.policy()
    wait_for(lambda: managed(town) == ("True", "Managed", SHARE), "the pod gets its share", town)

    town.label(None)

    wait_for(lambda: replica.metric("slopewise_restores_total", outcome="gone") == 1, "it counts as gone", town)
    assert town.limit() == SHARE


def test_a_deleted_policy_goes_once_its_pods_have_what_they_came_with(town: Town, leader: RunningReplica) -> None:
    town.delete_policy()

    wait_for(lambda: not town.is_there(f"{POLICIES}/p"), "the policy goes", town)
    assert town.limit() == ORIGINAL
    wait_for(lambda: not town.is_there(f"{GROWTHS}/a"), "its memory goes", town)
    assert leader.metric("slopewise_restores_total", outcome="restored") == 1


def test_a_deleted_policy_waits_a_while_for_a_pod_that_cannot_be_restored(town: Town, leader: RunningReplica) -> None:
    town.server.fault(refusal(500, "InternalError", "the webhook is gone"), path="/resize$", times=100)

    town.delete_policy()

    wait_for(lambda: leader.metric("slopewise_restore_pending_pods", name="p") == 1, "it waits", town)
    wait_for(lambda: not town.is_there(f"{POLICIES}/p"), "the policy goes", town)
    [line] = town.lines("finalization delayed")
    assert line["reason"].startswith(
        "the policy goes although pods do not have their original resources back (1), for example team-a/a: "
    )
    assert town.found(f"{GROWTHS}/a")["status"]["pods"][0]["original"]["cpuLimit"] == ORIGINAL


def test_pods_whose_policy_is_gone_get_what_they_came_with_from_the_next_leader(town: Town) -> None:
    town.policy()
    with town.replica():
        wait_for(lambda: town.limit() == SHARE, "the pod gets its share", town)
    town.server.remove(f"{POLICIES}/p")  # somebody took its finalizer away

    with town.replica():
        wait_for(lambda: not town.is_there(f"{GROWTHS}/a"), "the memory of it goes", town)

    assert town.limit() == ORIGINAL


def test_leaving_auto_gives_back_and_then_the_policy_is_not_held_any_more(town: Town, leader: RunningReplica) -> None:
    town.policy(mode="Recommend")

    wait_for(lambda: town.limit() == ORIGINAL, "the original is back", town)
    wait_for(lambda: not is_held(town), "the finalizer goes", town)
    wait_for(lambda: town.condition("Ready").get("reason") == "ModeRecommend", "its status says so", town)


def test_a_finalizer_that_somebody_takes_off_is_set_again(town: Town, leader: RunningReplica) -> None:
    bare = {**town.server.get(f"{POLICIES}/p")}
    bare["metadata"] = {key: value for key, value in bare["metadata"].items() if key != "finalizers"}
    town.server.put(POLICIES, bare)

    wait_for(lambda: is_held(town), "the finalizer is back", town)


def test_a_policy_that_is_changed_many_times_is_obeyed_as_it_is_in_the_end(town: Town, replica: RunningReplica) -> None:
    for interval in range(2, 22):
        town.policy(behaviour={"intervalSeconds": interval})
    generation = town.server.get(f"{POLICIES}/p")["metadata"]["generation"]

    wait_for(lambda: town.limit() == SHARE, "the pod gets its share", town)
    wait_for(lambda: town.condition("Ready").get("observedGeneration") == generation, "the last one is obeyed", town)
    before = replica.passes()
    wait_for(lambda: replica.metric("slopewise_interval_seconds") == 21, "it looks every 21 s", town)
    assert replica.passes() <= before + 1


def test_a_policy_in_the_place_of_one_of_the_same_name_starts_after_it(town: Town, leader: RunningReplica) -> None:
    town.server.remove(f"{POLICIES}/p")
    town.policy(mode="Recommend")

    wait_for(lambda: town.limit() == ORIGINAL, "the new one changes nothing", town)
    assert [line["mode"] for line in town.lines("policy applied")] == ["Auto", "Recommend"]


def test_a_policy_that_becomes_invalid_changes_nothing_and_can_be_deleted(town: Town, leader: RunningReplica) -> None:
    town.policy(policy={"name": "not-a-policy"})
    wait_for(lambda: town.condition("Ready").get("reason") == "InvalidSpec", "it is refused", town)
    wait_for(lambda: leader.metric("slopewise_policies", condition="refused") == 1, "it is counted", town)
    assert town.limit() == SHARE

    town.delete_policy()

    wait_for(lambda: not town.is_there(f"{POLICIES}/p"), "the policy goes", town)
    assert town.limit() == ORIGINAL


def test_a_right_that_one_policy_lacks_is_in_its_status_and_tried_again(town: Town, replica: RunningReplica) -> None:
    forbidden = refusal(403, "Forbidden", "cannot patch trainingpolicies")
    town.server.fault(forbidden, method="PATCH", path="trainingpolicies/p$", times=1)
    town.policy()

    wait_for(lambda: town.condition("Degraded").get("status") == "True", "it says so", town)
    assert "cannot patch trainingpolicies" in town.condition("Degraded")["message"]
    wait_for(lambda: town.limit() == SHARE, "it is obeyed once it may be", town)


def test_statuses_that_cannot_be_written_are_reported_in_the_policys_own(town: Town, replica: RunningReplica) -> None:
    forbidden = refusal(403, "Forbidden", "cannot patch jobgrowths/status")
    town.server.fault(forbidden, method="PATCH", path="jobgrowths/a/status$", times=1000)
    town.policy(mode="Recommend")

    wait_for(lambda: town.condition("Degraded").get("status") == "True", "it says so", town)

    assert town.condition("Degraded")["message"].startswith("1 JobGrowths cannot be written")
    town.server.heal()
    wait_for(lambda: town.condition("Degraded").get("status") == "False", "it is over", town)


def test_a_pod_wakes_only_the_policy_that_selects_it(town: Town, replica: RunningReplica) -> None:
    for name in ("x", "y"):
        town.policy(name, selector={"pods": {"matchLabels": {"team": name}}}, behaviour={"intervalSeconds": 3600})
    wait_for(lambda: replica.passes() == 2, "each has its first pass", town)

    town.pod("b", labels={"team": "x"})

    wait_for(lambda: [line for line in town.lines("pass completed") if line["jobs"] == 1], "one looks at the pod", town)
    assert [line["name"] for line in town.lines("pass completed") if line["jobs"] == 1] == ["x"]
    assert {line["name"] for line in town.lines("pass completed") if line["jobs"] == 0} == {"x", "y"}
    assert not [line for line in town.lines("pass completed")[2:] if line["name"] == "y"]


def test_two_policies_that_have_pods_of_one_job_do_not_undo_each_others_changes(empty_town: Town) -> None:
    town = empty_town
    job = town.server.put(f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs", {"metadata": {"name": "train"}})
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": job["metadata"]["uid"]}
    for index, team in enumerate(("x", "y")):
        raw = town.pod(team, labels={"team": team, "batch.kubernetes.io/job-completion-index": str(index)})
        raw["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
        town.server.put(PODS, raw)
        town.policy(team, selector={"pods": {"matchLabels": {"team": team}}})
    with town.replica() as replica:
        wait_for(lambda: town.limit("x") == town.limit("y") == SHARE, "each pod gets its share", town)
        passes = replica.passes()
        wait_for(lambda: replica.passes() >= passes + 4, "some passes later", town)
        assert len(town.server.asked("PATCH", "/resize$")) == 2

        town.delete_policy("x")
        wait_for(lambda: not town.is_there(f"{POLICIES}/x"), "one policy goes", town)
        assert (town.limit("x"), town.limit("y")) == (ORIGINAL, SHARE)
    assert [pod["slot"] for pod in town.found(f"{GROWTHS}/train")["status"]["pods"]] == ["1"]


def test_where_there_is_no_policy_the_leader_is_not_late_with_passes(town: Town, replica: RunningReplica) -> None:
    wait_for(lambda: (replica.metric("slopewise_last_pass_timestamp_seconds") or 0) > 0, "it says when it looked", town)
    assert replica.passes() == 0


def test_a_dry_run_writes_nothing_at_all(town: Town) -> None:
    town.policy()
    with town.replica(dry_run=True) as replica:
        wait_for(lambda: replica.passes() >= 2, "it passes", town)
        town.delete_policy()
        town.policy("bad", behaviour={"intervalSeconds": 1})
        wait_for(lambda: town.lines("policy not applied"), "it sees the others", town)

    assert town.writes() == [f"DELETE {POLICIES}/p"]
    changes = {change for line in town.lines("pass completed") for change in line["changes"]}
    assert changes == {"team-a/a 300m to 2000m deferred: dry run: nothing was changed"}


def test_a_policy_from_a_file_in_auto_changes_pods_and_has_no_finalizer(town: Town, tmp_path: Path) -> None:
    policy = write_policy(tmp_path)
    with town.replica(policy_file=policy, namespace=NAMESPACE):
        wait_for(lambda: town.limit() == SHARE, "the pod gets its share", town)

    assert not [each.path for each in town.server.requests if "trainingpolicies" in each.path or "/nodes" in each.path]
    assert not [write for write in town.writes() if "status" in write and "jobgrowths" not in write]

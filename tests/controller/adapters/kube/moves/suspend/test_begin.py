"""Beginning to move a Job: everything that is asked before, and the one patch."""

from __future__ import annotations

import pytest
from support.api_objects import Json, merged
from support.api_server import Reply, refusal
from support.gated_pods import IGNORE_DISRUPTION
from support.managed_pods import PODS
from support.suspended_jobs import BUDGETS, JOBS, NAME, UID, WISH, Yard

from slopewise.adapters.kube.cache.records import MOVE
from slopewise.model import Migrate, MoveUnderWay

BUDGET_CAUSE = {
    "reason": "DisruptionBudget",
    "message": "The disruption budget training needs 1 healthy pods",
    "field": "",
}


NO_BUDGET = refusal(429, "TooManyRequests", "Cannot evict pod", (BUDGET_CAUSE,))


def fail_job(operator: str, code: int) -> Json:
    return {"action": "FailJob", "onExitCodes": {"operator": operator, "values": [code]}}


def a_budget(allowed: int, selector: Json | None) -> Json:
    return {"metadata": {"name": "training"}, "spec": {"selector": selector}, "status": {"disruptionsAllowed": allowed}}


def test_one_patch_suspends_the_job_and_says_where_it_goes(yard: Yard) -> None:
    yard.put_job(affinity=WISH)
    began, mover = yard.clock.seconds, yard.mover()

    outcome = yard.begin(mover)

    assert (outcome.result, outcome.detail) == (
        "applied", "its Job is suspended; once its pods have ended it starts on node-b"
    )  # fmt: skip
    [patch] = yard.patches()
    assert patch["metadata"]["uid"] == UID
    assert patch["metadata"]["resourceVersion"]
    assert patch["spec"] == {"suspend": True}
    move = yard.move
    assert move is not None
    assert (move.step, move.from_node, move.to_node, move.policy) == ("leaving", "node-a", "node-b", "policy")
    assert move.job_uids == (f"{UID}:0",)
    assert move.node_affinity == WISH["nodeAffinity"]
    assert mover.under_way() == (MoveUnderWay(f"{UID}:0", "node-a", "node-b", began, "saving and ending"),)
    [asked] = yard.server.asked("POST", "/eviction$")
    assert asked.body["deleteOptions"]["dryRun"] == ["All"]
    kinds = [request.method for request in yard.server.requests if request.method != "GET"]
    assert kinds == ["POST", "PATCH"], "budgets are asked before anything is changed"


@pytest.mark.parametrize(
    ("allowed", "selector", "result"),
    [
        (1, {"matchLabels": {"app": "training"}}, "deferred"),
        (0, {"matchExpressions": [{"key": "app", "operator": "Like"}]}, "deferred"),
        (2, {"matchLabels": {"app": "training"}}, "applied"),
        (0, {"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}, "applied"),
        (0, None, "applied"),
    ],
)
def test_several_pods_that_end_at_once_must_all_be_allowed_by_each_budget_that_selects_them(
    yard: Yard, allowed: int, selector: Json | None, result: str
) -> None:
    yard.put_job(parallelism=2)
    yard.server.put(BUDGETS, a_budget(allowed, selector))

    outcome = yard.begin()

    assert (outcome.result, bool(yard.patches())) == (result, result == "applied")
    says_no = f"a disruption budget says no: training allows {allowed} disruptions now, and 2 pods would end at once"
    assert result == "applied" or outcome.detail == says_no


def test_all_pods_of_a_job_move_by_one_patch(yard: Yard) -> None:
    yard.put_job(parallelism=3)
    raw = yard.server.get(f"{PODS}/{yard.managed('2').pod.name}")
    yard.server.put(PODS, {**raw, "status": {"phase": "Succeeded"}})  # one that has finished its part does not matter
    mover, members = yard.mover(), (f"{UID}:0", f"{UID}:1")

    first = yard.begin(mover, slot="1", members=members)
    second = yard.begin(mover, slot="0", members=members)

    assert (first.result, second.result) == ("applied", "applied")
    assert second.detail == "moves to node-b with the other pods of its Job"
    assert len(yard.patches()) == 1
    assert yard.move is not None
    assert yard.move.job_uids == (f"{UID}:1", f"{UID}:0")


def test_it_waits_for_its_turn(yard: Yard) -> None:
    yard.put_job()
    yard.wait = "30 resizes in 60 s are allowed on node node-a; the next in 2 s"

    outcome = yard.begin()

    assert (outcome.result, outcome.detail) == ("deferred", yard.wait)
    assert not yard.patches()


def test_a_second_move_of_the_same_job_waits_for_the_first(yard: Yard) -> None:
    yard.put_job()
    yard.lingering = True
    yard.begin()

    outcome = yard.begin(to="node-c")

    assert (outcome.result, outcome.detail) == ("deferred", "another move of its Job, to node-b, is under way")
    assert len(yard.patches()) == 1


JOB_SET = {"apiVersion": "a/v1", "kind": "JobSet", "name": "s", "uid": "x", "controller": True}
COMPLETE = {"conditions": [{"type": "Complete", "status": "True"}]}
FAILS_ON_SIGTERM = {"rules": [IGNORE_DISRUPTION, fail_job("NotIn", 42)]}
NO_LABEL = "node-b would not take it: it has no label disk=hdd"


@pytest.mark.parametrize(
    ("change", "result", "words"),
    [
        ({"spec": {"suspend": True}}, "deferred", "somebody has suspended its Job"),
        ({"metadata": {"deletionTimestamp": "2026-01-01T01:00:00Z"}}, "failed", "being deleted"),
        ({"status": COMPLETE}, "failed", "its Job has ended"),
        ({"metadata": {"ownerReferences": [JOB_SET]}}, "infeasible", "its owner JobSet s would resume its Job at once"),
        ({"spec": {"managedBy": "kueue.x-k8s.io/multikueue"}}, "infeasible", "multikueue"),
        ({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "q"}}}, "infeasible", "Kueue decides"),
        ({"spec": {"template": {"metadata": None}}}, "infeasible", "put it on the Job's pod template too"),
        ({"spec": {"template": {"spec": {"nodeName": "node-a"}}}}, "infeasible", "nodeName node-a"),
        (
            {"spec": {"podFailurePolicy": FAILS_ON_SIGTERM}},
            "infeasible",
            "rule 1 of its Job's podFailurePolicy fails the Job when a pod that is signalled to end exits with 143",
        ),
        ({"spec": {"template": {"spec": {"nodeSelector": {"disk": "hdd"}}}}}, "infeasible", NO_LABEL),
    ],
)
def test_a_job_that_must_not_be_suspended_is_left_alone(yard: Yard, change: Json, result: str, words: str) -> None:
    yard.put_job()
    yard.server.put(JOBS, merged(yard.job, change, strategic=False))

    outcome = yard.begin()

    assert outcome.result == result
    assert words in outcome.detail
    assert not yard.patches()


def test_a_target_that_would_not_take_it_or_is_gone_is_refused(yard: Yard) -> None:
    yard.put_job()
    yard.put_node("node-b", taints=[{"key": "gpu", "value": "yes", "effect": "NoExecute"}])

    outcomes = [yard.begin(), yard.begin(to="node-z")]

    assert [(each.result, each.detail) for each in outcomes] == [
        ("infeasible", "node-b would not take it: its taint gpu=yes:NoExecute is not tolerated"),
        ("infeasible", "node-z would not take it: there is no such node"),
    ]
    assert not yard.patches()


def test_below_1_36_jobs_are_not_suspended(yard: Yard) -> None:
    yard.put_job()
    yard.server.minor_version = "35+"
    mover = yard.mover()

    outcomes = [yard.begin(mover), yard.begin(mover)]

    expected = ("infeasible", "Jobs are moved from Kubernetes 1.36 on, and this is 1.35")
    assert [(each.result, each.detail) for each in outcomes] == [expected] * 2
    assert len(yard.server.asked("GET", "^/version$")) == 1


@pytest.mark.parametrize(
    ("change", "result", "words"),
    [
        ({"metadata": {"deletionTimestamp": "2026-01-01T01:00:00Z"}}, "deferred", "a pod of its Job is ending"),
        ({"status": {"phase": "Failed"}}, "failed", "its pod is gone, or has ended"),
    ],
)
def test_a_pod_that_ends_or_has_ended_is_not_moved(yard: Yard, change: Json, result: str, words: str) -> None:
    yard.put_job()
    managed = yard.managed()
    raw = yard.server.get(f"{PODS}/{managed.pod.name}")
    yard.server.put(PODS, {**raw, **{part: {**raw[part], **more} for part, more in change.items()}})

    outcome = yard.mover().begin(Migrate(managed.job_uid, "node-a", "node-b", "why"), managed, "policy", ())

    assert (outcome.result, yard.patches()) == (result, [])
    assert words in outcome.detail


@pytest.mark.parametrize(
    ("method", "path", "reply", "result", "words"),
    [
        ("POST", "/eviction$", NO_BUDGET, "deferred", "The disruption budget training needs 1 healthy pods"),
        ("POST", "/eviction$", refusal(403, "Forbidden", "no"), "infeasible", "apply manifests/components/moves"),
        ("PATCH", "", refusal(404, "NotFound", "jobs not found"), "failed", "its Job is gone"),
        ("PATCH", "", refusal(422, "Invalid", "spec.suspend: Forbidden"), "infeasible", "spec.suspend: Forbidden"),
    ],
)
def test_a_refusal_is_reported(yard: Yard, method: str, path: str, reply: Reply, result: str, words: str) -> None:
    yard.put_job()
    yard.server.fault(reply, method=method, path=path)

    outcome = yard.begin()

    assert outcome.result == result
    assert words in outcome.detail


def test_a_job_that_took_the_name_of_another_is_not_touched(yard: Yard) -> None:
    yard.put_job()
    managed, mover = yard.managed(), yard.mover()
    yard.server.remove(f"{JOBS}/{NAME}")
    yard.put_job(meta={"uid": "another"})

    outcome = mover.begin(Migrate(managed.job_uid, "node-a", "node-b", "why"), managed, "policy", ())

    assert (outcome.result, outcome.detail) == ("failed", "its Job is gone")
    assert MOVE not in (yard.job["metadata"].get("annotations") or {})


def test_more_pods_than_one_move_can_name_stay_where_they_are(yard: Yard) -> None:
    yard.put_job()

    outcome = yard.begin(members=[f"{UID}:{slot}" for slot in range(1001)])

    assert (outcome.result, outcome.detail) == (
        "infeasible", "its Job has 1001 pods, and at most 1000 are moved together"
    )  # fmt: skip
    assert not yard.patches()

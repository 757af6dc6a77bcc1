"""Which owners bring an evicted pod back behind our gate, and which would count it as a failure."""

from __future__ import annotations

from typing import Any

import pytest
from support.gated_pods import IGNORE_DISRUPTION, a_raw_job

from slopewise.adapters.kube.moves.recreation import ended_reason, not_recreated_reason_of


def job_with_rules(*rules: dict[str, Any]) -> dict[str, Any]:
    return a_raw_job(podFailurePolicy={"rules": list(rules)})


def on_exit_codes(action: str, operator: str, *values: int) -> dict[str, Any]:
    return {"action": action, "onExitCodes": {"operator": operator, "values": list(values)}}


def test_a_gated_job_that_ignores_disruptions_brings_its_pod_back() -> None:
    assert not_recreated_reason_of("Job", a_raw_job()) is None


def test_a_gated_stateful_set_brings_its_pod_back() -> None:
    owner = a_raw_job()
    del owner["spec"]["podFailurePolicy"]
    assert not_recreated_reason_of("StatefulSet", owner) is None


@pytest.mark.parametrize("kind", ["ReplicaSet", "DaemonSet", "PyTorchJob", "Node"])
def test_other_owners_do_not_wait_for_the_old_pod(kind: str) -> None:
    assert "run it as a Job or a StatefulSet" in (not_recreated_reason_of(kind, {}) or "")


def test_without_our_gate_in_the_template_the_replacement_could_not_be_steered() -> None:
    job = a_raw_job()
    job["spec"]["template"]["spec"]["schedulingGates"] = [{"name": "kueue.x-k8s.io/admission"}]
    assert "no scheduling gate slopewise.dev/place" in (not_recreated_reason_of("Job", job) or "")


def test_a_job_that_restarts_in_place_counts_the_eviction() -> None:
    job = a_raw_job()
    job["spec"]["template"]["spec"]["restartPolicy"] = "OnFailure"
    assert "restartPolicy OnFailure" in (not_recreated_reason_of("Job", job) or "")


def test_a_job_without_a_failure_policy_counts_the_eviction() -> None:
    job = a_raw_job()
    del job["spec"]["podFailurePolicy"]
    assert "add podFailurePolicy" in (not_recreated_reason_of("Job", job) or "")


@pytest.mark.parametrize(
    "first",
    [
        on_exit_codes("FailJob", "In", 1, 143),
        on_exit_codes("FailJob", "NotIn", 42),
        on_exit_codes("Count", "In", 137),
        {"action": "FailIndex", "onPodConditions": [{"type": "DisruptionTarget"}]},
    ],
)
def test_a_rule_that_an_evicted_pod_meets_first_is_named(first: dict[str, Any]) -> None:
    assert "rule 0 of" in (not_recreated_reason_of("Job", job_with_rules(first, IGNORE_DISRUPTION)) or "")


@pytest.mark.parametrize(
    "first",
    [
        on_exit_codes("FailJob", "In", 42),
        on_exit_codes("FailJob", "NotIn", 137, 143),
        on_exit_codes("Ignore", "In", 143),
        {"action": "FailJob", "onPodConditions": [{"type": "ConfigIssue", "status": "True"}]},
        {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "False"}]},
    ],
)
def test_a_rule_that_an_evicted_pod_does_not_meet_may_stand_first(first: dict[str, Any]) -> None:
    assert not_recreated_reason_of("Job", job_with_rules(first, IGNORE_DISRUPTION)) is None


def test_ignoring_the_exit_code_of_sigterm_alone_is_not_enough() -> None:
    assert "would count an eviction" in (
        not_recreated_reason_of("Job", job_with_rules(on_exit_codes("Ignore", "In", 143))) or ""
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}, "is being deleted"),
        ({"spec": {"suspend": True}}, "is suspended"),
        ({"status": {"conditions": [{"type": "Complete", "status": "True"}]}}, "has ended"),
        ({"status": {"conditions": [{"type": "FailureTarget", "status": "True"}]}}, "has ended"),
    ],
)
def test_an_owner_that_makes_no_more_pods_says_why(change: dict[str, dict[str, Any]], words: str) -> None:
    job = a_raw_job()
    for part, values in change.items():
        job[part] = {**job[part], **values}
    assert words in (ended_reason("Job", job) or "")
    assert words in (not_recreated_reason_of("Job", job) or "")


def test_a_job_whose_condition_is_false_has_not_ended() -> None:
    job = a_raw_job()
    job["status"] = {"conditions": [{"type": "Failed", "status": "False"}]}
    assert ended_reason("Job", job) is None


@pytest.mark.parametrize(
    ("spec", "pod", "words"),
    [
        ({}, "set-0", None),
        ({"replicas": 2}, "set-1", None),
        ({"replicas": 1}, "set-1", "replicas: 1, and set-1 is not among them"),
        ({"replicas": 0}, "set-0", "replicas: 0"),
        ({"replicas": 0}, "", "replicas: 0"),
        ({"replicas": 1, "ordinals": {"start": 5}}, "set-5", None),
        ({"replicas": 1, "ordinals": {"start": 5}}, "set-6", "is not among them"),
    ],
)
def test_a_stateful_set_that_was_scaled_down_brings_no_pod_back(
    spec: dict[str, Any], pod: str, words: str | None
) -> None:
    owner = a_raw_job()
    owner["spec"] |= spec
    reason = not_recreated_reason_of("StatefulSet", owner, pod)
    assert reason is None if words is None else words in (reason or "")


def test_a_job_that_wants_no_pods_brings_none_back() -> None:
    job = a_raw_job()
    job["spec"]["parallelism"] = 0
    assert not_recreated_reason_of("Job", job) == "its Job has parallelism: 0"

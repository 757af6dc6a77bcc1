"""Which owners bring an evicted pod back behind our gate, and which would count it as a failure."""

from __future__ import annotations

from typing import Any

import pytest
from support.gated_pods import IGNORE_DISRUPTION, a_raw_job

from slopewise.adapters.kube.moves.recreation import ended_reason, failed_when_ended_reason, not_recreated_reason_of

DISRUPTED = {"type": "DisruptionTarget"}


def job_with_rules(*rules: dict[str, Any]) -> dict[str, Any]:
    return a_raw_job(podFailurePolicy={"rules": list(rules)})


def job_with_template(**spec: Any) -> dict[str, Any]:
    job = a_raw_job()
    job["spec"]["template"]["spec"] |= spec
    return job


def on_exit_codes(action: str, operator: str, *values: int) -> dict[str, Any]:
    return {"action": action, "onExitCodes": {"operator": operator, "values": list(values)}}


@pytest.mark.parametrize(
    "rules",
    [
        [IGNORE_DISRUPTION],
        [on_exit_codes("FailJob", "In", 42), IGNORE_DISRUPTION],
        [on_exit_codes("FailJob", "NotIn", 137, 143), IGNORE_DISRUPTION],
        [{"action": "FailJob", "onPodConditions": [{"type": "ConfigIssue", "status": "True"}]}, IGNORE_DISRUPTION],
        [{"action": "FailJob", "onPodConditions": [{**DISRUPTED, "status": "False"}]}, IGNORE_DISRUPTION],
    ],
)
def test_a_gated_job_that_ignores_disruptions_brings_its_pod_back(rules: list[dict[str, Any]]) -> None:
    job = job_with_rules(*rules)
    assert not_recreated_reason_of("Job", job) is None
    assert (
        not_recreated_reason_of("Job", {**job, "status": {"conditions": [{"type": "Failed", "status": "False"}]}})
        is None
    )


@pytest.mark.parametrize(
    ("job", "words"),
    [
        (job_with_rules(on_exit_codes("FailJob", "In", 1, 143), IGNORE_DISRUPTION), "rule 0 of"),
        (job_with_rules(on_exit_codes("FailJob", "NotIn", 42), IGNORE_DISRUPTION), "rule 0 of"),
        (job_with_rules(on_exit_codes("Count", "In", 137), IGNORE_DISRUPTION), "rule 0 of"),
        (job_with_rules({"action": "FailIndex", "onPodConditions": [DISRUPTED]}, IGNORE_DISRUPTION), "rule 0 of"),
        (job_with_rules(on_exit_codes("Ignore", "In", 143)), "would count an eviction"),
        (a_raw_job(podFailurePolicy={}), "add podFailurePolicy"),
        (job_with_template(restartPolicy="OnFailure"), "restartPolicy OnFailure"),
        (
            job_with_template(schedulingGates=[{"name": "kueue.x-k8s.io/admission"}]),
            "no scheduling gate slopewise.dev/place",
        ),
    ],
)
def test_a_job_that_counts_an_eviction_or_brings_no_gated_pod_says_why(job: dict[str, Any], words: str) -> None:
    assert words in (not_recreated_reason_of("Job", job) or "")


def test_a_job_whose_rules_forgive_the_exit_codes_of_a_signal_may_be_suspended() -> None:
    forgiving = [on_exit_codes("FailJob", "In", 42), on_exit_codes("Ignore", "In", 137, 143)]
    fails_others = on_exit_codes("FailJob", "NotIn", 0)
    assert failed_when_ended_reason(job_with_rules(*forgiving, fails_others)["spec"]) is None
    assert "rule 0 of" in (failed_when_ended_reason(job_with_rules(fails_others)["spec"]) or "")


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


@pytest.mark.parametrize(
    ("spec", "pod", "words"),
    [
        ({}, "set-0", None),
        ({"replicas": 1}, "set-1", "replicas: 1, and set-1 is not among them"),
        ({"replicas": 0}, "", "replicas: 0"),
        ({"replicas": 1, "ordinals": {"start": 5}}, "set-5", None),
        ({"replicas": 1, "ordinals": {"start": 5}}, "set-6", "is not among them"),
    ],
)
def test_a_stateful_set_scaled_down_brings_no_pod_back(spec: dict[str, Any], pod: str, words: str | None) -> None:
    owner = a_raw_job()
    owner["spec"] |= spec
    reason = not_recreated_reason_of("StatefulSet", owner, pod)
    assert reason is None if words is None else words in (reason or "")

"""What a TrainingPolicy's status shows: whether it is obeyed, by whom, and what is in its way."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from support.worlds import START, a_job, a_node, a_snapshot, known

from slopewise.crds.conditions import Condition
from slopewise.crds.growth_status import PassView
from slopewise.crds.policy_status import (
    Conflict,
    OtherResizers,
    PolicyFacts,
    TrainingPolicyStatus,
    node_intervals,
    policy_key,
    policy_status,
)
from slopewise.model import CpuAllocation, Job, JobState, JobView, NodeMemory

NEW = TrainingPolicyStatus()


def a_view(*jobs: Job, classes: str = "NL", **more: Any) -> PassView:
    memory = {job.uid: known(job_class=classes) for job in jobs} | more.get("memory", {})
    views = {uid: JobView(uid, remembered) for uid, remembered in memory.items()}
    return PassView("training", "Auto", "limits", a_snapshot(jobs), views, {"n1": a_node()})


def a_policy(*jobs: Job, **more: Any) -> PolicyFacts:
    return PolicyFacts(3, "Auto", seen=a_view(*jobs) if jobs else None, **more)


def conditions(facts: PolicyFacts, previous: TrainingPolicyStatus = NEW) -> dict[str, Condition]:
    return {each.type: each for each in policy_status(facts, previous, now_seconds=START).conditions}


def test_a_policy_that_is_obeyed() -> None:
    status = policy_status(a_policy(a_job("a"), a_job("b")), NEW, now_seconds=START)
    by_type = {each.type: (each.status, each.reason) for each in status.conditions}
    assert by_type == {
        "Ready": ("True", "ModeAuto"),
        "MetricsAvailable": ("True", "Fresh"),
        "Conflict": ("False", "NoConflict"),
        "Degraded": ("False", "AsExpected"),
        "CapacityKnown": ("True", "OthersCounted"),
    }
    assert (status.jobs.total, status.jobs.by_class, status.observed_generation) == (2, {"NL": 2}, 3)
    assert all(each.observed_generation == 3 for each in status.conditions)


STALE = [a_job(f"job-{number}", age=1000.0) for number in range(4)]


@pytest.mark.parametrize(
    ("facts", "kind", "status", "reason", "message"),
    [
        (PolicyFacts(1, None, invalid="p: must be"), "Ready", "False", "InvalidSpec", "p: must be"),
        (a_policy(a_job("good"), *STALE), "MetricsAvailable", "False", "JobsWithoutMetrics",
         "4 of 5 jobs have no usable evaluation: team/job-0, team/job-1, team/job-2 and more"),
        (a_policy(a_job("a"), conflict=Conflict(5, ("a/x", "a/y", "a/z"), "older")), "Conflict", "True",
         "OlderPolicyWins",
         "5 pods are managed by the older policy older: a/x, a/y, a/z and more; narrow one's selector"),
        (a_policy(a_job("a"), degraded="it may not patch"), "Degraded", "True", "CannotDoAll", "it may not patch"),
        (a_policy(a_job("a"), capacity="n1: other pods use 70 of 4 cores"), "CapacityKnown", "False",
         "OthersUncertain", "n1: other pods use 70 of 4 cores"),
    ],
)  # fmt: skip
def test_what_is_in_the_way_of_a_policy_is_a_condition_with_its_sentence(
    facts: PolicyFacts, kind: str, status: str, reason: str, message: str
) -> None:
    condition = conditions(facts)[kind]
    assert (condition.status, condition.reason, condition.message) == (status, reason, message)


def test_a_held_pass_is_reported_and_the_counts_stay() -> None:
    facts = a_policy(a_job("a"))
    first = policy_status(facts, NEW, now_seconds=START)
    held = policy_status(PolicyFacts(3, "Auto", held="Prometheus is gone"), first, now_seconds=START)
    assert held.jobs == first.jobs
    by_type = {each.type: each for each in held.conditions}
    assert (by_type["Ready"].reason, by_type["Ready"].message) == ("CannotObserve", "Prometheus is gone")
    assert by_type["MetricsAvailable"].status == "Unknown"


def test_a_policy_that_fails_is_reported_as_such_and_not_as_metrics_that_are_gone() -> None:
    facts = a_policy(a_job("a"), held="policy mine failed: division by zero", policy_failed=True)
    condition = conditions(facts)
    assert (condition["Ready"].status, condition["Ready"].reason) == ("False", "PolicyFailed")
    assert condition["Ready"].message == "policy mine failed: division by zero"
    assert condition["MetricsAvailable"].status == "True"


def test_pods_that_somebody_else_resizes_too_are_a_conflict() -> None:
    others = OtherResizers(4, ("a/x", "a/y", "a/z"), "kubectl-patch")
    condition = conditions(a_policy(a_job("a"), others=others))["Conflict"]
    assert (condition.status, condition.reason) == ("True", "OtherResizer")
    assert condition.message == (
        "4 pods are resized by kubectl-patch too, and not by Slopewise: a/x, a/y, a/z and more; stop one of the two"
    )
    both = conditions(a_policy(a_job("a"), others=others, conflict=Conflict(1, ("a/w",), "older")))["Conflict"]
    assert both.reason == "OlderPolicyWins"
    assert both.message.endswith(condition.message)


def test_the_canary_says_how_many_jobs_it_has_chosen_and_changed() -> None:
    jobs = [a_job("a"), a_job("b"), a_job("c", state=JobState.FINISHED)]
    view = a_view(*jobs, memory={"a": known(original=CpuAllocation(1, 1))})
    status = policy_status(PolicyFacts(1, "Canary", seen=view), NEW, now_seconds=START)
    assert status.canary == "2 of 2 jobs, 1 changed"
    assert policy_status(PolicyFacts(1, "Auto", seen=view), NEW, now_seconds=START).canary is None


@pytest.mark.parametrize(
    ("jobs", "ratio", "message"),
    [
        (0, 0.1, "no job runs; the share of 10% that is changed is chosen among those that come"),
        (
            1,
            0.1,
            (
                "none of 1 jobs is in the share of 10% that is changed, so nothing is changed; raise "
                "spec.behaviour.canaryRatio, or set mode to Auto"
            ),
        ),
        (5, 0.4, "2 of 5 jobs are in the share of 40% that is changed; set mode to Auto to change all"),
    ],
)
def test_a_canary_says_whom_it_changes_and_that_it_changes_no_job(jobs: int, ratio: float, message: str) -> None:
    view = a_view(*(a_job(f"job-{number}:0") for number in range(jobs)))
    condition = conditions(PolicyFacts(1, "Canary", seen=view, canary_ratio=ratio))["Ready"]
    assert (condition.status, condition.reason, condition.message) == ("True", "ModeCanary", message)


def test_a_class_that_has_no_member_any_more_counts_zero() -> None:
    first = policy_status(a_policy(a_job("a")), NEW, now_seconds=START)
    now = replace(a_policy(), seen=a_view(a_job("a"), classes="CL"))
    assert policy_status(now, first, now_seconds=START).jobs.by_class == {"CL": 1, "NL": 0}


def test_counts_are_progress_and_conditions_are_transitions() -> None:
    one = a_policy(a_job("a"))
    assert policy_key(one) == policy_key(a_policy(a_job("a"), a_job("b")))
    assert policy_key(one) != policy_key(replace(one, held="gone"))
    assert policy_key(one) != policy_key(replace(one, generation=4))


def test_node_intervals_say_when_the_next_look_is() -> None:
    (node,) = node_intervals({"n1": NodeMemory(frozenset({"a"}), START, 40.0)})
    assert (node.name, node.interval_seconds, node.evaluated_at_seconds) == ("n1", 40.0, START)
    assert node.requeue_time is not None
    assert node.requeue_time.timestamp() == START + 40

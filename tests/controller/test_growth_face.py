"""What `kubectl get growth` tells of a workload: columns, conditions, and when they are worth writing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from support.worlds import START, a_job, a_node, a_snapshot, known

from controller.conditions import Condition
from controller.growth_face import (
    Departure,
    PassView,
    departed_face,
    duration,
    eta,
    face,
    transition_key,
    view_of,
)
from controller.job_growth import JobGrowthStatus
from controller.model import (
    Change,
    CpuAllocation,
    Decisions,
    Job,
    JobMemory,
    JobState,
    MemoryState,
    Migrate,
    MissingEvaluation,
    Mobility,
    MoveOutcome,
    NodeMemory,
    Outcome,
    Pace,
    PassReport,
    PendingResize,
    Resize,
    Unconfirmed,
    Withheld,
)

UID = "w:0"
NEW = JobGrowthStatus()


SILENT = MissingEvaluation("ScrapeFails", "port 9464 refuses; see whether its exporter listens and answers")


def a_view(*jobs: Job, memory: dict[str, JobMemory] | None = None, mode: str = "Auto", **more: Any) -> PassView:
    """The view of a pass over these jobs; `looked_at`: the policy has looked at their node in it."""
    remembered = {job.uid: known(job_class="NL", efficiency=0.0123456) for job in jobs} | (memory or {})
    looked = more.pop("looked_at", False)
    nodes = {"n1": NodeMemory(frozenset(), START if looked else START - 30, 60.0)}
    report = PassReport(
        START,
        "flowcon",
        {},
        START + 60,
        snapshot=a_snapshot(jobs, [a_node(cpu_cores=4)]),
        decisions=Decisions("flowcon", (), {job.uid: "grows slowly" for job in jobs}, MemoryState(remembered, nodes)),
        **more,
    )
    view = view_of(report, policy="training", mode=mode, control="limits")  # type: ignore[arg-type]
    assert view is not None
    return view


def a_resize(uid: str = UID, to: int = 1500) -> Resize:
    return Resize(uid, "n1", "limits", 2000, to, "class NL")


def of(status: JobGrowthStatus, kind: str) -> Condition:
    return next(condition for condition in status.conditions if condition.type == kind)


def told(job: Job, previous: JobGrowthStatus = NEW, **more: Any) -> JobGrowthStatus:
    return face([job], a_view(job, **more), previous)


def test_a_running_job_in_its_columns() -> None:
    job = replace(a_job(UID, limit=2000, level=0.123456), steps_total=423.0, steps_planned=1000.0)
    status = told(job, withheld=(Withheld(a_resize(), "cooldown", "cooldown: resized 5 s ago"),))
    assert (status.state, status.progress, status.cpu) == ("Training", "42%", "2 → 1.5")
    assert (status.job_class, status.loss, status.growth) == ("NL", 0.1235, 0.01235)
    assert (status.policy, status.node, status.reason) == ("training", "n1", "cooldown: resized 5 s ago")


def test_what_is_wanted_stays_in_sight_between_two_looks() -> None:
    job = a_job(UID, limit=2000)
    first = told(job, withheld=(Withheld(a_resize(), "paused", "paused"),))
    assert told(job, first).cpu == "2 → 1.5"
    assert told(job, first, looked_at=True).cpu == "2"


def test_what_the_api_server_has_accepted_is_wanted_until_the_kubelet_reports_it() -> None:
    job = replace(a_job(UID, limit=2000), actual=CpuAllocation(2000, 1000))
    accepted = told(job, outcomes=(Outcome(a_resize(), "applied"),))
    assert (accepted.cpu, accepted.last_action) == ("2 → 1.5", "limits 2 to 1500m applied")
    assert (accepted.cpu_millicores, accepted.cpu_accepted_millicores, accepted.cpu_wanted_millicores) == (
        2000,
        1500,
        1500,
    )
    assert of(accepted, "InEffect").status == "False"
    assert of(accepted, "InEffect").message == (
        "the API server has accepted 1500m; n1 has not reported it in effect yet"
    )

    later = told(replace(a_job(UID, limit=1500), actual=CpuAllocation(1500, 1000)), accepted)
    assert (later.cpu, of(later, "InEffect").status) == ("1.5", "True")
    assert (later.last_action, later.last_action_time) == (accepted.last_action, accepted.last_action_time)


def test_a_kubelet_that_does_not_follow_is_told_and_its_pods_have_what_it_reports() -> None:
    dead = Unconfirmed("the API server has accepted limit 1500m; n1 does not carry it out", late=True)
    job = replace(a_job(UID, limit=1500), actual=CpuAllocation(300, 1000), unconfirmed=dead)
    other = replace(a_job("w:1", limit=500), actual=CpuAllocation(400, 1000), unconfirmed=Unconfirmed("a moment ago"))
    status = face([other, job], a_view(other, job), NEW)
    assert (status.cpu, status.cpu_accepted_millicores) == ("0.7 → 2", 2000)
    condition = of(status, "InEffect")
    assert (condition.status, condition.reason, condition.message) == ("False", "KubeletBehind", dead.detail)
    assert told(job, withheld=(Withheld(a_resize(), "cooldown", "cooldown"),)).reason == dead.detail


@pytest.mark.parametrize(
    ("job", "status", "reason"),
    [
        (replace(a_job(UID), actual=CpuAllocation(None, 1000)), "True", "Reported"),
        (a_job(UID), "Unknown", "NotReported"),
        (a_job(UID, state=JobState.FINISHED), "Unknown", "Ended"),
        (
            replace(a_job(UID), pending=PendingResize("deferred", START, "no room", CpuAllocation(2000, 500))),
            "False",
            "Deferred",
        ),
    ],
)
def test_whether_what_was_accepted_is_in_effect(job: Job, status: str, reason: str) -> None:
    condition = of(told(job), "InEffect")
    assert (condition.status, condition.reason) == (status, reason)


def test_that_a_kubelet_begins_to_follow_is_a_transition() -> None:
    behind = replace(a_job(UID, limit=1500), actual=CpuAllocation(2000, 1000), unconfirmed=Unconfirmed("", late=True))
    keys = [
        transition_key([job], a_view(job))
        for job in (
            behind,
            replace(behind, unconfirmed=Unconfirmed("")),
            replace(behind, actual=CpuAllocation(1500, 1000), unconfirmed=None),
        )
    ]
    assert len(set(keys)) == 3


def test_after_a_restart_the_last_action_is_what_was_remembered() -> None:
    memory = {UID: JobMemory(change=Change(START - 100, "limits", 2000, 500))}
    assert told(a_job(UID, limit=500), memory=memory).last_action == "limits 2 to 500m"


def test_a_workload_of_several_pods_is_told_as_one() -> None:
    jobs = [a_job("w:0", limit=2000), a_job("w:1", limit=1000, state=JobState.FINISHED)]
    view = a_view(*jobs, withheld=(Withheld(a_resize("w:0", 500), "floor", "floor"),))
    status = face(jobs, view, NEW)
    assert (status.cpu, status.state, of(status, "Finished").status) == ("3 → 1.5", "Training", "False")
    ended = [replace(job, state=JobState.FINISHED) for job in jobs]
    assert of(face(ended, a_view(*ended), NEW), "Finished").reason == "Succeeded"
    failed = [jobs[0], replace(jobs[1], state=JobState.FAILED)]
    assert face(failed, a_view(*failed), NEW).state == "Failed"


@pytest.mark.parametrize(
    ("job", "memory", "status", "reason"),
    [
        (a_job(UID), known(), "True", "Fresh"),
        (a_job(UID, level=None), JobMemory(), "Unknown", "NotSeenYet"),
        (replace(a_job(UID, level=None), missing_evaluation=SILENT), JobMemory(), "False", "ScrapeFails"),
        (a_job(UID, level=None), known(), "False", "Missing"),
        (a_job(UID, age=100.0), known(), "False", "Stale"),
        (a_job(UID, finite=False), known(), "False", "NotFinite"),
        (a_job(UID, samples=1), known(), "Unknown", "TooFewSamples"),
    ],
)
def test_whether_metrics_can_be_decided_on(job: Job, memory: JobMemory, status: str, reason: str) -> None:
    condition = of(told(job, memory={UID: memory}), "MetricsAvailable")
    assert (condition.status, condition.reason) == (status, reason)


@pytest.mark.parametrize(
    ("job", "more", "reason"),
    [
        (a_job(UID, state=JobState.FINISHED), {}, "Ended"),
        (replace(a_job(UID), hands_off="it has a GPU"), {}, "HandsOff"),
        (a_job(UID), {"memory": {UID: JobMemory(alone_until_seconds=START + 1, alone_because="OOM")}}, "LeftAlone"),
        (a_job(UID), {"mode": "Recommend"}, "ModeRecommend"),
        (a_job(UID), {"withheld": (Withheld(a_resize(), "canary", "not chosen"),)}, "NotInCanary"),
    ],
)
def test_why_a_job_is_not_changed(job: Job, more: dict[str, Any], reason: str) -> None:
    condition = of(told(job, **more), "Managed")
    assert (condition.status, condition.reason) == ("False", reason)


def test_a_job_in_auto_is_managed() -> None:
    assert of(told(a_job(UID)), "Managed").status == "True"


def test_a_resize_that_waits_is_told_with_the_kubelets_words() -> None:
    pending = PendingResize("deferred", START, "Node didn't have enough resource: cpu", CpuAllocation(2000, 500))
    condition = of(told(replace(a_job(UID), pending=pending)), "ResizePending")
    assert (condition.status, condition.reason) == ("True", "Deferred")
    assert condition.message == "Node didn't have enough resource: cpu"


def test_a_condition_keeps_the_time_of_its_last_change() -> None:
    job = a_job(UID)
    first = told(job)
    later = a_view(job)
    later = replace(later, snapshot=replace(later.snapshot, taken_at_seconds=START + 10))
    again = face([job], later, first)
    assert of(again, "Managed").last_transition_time == of(first, "Managed").last_transition_time
    paused = face([job], replace(later, mode="Recommend"), again)
    assert (of(paused, "Managed").last_transition_time - of(first, "Managed").last_transition_time).seconds == 10


def test_figures_that_move_are_progress_and_facts_that_change_are_transitions() -> None:
    job = a_job(UID, limit=2000)
    key = transition_key([job], a_view(job))
    moved = replace(a_job(UID, limit=2000, level=0.5), steps_total=5.0)
    assert transition_key([moved], a_view(moved)) == key
    for other in (
        a_job(UID, limit=1000),
        a_job(UID, limit=2000, state=JobState.FINISHED),
        a_job(UID, limit=2000, age=1000.0),
        replace(job, hands_off="GPU"),
    ):
        assert transition_key([other], a_view(other)) != key
    assert transition_key([job], a_view(job, memory={UID: known(job_class="CL")})) != key
    assert transition_key([job], a_view(job, outcomes=(Outcome(a_resize(), "failed", "gone"),))) != key


def test_eta_is_the_steps_left_at_the_pace_measured_last() -> None:
    job = replace(a_job(UID), steps_total=400.0, steps_planned=1000.0)
    memory = JobMemory(paces=(Pace(1.0, 9.0, None), *(Pace(2.0, 0.5, 1.0) for _ in range(3))))
    assert eta(job, memory) == "5m00s"
    assert eta(job, JobMemory()) == "-"
    assert eta(replace(job, steps_planned=None), memory) == "-"
    assert eta(replace(job, state=JobState.FINISHED), memory) == "-"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (59.4, "59s"), (60, "1m00s"), (3599, "59m59s"), (7500, "2h05m"), (86_400 * 4 + 3 * 3600, "4d03h")],
)
def test_durations_have_two_units(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_hostile_text_stays_on_one_short_line() -> None:
    job = replace(a_job(UID), hands_off="x\n" * 1000)
    reason = told(job).reason or ""
    assert "\n" not in reason
    assert len(reason) <= 160
    assert len(of(told(job), "Managed").message) <= 1024


def test_a_workload_that_no_policy_has_any_more_is_wanted_nothing_for() -> None:
    before = told(a_job(UID, limit=1000), withheld=(Withheld(a_resize(), "cooldown", "cooldown"),))
    assert before.cpu == "1 → 1.5"
    after = departed_face(Departure("LabelRemoved", "its label was taken off", 1000), before, START + 10)
    assert (after.state, after.cpu, after.cpu_wanted_millicores) == ("Unmanaged", "1", None)
    assert after.reason == "its label was taken off"
    managed = of(after, "Managed")
    assert (managed.status, managed.reason, managed.message) == ("False", "LabelRemoved", "its label was taken off")
    assert {each.type for each in after.conditions} == {each.type for each in before.conditions}
    assert departed_face(Departure("NotSelected", "", None), before, START).cpu == "-"


def test_a_pass_that_was_held_has_nothing_to_show() -> None:
    report = PassReport(START, "flowcon", {}, START, held="Prometheus is gone")
    assert view_of(report, policy="training", mode="Auto", control="limits") is None


def test_a_job_that_reports_no_loss_has_a_state_a_reason_and_a_condition_of_its_own() -> None:
    silent = replace(a_job(UID, level=None), missing_evaluation=SILENT)
    status = told(silent)
    assert (status.state, status.reason) == ("NoLoss", f"no loss: {SILENT.message}")
    available = of(status, "MetricsAvailable")
    assert (available.status, available.reason, available.message) == ("False", "ScrapeFails", SILENT.message)
    assert told(replace(silent, hands_off="has a GPU")).reason == "has a GPU"
    assert told(replace(silent, state=JobState.FINISHED)).state == "Finished"
    other = replace(SILENT, reason="NoMetric")
    assert transition_key([silent], a_view(silent)) != transition_key(
        [replace(silent, missing_evaluation=other)], a_view(silent)
    )


def test_a_job_that_could_not_be_moved_says_why_and_until_when_whatever_the_policy_says() -> None:
    no = "a disruption budget says no: The disruption budget guarded needs 1 healthy pods and has 1 currently"
    outcome = MoveOutcome(Migrate(UID, "n1", "n2", "emptier"), "deferred", no)
    assert (
        face([a_job(UID)], a_view(a_job(UID), moves=(outcome,)), JobGrowthStatus()).reason == f"not moved to n2: {no}"
    )

    waits = replace(a_job(UID), mobility=Mobility("suspend", backoff_reason=f"until 12:05:00 UTC: {no}"))
    told = face([waits], a_view(waits), JobGrowthStatus()).reason
    assert told == f"not moved until 12:05:00 UTC: {no}"

"""What `kubectl get growth` shows of a workload: columns, conditions, and when they are worth writing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from support.worlds import START, a_job, a_node, a_snapshot, known

from slopewise.crds.conditions import Condition, troubles
from slopewise.crds.growth_status import PassView, running_status, transition_key, view_of
from slopewise.crds.inactive_status import Departure, absent_status, departed_status
from slopewise.crds.job_growth import JobGrowthStatus
from slopewise.crds.oversubscription import GPU_WAITS, OVERSUBSCRIBES, message
from slopewise.crds.workload_columns import eta
from slopewise.model import (
    Absence,
    Backoff,
    Change,
    CpuAllocation,
    Decisions,
    Ends,
    Job,
    JobMemory,
    JobState,
    Levels,
    MemoryAllocation,
    MemoryState,
    Migrate,
    MissingEvaluation,
    Movability,
    NodeMemory,
    Objectives,
    Outcome,
    OutcomeResult,
    Pace,
    PassReport,
    PendingResize,
    PolicyMemory,
    Resize,
    Results,
    Stop,
    StopRecord,
    Timing,
    Unconfirmed,
    Usage,
    Withheld,
)
from slopewise.text import duration

UID = "w:0"
NEW = JobGrowthStatus()


SILENT = MissingEvaluation("ScrapeFails", "port 9464 refuses; see whether its exporter listens and answers")


def a_view(*jobs: Job, memory: dict[str, JobMemory] | None = None, mode: str = "Auto", **more: Any) -> PassView:
    """The view of a pass over these jobs; `looked_at`: the policy has looked at their node in it."""
    remembered = {job.uid: known(job_class="NL", efficiency=0.0123456) for job in jobs} | (memory or {})
    looked = more.pop("evaluated_nodes", False)
    nodes = {"n1": NodeMemory(frozenset(), START if looked else START - 30, 60.0)}
    report = PassReport(
        START,
        more.pop("decided_by", "flowcon"),
        {},
        START + 60,
        snapshot=a_snapshot(jobs, [a_node(cpu_cores=4)]),
        decisions=Decisions("flowcon", (), {job.uid: "grows slowly" for job in jobs}, MemoryState(remembered, nodes)),
        results=Results(more.pop("outcomes", ()), more.pop("withheld", ())),
        **more,
    )
    view = view_of(report, policy="training", mode=mode, control="limits")  # type: ignore[arg-type]
    assert view is not None
    return view


def a_resize(uid: str = UID, to: int = 1500) -> Resize:
    return Resize(uid, "n1", "limits", 2000, to, "class NL")


def of(status: JobGrowthStatus, kind: str) -> Condition:
    return next(condition for condition in status.conditions if condition.type == kind)


def status_of(job: Job, previous: JobGrowthStatus = NEW, **more: Any) -> JobGrowthStatus:
    return running_status([job], a_view(job, **more), previous)


def test_a_running_job_in_its_columns() -> None:
    job = a_job(UID, limit=2000, level=0.123456).altered(steps_total=423.0, steps_planned=1000.0)
    status = status_of(job, withheld=(Withheld(a_resize(), "cooldown", "cooldown: resized 5 s ago"),))
    assert (status.state, status.progress, status.cpu) == ("Training", "42%", "2 → 1.5")
    assert (status.job_class, status.loss, status.growth) == ("NL", 0.1235, 0.01235)
    assert (status.policy, status.node, status.reason) == ("training", "n1", "cooldown: resized 5 s ago")


def test_a_trial_is_shown_with_its_study_and_while_it_runs_with_its_chance() -> None:
    memory = {UID: known(job_class="first").with_decided(chance=0.123456)}
    trial = a_job(UID).altered(objectives=Objectives(study="lr"))
    status = status_of(trial, memory=memory)
    assert (status.study, status.chance) == ("lr", 0.1235)
    ended = status_of(a_job(UID).altered(state=JobState.FINISHED), status, memory=memory)
    assert (ended.study, ended.chance) == ("lr", None), "also of one that has named it itself"
    gone = departed_status(Departure("p no longer selects it", None), status, START)
    assert (gone.study, gone.chance) == ("lr", None)
    assert (status_of(a_job(UID)).study, status_of(a_job(UID)).chance) == (None, None)


def test_what_a_job_reported_last_stays_once_its_series_are_gone() -> None:
    running = a_job(UID, limit=2000, level=0.25).altered(steps_total=423.0, steps_planned=1000.0)
    silent = a_job(UID, limit=2000, level=None)
    before = status_of(running)
    ended = status_of(silent.altered(state=JobState.FINISHED), before)
    assert (ended.loss, ended.progress, ended.progress_ratio) == (0.25, "42%", 0.423)
    assert (status_of(silent, before).loss, status_of(silent, before).progress) == (None, "-")


def test_a_job_that_has_ended_has_no_cpu() -> None:
    running, ended = a_job(UID, limit=2000), a_job(UID, limit=2000, state=JobState.FINISHED)
    before = status_of(running, withheld=(Withheld(a_resize(), "paused", "paused"),))
    status = status_of(ended, before)
    assert (status.cpu, status.cpu_millicores, status.cpu_accepted_millicores, status.cpu_wanted_millicores) == (
        "-", None, None, None
    )  # fmt: skip
    of_two = running_status([running, ended], a_view(running), NEW)
    assert of_two.cpu == "2"


def test_what_is_wanted_stays_in_sight_between_two_looks() -> None:
    job = a_job(UID, limit=2000)
    first = status_of(job, withheld=(Withheld(a_resize(), "paused", "paused"),))
    assert status_of(job, first).cpu == "2 → 1.5"
    assert status_of(job, first, evaluated_nodes=True).cpu == "2"


def test_what_the_api_server_has_accepted_is_wanted_until_the_kubelet_reports_it() -> None:
    job = a_job(UID, limit=2000).altered(actual=CpuAllocation(2000, 1000))
    accepted = status_of(job, outcomes=(Outcome(a_resize(), "applied"),))
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

    later = status_of(a_job(UID, limit=1500).altered(actual=CpuAllocation(1500, 1000)), accepted)
    assert (later.cpu, of(later, "InEffect").status) == ("1.5", "True")
    assert (later.last_action, later.last_action_time) == (accepted.last_action, accepted.last_action_time)


def test_a_kubelet_that_does_not_follow_is_reported_and_its_pods_have_what_it_reports() -> None:
    dead = Unconfirmed("the API server has accepted limit 1500m; n1 does not carry it out", late=True)
    job = a_job(UID, limit=1500).altered(actual=CpuAllocation(300, 1000), unconfirmed=dead)
    other = a_job("w:1", limit=500).altered(actual=CpuAllocation(400, 1000), unconfirmed=Unconfirmed("a moment ago"))
    status = running_status([other, job], a_view(other, job), NEW)
    assert (status.cpu, status.cpu_accepted_millicores) == ("0.7 → 2", 2000)
    condition = of(status, "InEffect")
    assert (condition.status, condition.reason, condition.message) == ("False", "KubeletBehind", dead.detail)
    assert status_of(job, withheld=(Withheld(a_resize(), "cooldown", "cooldown"),)).reason == dead.detail


NO_ROOM = "Node didn't have enough resource: cpu"
WAITS = a_job(UID).altered(pending=PendingResize("deferred", START, NO_ROOM, CpuAllocation(2000, 500)))
BACKS_OFF = JobMemory(backoff=Backoff(until_seconds=START + 1, reason="OOM"))


@pytest.mark.parametrize(
    ("job", "more", "kind", "status", "reason"),
    [
        (a_job(UID).altered(actual=CpuAllocation(None, 1000)), {}, "InEffect", "True", "Reported"),
        (a_job(UID), {}, "InEffect", "Unknown", "NotReported"),
        (a_job(UID, state=JobState.FINISHED), {}, "InEffect", "Unknown", "Ended"),
        (WAITS, {}, "InEffect", "False", "Deferred"),
        (WAITS, {}, "ResizePending", "True", "Deferred"),
        (a_job(UID), {}, "MetricsAvailable", "True", "Fresh"),
        (a_job(UID, level=None), {"memory": {UID: JobMemory()}}, "MetricsAvailable", "Unknown", "NotSeenYet"),
        (
            a_job(UID, level=None).altered(missing_evaluation=SILENT),
            {"memory": {UID: JobMemory()}},
            "MetricsAvailable",
            "False",
            "ScrapeFails",
        ),
        (a_job(UID, level=None), {}, "MetricsAvailable", "False", "Missing"),
        (a_job(UID, age=100.0), {}, "MetricsAvailable", "False", "Stale"),
        (a_job(UID, finite=False), {}, "MetricsAvailable", "False", "NotFinite"),
        (a_job(UID, samples=1), {}, "MetricsAvailable", "Unknown", "TooFewSamples"),
        (a_job(UID), {}, "Managed", "True", "Managed"),
        (a_job(UID, state=JobState.FINISHED), {}, "Managed", "False", "Ended"),
        (a_job(UID).altered(ineligible_reason="it has a GPU"), {}, "Managed", "False", "Ineligible"),
        (a_job(UID), {"memory": {UID: BACKS_OFF}}, "Managed", "False", "BackingOff"),
        (a_job(UID), {"mode": "Recommend"}, "Managed", "False", "ModeRecommend"),
        (a_job(UID), {"withheld": (Withheld(a_resize(), "canary", "not chosen"),)}, "Managed", "False", "NotInCanary"),
    ],
)
def test_conditions_of_a_job(job: Job, more: dict[str, Any], kind: str, status: str, reason: str) -> None:
    condition = of(status_of(job, **more), kind)
    assert (condition.status, condition.reason) == (status, reason)
    if kind == "ResizePending":
        assert condition.message == NO_ROOM


def test_that_a_kubelet_begins_to_follow_is_a_transition() -> None:
    behind = a_job(UID, limit=1500).altered(actual=CpuAllocation(2000, 1000), unconfirmed=Unconfirmed("", late=True))
    keys = [
        transition_key([job], a_view(job))
        for job in (
            behind,
            behind.altered(unconfirmed=Unconfirmed("")),
            behind.altered(actual=CpuAllocation(1500, 1000), unconfirmed=None),
        )
    ]
    assert len(set(keys)) == 3


def test_after_a_restart_the_last_action_is_what_was_remembered() -> None:
    memory = {UID: JobMemory(change=Change(START - 100, "limits", 2000, 500))}
    assert status_of(a_job(UID, limit=500), memory=memory).last_action == "limits 2 to 500m"


def test_the_last_action_is_the_newest_also_where_the_status_of_its_pass_was_not_written() -> None:
    older = status_of(a_job(UID), outcomes=(Outcome(a_resize(), "applied"),))
    memory = {UID: JobMemory(change=Change(START + 60, "limits", 1500, 500))}
    assert status_of(a_job(UID, limit=500), older, memory=memory).last_action == "limits 1500m to 500m"
    memory = {UID: JobMemory(change=Change(START, "limits", 2000, 1500))}
    assert status_of(a_job(UID, limit=1500), older, memory=memory).last_action == older.last_action
    stopped = status_of(a_job(UID), older, outcomes=(Outcome(Stop(UID, "n1", "at its target"), "applied"),))
    assert stopped.last_action == "stop at its target applied"


def test_a_workload_of_several_pods_is_reported_as_one() -> None:
    jobs = [a_job("w:0", limit=2000), a_job("w:1", limit=1000, state=JobState.FINISHED)]
    view = a_view(*jobs, withheld=(Withheld(a_resize("w:0", 500), "floor", "floor"),))
    status = running_status(jobs, view, NEW)
    assert (status.cpu, status.state, of(status, "Finished").status) == ("2 → 0.5", "Training", "False")
    ended = [job.altered(state=JobState.FINISHED) for job in jobs]
    assert of(running_status(ended, a_view(*ended), NEW), "Finished").reason == "Succeeded"
    failed = [jobs[0], jobs[1].altered(state=JobState.FAILED)]
    assert running_status(failed, a_view(*failed), NEW).state == "Failed"


def test_a_sweep_whose_first_trial_has_ended_is_reported_by_the_one_that_runs() -> None:
    ended = a_job("w:0", level=None, state=JobState.FINISHED)
    runs = a_job("w:1", level=0.25, limit=2000).altered(steps_total=10.0, steps_planned=30.0)
    memory = {uid: JobMemory(levels=Levels(series="s"), paces=(Pace(START, 1.0, None),)) for uid in ("w:0", "w:1")}
    status = running_status([ended, runs], a_view(ended, runs, memory=memory), NEW)
    assert (status.loss, status.eta, status.state) == (0.25, "20s", "Training")
    assert troubles(status.conditions) == []


def test_steps_that_cost_more_than_they_did_are_a_condition_until_they_cost_less() -> None:
    job = a_job(UID).altered(threads=8.0)
    dear = known(timing=Timing(least_step_cpu_seconds=2.0, oversubscribes=True), paces=(Pace(START, 4.0, 1.0),) * 3)
    cheap = dear.altered(paces=(Pace(START, 2.0, 1.0),) * 3)
    assert OVERSUBSCRIBES not in {each.type for each in status_of(job, memory={UID: cheap}).conditions}
    seen = status_of(job, memory={UID: dear})
    condition = of(seen, OVERSUBSCRIBES)
    assert (condition.status, condition.reason) == ("True", "StepsCostMore")
    costs = "8 threads on 1.00 cores: a step costs 4 CPU-seconds, 2 at best"
    assert condition.message == f"{costs}; set OMP_WAIT_POLICY=passive, or SLOPEWISE_THREADS=follow"
    assert condition in troubles(seen.conditions)
    assert message(seen.conditions) == condition.message
    again = running_status([job], a_view(job, memory={UID: cheap}), seen)
    assert of(again, OVERSUBSCRIBES).status == "False"
    assert of(running_status([job], a_view(job), seen), OVERSUBSCRIBES).status == "Unknown"
    assert message(again.conditions) == ""
    ended = job.altered(state=JobState.FINISHED)
    assert of(running_status([ended], a_view(ended, memory={UID: dear}), seen), OVERSUBSCRIBES).status == "Unknown"
    assert transition_key([job], a_view(job, memory={UID: dear})) != transition_key(
        [job], a_view(job, memory={UID: cheap})
    )


def test_a_job_whose_gpus_wait_says_for_what_until_they_do_so_no_more() -> None:
    job = a_job(UID, limit=3000, request=3000).altered(accelerators=1.0)

    def steps(waited: float, cores: float) -> JobMemory:
        return known(paces=tuple(Pace(START + 20 * number, 0.9, cores, 1.0, waited) for number in range(3)))

    assert GPU_WAITS not in {each.type for each in status_of(job, memory={UID: steps(0.0, 1.0)}).conditions}
    seen = status_of(job, memory={UID: steps(0.5, 3.0)})
    condition = of(seen, GPU_WAITS)
    assert (condition.status, condition.reason) == ("True", "ForCpu")
    assert condition.message == "its GPU waits 50% of the time for CPU, and would not with 6 cores"
    assert (condition in troubles(seen.conditions), message(seen.conditions)) == (True, condition.message)
    assert of(status_of(job, memory={UID: steps(0.5, 1.0)}), GPU_WAITS).reason == "ForLoaderWorkers"
    again = running_status([job], a_view(job, memory={UID: steps(0.0, 1.0)}), seen)
    assert of(again, GPU_WAITS).status == "False"
    assert of(running_status([job], a_view(job), seen), GPU_WAITS).status == "Unknown"
    keys = [transition_key([job], a_view(job, memory={UID: steps(w, 3.0)})) for w in (0.5, 0.0)]
    assert keys[0] != keys[1]


def test_a_condition_keeps_the_time_of_its_last_change() -> None:
    job = a_job(UID)
    first = status_of(job)
    later = a_view(job)
    later = replace(later, snapshot=replace(later.snapshot, taken_at_seconds=START + 10))
    again = running_status([job], later, first)
    assert of(again, "Managed").last_transition_time == of(first, "Managed").last_transition_time
    paused = running_status([job], replace(later, mode="Recommend"), again)
    assert (of(paused, "Managed").last_transition_time - of(first, "Managed").last_transition_time).seconds == 10


def test_figures_that_move_are_progress_and_facts_that_change_are_transitions() -> None:
    job = a_job(UID, limit=2000)
    key = transition_key([job], a_view(job))
    moved = a_job(UID, limit=2000, level=0.5).altered(steps_total=5.0)
    assert transition_key([moved], a_view(moved)) == key
    for other in (
        a_job(UID, limit=1000),
        a_job(UID, limit=2000, state=JobState.FINISHED),
        a_job(UID, limit=2000, age=1000.0),
        job.altered(ineligible_reason="GPU"),
    ):
        assert transition_key([other], a_view(other)) != key
    assert transition_key([job], a_view(job, memory={UID: known(job_class="CL")})) != key
    assert transition_key([job], a_view(job, outcomes=(Outcome(a_resize(), "failed", "gone"),))) != key


def test_eta_is_the_steps_left_at_the_pace_measured_last() -> None:
    job = a_job(UID).altered(steps_total=400.0, steps_planned=1000.0)
    memory = JobMemory(paces=(Pace(1.0, 9.0, None), *(Pace(2.0, 0.5, 1.0) for _ in range(3))))
    assert eta(job, memory, START, carried_out=True) == "5m00s"
    assert eta(job, JobMemory(), START, carried_out=True) == "-"
    assert eta(job.altered(steps_planned=None), memory, START, carried_out=True) == "-"
    assert eta(job.altered(state=JobState.FINISHED), memory, START, carried_out=True) == "-"


@pytest.mark.parametrize(
    ("after", "state", "shown"),
    [
        (0.0, JobState.TRAINING, "12m00s (8m20s-20m00s)"),
        (600.0, JobState.TRAINING, "2m00s (0s-10m00s)"),
        (719.0, JobState.TRAINING, "1s (0s-8m01s)"),
        (720.0, JobState.TRAINING, "-"),  # it has not ended, so it was wrong
        (0.0, JobState.FINISHED, "-"),
    ],
)
def test_eta_is_the_end_that_a_policy_expects_and_how_sure_it_is(after: float, state: JobState, shown: str) -> None:
    memory = JobMemory(decided=PolicyMemory(ends=Ends(START + 720.0, START + 500.0, START + 1200.0)))
    assert eta(a_job("a", state=state), memory, START + after, carried_out=True) == shown


@pytest.mark.parametrize(
    ("mode", "ineligible", "shown"),
    [
        ("Auto", None, "12m00s (8m20s-20m00s)"),
        ("Auto", "GPU", "5m00s"),
        ("Canary", None, "5m00s"),
        ("Recommend", None, "5m00s"),
    ],
)
def test_an_end_expected_of_an_order_counts_if_carried_out(mode: str, ineligible: str | None, shown: str) -> None:
    job = a_job(UID).altered(steps_total=400.0, steps_planned=1000.0, ineligible_reason=ineligible)
    memory = JobMemory(
        decided=PolicyMemory(ends=Ends(START + 720.0, START + 500.0, START + 1200.0)), paces=(Pace(2.0, 0.5, 1.0),)
    )
    assert status_of(job, mode=mode, memory={UID: memory}).eta == shown


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (59.4, "59s"), (60, "1m00s"), (3599, "59m59s"), (7500, "2h05m"), (86_400 * 4 + 3 * 3600, "4d03h")],
)
def test_durations_have_two_units(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_hostile_text_stays_on_one_short_line() -> None:
    job = a_job(UID).altered(ineligible_reason="x\n" * 1000)
    reason = status_of(job).reason or ""
    assert "\n" not in reason
    assert len(reason) <= 160
    assert len(of(status_of(job), "Managed").message) <= 1024


def test_a_workload_that_no_policy_has_any_more_is_wanted_nothing_for() -> None:
    before = status_of(a_job(UID, limit=1000), withheld=(Withheld(a_resize(), "cooldown", "cooldown"),))
    assert before.cpu == "1 → 1.5"
    after = departed_status(Departure("p no longer selects it", 1000), before, START + 10)
    assert (after.state, after.cpu, after.cpu_wanted_millicores) == ("Unmanaged", "1", None)
    assert after.reason == "p no longer selects it"
    managed = of(after, "Managed")
    assert (managed.status, managed.reason, managed.message) == ("False", "NotSelected", "p no longer selects it")
    assert {each.type for each in after.conditions} == {each.type for each in before.conditions}
    assert departed_status(Departure("", None), before, START).cpu == "-"


def test_a_pass_that_was_held_has_nothing_to_show() -> None:
    report = PassReport(START, "flowcon", {}, START, held="Prometheus is gone")
    assert view_of(report, policy="training", mode="Auto", control="limits") is None


def test_a_job_that_reports_no_loss_has_a_state_a_reason_and_a_condition_of_its_own() -> None:
    silent = a_job(UID, level=None).altered(missing_evaluation=SILENT)
    status = status_of(silent)
    assert (status.state, status.reason) == ("NoLoss", f"no loss: {SILENT.message}")
    available = of(status, "MetricsAvailable")
    assert (available.status, available.reason, available.message) == ("False", "ScrapeFails", SILENT.message)
    assert status_of(silent.altered(ineligible_reason="has a GPU")).reason == "has a GPU"
    assert status_of(silent.altered(state=JobState.FINISHED)).state == "Finished"
    other = replace(SILENT, reason="NoMetric")
    assert transition_key([silent], a_view(silent)) != transition_key(
        [silent.altered(missing_evaluation=other)], a_view(silent)
    )


def test_a_job_that_could_not_be_moved_says_why_and_until_when_whatever_the_policy_says() -> None:
    no = "a disruption budget says no: The disruption budget guarded needs 1 healthy pods and has 1 currently"
    outcome = Outcome(Migrate(UID, "n1", "n2", "emptier"), "deferred", no)
    assert (
        running_status([a_job(UID)], a_view(a_job(UID), outcomes=(outcome,)), JobGrowthStatus()).reason
        == f"not moved to n2: {no}"
    )

    waits = a_job(UID).altered(movability=Movability("suspend", backoff_reason=f"until 12:05:00 UTC: {no}"))
    found = running_status([waits], a_view(waits), JobGrowthStatus()).reason
    assert found == f"not moved until 12:05:00 UTC: {no}"


WHY = "stopped at its target: loss 0.19 ≤ 0.2"
A_STOP = Stop(UID, "n1", WHY)


def stopping(result: OutcomeResult | None, detail: str = "") -> dict[str, JobMemory]:
    return {UID: known(job_class="NL").altered(stop=StopRecord(START, WHY, START, None, result, detail))}


@pytest.mark.parametrize(
    ("result", "detail", "reason"),
    [
        ("applied", "", f"{WHY}; its pods save and end"),
        ("infeasible", "a bare pod cannot be suspended", "not stopped at its target: a bare pod cannot be suspended"),
        (None, "", "not stopped at its target: not known whether it was done"),
    ],
)
def test_a_job_at_its_target_ends_or_says_why_not(result: OutcomeResult | None, detail: str, reason: str) -> None:
    assert status_of(a_job(UID), memory=stopping(result, detail)).reason == reason


def test_a_stop_that_a_guard_withholds_is_the_reason_and_a_mode_is_not() -> None:
    wrong_side = Withheld(A_STOP, "reached_at_first", "reached_at_first: already")
    assert (
        status_of(a_job(UID), withheld=(wrong_side,)).reason == "not stopped at its target: reached_at_first: already"
    )
    observed = Withheld(A_STOP, "stop_paused", "stop_paused: mode is Observe")
    assert status_of(a_job(UID), withheld=(observed,)).reason == "grows slowly"


def test_a_workload_that_was_stopped_keeps_its_figures_and_the_reason_and_counts_as_finished() -> None:
    before = status_of(a_job(UID, level=0.19).altered(steps_total=423.0, steps_planned=1000.0))
    after = absent_status(Absence(UID, "stopped", WHY), before, START + 40)
    assert (after.state, after.reason, after.progress, after.loss) == ("Stopped", WHY, "42%", 0.19)
    assert (of(after, "Finished").status, of(after, "Finished").reason) == ("True", "StoppedAtTarget")
    assert of(status_of(a_job(UID), after), "Finished").status == "False", "its owner has resumed it"


class TestMemory:
    def job(self, uid: str = UID, **more: Any) -> Job:
        usage = Usage(START, 0.0, 100.0 * 2**20)
        made = a_job(uid).altered(usage=usage, memory=MemoryAllocation(2**28, 2**29))
        return made.altered(**more)

    def test_it_is_the_sum_over_the_pods_and_a_dash_where_a_part_is_not_known(self) -> None:
        jobs = [self.job("w:0"), self.job("w:1")]
        status = running_status(jobs, a_view(*jobs), NEW)
        assert (status.memory, status.memory_request_bytes) == ("200Mi / 512Mi / 1024Mi", 2**29)
        jobs[1] = jobs[1].altered(memory=MemoryAllocation(2**28), usage=None)
        status = running_status(jobs, a_view(*jobs), NEW)
        assert (status.memory, status.memory_limit_bytes) == ("- / 512Mi / -", None)

    def test_why_it_may_not_be_changed_is_shown_where_it_would_be(self) -> None:
        job = self.job(memory_ineligible_reason="it is Guaranteed")
        assert status_of(job).memory_reason is None
        view = replace(a_view(job), memory="Requests")
        assert running_status([job], view, NEW).memory_reason == "it is Guaranteed"

    def test_a_changed_request_or_limit_is_shown_with_its_original_as_long_as_it_lasts(self) -> None:
        for original, expected in (
            (MemoryAllocation(2**29, 2**29), "request lowered from its original 512Mi"),
            (MemoryAllocation(2**28, 2**28), "limit raised from its original 256Mi"),
            (MemoryAllocation(2**28 + 1, 2**29), None),
        ):
            changed = {UID: known(original_memory=original)}
            assert status_of(self.job(), memory=changed).memory_reason == expected

    def test_a_change_of_it_is_worth_writing_at_once(self) -> None:
        before, after = self.job(), self.job(memory=MemoryAllocation(2**27, 2**29))
        assert transition_key([before], a_view(before)) != transition_key([after], a_view(after))

    def test_a_workload_without_pods_has_none(self) -> None:
        status = absent_status(Absence(UID, "suspended", "its Job is suspended"), status_of(self.job()), START)
        assert (status.memory, status.memory_request_bytes, status.memory_reason) == ("-", None, None)


def test_a_workload_of_two_pods_says_which_of_them_a_reason_is_of() -> None:
    first, second = a_job("w/0").altered(name="w-0"), a_job("w/1").altered(name="w-1", ineligible_reason="has a GPU")
    reason = running_status([first, second], a_view(first, second), NEW).reason or ""
    assert reason.startswith("w-0: ")
    assert reason.endswith("; w-1: has a GPU")
    alike = first.altered(ineligible_reason="has a GPU")
    assert running_status([alike, second], a_view(alike, second), NEW).reason == "has a GPU"

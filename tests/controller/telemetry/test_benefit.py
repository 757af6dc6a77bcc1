"""What was gained: core-seconds that went from job to job, and expected ends beside those under fair sharing."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.worlds import START, a_job, a_node, a_snapshot, known

from slopewise.model import (
    ContainerHealth,
    CpuAllocation,
    CpuControl,
    DeadlineStatus,
    Decisions,
    Ends,
    Job,
    JobMemory,
    JobState,
    MemoryState,
    ObjectiveStatus,
    PassReport,
)
from slopewise.telemetry.metrics import Instruments, Telemetry

CAME_WITH = CpuAllocation(None, 1000)


def a_report(at: float, jobs: dict[Job, JobMemory], cores: float = 3.0, held: str | None = None) -> PassReport:
    snapshot = a_snapshot(list(jobs), [a_node(cpu_cores=cores)], at=START + at)
    memory = MemoryState({job.uid: remembered for job, remembered in jobs.items()})
    decisions = Decisions("flowcon", (), {}, memory)
    return PassReport(START + at, "flowcon", {}, START + at + 20, held, snapshot, decisions)


def recorded(*reports: PassReport, control: CpuControl = "limits") -> Telemetry:
    telemetry = Telemetry(control=control, interval_seconds=20.0, document="training")
    for report in reports:
        telemetry.record(report)
    return telemetry


def seconds(telemetry: Telemetry, what: str, job_class: str) -> float | None:
    labels = {"job_namespace": "team", "class": job_class}
    return telemetry.registry.get_sample_value(f"slopewise_{what}_core_seconds_total", labels)


def three_jobs(limit: int | None, request: int = 1000) -> dict[Job, JobMemory]:
    """The first one has converged, and has this limit, or this request."""
    converged = known(job_class="CL", original=CAME_WITH)
    return {
        a_job("a", limit=limit, request=request): converged,
        a_job("b"): known(job_class="NL"),
        a_job("c"): known(job_class="NL"),
    }


@pytest.mark.parametrize(
    ("control", "lowered"), [("limits", {"limit": 250}), ("requests", {"limit": None, "request": 286})]
)
def test_a_converged_jobs_cpu_is_freed_and_received_by_others(control: CpuControl, lowered: dict[str, int]) -> None:
    jobs = three_jobs(**lowered)
    telemetry = recorded(a_report(0, jobs), a_report(20, jobs), a_report(60, jobs), control=control)

    assert seconds(telemetry, "freed", "CL") == pytest.approx(60 * 0.625 if control == "requests" else 60 * 0.75, 1e-3)
    freed = seconds(telemetry, "freed", "CL")
    assert seconds(telemetry, "received", "NL") == pytest.approx(freed)
    assert (seconds(telemetry, "freed", "NL"), seconds(telemetry, "received", "CL")) == (0, 0)


def test_hard_limits_that_leave_cpu_idle_free_it_and_give_it_to_none() -> None:
    jobs = {
        a_job("a", limit=250): known(job_class="CL", original=CpuAllocation(1000, 1000)),
        a_job("b", limit=500): known(),
    }
    telemetry = recorded(a_report(0, jobs), a_report(20, jobs))

    assert seconds(telemetry, "freed", "CL") == pytest.approx(20 * 0.75)
    assert seconds(telemetry, "received", "") == 0


def test_a_pass_counts_what_jobs_had_since_the_last_one_that_observed_and_none_that_have_left() -> None:
    jobs = three_jobs(250)
    without_a = {job: memory for job, memory in jobs.items() if job.uid != "a"}
    held = replace(a_report(10, {}), held="Prometheus is gone")

    assert seconds(recorded(a_report(0, jobs), held, a_report(20, jobs)), "freed", "CL") == pytest.approx(15.0)
    assert seconds(recorded(a_report(0, jobs), a_report(20, without_a)), "freed", "CL") == 0
    assert seconds(recorded(a_report(0, jobs), a_report(-5, jobs)), "freed", "CL") == 0


def test_an_outage_that_restores_what_jobs_came_with_frees_nothing_more() -> None:
    jobs = three_jobs(250)
    telemetry = recorded(a_report(0, jobs), a_report(20, jobs))
    telemetry.record_outage(lasts=False)
    telemetry.record_outage(lasts=True)
    telemetry.record(replace(a_report(80, {}), held="Prometheus is gone"))
    telemetry.record_outage(lasts=False)
    telemetry.record(a_report(3600, jobs))
    telemetry.record(a_report(3620, jobs))

    assert seconds(telemetry, "freed", "CL") == pytest.approx(15.0 + 15.0)


def test_what_a_deleted_policy_did_is_kept_and_a_new_one_of_its_name_begins_with_its_first_pass() -> None:
    jobs = three_jobs(250)
    telemetry = recorded(a_report(0, jobs), a_report(20, jobs))
    telemetry.forget()
    telemetry.record(a_report(1000, jobs))

    assert seconds(telemetry, "freed", "CL") == pytest.approx(15.0)


ENDS = Ends(START + 200, START + 150, START + 320, START + 300)
A = {"job_namespace": "team", "job_name": "a", "job_node": "n1"}


def test_a_job_whose_policy_estimates_ends_has_them_and_what_they_save_against_fair_sharing() -> None:
    registry = recorded(a_report(0, {a_job("a"): known(ends=ENDS)})).registry

    def value(metric: str, bound: str) -> float | None:
        return registry.get_sample_value(f"slopewise_job_{metric}", {**A, "bound": bound})

    ends = {bound: value("expected_end_timestamp_seconds", bound) for bound in ("earliest", "expected", "latest")}
    assert ends == {"earliest": START + 150, "expected": START + 200, "latest": START + 320}
    saved = {bound: value("saved_seconds", bound) for bound in ("least", "expected", "most")}
    assert saved == {"least": -20, "expected": 100, "most": 150}


@pytest.mark.parametrize(
    ("job", "memory"),
    [
        (a_job("a"), known()),
        (a_job("a"), known(ends=Ends(START + 200, START + 150, START + 320))),
        (a_job("a", state=JobState.FINISHED), known(ends=ENDS)),
    ],
    ids=["another policy", "not known under fair sharing", "it has ended"],
)
def test_a_job_without_both_ends_has_neither(job: Job, memory: JobMemory) -> None:
    registry = recorded(a_report(0, {job: memory})).registry

    assert registry.get_sample_value("slopewise_job_saved_seconds", {**A, "bound": "expected"}) is None
    assert registry.get_sample_value("slopewise_job_expected_end_timestamp_seconds", {**A, "bound": "latest"}) is None


def test_a_job_names_its_policy_and_counts_its_moves_changes_and_throttled_periods() -> None:
    health = ContainerHealth(cpu_periods_total=100.0, cpu_throttled_periods_total=40.0, cpu_waiting_seconds_total=2.5)
    job = a_job("a").altered(container_health=health)
    memory = known(moves_total=2, last_resized_at_seconds=START - 7)
    registry = recorded(a_report(0, {job: memory, a_job("b"): known()})).registry

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(f"slopewise_job_{name}", {**A, **labels})

    assert value("info", policy="training", control="limits") == 1
    assert (value("moves_total"), value("resized_timestamp_seconds")) == (2, START - 7)
    assert (value("cpu_periods_total"), value("cpu_throttled_periods_total")) == (100, 40)
    assert value("cpu_waiting_seconds_total") == 2.5
    assert value("moves_total", job_name="b") == 0
    assert value("resized_timestamp_seconds", job_name="b") is None
    assert value("cpu_periods_total", job_name="b") is None


def test_a_namespace_has_the_sums_over_its_jobs_under_each_policy() -> None:
    instruments = Instruments()
    saving = known(ends=ENDS, job_class="CL", wanted=0.5)
    for document, uids in (("training", "ab"), ("other", "c")):
        jobs = {a_job(uid, limit=400, level=None if uid == "b" else 1.0): saving for uid in uids}
        report = a_report(0, jobs)
        slow = {"a": ObjectiveStatus(deadline=DeadlineStatus(START, 60.0, slack_seconds=-5.0, confirmed_hopeless=True))}
        Telemetry(control="limits", interval_seconds=20.0, document=document, instruments=instruments).record(
            replace(report, objective_statuses=slow if document == "training" else {})
        )

    def value(metric: str, policy: str, **labels: str) -> float | None:
        of = {"policy": policy, "job_namespace": "team", **labels}
        return instruments.registry.get_sample_value(f"slopewise_namespace_{metric}", of)

    assert value("cpu_cores", "training", kind="allocated") == pytest.approx(0.8)
    assert (value("cpu_cores", "training", kind="wanted"), value("cpu_cores", "other", kind="wanted")) == (1.0, 0.5)
    assert (
        value("jobs_of_class", "training", **{"class": "CL"}),
        value("jobs_of_class", "other", **{"class": "CL"}),
    ) == (2, 1)
    assert value("saved_seconds", "training", bound="expected") == 200
    assert value("jobs_in", "training", condition="without_metrics") == 1
    assert value("jobs_in", "other", condition="without_metrics") == 0
    assert (
        value("jobs_in", "training", condition="late"),
        value("jobs_in", "training", condition="deadline_hopeless"),
    ) == (1, 1)
    assert value("jobs_in", "other", condition="late") is None

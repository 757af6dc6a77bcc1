"""After a pass: whose status is written at once, and which events are emitted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from support.pass_reports import ReportedPasses, as_recorder
from support.worlds import START, a_job, a_snapshot, known

from slopewise.adapters.kube.reporting.pass_reporter import emit_invalid
from slopewise.adapters.kube.state.training_policies import policy_path
from slopewise.crds.policy_status import Conflict
from slopewise.feedback.restore import RestoreReport
from slopewise.model import (
    Backoff,
    CpuAllocation,
    Decisions,
    JobState,
    MemoryAllocation,
    MemoryState,
    MissingEvaluation,
    Outcome,
    OutcomeResult,
    PassReport,
    Resize,
    ResizeMemory,
    Stop,
    Usage,
    Withheld,
)


def a_resize(uid: str, **more: Any) -> Resize:
    return Resize(uid, "n1", "limits", 2000, 1500, "class NL", **more)


def test_a_pass_in_which_only_figures_moved_is_progress(passes: ReportedPasses) -> None:
    uid = passes.pods.add("train")
    passes.a_pass(a_job(uid, limit=2000))
    assert passes.replica.writer.urgent() == {"uid-of-train", passes.document.key}
    passes.replica.writer.write()
    passes.a_pass(a_job(uid, limit=2000, level=0.7, at=START + 5), at=START + 5)
    assert passes.replica.writer.urgent() == set()
    passes.a_pass(a_job(uid, limit=2000, state=JobState.FINISHED, at=START + 9), at=START + 9)
    assert "uid-of-train" in passes.replica.writer.urgent()


def test_every_outcome_is_reported_on_its_pod_and_all_together_on_the_policy(passes: ReportedPasses) -> None:
    uids = good, bad, back = [passes.pods.add(name) for name in ("good", "bad", "back")]
    outcomes = (
        Outcome(a_resize(good), "applied"),
        Outcome(a_resize(bad), "infeasible", "the node is too small"),
        Outcome(a_resize(back, is_rollback=True), "applied"),
    )
    passes.a_pass(*(a_job(uid) for uid in uids), outcomes=outcomes)
    expected = [
        ("Resized", "CPU limits 2 to 1500m: class NL"),
        ("ResizeInfeasible", "CPU limits 2 to 1500m: the node is too small"),
        ("ResizeRolledBack", "CPU limits 2 to 1500m: class NL"),
    ]
    assert passes.recorder.of("Pod") == expected
    assert passes.recorder.of("TrainingPolicy") == [(reason, f"1 job: {note}") for reason, note in expected]


def test_resizes_that_fail_twice_running_degrade_the_policy_until_they_do_not(passes: ReportedPasses) -> None:
    uid = passes.pods.add("a")
    refused = (Outcome(a_resize(uid), "failed", "our account may not resize it; grant it patch on pods/resize"),)
    found = []
    for outcomes in (refused, refused, ()):
        passes.a_pass(a_job(uid), outcomes=outcomes)
        passes.replica.writer.write()
        conditions = passes.server.get(policy_path("training"))["status"]["conditions"]
        found.append(next((each["status"], each["message"]) for each in conditions if each["type"] == "Degraded"))
    assert [status for status, _ in found] == ["False", "True", "False"]
    assert found[1][1] == "resizes fail: 1 job: our account may not resize it; grant it patch on pods/resize"


def test_a_pod_that_waits_on_is_reported_once_and_again_when_it_waits_again(passes: ReportedPasses) -> None:
    uid = passes.pods.add("train")
    results: tuple[OutcomeResult, ...] = ("deferred", "deferred", "applied", "deferred")
    for result in results:
        passes.a_pass(a_job(uid), outcomes=(Outcome(a_resize(uid), result, "why"),))
    assert [reason for reason, _ in passes.recorder.of("Pod")] == ["ResizeDeferred", "Resized", "ResizeDeferred"]
    assert len(passes.recorder.of("TrainingPolicy")) == 4


@pytest.mark.parametrize(
    ("held", "failed", "ready", "begins", "ends"),
    [
        (
            "no Prometheus",
            False,
            "CannotObserve",
            "MetricsUnavailable",
            ("MetricsAvailable", "the pass can observe again"),
        ),
        ("policy mine failed", True, "PolicyFailed", "PolicyFailed", ("PolicyDecides", "the policy decides again")),
    ],
)
def test_an_outage_or_a_policy_that_fails_is_reported_when_it_begins_and_when_it_ends(
    passes: ReportedPasses, held: str, failed: bool, ready: str, begins: str, ends: tuple[str, str]
) -> None:
    for _ in range(2):
        passes.reporter(PassReport(START, "mine", {}, START + 60, held=held, policy_failed=failed))
    passes.replica.writer.write()
    conditions = passes.server.get(policy_path("training"))["status"]["conditions"]
    assert {each["type"]: each["reason"] for each in conditions}["Ready"] == ready
    passes.a_pass()
    assert passes.recorder.of("TrainingPolicy") == [(begins, held), ends]


def test_a_withheld_resize_is_reported_when_the_guard_changes_and_not_in_every_pass(passes: ReportedPasses) -> None:
    uid = passes.pods.add("train")
    for guard in ("paused", "ineligible", "ineligible", "cooldown", "ineligible", "accepted_range"):
        passes.a_pass(a_job(uid), withheld=(Withheld(a_resize(uid), guard, f"{guard}: 1"),))
    assert [note.rpartition(": ")[0].rpartition(": ")[2] for _, note in passes.recorder.of("Pod")] == [
        "ineligible",
        "accepted_range",
    ]


def test_a_job_that_reports_no_loss_is_an_event_once_with_each_cause(passes: ReportedPasses) -> None:
    uid = passes.pods.add("train")
    causes = [MissingEvaluation("ScrapeFails", f"port {port} refuses") for port in (1, 1, 2)]
    for cause in causes:
        warned = a_job(uid, level=None).altered(
            missing_evaluation=cause, warnings=(f"reports no loss: {cause.message}",)
        )
        passes.a_pass(warned)
    passes.a_pass(warned.altered(warnings=()))  # another pod of the workload says it
    assert passes.recorder.of("Pod") == [("NoLoss", "port 1 refuses"), ("NoLoss", "port 2 refuses")]


def test_a_harmed_job_is_reported_once_and_not_again_after_a_restart(passes: ReportedPasses) -> None:
    uid = passes.pods.add("train")
    alone = known(backoff=Backoff(until_seconds=START + 600, reason="OOM-killed after its limit went down"))
    passes.a_pass(a_job(uid))
    passes.a_pass(a_job(uid), memory={uid: alone})
    passes.a_pass(a_job(uid), memory={uid: alone})
    assert passes.recorder.of("Pod") == [("Regressed", "OOM-killed after its limit went down")]
    again = ReportedPasses(passes.server)
    again.pods = passes.pods
    again.a_pass(a_job(uid), memory={uid: alone})
    assert again.recorder.of("Pod") == []


def test_trouble_and_originals_are_reported_when_they_change(passes: ReportedPasses) -> None:
    for reason in ("1 pod is left out; team/b: it exports 100000 series", "2 pods are left out; …", None):
        passes.reporter.set_degraded(reason)
    assert passes.recorder.of("TrainingPolicy") == [("Degraded", "1 pod is left out; team/b: it exports 100000 series")]
    back, stuck = passes.pods.add("back"), passes.pods.add("stuck")
    passes.reporter.emit_restored(RestoreReport(restored={back: ""}, failed={stuck: "no right"}))
    assert passes.recorder.of("Pod") == [("Restored", "its original resources are back"), ("RestoreFailed", "no right")]


def test_a_conflict_is_an_event_when_it_changes_and_a_condition_until_it_ends(passes: ReportedPasses) -> None:
    conflict = Conflict(1, ("a/x",), "older")
    passes.reporter.set_conflict(conflict)
    passes.reporter.set_conflict(replace(conflict))
    assert passes.recorder.of("TrainingPolicy") == [("Conflict", "1 pods are managed by older: a/x")]
    passes.a_pass()
    assert passes.replica.writer.urgent() == {passes.document.key}
    passes.replica.writer.write()
    passes.reporter.set_conflict(None)
    passes.a_pass()
    assert passes.replica.writer.urgent() == {passes.document.key}


def test_a_workload_that_another_policy_has_is_not_written(passes: ReportedPasses) -> None:
    uid = passes.pods.add("train")
    other = passes.replica.memory("other")
    other.load()
    other.save(MemoryState({uid: known(original=CpuAllocation(1000, 500))}))
    document = passes.replica.job_growths.find("uid-of-train")
    assert document is not None
    passes.replica.writer.waiting.clear()
    state = MemoryState({uid: known()})
    report = PassReport(
        START, "flowcon", {}, START, snapshot=a_snapshot([a_job(uid)]), decisions=Decisions("f", (), {}, state)
    )
    passes.reporter(report)
    assert passes.replica.writer.waiting.keys() == {passes.document.key}


def a_stop(uid: str) -> Stop:
    return Stop(uid, "n1", "stopped at its target: loss 0.19 ≤ 0.2")


def test_why_a_job_is_not_stopped_is_reported_once_and_that_it_is_also_in_its_history(passes: ReportedPasses) -> None:
    uid = passes.pods.add("train")
    refused = Outcome(a_stop(uid), "infeasible", "a bare pod cannot be suspended; run it as a Job")
    for _ in range(3):
        passes.a_pass(a_job(uid), outcomes=(refused,))
    for guard in ("stop_paused", "reached_at_first", "reached_at_first"):
        passes.a_pass(a_job(uid), withheld=(Withheld(a_stop(uid), guard, f"{guard}: why"),))
    passes.a_pass(a_job(uid), outcomes=(Outcome(a_stop(uid), "applied", "stopped at its target: loss 0.19 ≤ 0.2; so"),))
    assert passes.recorder.of("Job") == [
        ("StopInfeasible", "a bare pod cannot be suspended; run it as a Job"),
        ("StopWithheld", "reached_at_first: why"),
        ("StoppedAtTarget", "stopped at its target: loss 0.19 ≤ 0.2; so"),
    ]
    action = passes.status("train")["history"][-1]
    assert (action["action"], action["change"], action["result"]) == ("Stop", "at its target", "applied")


def test_a_warning_is_reported_once_and_again_when_it_comes_back(passes: ReportedPasses) -> None:
    uid = passes.pods.add("train")
    warned = a_job(uid).altered(warnings=("annotation x is not known",))
    silent = warned.altered(
        missing_evaluation=MissingEvaluation("NoMetric", "the endpoint has none"),
        warnings=("reports no loss: the endpoint has none", *warned.warnings),
    )
    for job in (warned, warned, a_job(uid), silent):
        passes.a_pass(job)
    warning = ("JobWarning", "annotation x is not known")
    assert passes.recorder.of("Pod") == [warning, ("NoLoss", "the endpoint has none"), warning]


MIB = 2**20


def a_change_of_memory(uid: str) -> ResizeMemory:
    return ResizeMemory(uid, "n1", "request", 1024 * MIB, 360 * MIB, "CL, hardly growing")


def test_a_change_of_memory_is_reported_on_its_pod_in_the_history_and_in_the_status(passes: ReportedPasses) -> None:
    uid = passes.pods.add("train")
    usage = Usage(START, 0.0, 300.0 * MIB)
    job = a_job(uid, limit=2000).altered(usage=usage, memory=MemoryAllocation(1024 * MIB, 2048 * MIB))
    passes.a_pass(job, outcomes=(Outcome(a_change_of_memory(uid), "applied"),))
    assert passes.recorder.of("Pod") == [("Resized", "memory request 1024Mi to 360Mi: CL, hardly growing")]
    assert passes.history("train") == [("Resize", "memory request 1024Mi to 360Mi", "applied")]
    status = passes.status("train")
    assert status["memoryReason"] == "CL, hardly growing"
    assert status["lastAction"] == "memory request 1024Mi to 360Mi applied"


def test_withheld_changes_of_memory_and_of_cpu_are_distinguished(passes: ReportedPasses) -> None:
    uid = passes.pods.add("train")
    cpu = (Withheld(a_resize(uid), "floor", "floor: 1"),)
    of_memory = (Withheld(a_change_of_memory(uid), "memory_pressure", "memory_pressure: n1"),)
    for guard in ("memory_paused", "memory_canary", "memory_cooldown", "memory_minimum_change", "few_samples"):
        passes.a_pass(a_job(uid), withheld=(Withheld(a_change_of_memory(uid), guard, "routine"),))
    for _ in range(2):
        passes.a_pass(a_job(uid), withheld=(*cpu, *of_memory))
    assert passes.recorder.of("Pod") == [
        ("ResizeWithheld", "CPU limits 2 to 1500m: floor: 1"),
        ("ResizeWithheld", "memory request 1024Mi to 360Mi: memory_pressure: n1"),
    ]


def test_an_invalid_policy_is_an_event(passes: ReportedPasses) -> None:
    emit_invalid(as_recorder(passes.recorder), "training", "u", "TrainingPolicy training: no")
    assert passes.recorder.of("TrainingPolicy") == [("InvalidSpec", "TrainingPolicy training: no")]

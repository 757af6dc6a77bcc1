"""Events about promises: one a change, none from the first pass, none again for a job that comes back."""

from __future__ import annotations

from support.pass_reports import ReportedPasses
from support.worlds import START, a_job

from slopewise.model import Absence, DeadlineStatus, ObjectiveStatus, QoeStatus, TargetStatus

KEPT = ObjectiveStatus(QoeStatus(10.0, 9.5, 0.05, "S"))
MISSED = ObjectiveStatus(QoeStatus(10.0, 12.0, -0.2, "B", missed=True))
OVER = ObjectiveStatus(deadline=DeadlineStatus(START - 1, -1.0, None, hopeless=True, confirmed_hopeless=True))
MISSED_NOTE = "takes 12 s of 10 s, 20% slower than asked"


def test_an_objective_that_is_missed_and_kept_again_is_one_event_each(passes: ReportedPasses) -> None:
    uid, unasked = passes.pods.add("serve"), passes.pods.add("train")
    for number, status in enumerate([KEPT, MISSED, MISSED, KEPT, KEPT]):
        passes.a_pass(a_job(uid), a_job(unasked), at=START + number, objective_statuses={uid: status})
    assert passes.recorder.of("Pod") == [
        ("ObjectiveMissed", MISSED_NOTE),
        ("ObjectiveKept", "takes 9.5 s of 10 s, 5% faster than asked"),
    ]
    assert [event.warning for event in passes.recorder.events if event.about.kind == "Pod"] == [True, False]


def test_the_first_pass_of_a_leader_emits_nothing_and_a_new_job_later_does(passes: ReportedPasses) -> None:
    uid, late = passes.pods.add("serve"), passes.pods.add("late")
    passes.a_pass(a_job(uid), objective_statuses={uid: MISSED})
    assert passes.recorder.of("Pod") == []
    passes.a_pass(a_job(uid), a_job(late), at=START + 1, objective_statuses={uid: MISSED, late: OVER})
    assert [reason for reason, _ in passes.recorder.of("Pod")] == ["DeadlineMissed"]


def test_a_workload_that_was_away_between_two_pods_is_not_reported_again(passes: ReportedPasses) -> None:
    uid = passes.pods.add("serve")
    passes.a_pass(a_job(uid), objective_statuses={uid: KEPT})
    passes.a_pass(a_job(uid), at=START + 1, objective_statuses={uid: MISSED})
    passes.a_pass(at=START + 2, absent=(Absence(uid, "moving", "moves"),))
    passes.a_pass(a_job(uid), at=START + 3, objective_statuses={uid: MISSED})
    assert passes.recorder.of("Pod") == [("ObjectiveMissed", MISSED_NOTE)]


def test_a_target_that_is_reached_is_reported_and_shown_at_once(passes: ReportedPasses) -> None:
    uid = passes.pods.add("train")
    passes.a_pass(a_job(uid), objective_statuses={uid: ObjectiveStatus(target=TargetStatus(None, False))})
    passes.replica.writer.write()
    passes.a_pass(a_job(uid), at=START + 1, objective_statuses={uid: ObjectiveStatus(target=TargetStatus(None, True))})
    assert passes.recorder.of("Pod") == [("TargetReached", "the target loss is reached")]
    assert "uid-of-train" in passes.replica.writer.urgent()
    status = passes.status("train")
    assert status["promise"] == "target reached"
    assert {each["type"]: each["status"] for each in status["conditions"]}["TargetReached"] == "True"

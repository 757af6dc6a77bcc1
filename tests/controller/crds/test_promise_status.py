"""What a JobGrowth shows of promises: column, figures, conditions, and which changes are worth an event."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.worlds import START, a_job, a_node, a_snapshot, known

from slopewise.crds import promise_status
from slopewise.crds.conditions import timestamp
from slopewise.crds.growth_status import PassView, running_status, transition_key, view_of
from slopewise.crds.inactive_status import Departure, absent_status, departed_status
from slopewise.crds.job_growth import JobGrowthStatus
from slopewise.model import (
    Absence,
    AbsentState,
    DeadlineStatus,
    Decisions,
    Job,
    JobState,
    MemoryState,
    Objectives,
    ObjectiveStatus,
    PassReport,
    QoeStatus,
    TargetStatus,
)

UID = "w:0"
NEW = JobGrowthStatus()
KEPT = QoeStatus(10.0, 9.5, 0.05, "S")
MISSED = QoeStatus(10.0, 12.0, -0.2, "B", missed=True)
HANGS = QoeStatus(0.5, 40.0, -79.0, "B", missed=True, in_flight=12.0)
IN_TIME = DeadlineStatus(START + 1000, 1000.0, 100.0)
LATE = DeadlineStatus(START + 1000, 1000.0, -800.0)
HOPELESS = DeadlineStatus(START + 1000, 1000.0, -800.0, hopeless=True, confirmed_hopeless=True)
OVER = DeadlineStatus(START - 60, -60.0, -70.0, hopeless=True, confirmed_hopeless=True)


def a_view(jobs: list[Job], statuses: dict[str, ObjectiveStatus]) -> PassView:
    decisions = Decisions("fair", (), {}, MemoryState({job.uid: known() for job in jobs}))
    snapshot = a_snapshot(jobs, [a_node(cpu_cores=4)])
    report = PassReport(START, "fair", {}, START, snapshot=snapshot, decisions=decisions, objective_statuses=statuses)
    view = view_of(report, policy="training", mode="Auto", control="limits")
    assert view is not None
    return view


def shown(
    status: ObjectiveStatus | None, previous: JobGrowthStatus = NEW, state: JobState = JobState.TRAINING
) -> JobGrowthStatus:
    job = a_job(UID, state=state)
    return running_status([job], a_view([job], {} if status is None else {UID: status}), previous)


def promised(status: JobGrowthStatus) -> dict[str, tuple[str, str]]:
    """Status and reason of the conditions about promises."""
    return {each.type: (each.status, each.reason) for each in status.conditions if each.type in promise_status.TYPES}


@pytest.mark.parametrize(
    ("status", "column"),
    [
        (None, "-"),
        (ObjectiveStatus(KEPT), "kept: 9.5s of 10s"),
        (ObjectiveStatus(MISSED), "missed: 12s of 10s"),
        (ObjectiveStatus(replace(MISSED, missed=False)), "12s of 10s"),
        (ObjectiveStatus(QoeStatus(0.25)), "not timed yet, 0.25s asked"),
        (ObjectiveStatus(HANGS), "missed: over 40s of 0.5s"),
        (ObjectiveStatus(replace(HANGS, missed=False)), "over 40s of 0.5s"),
        (ObjectiveStatus(deadline=IN_TIME), "slack 1m40s"),
        (ObjectiveStatus(deadline=LATE), "late by 13m20s"),
        (ObjectiveStatus(deadline=HOPELESS), "hopeless, due in 16m40s"),
        (ObjectiveStatus(deadline=OVER), "deadline missed"),
        (ObjectiveStatus(deadline=DeadlineStatus(START + 90, 90.0)), "due in 1m30s"),
        (ObjectiveStatus(target=TargetStatus(False, False)), "target open"),
        (ObjectiveStatus(target=TargetStatus(True, False)), "deliverable"),
        (ObjectiveStatus(target=TargetStatus(None, True)), "target reached"),
        (ObjectiveStatus(MISSED, LATE, TargetStatus(True, None)), "missed: 12s of 10s, late by 13m20s, deliverable"),
    ],
)
def test_the_column(status: ObjectiveStatus | None, column: str) -> None:
    assert shown(status).promise == column


def test_figures_and_conditions_of_what_is_asked() -> None:
    status = shown(ObjectiveStatus(MISSED, LATE, TargetStatus(True, False)))
    assert (status.objective_seconds, status.took_seconds, status.deviation_ratio) == (10.0, 12.0, -0.2)
    assert (status.deadline, status.slack_seconds) == (timestamp(START + 1000), -800)
    assert promised(status) == {
        "ObjectiveMissed": ("True", "TooSlow"),
        "Hopeless": ("False", "Feasible"),
        "Deliverable": ("True", "Reached"),
        "TargetReached": ("False", "NotReached"),
    }
    messages = {each.type: each.message for each in status.conditions}
    assert messages["ObjectiveMissed"] == "takes 12 s of 10 s, 20% slower than asked"
    assert messages["Hopeless"] == "due 1970-01-12T14:03:20Z, 13m20s late at its present pace"


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (None, {}),
        (ObjectiveStatus(KEPT), {"ObjectiveMissed": ("False", "Kept")}),
        (ObjectiveStatus(QoeStatus(10.0)), {"ObjectiveMissed": ("Unknown", "NotTimedYet")}),
        (ObjectiveStatus(HANGS), {"ObjectiveMissed": ("True", "Unanswered")}),
        (ObjectiveStatus(replace(HANGS, missed=False)), {"ObjectiveMissed": ("Unknown", "NotTimedYet")}),
        (ObjectiveStatus(deadline=HOPELESS), {"Hopeless": ("True", "NoCpuSuffices")}),
        (ObjectiveStatus(deadline=OVER), {"Hopeless": ("True", "DeadlineMissed")}),
        (ObjectiveStatus(deadline=DeadlineStatus(START + 9, 9.0)), {"Hopeless": ("Unknown", "NotTimedYet")}),
        (ObjectiveStatus(target=TargetStatus(None, True)), {"TargetReached": ("True", "Reached")}),
    ],
)
def test_what_is_stated_has_a_condition(status: ObjectiveStatus | None, expected: dict[str, tuple[str, str]]) -> None:
    assert promised(shown(status)) == expected


def test_of_several_pods_the_one_that_keeps_a_promise_least_counts() -> None:
    jobs = [a_job("w:0"), a_job("w:1"), a_job("w:2")]
    statuses = {
        "w:0": ObjectiveStatus(KEPT, IN_TIME),
        "w:1": ObjectiveStatus(MISSED, LATE),
        "w:2": ObjectiveStatus(QoeStatus(10.0)),
    }
    assert running_status(jobs, a_view(jobs, statuses), NEW).promise == "missed: 12s of 10s, late by 13m20s"


def test_an_ended_job_keeps_its_last_word_and_its_last_figures() -> None:
    before = shown(ObjectiveStatus(KEPT, OVER, TargetStatus(True, False)))
    after = shown(ObjectiveStatus(target=TargetStatus(True, True)), before, JobState.FINISHED)
    assert after.promise == "objective kept, deadline missed, target reached"
    assert promised(after) == {
        "ObjectiveMissed": ("False", "Kept"),
        "Hopeless": ("True", "DeadlineMissed"),
        "Deliverable": ("True", "Reached"),
        "TargetReached": ("True", "Reached"),
    }
    assert (after.took_seconds, after.slack_seconds) == (9.5, -70)
    again = shown(ObjectiveStatus(target=TargetStatus(True, True)), after, JobState.FINISHED)
    assert (again.promise, promised(again)) == (after.promise, promised(after))


@pytest.mark.parametrize(
    ("state", "column"), [(JobState.FINISHED, "deadline kept"), (JobState.FAILED, "deadline missed")]
)
def test_a_deadline_is_kept_by_a_job_that_succeeds_before_it(state: JobState, column: str) -> None:
    assert shown(None, shown(ObjectiveStatus(deadline=LATE)), state).promise == column


@pytest.mark.parametrize(
    ("state", "column"),
    [
        ("moving", "slack 1m40s, deliverable"),
        ("finished", "deadline kept, deliverable"),
        ("failed", "deadline missed, deliverable"),
    ],
)
def test_a_workload_without_a_pod_keeps_what_was_found_last(state: AbsentState, column: str) -> None:
    before = shown(ObjectiveStatus(deadline=IN_TIME, target=TargetStatus(True, None)))
    after = absent_status(Absence(UID, state, "because"), before, START)
    assert (after.promise, promised(after)) == (column, promised(before))


ASKED = Objectives(qoe_seconds=10.0, deadline_at_seconds=START + 600.0)


def test_an_arrival_that_has_not_run_shows_what_its_owner_asks() -> None:
    after = absent_status(Absence(UID, "waiting", "fits nowhere", objectives=ASKED), JobGrowthStatus(), START)
    assert (after.promise, after.objective_seconds) == ("not timed yet, 10s asked, due in 10m00s", 10.0)
    assert after.deadline == timestamp(START + 600.0)
    let_in = absent_status(Absence(UID, "waiting", "let in"), after, START + 60.0)
    assert let_in.promise == after.promise


def test_an_arrival_that_has_run_before_keeps_what_was_found_last() -> None:
    before = shown(ObjectiveStatus(deadline=IN_TIME))
    after = absent_status(Absence(UID, "waiting", "fits nowhere", objectives=ASKED), before, START)
    assert (after.promise, after.objective_seconds) == ("slack 1m40s", None)


def test_a_workload_that_no_policy_manages_shows_nothing_of_promises() -> None:
    after = departed_status(Departure("no longer selected", 500), shown(ObjectiveStatus(MISSED, LATE)), START)
    assert (after.promise, after.took_seconds, promised(after)) == ("-", None, {})


def test_figures_alone_are_progress_and_confirmed_changes_are_written_at_once() -> None:
    def key(status: ObjectiveStatus) -> object:
        job = a_job(UID)
        return transition_key([job], a_view([job], {UID: status}))

    noisy = replace(KEPT, took_seconds=11.5, deviation=-0.15, listed="B")
    assert (
        key(ObjectiveStatus(KEPT, IN_TIME))
        == key(ObjectiveStatus(noisy, LATE))
        == key(ObjectiveStatus(KEPT, replace(LATE, hopeless=True)))
    )
    different = {
        key(ObjectiveStatus(*each))
        for each in [(KEPT, IN_TIME), (MISSED, IN_TIME), (KEPT, HOPELESS), (KEPT, OVER), (QoeStatus(10.0), IN_TIME)]
    }
    assert len(different) == 5
    reached = {
        key(ObjectiveStatus(target=TargetStatus(*each))) for each in [(False, False), (True, False), (True, True)]
    }
    assert len(reached) == 3


@pytest.mark.parametrize(
    ("before", "now", "reasons"),
    [
        (ObjectiveStatus(KEPT), ObjectiveStatus(replace(KEPT, listed="B")), []),
        (ObjectiveStatus(KEPT), ObjectiveStatus(MISSED), [("ObjectiveMissed", True)]),
        (ObjectiveStatus(MISSED), ObjectiveStatus(KEPT), [("ObjectiveKept", False)]),
        (ObjectiveStatus(MISSED), ObjectiveStatus(), []),
        (ObjectiveStatus(MISSED), ObjectiveStatus(QoeStatus(10.0)), []),  # no longer timed, which is not kept
        (ObjectiveStatus(QoeStatus(0.5)), ObjectiveStatus(replace(HANGS, missed=False)), []),
        (ObjectiveStatus(QoeStatus(0.5)), ObjectiveStatus(HANGS), [("ObjectiveMissed", True)]),
        (ObjectiveStatus(deadline=IN_TIME), ObjectiveStatus(deadline=LATE), []),
        (ObjectiveStatus(deadline=LATE), ObjectiveStatus(deadline=HOPELESS), [("DeadlineHopeless", True)]),
        (ObjectiveStatus(deadline=HOPELESS), ObjectiveStatus(deadline=LATE), [("DeadlineFeasible", False)]),
        (ObjectiveStatus(deadline=HOPELESS), ObjectiveStatus(deadline=OVER), [("DeadlineMissed", True)]),
        (ObjectiveStatus(), ObjectiveStatus(deadline=OVER), [("DeadlineMissed", True)]),
        (
            ObjectiveStatus(target=TargetStatus(False, False)),
            ObjectiveStatus(target=TargetStatus(True, True)),
            [("Deliverable", False), ("TargetReached", False)],
        ),
        (
            ObjectiveStatus(target=TargetStatus(True, True)),
            ObjectiveStatus(target=TargetStatus(True, False)),
            [("TargetLost", True)],
        ),
    ],
)
def test_a_change_is_one_event(before: ObjectiveStatus, now: ObjectiveStatus, reasons: list[tuple[str, bool]]) -> None:
    assert [(each.reason, each.warning) for each in promise_status.changes(before, now)] == reasons


@pytest.mark.parametrize(
    ("in_flight", "message"),
    [
        (12.0, "no request succeeded in 40 s while 12 are in flight, 0.5 s asked"),
        (1.0, "no request succeeded in 40 s while 1 is in flight, 0.5 s asked"),
        (0.0, "no request succeeded in 40 s, 0.5 s asked"),
    ],
)
def test_a_server_that_hangs_is_named_in_condition_and_event(in_flight: float, message: str) -> None:
    status = ObjectiveStatus(replace(HANGS, in_flight=in_flight))
    assert [each.message for each in shown(status).conditions if each.type == "ObjectiveMissed"] == [message]
    assert [each.note for each in promise_status.changes(ObjectiveStatus(KEPT), status)] == [message]

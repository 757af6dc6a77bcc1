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
    DeadlineStanding,
    Decisions,
    Job,
    JobState,
    MemoryState,
    Objectives,
    PassReport,
    QoeStanding,
    Standing,
    TargetStanding,
)

UID = "w:0"
NEW = JobGrowthStatus()
KEPT = QoeStanding(10.0, 9.5, 0.05, "S")
MISSED = QoeStanding(10.0, 12.0, -0.2, "B", missed=True)
HANGS = QoeStanding(0.5, 40.0, -79.0, "B", missed=True, in_flight=12.0)
IN_TIME = DeadlineStanding(START + 1000, 1000.0, 100.0)
LATE = DeadlineStanding(START + 1000, 1000.0, -800.0)
HOPELESS = DeadlineStanding(START + 1000, 1000.0, -800.0, hopeless=True, confirmed_hopeless=True)
OVER = DeadlineStanding(START - 60, -60.0, -70.0, hopeless=True, confirmed_hopeless=True)


def a_view(jobs: list[Job], standings: dict[str, Standing]) -> PassView:
    decisions = Decisions("fair", (), {}, MemoryState({job.uid: known() for job in jobs}))
    snapshot = a_snapshot(jobs, [a_node(cpu_cores=4)])
    report = PassReport(START, "fair", {}, START, snapshot=snapshot, decisions=decisions, standings=standings)
    view = view_of(report, policy="training", mode="Auto", control="limits")
    assert view is not None
    return view


def shown(
    standing: Standing | None, previous: JobGrowthStatus = NEW, state: JobState = JobState.TRAINING
) -> JobGrowthStatus:
    job = a_job(UID, state=state)
    return running_status([job], a_view([job], {} if standing is None else {UID: standing}), previous)


def promised(status: JobGrowthStatus) -> dict[str, tuple[str, str]]:
    """Status and reason of the conditions about promises."""
    return {each.type: (each.status, each.reason) for each in status.conditions if each.type in promise_status.TYPES}


@pytest.mark.parametrize(
    ("standing", "column"),
    [
        (None, "-"),
        (Standing(KEPT), "kept: 9.5s of 10s"),
        (Standing(MISSED), "missed: 12s of 10s"),
        (Standing(replace(MISSED, missed=False)), "12s of 10s"),
        (Standing(QoeStanding(0.25)), "not timed yet, 0.25s asked"),
        (Standing(HANGS), "missed: over 40s of 0.5s"),
        (Standing(replace(HANGS, missed=False)), "over 40s of 0.5s"),
        (Standing(deadline=IN_TIME), "slack 1m40s"),
        (Standing(deadline=LATE), "late by 13m20s"),
        (Standing(deadline=HOPELESS), "hopeless, due in 16m40s"),
        (Standing(deadline=OVER), "deadline missed"),
        (Standing(deadline=DeadlineStanding(START + 90, 90.0)), "due in 1m30s"),
        (Standing(target=TargetStanding(False, False)), "target open"),
        (Standing(target=TargetStanding(True, False)), "deliverable"),
        (Standing(target=TargetStanding(None, True)), "target reached"),
        (Standing(MISSED, LATE, TargetStanding(True, None)), "missed: 12s of 10s, late by 13m20s, deliverable"),
    ],
)
def test_the_column(standing: Standing | None, column: str) -> None:
    assert shown(standing).promise == column


def test_figures_and_conditions_of_what_is_asked() -> None:
    status = shown(Standing(MISSED, LATE, TargetStanding(True, False)))
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
    ("standing", "expected"),
    [
        (None, {}),
        (Standing(KEPT), {"ObjectiveMissed": ("False", "Kept")}),
        (Standing(QoeStanding(10.0)), {"ObjectiveMissed": ("Unknown", "NotTimedYet")}),
        (Standing(HANGS), {"ObjectiveMissed": ("True", "Unanswered")}),
        (Standing(replace(HANGS, missed=False)), {"ObjectiveMissed": ("Unknown", "NotTimedYet")}),
        (Standing(deadline=HOPELESS), {"Hopeless": ("True", "NoCpuSuffices")}),
        (Standing(deadline=OVER), {"Hopeless": ("True", "DeadlineMissed")}),
        (Standing(deadline=DeadlineStanding(START + 9, 9.0)), {"Hopeless": ("Unknown", "NotTimedYet")}),
        (Standing(target=TargetStanding(None, True)), {"TargetReached": ("True", "Reached")}),
    ],
)
def test_only_what_is_stated_has_a_condition(standing: Standing | None, expected: dict[str, tuple[str, str]]) -> None:
    assert promised(shown(standing)) == expected


def test_of_several_pods_the_one_that_keeps_a_promise_least_counts() -> None:
    jobs = [a_job("w:0"), a_job("w:1"), a_job("w:2")]
    standings = {"w:0": Standing(KEPT, IN_TIME), "w:1": Standing(MISSED, LATE), "w:2": Standing(QoeStanding(10.0))}
    assert running_status(jobs, a_view(jobs, standings), NEW).promise == "missed: 12s of 10s, late by 13m20s"


def test_an_ended_job_keeps_its_last_word_and_its_last_figures() -> None:
    before = shown(Standing(KEPT, OVER, TargetStanding(True, False)))
    after = shown(Standing(target=TargetStanding(True, True)), before, JobState.FINISHED)
    assert after.promise == "objective kept, deadline missed, target reached"
    assert promised(after) == {
        "ObjectiveMissed": ("False", "Kept"),
        "Hopeless": ("True", "DeadlineMissed"),
        "Deliverable": ("True", "Reached"),
        "TargetReached": ("True", "Reached"),
    }
    assert (after.took_seconds, after.slack_seconds) == (9.5, -70)
    again = shown(Standing(target=TargetStanding(True, True)), after, JobState.FINISHED)
    assert (again.promise, promised(again)) == (after.promise, promised(after))


@pytest.mark.parametrize(
    ("state", "column"), [(JobState.FINISHED, "deadline kept"), (JobState.FAILED, "deadline missed")]
)
def test_a_deadline_is_kept_by_a_job_that_succeeds_before_it(state: JobState, column: str) -> None:
    assert shown(None, shown(Standing(deadline=LATE)), state).promise == column


@pytest.mark.parametrize(
    ("state", "column"),
    [
        ("moving", "slack 1m40s, deliverable"),
        ("finished", "deadline kept, deliverable"),
        ("failed", "deadline missed, deliverable"),
    ],
)
def test_a_workload_without_a_pod_keeps_what_was_found_last(state: AbsentState, column: str) -> None:
    before = shown(Standing(deadline=IN_TIME, target=TargetStanding(True, None)))
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
    before = shown(Standing(deadline=IN_TIME))
    after = absent_status(Absence(UID, "waiting", "fits nowhere", objectives=ASKED), before, START)
    assert (after.promise, after.objective_seconds) == ("slack 1m40s", None)


def test_a_workload_that_no_policy_manages_shows_nothing_of_promises() -> None:
    after = departed_status(Departure("no longer selected", 500), shown(Standing(MISSED, LATE)), START)
    assert (after.promise, after.took_seconds, promised(after)) == ("-", None, {})


def test_figures_alone_are_progress_and_confirmed_changes_are_written_at_once() -> None:
    def key(standing: Standing) -> object:
        job = a_job(UID)
        return transition_key([job], a_view([job], {UID: standing}))

    noisy = replace(KEPT, took_seconds=11.5, deviation=-0.15, listed="B")
    assert (
        key(Standing(KEPT, IN_TIME)) == key(Standing(noisy, LATE)) == key(Standing(KEPT, replace(LATE, hopeless=True)))
    )
    different = {
        key(Standing(*each))
        for each in [(KEPT, IN_TIME), (MISSED, IN_TIME), (KEPT, HOPELESS), (KEPT, OVER), (QoeStanding(10.0), IN_TIME)]
    }
    assert len(different) == 5
    reached = {key(Standing(target=TargetStanding(*each))) for each in [(False, False), (True, False), (True, True)]}
    assert len(reached) == 3


@pytest.mark.parametrize(
    ("before", "now", "reasons"),
    [
        (Standing(KEPT), Standing(KEPT), []),
        (Standing(KEPT), Standing(replace(KEPT, listed="B")), []),
        (Standing(KEPT), Standing(MISSED), [("ObjectiveMissed", True)]),
        (Standing(MISSED), Standing(KEPT), [("ObjectiveKept", False)]),
        (Standing(MISSED), Standing(), []),
        (Standing(MISSED), Standing(QoeStanding(10.0)), []),  # no longer timed, which is not kept
        (Standing(QoeStanding(0.5)), Standing(replace(HANGS, missed=False)), []),
        (Standing(QoeStanding(0.5)), Standing(HANGS), [("ObjectiveMissed", True)]),
        (Standing(deadline=IN_TIME), Standing(deadline=LATE), []),
        (Standing(deadline=LATE), Standing(deadline=HOPELESS), [("DeadlineHopeless", True)]),
        (Standing(deadline=HOPELESS), Standing(deadline=LATE), [("DeadlineFeasible", False)]),
        (Standing(deadline=HOPELESS), Standing(deadline=OVER), [("DeadlineMissed", True)]),
        (Standing(deadline=OVER), Standing(deadline=OVER), []),
        (Standing(), Standing(deadline=OVER), [("DeadlineMissed", True)]),
        (Standing(), Standing(target=TargetStanding(False, False)), []),
        (
            Standing(target=TargetStanding(False, False)),
            Standing(target=TargetStanding(True, True)),
            [("Deliverable", False), ("TargetReached", False)],
        ),
        (
            Standing(target=TargetStanding(True, True)),
            Standing(target=TargetStanding(True, False)),
            [("TargetLost", True)],
        ),
    ],
)
def test_each_change_is_one_event(before: Standing, now: Standing, reasons: list[tuple[str, bool]]) -> None:
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
    standing = Standing(replace(HANGS, in_flight=in_flight))
    assert [each.message for each in shown(standing).conditions if each.type == "ObjectiveMissed"] == [message]
    assert [each.note for each in promise_status.changes(Standing(KEPT), standing)] == [message]

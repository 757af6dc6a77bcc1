"""Standings: objective, deadline and targets of a job, and what one noisy figure does not change."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
from support.worlds import START, a_job, a_node, a_snapshot, known

from slopewise.estimators import objectives, pace
from slopewise.model import (
    Answering,
    Confirmed,
    DeadlineStatus,
    Job,
    JobMemory,
    JobState,
    MemoryState,
    Node,
    ObjectiveMemory,
    Objectives,
    ObjectiveStatus,
    Pace,
    PaceAnchor,
    QoeStatus,
    Responses,
    TargetHits,
    TargetStatus,
    Timing,
)

INTERVAL = 20.0


def job(objectives: Objectives, *, steps: float | None = None, planned: float | None = None, **more: Any) -> Job:
    made = a_job("a", **more)
    return made.altered(objectives=objectives, steps_total=steps, steps_planned=planned)


def timed(*seconds: float, cores: float | None = 1.0, **more: Any) -> JobMemory:
    paces = tuple(Pace(START + INTERVAL * number, each, cores) for number, each in enumerate(seconds))
    return known(paces=paces, **more)


def status(made: Job, remembered: JobMemory, nodes: Sequence[Node] = (), at: float = START) -> ObjectiveStatus:
    return objectives.statuses(a_snapshot([made], nodes, at), MemoryState({"a": remembered}))["a"]


def qoe(asked: float, *seconds: float, **more: Any) -> QoeStatus:
    found = status(job(Objectives(qoe_seconds=asked)), timed(*seconds, **more)).qoe
    assert found is not None
    return found


def deadline(left: float, todo: float, *seconds: float, nodes: Sequence[Node] = (), **more: Any) -> DeadlineStatus:
    made = job(Objectives(deadline_at_seconds=START + left), steps=100, planned=100 + todo, useful_cores=1.0)
    found = status(made, timed(*seconds, **more), nodes).deadline
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("took", "deviation", "listed"),
    [(8.0, 0.2, "G"), (9.5, 0.05, "S"), (9.0, 0.1, "S"), (11.0, -0.1, "S"), (12.0, -0.2, "B")],
)
def test_the_vectors_of_an_objective_of_ten_seconds(took: float, deviation: float, listed: str) -> None:
    found = qoe(10.0, took)
    assert (found.objective_seconds, found.took_seconds, found.listed) == (10.0, took, listed)
    assert found.deviation == pytest.approx(deviation)


def test_the_newest_pace_counts_and_a_job_without_one_has_an_objective_and_no_deviation() -> None:
    assert qoe(10.0, 8.0, 8.0, 12.0).listed == "B"
    assert qoe(10.0) == qoe(10.0, math.nan) == QoeStatus(10.0)


@pytest.mark.parametrize(
    "asked",
    [
        *(Objectives(qoe_seconds=seconds) for seconds in (0.0, -1.0, math.nan, math.inf)),
        *(Objectives(deadline_at_seconds=at) for at in (math.nan, math.inf)),
        Objectives(),
        Objectives(weight=2.0),
    ],
    ids=str,
)
def test_what_is_no_time_above_zero_is_no_promise(asked: Objectives) -> None:
    assert objectives.statuses(a_snapshot([job(asked)]), MemoryState({"a": timed(1.0)})) == {}


@pytest.mark.parametrize(
    ("seconds", "cores", "slack"),
    [(1.0, 1.0, 100.0), (2.0, 0.5, -800.0), (2.0, None, -800.0)],
    ids=["in time", "late, and more CPU would help", "late, and its CPU is not counted"],
)
def test_the_vector_of_900_steps_with_1000_s_left(seconds: float, cores: float | None, slack: float) -> None:
    found = deadline(1000, 900, seconds, cores=cores)
    assert (found.at_seconds, found.left_seconds, found.slack_seconds) == (START + 1000, 1000, slack)
    assert (found.hopeless, found.confirmed_hopeless, found.missed) == (False, False, False)


def test_a_job_that_is_late_with_all_cpu_of_the_largest_node_is_hopeless() -> None:
    assert deadline(1000, 900, 2.0, cores=1.0, nodes=[a_node("n1", 1.0), a_node("n2", 8.0)]).hopeless
    wide = job(Objectives(deadline_at_seconds=START + 1000), steps=0, planned=900)
    nodes = [a_node("n1", 1.0), a_node("n2", 8.0)]
    found = status(wide, timed(2.0), nodes).deadline
    assert found is not None
    assert not found.hopeless, "it can use the eight cores of the other node"


@pytest.mark.parametrize(("steps", "planned"), [(None, None), (None, 100.0), (5.0, None)])
def test_a_job_without_planned_steps_has_a_deadline_and_no_slack(steps: float | None, planned: float | None) -> None:
    made = job(Objectives(deadline_at_seconds=START + 60), steps=steps, planned=planned)
    assert status(made, timed(1.0)).deadline == DeadlineStatus(START + 60, 60.0)


def test_a_job_with_all_steps_done_has_the_time_that_is_left_as_slack() -> None:
    assert deadline(60, -3, 1.0).slack_seconds == 60


def test_a_deadline_that_has_passed_is_missed_at_once_and_hopeless() -> None:
    found = deadline(0, 5, 1.0)
    assert (found.missed, found.hopeless, found.confirmed_hopeless, found.slack_seconds) == (True, True, True, -5.0)
    untimed = deadline(-10, 5)
    assert (untimed.missed, untimed.hopeless, untimed.confirmed_hopeless) == (True, True, True)


@pytest.mark.parametrize(
    ("objectives", "reached", "expected"),
    [
        (Objectives(target_level=0.1, deliverable_level=0.4), 0, TargetStatus(False, False)),
        (Objectives(target_level=0.1, deliverable_level=0.4), 1, TargetStatus(True, False)),
        (Objectives(target_level=0.1, deliverable_level=0.4), 2, TargetStatus(True, True)),
        (Objectives(target_level=0.1), 2, TargetStatus(None, True)),
        (Objectives(deliverable_level=0.4), 1, TargetStatus(True, None)),
    ],
)
def test_targets_are_those_that_are_stated(objectives: Objectives, reached: int, expected: TargetStatus) -> None:
    assert status(job(objectives), known(objectives=ObjectiveMemory(targets=TargetHits(0, reached)))).target == expected


def test_an_ended_job_has_only_its_targets() -> None:
    asked = Objectives(qoe_seconds=1.0, deadline_at_seconds=START + 5, target_level=0.1)
    ended = job(asked, state=JobState.FINISHED)
    assert status(ended, timed(2.0)) == ObjectiveStatus(target=TargetStatus(None, False))


class TestConfirmed:
    """`confirm` over passes: one every `step` seconds, one pace each."""

    def missed(self, paces: Sequence[float], step: float = INTERVAL, asked: float = 10.0) -> list[bool]:
        remembered, found = known(), []
        for number, each in enumerate(paces):
            at = START + step * number
            timed_now = remembered.altered(paces=(Pace(at, each, 1.0),))
            snapshot = a_snapshot([job(Objectives(qoe_seconds=asked))], at=at)
            state = objectives.confirm(snapshot, MemoryState({"a": timed_now}), INTERVAL)
            remembered = state.jobs["a"]
            here = objectives.statuses(snapshot, state)["a"].qoe
            assert here is not None
            found.append(here.missed)
        return found

    @pytest.mark.parametrize(
        ("paces", "missed"),
        [
            ([12, 12, 12, 12], "..MM"),
            ([12, 12, 9, 12, 12, 9, 12], "......."),  # one figure of the other kind begins the count again
            ([12, 12, 12, 9, 12, 9, 9, 12], "..MMMMMM"),
            ([12, 12, 12, 9, 9, 9], "..MMM."),
        ],
    )
    def test_an_objective_is_missed_or_kept_after_three_evaluations(self, paces: list[float], missed: str) -> None:
        assert self.missed(paces) == [each == "M" for each in missed]

    def test_passes_that_events_trigger_confirm_nothing_sooner(self) -> None:
        assert self.missed([12] * 30, step=1.0) == [False] * 30

    def test_a_deadline_is_hopeless_once_it_was_for_two_intervals(self) -> None:
        remembered, found = timed(2.0), []
        for number in range(3):
            at = START + INTERVAL * number
            made = job(Objectives(deadline_at_seconds=START + 100), steps=0, planned=90, useful_cores=1.0)
            state = objectives.confirm(a_snapshot([made], at=at), MemoryState({"a": remembered}), INTERVAL)
            remembered = state.jobs["a"]
            here = status(made, remembered, at=at).deadline
            assert here is not None
            found.append((here.hopeless, here.confirmed_hopeless))
        assert found == [(True, False), (True, False), (True, True)]

    def test_an_owner_who_takes_the_promise_back_leaves_nothing(self) -> None:
        remembered = timed(12.0, objectives=ObjectiveMemory(None, Confirmed(True), Confirmed(False, START)))
        state = objectives.confirm(a_snapshot([job(Objectives())]), MemoryState({"a": remembered}), INTERVAL)
        assert (state.jobs["a"].objectives.missed, state.jobs["a"].objectives.hopeless) == (None, None)

    def test_the_last_finding_of_a_job_stays_when_it_ends(self) -> None:
        remembered = timed(12.0, objectives=ObjectiveMemory(missed=Confirmed(True)))
        ended = job(Objectives(qoe_seconds=10.0), state=JobState.FINISHED)
        state = objectives.confirm(a_snapshot([ended]), MemoryState({"a": remembered}), INTERVAL)
        assert state.jobs["a"].objectives.missed == Confirmed(True)


class TestServersThatHang:
    """Requests are in flight and none succeeds: the time that they wait is the least that a response takes."""

    def passes(
        self, asked: float, *, in_flight: float | None = 12.0, failed: float = 0.0, restart_at: int | None = None
    ) -> list[QoeStatus]:
        """Of a server that has answered 100 requests within the first interval, and none in the six after it."""
        state, found = MemoryState(), []
        for number in range(8):
            at, served = START + INTERVAL * number, 100.0 if number else 0.0
            counts = Responses(served, 0.2 * served, failed * number, 0.1 * failed * number, in_flight)
            made = job(Objectives(qoe_seconds=asked))
            made = made.altered(responses=counts, evaluation=None, usage=None, restarted=number == restart_at)
            snapshot = a_snapshot([made], at=at)
            state = objectives.confirm(snapshot, pace.measure(snapshot, state, INTERVAL), INTERVAL)
            here = objectives.statuses(snapshot, state)["a"].qoe
            assert here is not None
            found.append(here)
        return found

    def test_its_objective_is_missed_once_three_evaluations_found_no_response(self) -> None:
        found = self.passes(0.5)
        assert found[:2] == [QoeStatus(0.5), QoeStatus(0.5, 0.2, 0.6, "G")]
        waited = [each.took_seconds for each in found[2:]]
        assert waited == [INTERVAL * number for number in range(1, 7)]
        assert [each.listed for each in found[2:]] == ["B"] * 6
        assert [each.missed for each in found] == [False] * 4 + [True] * 4
        assert found[-1] == QoeStatus(0.5, 120.0, -239.0, "B", missed=True, in_flight=12.0)

    def test_it_is_no_miss_while_they_wait_for_no_longer_than_what_is_asked(self) -> None:
        found = self.passes(60.0)
        assert [each.listed for each in found] == [None, "G", "G", "G", None, "B", "B", "B"]  # 80 s are over 66
        assert [each.missed for each in found] == [False] * 7 + [True]

    @pytest.mark.parametrize("more", [{"in_flight": 0.0}, {"in_flight": None}, {"in_flight": 0.0, "failed": 1.0}])
    def test_one_without_requests_or_without_the_gauge_or_that_errs_at_once_does_not_hang(self, more: Any) -> None:
        found = self.passes(0.5, **more)
        assert [each.in_flight for each in found] == [None] * 8
        assert not any(each.missed for each in found)

    def test_one_that_is_restarted_and_hangs_again_stays_missed(self) -> None:
        assert [each.missed for each in self.passes(0.5, restart_at=5)] == [False] * 4 + [True] * 4

    def after(self, *, missed: bool, responses: Responses | None) -> QoeStatus:
        """12 requests have waited for 40 s when it was measured last."""
        anchor = PaceAnchor(START, 100.0, 20.0, None)
        remembered = known(
            timing=Timing(answering=Answering(0.0, START - 60, START - 40), anchor=anchor),
            objectives=ObjectiveMemory(missed=Confirmed(missed)),
        )
        made = job(Objectives(qoe_seconds=0.5)).altered(responses=responses)
        state = objectives.confirm(a_snapshot([made]), MemoryState({"a": remembered}), INTERVAL)
        found = status(made, state.jobs["a"]).qoe
        assert found is not None
        return found

    def test_an_outage_of_metrics_neither_makes_it_missed_nor_ends_that(self) -> None:
        assert self.after(missed=False, responses=None) == QoeStatus(0.5)
        assert self.after(missed=True, responses=None) == QoeStatus(0.5, 40.0, -79.0, "B", missed=True, in_flight=0.0)

    def test_requests_that_are_gone_with_their_process_are_not_counted(self) -> None:
        found = self.after(missed=True, responses=Responses(0.0, 0.0, in_flight=0.0))
        assert (found.missed, found.in_flight) == (True, 0.0)

"""Promises that contradict each other, or what was measured, are reported with both figures."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from support.worlds import START, a_job

from slopewise.estimators.contradictions import contradictions, warnings_of
from slopewise.model import Job, JobMemory, JobState, MoveRecord, Objectives, Responses


def asking(level: float = 0.5, objective: str = "min", steps: float | None = None, **promised: Any) -> Job:
    job = replace(a_job("a", level=level, objective=objective), objectives=Objectives(**promised))
    return replace(job, steps_planned=steps)


def messages(job: Job, first: float | None = 1.0, **more: Any) -> list[str]:
    return list(contradictions(job, JobMemory(first_level=first, **more)))


@pytest.mark.parametrize(
    ("objective", "first", "deliverable", "target"), [("min", 1.0, 0.4, 0.2), ("max", 0.1, 0.7, 0.9)]
)
def test_targets_that_are_passed_in_their_order_contradict_nothing(
    objective: str, first: float, deliverable: float, target: float
) -> None:
    job = asking(0.5, objective, deliverable_level=deliverable, target_level=target)
    assert messages(job, first) == []


@pytest.mark.parametrize(
    ("objective", "first", "deliverable", "target", "better"),
    [("min", 1.0, 0.2, 0.4, "lower"), ("max", 0.1, 0.9, 0.7, "higher")],
)
def test_a_deliverable_target_that_is_harder_than_the_final_one_is_reported(
    objective: str, first: float, deliverable: float, target: float, better: str
) -> None:
    job = asking(0.5, objective, deliverable_level=deliverable, target_level=target)
    assert messages(job, first) == [
        (
            f"its deliverable loss {deliverable} is harder to reach than its target loss {target} ({better} is "
            "better); they are taken the other way round"
        )
    ]


@pytest.mark.parametrize(
    ("objective", "first", "target", "better"), [("min", 0.1, 0.9, "lower"), ("max", 0.95, 0.9, "higher")]
)
def test_a_target_that_the_first_evaluation_reached_is_reported(
    objective: str, first: float, target: float, better: str
) -> None:
    assert messages(asking(0.5, objective, target_level=target), first) == [
        (
            f"its first evaluation reached its target {target} already ({better} is better); is the target on the "
            "right side?"
        )
    ]


def test_before_the_first_evaluation_no_side_is_known() -> None:
    job = replace(asking(target_level=0.9, deliverable_level=0.95), evaluation=None)
    assert messages(job, None) == []


def test_a_deliverable_target_alone_is_reported() -> None:
    assert messages(asking(deliverable_level=0.4)) == [
        "its deliverable loss 0.4 has no target loss beside it, so it is never done; state a target loss, too"
    ]


def test_an_objective_that_is_slower_than_its_deadline_allows_names_both_figures() -> None:
    job = asking(steps=1000.0, qoe_seconds=1.0, deadline_at_seconds=START + 100)
    assert messages(job) == [
        (
            "its objective and its deadline contradict each other: 1000 planned steps of 1 s take 1000 s, and the "
            "deadline is 100 s after its start; an objective of 0.1 s would meet both"
        )
    ]


@pytest.mark.parametrize(
    "job",
    [
        asking(steps=100.0, qoe_seconds=1.0, deadline_at_seconds=START + 100),
        asking(steps=None, qoe_seconds=1.0, deadline_at_seconds=START + 100),
        asking(steps=1000.0, qoe_seconds=1.0),
        asking(steps=1000.0, deadline_at_seconds=START + 100),
        replace(asking(steps=1000.0, qoe_seconds=1.0, deadline_at_seconds=START + 100), responses=Responses(1.0, 1.0)),
    ],
)
def test_where_both_can_be_kept_or_one_is_not_stated_nothing_is_reported(job: Job) -> None:
    assert messages(job) == []


def test_a_moved_job_has_fewer_steps_left_than_it_planned() -> None:
    job = asking(steps=1000.0, qoe_seconds=1.0, deadline_at_seconds=START + 100)
    assert messages(job, moves=(MoveRecord(START, "n1", "n2"),)) == []


def test_warnings_of_a_job_come_before_its_contradictions_and_an_ended_one_has_none() -> None:
    job = replace(asking(deliverable_level=0.4), warnings=("annotation x is not known",))
    assert [each.partition(" ")[0] for each in warnings_of(job, None)] == ["annotation", "its"]
    assert warnings_of(replace(job, state=JobState.FINISHED), None) == job.warnings
    assert warnings_of(replace(job, objectives=Objectives()), None) == job.warnings

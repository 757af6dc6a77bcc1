"""Counted targets: how sure a hit must be, in which order targets are passed, and what is not counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from msgspec import structs
from support.worlds import START, a_job, known

from slopewise.estimators import targets
from slopewise.model import Growth, Job, JobMemory, MemoryState, Objectives, TargetHits

TARGETS = Objectives(target_level=0.1, deliverable_level=0.4)


def job(level: float | None, objectives: Objectives = TARGETS, **more: object) -> Job:
    return replace(a_job("a", level=level, **more), objectives=objectives)  # type: ignore[arg-type]


def counted(jobs: Sequence[Job], before: JobMemory | None = None, hits: int = 3) -> JobMemory:
    """The memory after one pass for each of these, each of which measures growth."""
    remembered = before or known()
    for number, each in enumerate(jobs):
        grown = structs.replace(remembered, growth=Growth(START + 20.0 * number, 20.0, 0.01, 1.0))
        remembered = targets.count([each], MemoryState({"a": grown}), MemoryState({"a": remembered}), hits).jobs["a"]
    return remembered


def reached(levels: Sequence[float], objectives: Objectives = TARGETS, before: int = 0, hits: int = 3) -> list[int]:
    """How many targets have been passed after each of these measurements."""
    remembered, found = known(targets=TargetHits(0, before)), []
    for number, level in enumerate(levels):
        grown = structs.replace(remembered, growth=Growth(START + 20.0 * number, 20.0, 0.01, 1.0))
        after = targets.count([job(level, objectives)], MemoryState({"a": grown}), MemoryState({"a": remembered}), hits)
        remembered = after.jobs["a"]
        assert remembered.targets is not None
        found.append(remembered.targets.reached)
    return found


def test_a_target_counts_after_three_measurements_in_a_row_and_one_miss_begins_again() -> None:
    assert reached([0.3, 0.3, 0.3]) == [0, 0, 1]
    assert reached([0.3, 0.3, 0.5, 0.3, 0.3, 0.3]) == [0] * 5 + [1]


def test_how_many_measurements_count_is_a_setting() -> None:
    assert reached([0.3], hits=1) == [1]
    assert reached([0.3] * 4, hits=4) == [0, 0, 0, 1]


def test_a_job_below_both_targets_passes_them_one_after_another() -> None:
    assert reached([0.05] * 6) == [0] * 2 + [1] * 3 + [2]


def test_a_target_is_lost_after_three_misses_in_a_row() -> None:
    assert reached([0.2] * 3, before=2) == [2, 2, 1]
    assert reached([0.05, 0.5, 0.05, 0.05, 0.5], before=1) == [1] * 5


def test_a_lone_final_target_is_passed_with_the_first_and_a_lone_first_one_never_leads_to_it() -> None:
    assert reached([0.05] * 3, Objectives(target_level=0.1)) == [0, 0, 2]
    assert reached([0.05] * 7, Objectives(deliverable_level=0.1))[2:] == [1] * 5


def test_targets_stated_the_wrong_way_round_are_read_in_the_order_in_which_they_are_passed() -> None:
    swapped = Objectives(target_level=0.4, deliverable_level=0.1)
    assert reached([0.3] * 6, swapped) == reached([0.3] * 6) == [0] * 2 + [1] * 4


def test_a_metric_that_rises_is_read_in_its_own_direction() -> None:
    rising = Objectives(target_level=0.95, deliverable_level=0.8)
    after = counted([job(0.85, rising, objective="max")] * 3)
    assert after.targets == TargetHits(0, 1)


def test_a_pass_without_a_new_measurement_counts_nothing() -> None:
    once = counted([job(0.3)])
    assert once.targets == TargetHits(1, 0)
    again = targets.count([job(0.3)], MemoryState({"a": once}), MemoryState({"a": once}), 3)
    assert again.jobs["a"].targets == TargetHits(1, 0)


def test_a_restart_that_forgets_the_measurement_counts_nothing() -> None:
    once = counted([job(0.3)])
    restarted = structs.replace(once, growth=None)
    after = targets.count([job(0.3)], MemoryState({"a": restarted}), MemoryState({"a": once}), 3)
    assert after.jobs["a"].targets == TargetHits(1, 0)


def test_a_job_without_targets_has_no_count_and_one_whose_owner_drops_them_has_none_any_more() -> None:
    assert counted([job(0.3, Objectives())]).targets is None
    assert counted([job(0.3, Objectives())], known(targets=TargetHits(0, 2))).targets is None


@pytest.mark.parametrize("level", [None, float("nan")])
def test_a_job_whose_level_is_absent_or_no_number_reaches_nothing(level: float | None) -> None:
    hits = counted([job(level)] * 3).targets
    assert hits is not None
    assert hits.reached == 0

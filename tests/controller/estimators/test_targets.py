"""Counted targets: how sure a hit must be, in which order targets are passed, and what is not counted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec import structs
from support.worlds import START, a_job, known

from slopewise.estimators import targets
from slopewise.model import Growth, Job, JobMemory, MemoryState, ObjectiveMemory, Objectives, TargetHits

TARGETS = Objectives(target_level=0.1, deliverable_level=0.4)


def job(level: float | None, objectives: Objectives = TARGETS, **more: object) -> Job:
    return a_job("a", level=level, **more).altered(objectives=objectives)  # type: ignore[arg-type]


def counted(jobs: Sequence[Job], before: JobMemory | None = None, hits: int = 3) -> JobMemory:
    """The memory after one pass for each of these, each of which measures growth."""
    remembered = before or known()
    for number, each in enumerate(jobs):
        grown = structs.replace(remembered, growth=Growth(START + 20.0 * number, 20.0, 0.01, 1.0))
        remembered = targets.count([each], MemoryState({"a": grown}), MemoryState({"a": remembered}), hits).jobs["a"]
    return remembered


def reached(levels: Sequence[float], objectives: Objectives = TARGETS, before: int = 0, hits: int = 3) -> list[int]:
    """How many targets have been passed after each of these measurements."""
    remembered, found = known(objectives=ObjectiveMemory(targets=TargetHits(0, before))), []
    for number, level in enumerate(levels):
        grown = structs.replace(remembered, growth=Growth(START + 20.0 * number, 20.0, 0.01, 1.0))
        after = targets.count([job(level, objectives)], MemoryState({"a": grown}), MemoryState({"a": remembered}), hits)
        remembered = after.jobs["a"]
        assert remembered.objectives.targets is not None
        found.append(remembered.objectives.targets.reached)
    return found


@pytest.mark.parametrize(
    ("levels", "how", "expected"),
    [
        ([0.3] * 3, {}, [0, 0, 1]),
        ([0.3, 0.3, 0.5, 0.3, 0.3, 0.3], {}, [0] * 5 + [1]),  # one miss begins again
        ([0.3], {"hits": 1}, [1]),  # how many count is a setting
        ([0.3] * 4, {"hits": 4}, [0, 0, 0, 1]),
        ([0.05] * 6, {}, [0] * 2 + [1] * 3 + [2]),  # below both, one after another
        ([0.2] * 3, {"before": 2}, [2, 2, 1]),  # lost after three misses in a row
        ([0.05, 0.5, 0.05, 0.05, 0.5], {"before": 1}, [1] * 5),
        ([0.05] * 3, {"objectives": Objectives(target_level=0.1)}, [0, 0, 2]),  # a lone final one
        ([0.05] * 7, {"objectives": Objectives(deliverable_level=0.1)}, [0, 0] + [1] * 5),  # never leads to it
        # stated the wrong way round
        ([0.3] * 6, {"objectives": Objectives(target_level=0.4, deliverable_level=0.1)}, [0] * 2 + [1] * 4),
    ],
)
def test_targets_are_passed_and_lost_in_a_row(levels: list[float], how: dict[str, Any], expected: list[int]) -> None:
    assert reached(levels, **how) == expected


def test_a_metric_that_rises_is_read_in_its_own_direction() -> None:
    rising = Objectives(target_level=0.95, deliverable_level=0.8)
    after = counted([job(0.85, rising, objective="max")] * 3)
    assert after.objectives.targets == TargetHits(0, 1)


def test_a_pass_without_a_new_measurement_or_with_one_that_a_restart_forgets_counts_nothing() -> None:
    once = counted([job(0.3)])
    for now in (once, structs.replace(once, growth=None)):
        again = targets.count([job(0.3)], MemoryState({"a": now}), MemoryState({"a": once}), 3)
        assert again.jobs["a"].objectives.targets == TargetHits(1, 0)


def test_a_job_without_targets_has_no_count_and_one_whose_owner_drops_them_has_none_any_more() -> None:
    assert counted([job(0.3, Objectives())]).objectives.targets is None
    assert (
        counted(
            [job(0.3, Objectives())], known(objectives=ObjectiveMemory(targets=TargetHits(0, 2)))
        ).objectives.targets
        is None
    )


@pytest.mark.parametrize("level", [None, float("nan")])
def test_a_job_whose_level_is_absent_or_no_number_reaches_nothing(level: float | None) -> None:
    hits = counted([job(level)] * 3).objectives.targets
    assert hits is not None
    assert hits.reached == 0

"""The range that growth is measured against: spikes stay out of it, real jumps get in within a look or two."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.worlds import START, a_job, a_node, a_snapshot

from slopewise.estimators.growth import Measuring, confirm_at_seconds, measure
from slopewise.model import Doubts, JobMemory, Levels, MemoryState, Objective, Outlier

ITVAL = 20.0
"""Also the length of a window: four scrapes of 5 s."""

RANGE_ALONE = Measuring(ITVAL, min_range_ratio=0.0)
"""The range itself, without the part of the first value that it is at least when growth is divided by it."""

FALLING = [0.5 + math.exp(-look / 12) for look in range(40)]


def after(levels: Sequence[float], objective: Objective = "min") -> list[JobMemory]:
    """The job's memory after each look, one an interval."""
    state, memories = MemoryState(), []
    for look, level in enumerate(levels):
        at = START + look * ITVAL
        job = a_job("j", level=level, at=at, cpu_seconds=10.0 * look, objective=objective)
        state = measure(a_snapshot([job], [a_node()], at=at), state, RANGE_ALONE)
        memories.append(state.jobs["j"])
    return memories


def growths(levels: Sequence[float], objective: Objective = "min") -> list[float | None]:
    """Per interval, at each look; None where nothing was measured at it."""
    found: list[float | None] = []
    for look, memory in enumerate(after(levels, objective)):
        growth = memory.growth
        new = growth is not None and growth.at_seconds == START + look * ITVAL
        found.append(growth.change_per_second * ITVAL if growth is not None and new else None)
    return found


def turned(levels: Sequence[float], objective: Objective) -> list[float]:
    return [-level for level in levels] if objective == "max" else list(levels)


BOTH = pytest.mark.parametrize("objective", ["min", "max"])
SIZES = pytest.mark.parametrize("size", [20.0, -20.0, 1e12, -1e12])


def test_the_worked_example_of_the_module() -> None:
    found = growths([2.3, 2.2, 2.1, 1e12, 1.9])
    assert found[3] is None
    assert found[4] == pytest.approx(0.2 / 0.4 / 2)
    assert after([1e12, 2.2, 2.1])[-1].levels.first == pytest.approx(2.3)


@BOTH
@pytest.mark.parametrize("levels", [FALLING, [1 / (1 + look) for look in range(30)], [3.0, 3.1, 2.9, 2.5, 2.0, 1.8]])
def test_of_levels_without_spikes_it_is_the_range_of_all_of_them(levels: list[float], objective: Objective) -> None:
    found = growths(turned(levels, objective), objective)
    for look in range(3, len(levels)):
        expected = (levels[look - 1] - levels[look]) / (levels[0] - min(levels[: look + 1]))
        assert found[look] == pytest.approx(expected, rel=0.05)


@BOTH
@SIZES
@pytest.mark.parametrize("look", [3, 4, 30])
def test_a_spike_of_one_look_is_held_and_the_interval_goes_on(look: int, size: float, objective: Objective) -> None:
    spiked = [*FALLING]
    spiked[look] += size
    before, found = growths(turned(FALLING, objective), objective), growths(turned(spiked, objective), objective)
    assert found[look] is None
    assert found[:look] == before[:look]
    both_intervals = (FALLING[look - 1] - FALLING[look + 1]) / (FALLING[0] - FALLING[look + 1])
    assert found[look + 1] == pytest.approx(both_intervals / 2, rel=1e-9)
    assert found[look + 2 :] == pytest.approx(before[look + 2 :], rel=1e-9)
    assert after(turned(spiked, objective), objective)[-1].levels.doubts is None


@BOTH
@SIZES
@pytest.mark.parametrize("look", [0, 1, 2])
def test_a_spike_at_the_first_looks_is_forgotten_within_three(look: int, size: float, objective: Objective) -> None:
    spiked = [*FALLING]
    spiked[look] += size
    before, found = growths(turned(FALLING, objective), objective), growths(turned(spiked, objective), objective)
    for later in range(look + 3, len(FALLING)):
        missing = look + 1  # the first intervals, which show most, are not in its range
        assert found[later] == pytest.approx(before[later], rel=0.3 * missing)


@SIZES
def test_one_value_that_a_slow_step_leaves_standing_is_one_spike(size: float) -> None:
    spiked = [*FALLING]
    spiked[10:14] = [FALLING[10] + size] * 4
    assert growths(spiked)[10:14] == [None] * 4
    assert growths(spiked)[16:] == pytest.approx(growths(FALLING)[16:], rel=1e-9)


def test_a_value_that_stays_for_longer_than_five_windows_is_true() -> None:
    jumped = [*FALLING[:10], *[50.0] * 10]
    memories = after(jumped)
    assert memories[14].levels.doubts == Doubts(outlier=Outlier(START + 10 * ITVAL, 50.0))
    assert growths(jumped)[15] == pytest.approx(-1.0 / 6, abs=0.01), "over the six intervals that it took"
    assert memories[15].levels.first == 50.0


@BOTH
@pytest.mark.parametrize("factor", [3.0, 0.3])
def test_other_data_that_change_the_loss_by_a_third_are_followed_at_once(factor: float, objective: Objective) -> None:
    changed = [*FALLING[:15], *(factor * level for level in FALLING[15:])]
    found = growths(turned(changed, objective), objective)
    assert None not in found[1:]
    assert found[15] is not None
    assert (found[15] < 0) == (factor > 1)
    assert all(growth is not None and growth > 0 for growth in found[16:25])


def test_the_end_of_a_spike_that_began_while_the_first_level_was_settled_is_no_best() -> None:
    """The third level is a spike, the fourth the median of a window that held half of it."""
    assert after([1.0, 0.9, -19.0, -9.1, 0.85, 0.8])[-1].levels.best == 0.85


@BOTH
def test_a_real_divergence_is_seen_one_look_later(objective: Objective) -> None:
    diverging = [*FALLING[:15], *(1e3 * 10.0**look for look in range(10))]
    found = growths(turned(diverging, objective), objective)
    assert found[15] is None
    assert found[16] == pytest.approx(-1.0 / 2, abs=0.01)
    assert all(growth == pytest.approx(-1.0, abs=0.11) for growth in found[17:])


def test_a_drop_that_is_far_below_all_before_it_is_growth_one_look_later() -> None:
    plateau = [1.0 - 0.0001 * look for look in range(10)]
    found = growths([*plateau, 0.6, 0.4, 0.3, 0.25])
    assert found[10] is None
    assert found[11] == pytest.approx(0.5, abs=0.01)
    assert found[12:] == [pytest.approx(0.1 / 0.7, abs=0.01), pytest.approx(0.05 / 0.75, abs=0.01)]


def test_a_job_that_comes_back_from_a_jump_has_its_former_range_again() -> None:
    there = [*FALLING[:15], 1e9, 2e9, 1.5e9, *FALLING[18:]]
    memories = after(there)
    assert memories[17].levels.first == 2e9
    assert memories[18].levels.first == memories[14].levels.first
    assert memories[-1].levels.doubts is None
    assert growths(there)[19:] == pytest.approx(growths(FALLING)[19:], rel=0.01)


def test_growth_is_never_more_than_the_whole_range() -> None:
    rng = random.Random(1)
    levels = [rng.choice([1.0, 2.0, 3.0, 1e3, -1e12, 0.0]) * rng.random() for _ in range(500)]
    assert all(abs(growth) <= 1.0 + 1e-9 for growth in growths(levels) if growth is not None)


@given(st.lists(st.floats(-1e12, 1e12), min_size=1, max_size=12), st.sampled_from(["min", "max"]))
def test_a_metric_that_rises_is_judged_as_one_that_falls(levels: list[float], objective: Objective) -> None:
    mirrored: Objective = "min" if objective == "max" else "max"
    assert growths(levels, objective) == growths([-level for level in levels], mirrored)


def test_a_level_that_is_held_back_is_looked_at_again_after_a_window() -> None:
    snapshot = a_snapshot([a_job("j"), a_job("calm")])
    held = JobMemory(levels=Levels(first=2.0, best=1.0, doubts=Doubts(outlier=Outlier(START - 5.0, 1e12))))
    memory = MemoryState({"j": held, "calm": JobMemory()})
    assert confirm_at_seconds(snapshot, memory) == START + 15.0
    assert confirm_at_seconds(snapshot, MemoryState({"j": JobMemory(), "calm": JobMemory()})) is None
    late = MemoryState(
        {
            **memory.jobs,
            "j": held.altered(levels=held.levels.altered(doubts=Doubts(outlier=Outlier(START - 90.0, 1e12)))),
        }
    )
    assert confirm_at_seconds(snapshot, late) == START + 5.0

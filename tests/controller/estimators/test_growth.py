"""Growth: what one interval of a job's life is worth, and when it is unknown."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.worlds import START, a_job, a_node, a_snapshot

from slopewise.estimators.growth import Measuring, age_seconds, first_evaluation_at_seconds, measure
from slopewise.model import Growth, Job, JobMemory, MemoryState, PaceAnchor, Timing, Usage

ITVAL = 20.0
HOW = Measuring(ITVAL)


def follow(*jobs: Job, how: Measuring = HOW, cores: float = 2.0, memory: MemoryState | None = None) -> JobMemory:
    """The memory of job `j` after passes that saw it like this, one after another."""
    memory = memory or MemoryState()
    for job in jobs:
        at = job.usage.sampled_at_seconds if job.usage else START
        memory = measure(a_snapshot([job], [a_node(cpu_cores=cores)], at=at), memory, how)
    return memory.jobs["j"]


def seen(after: float, level: float, cpu_seconds: float | None, **more: object) -> Job:
    return a_job("j", level=level, at=START + after, cpu_seconds=cpu_seconds, **more)  # type: ignore[arg-type]


def growth_of(memory: JobMemory) -> Growth:
    assert memory.growth is not None
    return memory.growth


def test_the_worked_example_of_the_module() -> None:
    memory = follow(seen(0, 2.3, 0), seen(20, 0.8, 20), seen(40, 0.5, 40))
    assert growth_of(memory).progress_per_second == pytest.approx(0.3 / 1.8 / 20)
    assert growth_of(memory).cpu_efficiency == pytest.approx(0.3 / 1.8 / 20 / 0.5)
    assert growth_of(memory).cpu_cores == pytest.approx(1.0)


def test_the_first_interval_counts_from_the_jobs_arrival() -> None:
    slow = Measuring(60.0)
    memory = follow(seen(15, 2.0, 15), seen(57, 1.0, 57), how=slow)
    assert growth_of(memory).interval_seconds == 42.0
    assert growth_of(follow(seen(99, 0.5, 99), how=slow, memory=MemoryState({"j": memory}))).at_seconds == START + 57


@pytest.mark.parametrize(("first", "now", "interval"), [(15, 40, 60.0), (20, 29, 30.0), (5, 18, 20.0), (0, 12, 20.0)])
def test_no_interval_is_too_short_and_the_first_has_two_scrapes(first: float, now: float, interval: float) -> None:
    assert follow(seen(first, 2.0, first), seen(now, 1.0, now), how=Measuring(interval)).growth is None


@pytest.mark.parametrize(("interval", "scrape"), [(20.0, 5.0), (60.0, 15.0)])
def test_four_scrapes_an_interval_suffice_for_a_growth_after_one(interval: float, scrape: float) -> None:
    """Levels of two scrapes at half of the interval and of four at its end: their middles are one scrape apart."""
    fell_per_second, how, memory = 0.01, Measuring(interval, normaliser="first"), MemoryState()
    for after, scrapes in ((2 * scrape, 2), (interval, 4)):
        middle = after - (scrapes - 1) / 2 * scrape
        job = seen(after, 1.0 - fell_per_second * middle, after, samples=scrapes)
        snapshot = replace(a_snapshot([job], at=START + after), scrape_interval_seconds=scrape)
        memory = measure(snapshot, memory, how)
    growth = growth_of(memory.jobs["j"])
    first_level = 1.0 - fell_per_second * 1.5 * scrape
    assert growth.at_seconds == START + interval
    assert growth.change_per_second == pytest.approx(fell_per_second / first_level)
    assert memory.jobs["j"].levels.anchor is not None
    assert memory.jobs["j"].levels.anchor.level_at_seconds is None, "the next interval begins with a full window"


@pytest.mark.parametrize(
    ("level", "age", "expected"),
    [
        (None, 0.0, START + 10.0),
        (None, 3.0, START + 7.0),
        (None, 10.0, START + 5.0),
        (None, 20.0, START + 20.0),
        (1.0, 10.0, None),
        (None, 100.0, None),
    ],
)
def test_a_newcomer_without_a_level_is_due_for_a_while(level: float | None, age: float, expected: float | None) -> None:
    snapshot = a_snapshot([a_job("j", level=level, started_at=START - age)])
    memory = measure(snapshot, MemoryState(), HOW)
    assert first_evaluation_at_seconds(snapshot, memory, HOW) == expected


def test_a_rising_loss_is_no_progress_unless_the_papers_absolute_difference_is_asked_for() -> None:
    rising = (seen(0, 1.0, 0), seen(20, 0.5, 20), seen(40, 0.75, 40))
    assert growth_of(follow(*rising)).progress_per_second == 0.0
    assert growth_of(follow(*rising)).change_per_second == pytest.approx(-0.5 / 20)
    absolute = Measuring(ITVAL, progress="absolute")
    assert growth_of(follow(*rising, how=absolute)).progress_per_second == pytest.approx(0.5 / 20)


@pytest.mark.parametrize(
    ("first", "now", "objective", "normaliser", "expected"),
    [
        (2.0, 1.5, "min", "range", 0.5),
        (2.0, 1.5, "min", "first", 0.25),
        (2.0, 1.5, "min", "none", 0.5),
        (2.3, 0.3, "min", "range", 1.0),
        (0.1, 0.99, "max", "range", 1.0),  # an accuracy is worth the same as a loss
        (2.3, 2.2, "min", "range", 0.1 / 1.15),  # its first change is not the whole range
        (0.1, 0.15, "max", "range", 0.05 / 0.45),  # an accuracy can rise by 0.9
        (50.0, 55.0, "max", "range", 5 / 25),  # one in per cent may have no end that is known
        (1.0, 2.0, "max", "range", 1.0),
        (1.0, 1.0001, "max", "range", 0.01),  # it begins at 1: a hundredth of the first value at least
    ],
)
def test_growth_is_a_part_of_the_range_which_is_at_least_half_of_what_the_evaluation_could_improve_by(
    first: float, now: float, objective: str, normaliser: str, expected: float
) -> None:
    how = Measuring(ITVAL, normaliser=normaliser)  # type: ignore[arg-type]
    memory = follow(seen(0, first, 0, objective=objective), seen(20, now, 20, objective=objective), how=how)
    assert growth_of(memory).progress_per_second * 20 == pytest.approx(expected)


@pytest.mark.parametrize(("before", "after"), [(0.0, 0.01), (None, None), (50.0, 10.0)])
def test_without_cpu_or_after_a_reset_efficiency_is_unknown(before: float | None, after: float | None) -> None:
    later = seen(20, 1.0, after).altered(usage=Usage(START + 20, cpu_seconds_total=after))
    assert growth_of(follow(seen(0, 2.0, before), later)).cpu_efficiency is None


def test_a_restart_within_the_window_drops_the_interval_and_keeps_first_and_best() -> None:
    memory = follow(seen(0, 2.0, 0), seen(20, 1.0, 20), seen(40, 1.9, 30, restarted=True))
    assert (memory.growth, memory.levels.anchor) == (None, None)
    assert (memory.levels.first, memory.levels.best) == (2.0, 1.0)


def test_a_restart_between_two_looks_is_no_divergence_and_no_growth_is_measured_across_it() -> None:
    before = (seen(-20, 2.0, 0, life=1.0), seen(0, 0.8, 10, life=1.0), seen(20, 0.7, 20, life=1.0))
    memory = follow(*before, seen(40, 1.7, 30, life=2.0))
    assert memory.growth is None
    assert memory.levels.anchor is not None
    assert (memory.levels.anchor.level, memory.levels.anchor.process_started_at_seconds) == (1.7, 2.0)
    after = follow(*before, seen(40, 1.7, 30, life=2.0), seen(60, 1.1, 50, life=2.0))
    assert growth_of(after).progress_per_second == pytest.approx(0.6 / 1.2 / 20)


def test_another_series_starts_the_measurement_again() -> None:
    ema = 'training_loss{stage="train_ema"}'
    memory = follow(seen(0, 2.0, 0, series=ema), seen(20, 1.0, 20, series=ema), seen(40, 3.0, 40))
    assert memory.levels.series == 'training_loss{stage="eval"}'
    assert (memory.levels.first, memory.levels.best, memory.growth) == (3.0, 3.0, None)


@pytest.mark.parametrize("broken", [{"finite": False}, {"age": 21.0}, {"samples": 1}])
def test_an_evaluation_that_cannot_be_trusted_changes_nothing(broken: dict[str, Any]) -> None:
    before = follow(seen(0, 2.0, 0), seen(20, 1.0, 20))
    after = follow(seen(0, 2.0, 0), seen(20, 1.0, 20), seen(40, 0.1, 40, **broken))
    finite = broken.get("finite", True)
    silent_since = START + 40 if finite else None
    assert after == before.altered(levels=before.levels.altered(silent_since_seconds=silent_since, finite=finite))


def test_it_is_reported_since_when_a_job_that_reported_has_been_silent() -> None:
    processes = (
        seen(0, 2.0, 0),
        seen(20, 1.0, 20),
        a_job("j", level=None, at=START + 40),
        a_job("j", level=None, at=START + 60),
    )
    assert follow(*processes[:2]).levels.silent_since_seconds is None
    assert follow(*processes).levels.silent_since_seconds == START + 40
    assert follow(*processes, seen(80, 0.9, 80)).levels.silent_since_seconds is None


def test_a_job_that_never_had_a_loss_is_silent_once_its_counters_are_gone() -> None:
    counted = JobMemory(timing=Timing(anchor=PaceAnchor(START, 10.0, None, 1.0)))
    gone = a_job("j", level=None, at=START + 20)
    memory = MemoryState({"j": counted})
    assert follow(gone, memory=memory).levels.silent_since_seconds == START + 20
    assert follow(gone.altered(steps_total=20.0), memory=memory).levels.silent_since_seconds is None
    assert follow(gone).levels.silent_since_seconds is None, "it never reported anything"


def test_all_four_resources_are_measured_where_they_are_observable() -> None:
    def with_usage(after: float, level: float, total: float) -> Job:
        usage = Usage(START + after, total, 4 * 2**30, total * 2**20, total * 2**21)
        return seen(after, level, total).altered(usage=usage)

    efficiency = growth_of(follow(with_usage(0, 1.0, 0), with_usage(20, 0.5, 20))).efficiency
    per_second = 1 / 20
    assert efficiency == {
        "cpu": pytest.approx(per_second / 0.5),
        "memory": pytest.approx(per_second / 0.5),
        "block_io": pytest.approx(per_second / 1.0),
        "network_io": pytest.approx(per_second / 2.0),
    }


def test_a_sample_from_the_future_has_age_zero() -> None:
    job = a_job("j", age=-30)
    assert job.evaluation is not None
    assert age_seconds(job.evaluation, a_snapshot([job])) == 0.0


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=8), st.sampled_from(["range", "first", "none"]))
def test_growth_is_finite_and_not_negative_whatever_the_loss_does(levels: list[float], normaliser: str) -> None:
    how = Measuring(ITVAL, normaliser=normaliser)  # type: ignore[arg-type]
    memory = follow(*(seen(20 * i, level, 10 * i) for i, level in enumerate(levels)), how=how)
    growth = growth_of(memory)
    assert growth.progress_per_second >= 0
    assert math.isfinite(growth.progress_per_second)

"""The working set over time: peaks between checkpoints, and averages over intervals."""

from __future__ import annotations

import pytest
from support.worlds import START, a_job, a_node, a_snapshot

from slopewise.estimators.growth import Measuring, measure
from slopewise.estimators.memory_use import follow
from slopewise.model import Checkpoint, Job, JobMemory, MemoryState, Usage

MIB = 2.0**20


def job_at(seconds: float, mib: float | None, saved_at: float | None = None, level: float = 1.0) -> Job:
    """A job whose working set was sampled then, in MiB."""
    made = a_job("j", level=level, at=START + seconds)
    usage = Usage(START + seconds, seconds, None if mib is None else mib * MIB)
    return made.altered(usage=usage, checkpoint=None if saved_at is None else Checkpoint(START + saved_at))


def peaks(*jobs: Job) -> tuple[float, float]:
    """Peak and recalled peak after these passes, in MiB."""
    known = JobMemory()
    for job in jobs:
        known = follow(job, known)
    assert known.memory_use is not None
    return known.memory_use.peak_bytes / MIB, known.memory_use.recalled_peak_bytes / MIB


def test_the_peak_is_the_largest_sample_since_the_last_checkpoint() -> None:
    assert peaks(job_at(0, 100), job_at(20, 300), job_at(40, 200)) == (300, 300)


def test_the_peak_before_a_checkpoint_is_kept_for_one_whole_interval() -> None:
    samples = [job_at(0, 100, 0), job_at(20, 300, 0), job_at(40, 150, 30)]
    assert peaks(*samples) == (150, 300)
    assert peaks(*samples, job_at(60, 160, 30)) == (160, 300)
    assert peaks(*samples, job_at(60, 160, 30), job_at(80, 120, 70)) == (120, 160)


def test_a_checkpoint_that_is_not_reported_for_a_while_is_no_new_one() -> None:
    assert peaks(job_at(0, 300, 0), job_at(20, 100), job_at(40, 120, 0)) == (300, 300)


def test_the_same_sample_counts_once_and_a_missing_one_changes_nothing() -> None:
    first = follow(job_at(0, 100), JobMemory())
    assert follow(job_at(0, 100), first) is first
    assert follow(job_at(20, None), first) is first
    known = follow(job_at(20, 100), first)
    assert known.memory_use is not None
    assert known.memory_use.samples == 2


@pytest.mark.parametrize(
    ("samples", "average"),
    [
        ([(0, 1024), (20, 3072)], 2048),
        ([(0, 1024), (5, 1024), (20, 3072)], (5 * 1024 + 15 * 2048) / 20),
        ([(0, 2048), (20, 2048)], 2048),
        ([(0, 1000), (20, 3000), (40, 5000)], 4000),
    ],
    ids=["rises evenly", "rises late", "is flat", "of the second interval alone"],
)
def test_growth_per_memory_divides_by_the_intervals_average(samples: list[tuple[float, float]], average: float) -> None:
    memory = MemoryState()
    for at, mib in samples:
        made = job_at(at, mib, level=2.0 ** -(at // 20))
        memory = measure(a_snapshot([made], [a_node()], at=START + at), memory, Measuring(20.0))
    growth = memory.jobs["j"].growth
    assert growth is not None
    fraction = average * MIB / a_node().memory_bytes
    assert growth.efficiency["memory"] == pytest.approx(growth.progress_per_second / fraction)

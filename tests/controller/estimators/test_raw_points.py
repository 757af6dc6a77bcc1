"""Raw points of a job: which samples are kept, and with how much work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.searching import examples
from support.worlds import START, a_job, a_snapshot, known

from slopewise.estimators import measurements, raw_points
from slopewise.estimators.growth import Measuring
from slopewise.model import MEMORY_JSON, JobMemory, MemoryState, Points, RawPoint


def after(
    scrapes: Sequence[tuple[float, float, float | None]],
    *,
    cpu: Sequence[float] = (),
    at_once: int = 4,
    process: Sequence[float] = (),
    steps_total: Sequence[float] = (),
) -> Points:
    """What is kept after passes over so many scrapes (seconds, level, steps) each.

    `cpu`, `steps_total`: the counts at each pass.
    """
    memory = MemoryState({"job": known()})
    for number in range(0, len(scrapes), at_once):
        some = scrapes[number : number + at_once]
        at, turn = START + some[-1][0], number // at_once
        job = a_job("job", at=at, cpu_seconds=cpu[turn] if cpu else some[-1][0], life=process[turn] if process else 1.0)
        points = tuple(RawPoint(START + seconds, level, steps) for seconds, level, steps in some)
        steps = steps_total[turn] if steps_total else some[-1][2]
        memory = raw_points.measure(a_snapshot([replace(job, points=points, steps_total=steps)], at=at), memory)
    kept = memory.jobs["job"].points
    assert kept is not None
    return kept


def falling(count: int, *, steps: bool = True, noise: float = 0.0) -> list[tuple[float, float, float | None]]:
    luck = np.random.default_rng(1)
    return [
        (5.0 * n, float(np.exp(-n / 20) + noise * luck.normal()), 10.0 * n if steps else None)
        for n in range(1, count + 1)
    ]


class TestWork:
    def test_is_the_steps_of_the_same_scrape(self) -> None:
        pairs = raw_points.unpacked(after(falling(8)))
        assert pairs[:, 0] == pytest.approx([10.0 * n for n in range(1, 9)])
        assert pairs[:, 1] == pytest.approx([np.exp(-n / 20) for n in range(1, 9)], rel=1e-6)

    def test_is_cpu_interpolated_between_two_passes_where_no_steps_are_counted(self) -> None:
        kept = after(falling(8, steps=False), cpu=[10.0, 50.0])
        assert kept.unit == "cpu"
        assert raw_points.unpacked(kept)[4:, 0] == pytest.approx([20.0, 30.0, 40.0, 50.0])

    def test_goes_on_where_a_new_process_counts_cpu_from_0(self) -> None:
        kept = after(falling(8, steps=False), cpu=[40.0, 10.0], process=[1.0, 2.0])
        assert kept.cpu_seconds == pytest.approx(50.0)
        assert raw_points.unpacked(kept)[-1, 0] == pytest.approx(50.0)

    def test_of_a_step_leaves_out_what_was_used_before_the_first_one_was_seen(self) -> None:
        """Imports took 30 of the first 50 core-seconds; 40 steps at half a core-second each follow."""
        assert after(falling(4), cpu=[50.0]).cpu_per_step == pytest.approx(50.0 / 40.0)
        assert after(falling(8), cpu=[50.0, 70.0]).cpu_per_step == pytest.approx(20.0 / 40.0)

    def test_of_a_step_is_counted_from_the_scrape_that_saw_the_first_one(self) -> None:
        """The scrapes are 10 s and 0 s older than the count of CPU, of which each second uses one."""
        memory = MemoryState({"job": known()})
        for at, scraped, steps in ((20.0, 10.0, 5.0), (40.0, 40.0, 25.0)):
            job = a_job("job", at=START + at, cpu_seconds=at, started_at=START, life=1.0)
            points = (RawPoint(START + scraped, 1.0 / at, steps),)
            snapshot = a_snapshot([replace(job, points=points, steps_total=steps)], at=START + at)
            memory = raw_points.measure(snapshot, memory)
        kept = memory.jobs["job"].points
        assert kept is not None
        assert kept.cpu_per_step == pytest.approx((40.0 - 10.0) / (25.0 - 5.0))

    def test_of_a_step_begins_again_where_a_training_begins_again(self) -> None:
        """From step 0 of the first life it would count the 200 core-seconds that were lost."""
        first = [(5.0 * n, 1.0 / (n + 1), 10.0 * n) for n in range(21)]
        second = [(100.0 + 5.0 * n, 1.0 / (n + 1), 10.0 * n) for n in range(1, 12)]
        kept = after([*first, *second], cpu=[50.0 * n for n in range(1, 9)])
        assert kept.cpu_per_step == pytest.approx(50.0 / 40.0)

    def test_of_a_step_waits_for_three_steps_before_it_leaves_the_start_out(self) -> None:
        slow = [(5.0 * n, 1.0 / n, float((n + 3) // 4)) for n in range(1, 17)]
        assert [after(slow[:count], cpu=[60.0, 70.0, 80.0, 90.0]).cpu_per_step for count in (4, 8, 12, 16)] == (
            pytest.approx([60.0, 70.0 / 2, 80.0 / 3, 30.0 / 3])
        )


class TestUnit:
    def test_is_cpu_where_the_steps_come_from_another_target_than_the_loss(self) -> None:
        kept = after(falling(8, steps=False), cpu=[10.0, 50.0], steps_total=[40.0, 80.0])
        assert (kept.unit, kept.count) == ("cpu", 8)
        assert kept.cpu_per_step == pytest.approx((50.0 - 10.0) / (80.0 - 40.0))

    def test_stays_through_a_scrape_without_steps_and_no_point_is_lost(self) -> None:
        scrapes = falling(8)
        scrapes[5] = (*scrapes[5][:2], None)
        kept = after(scrapes, at_once=1)
        assert (kept.unit, kept.count) == ("steps", 7)

    def test_is_cpu_once_steps_are_gone_for_good(self) -> None:
        gone = raw_points.STEPS_GONE_AFTER
        scrapes = falling(8) + [(5.0 * n, 1 / n, None) for n in range(9, 9 + gone)]
        before, later = after(scrapes[:-1], at_once=1), after(scrapes, at_once=1)
        assert (before.unit, before.count, before.without_steps) == ("steps", 8, gone - 1)
        assert (later.unit, later.count, later.without_steps) == ("cpu", 1, 0)


class TestEvaluations:
    """Of jobs whose losses are read nowhere but in their status, as of a TrainJob."""

    def passes(self, *seen: tuple[float, float, float | None]) -> Points | None:
        """Passes each 5 s over evaluations (seconds, level, steps)."""
        memory = MemoryState({"job": known()})
        for number, (seconds, level, steps) in enumerate(seen):
            at = START + 5.0 * number
            job = a_job("job", at=at, age=at - START - seconds, level=level, cpu_seconds=5.0 * number)
            snapshot = a_snapshot([replace(job, steps_total=steps)], at=at)
            memory = raw_points.measure(snapshot, memory, from_evaluations=True)
        return memory.jobs["job"].points

    def test_are_points_once_each(self) -> None:
        kept = self.passes((0.0, 1.0, 10.0), (0.0, 1.0, 10.0), (9.0, 0.5, 20.0), (9.0, 0.5, 20.0))
        assert kept is not None
        assert raw_points.unpacked(kept).tolist() == [[10.0, 1.0], [20.0, 0.5]]
        assert kept.unit == "steps"
        assert kept.cpu_per_step == pytest.approx(9.0 / 10.0)

    @pytest.mark.parametrize("reads_points", [True, False])
    def test_are_points_only_where_the_policy_reads_points(self, reads_points: bool) -> None:
        how = Measuring(20.0, reads_points=reads_points)
        measured = measurements.measure(a_snapshot([a_job("job")]), MemoryState(), how)
        assert (measured.jobs["job"].points is not None) is reads_points

    def test_that_are_not_finite_are_none(self) -> None:
        memory = MemoryState({"job": known()})
        diverged = a_snapshot([a_job("job", level=float("nan"), finite=False)])
        assert raw_points.measure(diverged, memory, from_evaluations=True) is memory


class TestWhatIsKept:
    def test_at_most_200_and_the_newest_among_them(self) -> None:
        kept = after([(5.0 * n, 1 / n, 1000.0 * 1.02**n) for n in range(1, 900)])
        assert kept.count <= raw_points.KEPT
        assert raw_points.unpacked(kept)[-1, 0] == pytest.approx(1000.0 * 1.02**899, rel=1e-6)

    def test_a_starved_job_does_not_fill_its_memory_with_one_moment(self) -> None:
        starved = [(5.0 * n, 0.5, 10_000.0 + n / 100) for n in range(1, 400)]
        assert after(starved).count <= 2

    def test_spikes_are_left_out_and_counted(self) -> None:
        scrapes = falling(40, noise=0.005)
        scrapes[20] = (scrapes[20][0], 1e12, scrapes[20][2])
        kept = after([*scrapes[:30], (152.0, float("nan"), 305.0), *scrapes[26:]], at_once=2)  # and some are read twice
        assert (kept.spikes, kept.count) == (1, 39)
        assert raw_points.unpacked(kept)[:, 1].max() < 1.1

    def test_a_level_that_stays_is_no_spike(self) -> None:
        scrapes = [(5.0 * n, 1.0 - 0.001 * n if n < 20 else 0.3, 10.0 * n) for n in range(1, 40)]
        kept = after(scrapes)
        assert kept.spikes == 0
        assert kept.dropped
        assert raw_points.unpacked(kept)[-1, 1] == pytest.approx(0.3)

    def test_what_is_repeated_from_a_checkpoint_replaces_what_was_lost(self) -> None:
        scrapes = [(5.0 * n, 1.0, 100.0 * n) for n in range(1, 9)]
        scrapes += [(45.0 + n, 0.9, 300.0 + 100 * n) for n in range(3)]
        works = raw_points.unpacked(after(scrapes, at_once=1))[:, 0]
        assert list(works) == sorted(works)
        assert works.max() == 500.0


class TestStored:
    def test_two_hundred_points_are_the_same_after_a_restart_and_below_4_kb(self) -> None:
        memory = JobMemory(points=after([(5.0 * n, 1 / n, 1000.0 * 1.02**n) for n in range(1, 200)]))
        text = MEMORY_JSON.encode(memory)
        assert memory.points is not None
        assert memory.points.count > 150
        assert len(text) < 4_000
        assert msgspec.json.decode(text, type=JobMemory) == memory

    @examples(30)
    @given(
        levels=st.lists(st.floats(allow_nan=True, allow_infinity=True), min_size=1, max_size=60),
        works=st.lists(st.floats(min_value=0, max_value=1e9), min_size=60, max_size=60),
    )
    def test_any_losses_are_bounded_ordered_and_can_be_stored(self, levels: list[float], works: list[float]) -> None:
        kept = after([(5.0 * n, level, works[n]) for n, level in enumerate(levels, start=0)], at_once=3)
        pairs = raw_points.unpacked(kept)
        assert kept.count <= raw_points.KEPT
        assert np.all(np.diff(pairs[:, 0]) >= 0)
        again = msgspec.json.decode(MEMORY_JSON.encode(JobMemory(points=kept)), type=JobMemory)
        assert again.points == kept

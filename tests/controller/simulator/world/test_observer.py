"""What a controller sees of the simulated world: scrapes, with their delay, noise and gaps."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

import pytest
from support.instances import Diverging, Straight, a_served_model, a_sim_job, a_sim_node, an_instance, pass_to

from slopewise.model import Job
from slopewise.simulator.world.model import Physics, SimJob
from slopewise.simulator.world.observer import EPOCH_SECONDS, SERIES, SimObserver
from slopewise.simulator.world.world import World


def look_at(
    jobs: Sequence[SimJob], times: Sequence[float], seed: int = 1, *, points: bool = False, **physics: float
) -> list[Job]:
    """The first job, which runs from the start on a node of its own size, as it is seen at these times."""
    settings = Physics(**{"contention_ratio": 0.0, **physics})  # type: ignore[arg-type]
    instance = an_instance(jobs, [a_sim_node(cpu=float(len(jobs)))], physics=settings, seed=seed, duration=1e6)
    world = World(instance, "requests")
    observer, seen = SimObserver(world, oracle=False, points=points), []
    for seconds in times:
        pass_to(world, seconds)
        seen.append(observer.observe().snapshot.jobs[0])
    return seen


class TestEvaluation:
    @pytest.mark.parametrize("delay", [0.0, 10.0])
    def test_is_the_median_of_the_last_four_scrapes_that_can_be_seen_yet(self, delay: float) -> None:
        (job,) = look_at([a_sim_job("a", 100, curve=Straight())], [60.0], scrape_delay_seconds=delay)
        assert job.evaluation is not None
        newest = job.evaluation.sampled_at_seconds - EPOCH_SECONDS
        assert 55.0 < newest + delay <= 60.0
        assert job.evaluation.sample_count == 4
        assert job.evaluation.level == pytest.approx(1.0 - (newest - 7.5) / 100, abs=1e-6)
        assert (job.evaluation.series, job.evaluation.finite, job.points) == (SERIES, True, ())

    def test_falls_to_the_best_loss_of_the_job_and_its_promises_are_on_the_same_scale(self) -> None:
        (job,) = look_at([a_sim_job("a", 100, curve=Straight(), losses=(1.0, 0.6), target_level=0.5)], [60.0])
        assert job.evaluation is not None
        newest = job.evaluation.sampled_at_seconds - EPOCH_SECONDS
        assert job.evaluation.level == pytest.approx(1.0 - 0.4 * (newest - 7.5) / 100, abs=1e-6)
        assert job.objectives.target_level == pytest.approx(0.8)

    def test_is_missing_until_the_first_scrape(self) -> None:
        before, after = look_at([a_sim_job("a", 100)], [0.0, 5.0])
        assert (before.evaluation, before.usage, before.steps_total) == (None, None, None)
        assert after.evaluation is not None
        assert after.evaluation.sample_count == 1

    def test_is_not_finite_once_the_job_has_diverged_and_shows_the_lowest_finite_scrape_of_the_window(self) -> None:
        seen = look_at([a_sim_job("a", 100, curve=Diverging(0.5))], [49.0, 60.0, 75.0])
        evaluations = [job.evaluation for job in seen if job.evaluation is not None]
        assert [each.finite for each in evaluations] == [True, False, False]
        assert 0.5 < evaluations[1].level <= 0.55
        assert math.isnan(evaluations[2].level)


class TestNoise:
    def levels(self, times: Sequence[float], seed: int = 1, noise: float = 0.02, others: int = 0) -> list[float]:
        jobs = [a_sim_job("a", 1e5, noise=noise), *(a_sim_job(f"b{i}", 1e5, noise=0.5) for i in range(others))]
        return [job.evaluation.level for job in look_at(jobs, times, seed) if job.evaluation]

    def test_is_the_same_whenever_and_beside_whomever_it_is_asked_for(self) -> None:
        often = self.levels([float(second) for second in range(400, 500)])
        assert self.levels([499.0]) == often[-1:]
        assert self.levels([499.0], others=3) == often[-1:]

    def test_differs_between_seeds(self) -> None:
        assert self.levels([100.0], seed=1) != self.levels([100.0], seed=2)

    def test_has_the_standard_deviation_that_was_asked_for(self) -> None:
        times = [100.0 + 20.0 * i for i in range(200)]
        exact = self.levels(times, noise=0.0)
        errors = [noisy - level for noisy, level in zip(self.levels(times, noise=0.02), exact, strict=True)]
        assert statistics.stdev(errors) == pytest.approx(0.02 * 0.546, rel=0.15)  # medians of four
        assert statistics.mean(errors) == pytest.approx(0.0, abs=4 * 0.01 / math.sqrt(200))


class TestGaps:
    def test_so_many_scrapes_are_missing_as_was_asked_for(self) -> None:
        jobs = look_at([a_sim_job("a", 1e5)], [100.0 + 20.0 * i for i in range(300)], missing_ratio=0.3)
        counts = [job.evaluation.sample_count if job.evaluation else 0 for job in jobs]
        assert statistics.mean(counts) / 4 == pytest.approx(0.7, abs=0.05)

    def test_without_any_scrape_nothing_is_known_and_the_job_is_still_there(self) -> None:
        (job,) = look_at([a_sim_job("a", 100, steps_planned=10)], [60.0], missing_ratio=1.0)
        assert (job.evaluation, job.usage, job.steps_total) == (None, None, None)
        assert job.steps_planned == 10


class TestCounters:
    def test_are_those_of_the_newest_scrape(self) -> None:
        (job,) = look_at([a_sim_job("a", 100, steps_planned=1000)], [60.0])
        assert job.usage is not None
        scraped = job.usage.sampled_at_seconds - EPOCH_SECONDS
        assert job.usage.cpu_seconds_total == pytest.approx(scraped, abs=1e-6)
        assert job.steps_total == math.floor(10 * scraped)

    def test_of_a_served_model_show_its_response_time(self) -> None:
        first, last = look_at([a_served_model("served", 0.25)], [60.0, 80.0])
        assert first.evaluation is None
        assert first.responses is not None
        assert last.responses is not None
        answered = last.responses.count_total - first.responses.count_total
        assert answered == pytest.approx(80.0)
        assert (last.responses.seconds_total - first.responses.seconds_total) / answered == pytest.approx(0.25)


class TestWhatItIsTold:
    def test_promises_are_on_the_clock_of_the_snapshot(self) -> None:
        asked = a_sim_job("a", deadline_seconds=300.0, qoe_seconds=0.5, target_level=0.2, weight=3.0, migratable=False)
        (job,) = look_at([asked], [10.0])
        assert job.objectives.deadline_at_seconds == EPOCH_SECONDS + 300.0
        assert (job.objectives.qoe_seconds, job.objectives.target_level, job.objectives.weight) == (0.5, 0.2, 3.0)
        assert not job.migratable


class TestRawPoints:
    def test_are_all_scrapes_since_the_last_observation_each_with_its_steps(self) -> None:
        job = a_sim_job("a", 1000, curve=Straight(), steps_planned=10_000)
        first, second = look_at([job], [60.0, 200.0], points=True)
        assert len(first.points) == 12
        assert len(second.points) == 28
        for point in second.points:
            done = (point.at_seconds - EPOCH_SECONDS) / 1000
            assert point.level == pytest.approx(1.0 - done, abs=1e-6)
            assert point.steps == pytest.approx(10_000 * done, abs=1)

"""Drawing: the same seed gives the same jobs, and what is drawn is what the scenario says."""

from __future__ import annotations

import itertools
import math
import statistics
from typing import Any

import pytest
from support.scenarios import a_scenario

from slopewise.simulator.workload import draw
from slopewise.simulator.world.model import Instance, SimJob

FIRST = [("gru", 49.017245, 115.271219), ("gru", 95.152904, 181.802733), ("gru", 120.117681, 154.596106)]

UNIFORM = {"uniform": [0, 200]}


def generated(count: int, arrive: dict[str, Any] = UNIFORM, seed: int = 1, **more: Any) -> Instance:
    generate = {"count": count, "arriveSeconds": arrive, "models": {"gru": 1, "rnn": 1}, **more.pop("generate", {})}
    return draw(a_scenario(generate=generate, **more), seed)


def arrivals(instance: Instance) -> list[float]:
    return [job.arrive_seconds for job in instance.jobs]


def the_job(**job: Any) -> SimJob:
    return draw(a_scenario(jobs=[{"name": "a", "model": "gru", **job}]), 1).jobs[0]


class TestSeeds:
    def test_the_same_seed_draws_the_same_and_another_seed_something_else(self) -> None:
        assert generated(10) == generated(10)
        assert generated(10).jobs != generated(10, seed=2).jobs

    def test_the_nodes_and_the_name_of_a_scenario_do_not_change_its_jobs_nor_other_models_the_arrivals(self) -> None:
        nodes = [{"name": "w", "count": 3, "cpu": 2}]
        assert generated(10, nodes=nodes, name="other").jobs == generated(10).jobs
        assert arrivals(generated(10, generate={"models": {"vae-pytorch": 1}})) == arrivals(generated(10))

    def test_the_first_draw_of_seed_1_is_what_it_was(self) -> None:
        """numpy may change its distributions between versions, but not the bits that these numbers come from."""
        first = generated(3).jobs
        assert [(job.model, round(job.arrive_seconds, 6), round(job.work_cpu_seconds, 6)) for job in first] == FIRST


class TestGeneratedJobs:
    def test_are_in_order_of_arrival_and_numbered_in_it(self) -> None:
        instance = generated(12)
        assert arrivals(instance) == sorted(arrivals(instance))
        assert [job.name for job in instance.jobs] == [f"job-{number:02}" for number in range(1, 13)]

    def test_arrive_within_a_range(self) -> None:
        assert all(0 <= at <= 200 for at in arrivals(generated(200)))
        assert statistics.mean(arrivals(generated(2000))) == pytest.approx(100, rel=0.05)

    def test_arrive_at_a_mean_rate(self) -> None:
        times = arrivals(generated(2000, {"poisson": 0.05}))
        gaps = [right - left for left, right in itertools.pairwise(times)]
        assert statistics.mean(gaps) == pytest.approx(20, rel=0.1)
        assert statistics.stdev(gaps) == pytest.approx(20, rel=0.1)

    def test_arrive_in_bursts(self) -> None:
        times = arrivals(generated(9, {"bursts": {"count": 3, "everySeconds": 100, "withinSeconds": 5}}))
        assert [int(at // 100) for at in times] == [0, 0, 0, 1, 1, 1, 2, 2, 2]
        assert all(at % 100 <= 5 for at in times)

    def test_are_of_the_models_in_proportion_to_their_weights(self) -> None:
        models = [job.model for job in generated(3000, generate={"models": {"gru": 2, "rnn": 1}}).jobs]
        assert models.count("gru") / 3000 == pytest.approx(2 / 3, rel=0.05)
        assert set(models) == {"gru", "rnn"}

    def test_vary_in_work_as_the_scenario_says(self) -> None:
        works = [job.work_cpu_seconds for job in generated(500, generate={"models": {"gru": 1}}).jobs]
        assert 105 <= min(works) < 110
        assert 190 < max(works) <= 195
        fixed = generated(5, variation=0, generate={"models": {"gru": 1}}).jobs
        assert [job.work_cpu_seconds for job in fixed] == [150] * 5

    def test_of_a_heavy_tail_keep_their_mean(self) -> None:
        more = {"models": {"gru": 1}, "sizes": {"lognormal": 1.2}}
        works = [job.work_cpu_seconds for job in generated(5_000, variation=0, generate=more).jobs]
        assert statistics.mean(works) == pytest.approx(150, rel=0.1)
        assert statistics.median(works) == pytest.approx(150 * math.exp(-0.72), rel=0.1)

    def test_have_a_plan_of_ten_steps_a_core_second_unless_the_scenario_says_else(self) -> None:
        models = {"models": {"gru": 1}}
        assert generated(1, variation=0, generate=models).jobs[0].steps_planned == 1500
        assert generated(1, variation=0, generate=models, stepsPerCpuSecond=2).jobs[0].steps_planned == 300
        scenario = a_scenario(jobs=[{"name": "a", "model": "gru"}], stepsPerCpuSecond=None)
        assert draw(scenario, 1).jobs[0].steps_planned is None


class TestExplicitJobs:
    def test_have_what_they_say_and_the_rest_from_their_model(self) -> None:
        job = the_job(workCpuSeconds=50, arriveSeconds=7, parallelism=2, memoryGiB=2, request="500m", weight=3)
        assert (job.work_cpu_seconds, job.arrive_seconds, job.parallelism_cores) == (50, 7, 2)
        assert (job.memory_bytes, job.allocation.request_millicores, job.weight) == (2 * 2**30, 500, 3)
        assert (job.model, job.noise, job.steps_planned) == ("gru", 0.01, 500)
        asked = the_job(
            arriveSeconds=7, deadlineSeconds=60, targetLoss=0.1, deliverableLoss=0.4, crashesAtDoneRatio=[0.7, 0.2]
        )
        assert asked.deadline_seconds == 67, "from its arrival"
        assert (asked.target_level, asked.deliverable_level, asked.crashes_at_done_ratio) == (0.1, 0.4, (0.2, 0.7))

    def test_may_arrive_at_random_within_a_range(self) -> None:
        scenario = a_scenario(jobs=[{"name": "a", "model": "gru", "arriveSeconds": [10, 20]}])
        times = [draw(scenario, seed).jobs[0].arrive_seconds for seed in range(50)]
        assert 10 <= min(times) < 11.5
        assert 18.5 < max(times) <= 20

    def test_request_no_more_than_the_smallest_node_has(self) -> None:
        jobs = [{"name": "a", "model": "gru"}]
        for cpu, request in ((0.5, 500), (1, 1000), (4, 1000)):
            assert (
                draw(a_scenario(nodes=[{"name": "n", "cpu": cpu}], jobs=jobs), 1).jobs[0].allocation.request_millicores
                == request
            )

    def test_that_are_served_have_endless_work_and_no_curve(self) -> None:
        jobs = [{"name": "a", "requestCpuSeconds": 0.5, "qoeSeconds": 2}]
        job = draw(a_scenario(jobs=jobs, durationSeconds=60), 1).jobs[0]
        assert (job.model, job.work_cpu_seconds, job.curve, job.steps_planned) == ("served", math.inf, None, None)
        assert (job.request_cpu_seconds, job.qoe_seconds) == (0.5, 2)

    def test_stand_among_the_generated_ones_by_arrival_then_by_name(self) -> None:
        jobs = [{"name": "b", "model": "gru", "arriveSeconds": 50}, {"name": "a", "model": "gru", "arriveSeconds": 50}]
        instance = generated(3, {"every": 50}, jobs=jobs)
        assert [job.name for job in instance.jobs] == ["job-1", "a", "b", "job-2", "job-3"]


def test_a_model_of_the_scenario_varies_within_its_own_range_and_goes_before_a_built_in_one() -> None:
    model = {"workCpuSeconds": [100, 110], "curve": {"sigmoid": {"center": 0.5, "k": 9}}, "memoryGiB": 3, "noise": 0.2}
    jobs = generated(50, models={"gru": model}, generate={"models": {"gru": 1}}).jobs
    assert all(100 <= job.work_cpu_seconds <= 110 and job.noise == 0.2 for job in jobs)
    assert {job.memory_bytes for job in jobs} == {3 * 2**30}


def test_nodes_that_are_alike_are_numbered_and_the_physics_is_what_the_scenario_says() -> None:
    nodes = [
        {"name": "w", "count": 2, "cpu": "1500m", "speed": 2, "requestsMax": 3},
        {"name": "x", "cpu": 4, "memoryGiB": 8},
    ]
    instance = generated(1, nodes=nodes, scrapeSeconds=1, missingRatio=0.1, quotaSpeeds=[[0, 0], [1, 1]])
    assert [(node.name, node.cpu_cores, node.speed) for node in instance.nodes] == [
        ("w-1", 1.5, 2),
        ("w-2", 1.5, 2),
        ("x", 4, 1),
    ]
    assert (instance.nodes[0].requests_max_millicores, instance.nodes[2].memory_bytes) == (3000, 8 * 2**30)
    physics = instance.physics
    assert (physics.scrape_seconds, physics.missing_ratio, physics.quota_speeds) == (1, 0.1, ((0, 0), (1, 1)))


@pytest.mark.parametrize("cores", [3.2, 6.0])
def test_objectives_can_be_met_with_exactly_the_cores_that_the_generator_states(cores: float) -> None:
    scenario = a_scenario(generate={"qoe": {"totalCores": cores}}, durationSeconds=600)
    for seed in range(5):
        jobs = draw(scenario, seed).jobs
        needed = [(job.request_cpu_seconds or 0) / (job.qoe_seconds or 1) for job in jobs]
        assert len(jobs) == 10
        assert all(job.arrive_seconds == 0 and 0.2 <= (job.request_cpu_seconds or 0) <= 2 for job in jobs)
        assert sum(needed) == pytest.approx(cores)
        assert max(needed) / min(needed) <= 8  # from 0.1 to 0.8, whatever the scale


@pytest.mark.parametrize("load", [0.7, 1.3])
def test_works_are_exactly_the_load_until_the_last_deadline(load: float) -> None:
    nodes = [{"name": "w", "count": 4, "cpu": 1, "speed": 1.5}]
    scenario = a_scenario(generate={"deadlines": {"load": load}}, nodes=nodes)
    for seed in range(5):
        jobs = draw(scenario, seed).jobs
        deadlines = [job.deadline_seconds or 0 for job in jobs]
        assert len(jobs) == 20
        assert all(0 <= job.arrive_seconds <= 300 for job in jobs)
        assert sum(job.work_cpu_seconds for job in jobs) == pytest.approx(load * 4 * 1.5 * max(deadlines))
        slack = [(by - job.arrive_seconds) / job.work_cpu_seconds for by, job in zip(deadlines, jobs, strict=True)]
        assert max(slack) / min(slack) <= 4 / 1.5  # one scale for all


def test_a_deadline_is_measured_by_how_long_a_job_takes_on_its_own() -> None:
    deadlines = {"models": {"lstm-crf": 1}, "deadlines": {"factor": [2, 2], "load": 0.1}}
    job = generated(1, {"every": 1}, variation=0, generate=deadlines).jobs[0]
    assert job.deadline_seconds == pytest.approx(2 * 180 / 0.19)

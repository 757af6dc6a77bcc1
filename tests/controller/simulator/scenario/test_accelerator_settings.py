"""Accelerators in a scenario: of a model, of one job; what a job with one comes with; and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from support.scenarios import a_scenario

from slopewise.errors import UsageError
from slopewise.model import CpuAllocation
from slopewise.simulator.engine import run, run_unmanaged
from slopewise.simulator.scenario.scenario import Scenario, policy_runs
from slopewise.simulator.workload import draw
from slopewise.simulator.world.accelerators import Accelerator
from slopewise.simulator.world.model import SimJob

NODES = [{"name": "gpu", "cpu": 24, "accelerators": 8}, {"name": "small", "cpu": 2}]
IMAGES = {"stepSeconds": 0.4, "inputCpuSeconds": 2.7}
MODELS = {"images": {"workCpuSeconds": 2700, "curve": {"exponential": {"k": 6}}, "accelerator": IMAGES}}


def with_devices(*jobs: dict[str, object], **spec: Any) -> Scenario:
    own = [{"name": "own", "model": "images", **job} for job in jobs or ({},)]
    return a_scenario(**{"nodes": NODES, "jobs": own, "models": MODELS, "contentionRatio": 0, **spec})


def first(scenario: Scenario) -> SimJob:
    return draw(scenario, 1).jobs[0]


class TestAJob:
    def test_has_its_models_accelerator_and_as_many_steps_as_its_work_is_input(self) -> None:
        job = first(with_devices())
        assert job.accelerator == Accelerator(count=1, step_seconds=0.4, input_cpu_seconds=2.7)
        assert (job.work_cpu_seconds, job.steps_planned) == (2700, 1000)
        assert job.parallelism_cores == pytest.approx(6.75)

    def test_may_have_its_own_and_be_as_long_as_its_steps(self) -> None:
        own = {"count": 2, "stepSeconds": 1, "inputCpuSeconds": 8, "maxLoaderCores": 5}
        job = first(with_devices({"accelerator": own, "steps": 50}))
        assert job.accelerator == Accelerator(count=2, step_seconds=1, input_cpu_seconds=8, max_loader_cores=5)
        assert (job.work_cpu_seconds, job.steps_planned, job.parallelism_cores) == (400, 50, 5)

    def test_comes_with_cpu_in_proportion(self) -> None:
        of_two: dict[str, object] = {"accelerator": {"count": 2, **IMAGES}}
        assert first(with_devices()).allocation == CpuAllocation(None, 3000)
        assert first(with_devices(control="limits")).allocation == CpuAllocation(3000, 3000)
        assert first(with_devices(of_two, control="limits")).allocation == CpuAllocation(6000, 6000)
        assert first(with_devices({"request": 4}, control="limits")).allocation == CpuAllocation(4000, 4000)

    def test_is_never_moved_and_has_no_threads(self) -> None:
        job = first(with_devices({"migratable": True}, threads=4))
        assert (job.migratable, job.threads) == (False, None)

    def test_is_drawn_from_a_model_as_well(self) -> None:
        generate = {"count": 3, "arriveSeconds": {"every": 5}, "models": {"images": 1}, "sizes": {"lognormal": 0.5}}
        jobs = [job for job in draw(with_devices(generate=generate), 1).jobs if job.name != "own"]
        assert [job.accelerator for job in jobs] == [Accelerator(count=1, step_seconds=0.4, input_cpu_seconds=2.7)] * 3
        assert all(job.steps_planned == round(job.work_cpu_seconds / 2.7) for job in jobs)


class TestRuns:
    def test_the_baseline_leaves_a_job_the_cpu_that_it_came_with(self) -> None:
        scenario = with_devices(control="limits", accelerators="Share")
        (fair,) = policy_runs(scenario)
        assert fair.accelerators == "Ignore"
        outcome = run(draw(scenario, 1), fair)
        (job,) = outcome.jobs
        assert job.jct_seconds == pytest.approx(900)
        assert run_unmanaged(draw(scenario, 1), 5).jobs[0].jct_seconds == pytest.approx(900)
        assert job.served_cpu_seconds == pytest.approx(2700)
        assert job.device_waited_seconds / job.device_seconds == pytest.approx(5 / 9)

    def test_without_limits_a_job_takes_what_is_idle(self) -> None:
        scenario = with_devices()
        assert run(draw(scenario, 1), policy_runs(scenario)[0]).jobs[0].jct_seconds == pytest.approx(400)

    def test_other_policies_have_the_scenarios_consent_or_their_own(self) -> None:
        entries = ["marginal", {"name": "fair", "label": "raised", "accelerators": "Raise"}]
        runs = policy_runs(with_devices(accelerators="Share", policies=entries))
        assert {each.label: each.accelerators for each in runs} == {
            "fair": "Ignore", "marginal": "Share", "raised": "Raise",
        }  # fmt: skip


@pytest.mark.parametrize(
    ("job", "spec", "message"),
    [
        ({"accelerator": {**IMAGES, "count": 9}}, {}, "wants 9 accelerators and the largest node has 8"),
        ({}, {"nodes": [{"name": "n", "cpu": 2}]}, "wants 1 accelerators and the largest node has 0"),
        ({"accelerator": {**IMAGES, "gpus": 1}}, {}, "gpus"),
        ({"accelerator": {**IMAGES, "stepSpeeds": [[3, 1], [1, 2]]}}, {}, "cores must increase"),
        ({"accelerator": {**IMAGES, "stepSpeeds": [[1, 2], [3, 1]]}}, {}, "speeds must not fall"),
        (
            {"model": "served", "requestCpuSeconds": 1, "accelerator": IMAGES},
            {"durationSeconds": 60},
            "accelerators are of trainings",
        ),
        (
            {},
            {"models": {**MODELS, "chat": {"requestCpuSeconds": 1, "accelerator": IMAGES}}},
            "remove it from a served model",
        ),
        ({}, {"accelerators": "Steal"}, "accelerators"),
    ],
)
def test_refuses(job: dict[str, object], spec: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        with_devices(job, **spec)

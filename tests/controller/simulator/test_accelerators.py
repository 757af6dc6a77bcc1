"""Runs of jobs with accelerators: what holds in each, and what a policy with their owners' consent brings."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.instances import a_policy_run, a_sim_job, a_sim_node, an_instance
from support.searching import examples

from slopewise.model import AcceleratorControl, CpuAllocation
from slopewise.simulator.engine import run
from slopewise.simulator.scenario.scenario import load_scenario, policy_runs
from slopewise.simulator.workload import draw
from slopewise.simulator.world.accelerators import Accelerator
from slopewise.simulator.world.model import Instance, JobOutcome, RunOutcome, SimJob

ROUNDING = 1e-6
STEP_CPU_SECONDS = 2.0
OWN_CORES = 3.0

DEVICES = st.builds(
    Accelerator,
    count=st.integers(1, 2),
    stepSeconds=st.sampled_from([0.2, 0.4, 2.0]),
    inputCpuSeconds=st.just(STEP_CPU_SECONDS),
    maxLoaderCores=st.sampled_from([None, 2.5]),
    stepSpeeds=st.sampled_from([None, ((1.0, 0.4), (3.0, 1.0), (6.0, 1.75), (12.0, 2.9))]),
)


def a_gpu_job(name: str, device: Accelerator, steps: int = 500, arrive: float = 0.0) -> SimJob:
    return a_sim_job(
        name,
        STEP_CPU_SECONDS * steps,
        arrive,
        accelerator=device,
        parallelism_cores=device.most_cores(),
        allocation=CpuAllocation(round(1000 * OWN_CORES), round(1000 * OWN_CORES)),
        steps_planned=steps,
        migratable=False,
    )


@st.composite
def instances(draw: st.DrawFn) -> Instance:
    jobs = [
        a_gpu_job(f"j{number}", draw(DEVICES), draw(st.integers(50, 1500)), draw(st.sampled_from([0.0, 100.0])))
        for number in range(draw(st.integers(1, 6)))
    ]
    nodes = [a_sim_node(f"n{number}", cpu=12.0, accelerators=2) for number in range(draw(st.integers(1, 2)))]
    return an_instance(jobs, nodes, seed=draw(st.integers(0, 1000)))


def on_node_seconds(job: JobOutcome) -> float:
    return math.fsum(stay.to_seconds - stay.from_seconds for stay in job.stays)


def own_ratio(job: JobOutcome, drawn: SimJob) -> float:
    """Its time on a node over that with the CPU that it came with."""
    assert drawn.accelerator is not None
    assert drawn.steps_planned is not None
    own_cores = drawn.allocation.request_millicores / 1000
    own_seconds = drawn.steps_planned / drawn.accelerator.steps_per_second(
        min(own_cores, drawn.accelerator.most_cores())
    )
    return on_node_seconds(job) / own_seconds


def check_devices(instance: Instance, outcome: RunOutcome) -> None:
    """No node has more devices in use than there are: checked when somebody comes."""
    wanted = {job.name: job.accelerator.count for job in instance.jobs if job.accelerator is not None}
    stays = [(wanted[job.name], stay) for job in outcome.jobs for stay in job.stays]
    for _, coming in stays:
        here = [(count, stay) for count, stay in stays if stay.node == coming.node]
        assert sum(n for n, stay in here if stay.from_seconds <= coming.from_seconds < stay.to_seconds) <= 2


@pytest.mark.parametrize("accelerators", ["Ignore", "Raise", "Share"])
@examples(8)
@given(instance=instances())
def test_no_step_beats_its_device_or_is_slower(accelerators: AcceleratorControl, instance: Instance) -> None:
    outcome = run(instance, a_policy_run("fair", control="limits", accelerators=accelerators))
    check_devices(instance, outcome)
    for drawn, job in zip(instance.jobs, outcome.jobs, strict=True):
        assert drawn.accelerator is not None
        assert drawn.steps_planned is not None
        computed = drawn.accelerator.count * drawn.accelerator.step_seconds * drawn.steps_planned
        assert job.device_seconds - job.device_waited_seconds == pytest.approx(computed, rel=ROUNDING)
        assert job.device_seconds == pytest.approx(drawn.accelerator.count * on_node_seconds(job), rel=ROUNDING)
        assert own_ratio(job, drawn) <= 1.02
        if accelerators == "Ignore":
            assert own_ratio(job, drawn) == pytest.approx(1.0)


@pytest.mark.parametrize("label", ["fair share", "marginal"])
def test_of_the_shipped_scenario_jobs_are_sooner_and_none_is_slower_than_with_its_own_cpu(label: str) -> None:
    scenario = load_scenario("gpu-node")
    instance = draw(scenario, 1)
    fair, ours = (run(instance, policy) for policy in policy_runs(scenario, [label]))
    drawn = {job.name: job for job in instance.jobs}
    contention = 1 - instance.physics.contention_ratio * 3  # 4 jobs on a node
    assert max(own_ratio(job, drawn[job.name]) for job in ours.jobs) <= 1.02 / contention
    times = [sum(job.jct_seconds or math.inf for job in outcome.jobs) for outcome in (fair, ours)]
    assert times[1] <= 0.9 * times[0]
    for job in ours.jobs:
        if job.model == "text":
            came_with = drawn[job.name].allocation.request_millicores / 1000
            assert job.allocated_cpu_seconds <= came_with * on_node_seconds(job) * (1 + ROUNDING)

"""What holds in every simulated run, whatever the instance and the policy; read from the run's trace alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.instances import AT_ONCE, Exponential, Straight, a_policy_run, a_sim_job, a_sim_node, an_instance
from support.searching import examples

from slopewise import policies
from slopewise.config.training_policy import CpuBounds
from slopewise.model import CpuAllocation, CpuControl
from slopewise.simulator.engine import run
from slopewise.simulator.world.model import Instance, Physics, PolicyRun, RunOutcome, SimJob, TraceEvent

GIB = 2.0**30
FLOOR_MILLICORES = 50
ROUNDING = 1e-6

CURVES = st.one_of(st.builds(Exponential, k=st.floats(0.5, 30)), st.just(Straight()))

JOBS = st.builds(
    a_sim_job,
    name=st.just(""),
    work=st.floats(1.0, 150.0),
    arrive=st.floats(0.0, 200.0),
    curve=CURVES,
    noise=st.sampled_from([0.0, 0.05]),
    parallelism_cores=st.sampled_from([0.19, 1.0, 2.0, 4.0]),
    memory_bytes=st.sampled_from([None, 0.5 * GIB, 6 * GIB]),
    allocation=st.sampled_from([CpuAllocation(None, request) for request in (0, 100, 1000, 3000)]),
    steps_planned=st.sampled_from([None, 1, 5000]),
    qoe_seconds=st.sampled_from([None, 0.2]),
    deadline_seconds=st.sampled_from([None, 100.0, 600.0]),
    target_level=st.sampled_from([None, 0.1]),
    deliverable_level=st.sampled_from([None, 0.5]),
    migratable=st.booleans(),
    crashes_at_done_ratio=st.sampled_from([(), (0.5,), (0.1, 0.9)]),
)

NODES = st.builds(
    a_sim_node,
    name=st.just(""),
    cpu=st.sampled_from([1.0, 1.5, 4.0]),
    gib=st.just(8.0),
    speed=st.sampled_from([0.7, 1.0, 2.0]),
    requests_max_millicores=st.sampled_from([None, 2500]),
)

PHYSICS = st.builds(
    Physics,
    scrape_delay_seconds=st.sampled_from([0.0, 7.0]),
    missing_ratio=st.sampled_from([0.0, 0.2]),
    contention_ratio=st.sampled_from([0.0, 0.01, 0.3]),
    resize_seconds=st.sampled_from([0.0, 0.2]),
)


@st.composite
def instances(draw: st.DrawFn) -> Instance:
    jobs = [
        SimJob(**{**_fields(job), "name": f"j{number}"})  # type: ignore[arg-type]
        for number, job in enumerate(draw(st.lists(JOBS, min_size=1, max_size=6)))
    ]
    nodes = [
        a_sim_node(f"n{number}", node.cpu_cores, 8.0, node.speed, requests_max_millicores=node.requests_max_millicores)
        for number, node in enumerate(draw(st.lists(NODES, min_size=1, max_size=3)))
    ]
    duration = draw(st.sampled_from([None, None, 250.0]))
    return an_instance(jobs, nodes, physics=draw(PHYSICS), seed=draw(st.integers(0, 2**32)), duration=duration)


def _fields(job: SimJob) -> dict[str, object]:
    return {name: getattr(job, name) for name in SimJob.__dataclass_fields__}


def a_run(name: str, control: CpuControl) -> PolicyRun:
    bounds = CpuBounds.model_validate({"min": f"{FLOOR_MILLICORES}m"})
    return a_policy_run(name, control=control, cpu=bounds, behaviour=AT_ONCE)


@dataclass(frozen=True, slots=True)
class Stretch:
    """A job at a constant rate on one node."""

    job: str
    node: str
    from_seconds: float
    to_seconds: float
    cores: float
    speed: float


def stretches(events: Iterable[TraceEvent], ended_seconds: float) -> list[Stretch]:
    """The trace's `cpu` events as what every job had from when until when."""
    by_job: dict[str, list[TraceEvent]] = defaultdict(list)
    for event in events:
        if event.kind == "cpu":
            by_job[event.job].append(event)
    reported = []
    for job, changes in by_job.items():
        ends = [*(event.at_seconds for event in changes[1:]), ended_seconds]
        for event, end in zip(changes, ends, strict=True):
            cores, speed = float(str(event.detail["cores"])), float(str(event.detail["speed"]))
            reported.append(Stretch(job, event.node, event.at_seconds, end, cores, speed))
    return reported


def check_capacity(instance: Instance, reported: list[Stretch]) -> None:
    """No node gives more CPU than it has, at any time."""
    for node in instance.nodes:
        steps: dict[float, float] = defaultdict(float)
        for stretch in reported:
            if stretch.node == node.name and stretch.to_seconds > stretch.from_seconds:
                steps[stretch.from_seconds] += stretch.cores
                steps[stretch.to_seconds] -= stretch.cores
        used = 0.0
        for at_seconds in sorted(steps):
            used += steps[at_seconds]
            assert used <= node.cpu_cores * (1 + ROUNDING), f"{node.name} at {at_seconds}"


def check_work(instance: Instance, outcome: RunOutcome, reported: list[Stretch]) -> None:
    """What was done adds up to the work of each job that ended; what was used adds up to what is reported."""
    for job, result in zip(instance.jobs, outcome.jobs, strict=True):
        mine = [stretch for stretch in reported if stretch.job == job.name]
        done = sum(stretch.speed * (stretch.to_seconds - stretch.from_seconds) for stretch in mine)
        used = sum(stretch.cores * (stretch.to_seconds - stretch.from_seconds) for stretch in mine)
        if result.finished_seconds is not None:
            assert done == pytest.approx(job.work_cpu_seconds, rel=ROUNDING)
        assert done <= job.work_cpu_seconds * (1 + ROUNDING)
        assert used == pytest.approx(result.served_cpu_seconds, rel=ROUNDING, abs=ROUNDING)
        assert all(stretch.cores <= job.parallelism_cores * (1 + ROUNDING) for stretch in mine)


def check_places(instance: Instance, outcome: RunOutcome, reported: list[Stretch]) -> None:
    """A job is on one node at a time, gets CPU nowhere else, and none before it arrives or after it ends."""
    for job, result in zip(instance.jobs, outcome.jobs, strict=True):
        for before, after in pairwise(result.stays):
            assert before.to_seconds == after.from_seconds
            assert before.node != after.node
        served = [stretch for stretch in reported if stretch.job == job.name and stretch.cores > 0]
        for stretch in served:
            assert any(
                stay.node == stretch.node
                and stay.from_seconds <= stretch.from_seconds
                and stretch.to_seconds <= stay.to_seconds + ROUNDING
                for stay in result.stays
            ), stretch
        if served:
            end = outcome.ended_seconds if result.finished_seconds is None else result.finished_seconds
            assert served[0].from_seconds >= job.arrive_seconds
            assert served[-1].to_seconds <= end + ROUNDING


def check_memory(instance: Instance, outcome: RunOutcome) -> None:
    """No node holds more than its memory: checked when somebody comes."""
    asked = {job.name: job.memory_bytes or 0.0 for job in instance.jobs}
    stays = [(job.name, stay) for job in outcome.jobs for stay in job.stays]
    for _, coming in stays:
        held = sum(
            asked[name]
            for name, stay in stays
            if stay.node == coming.node and stay.from_seconds <= coming.from_seconds < stay.to_seconds
        )
        assert held <= 8 * GIB


def check_bounds(instance: Instance, outcome: RunOutcome, control: CpuControl) -> None:
    """A limit is within the floor and the node; a weight gives the floor of a node of its own at least."""
    sizes = {node.name: 1000 * node.cpu_cores for node in instance.nodes}
    came_with = {job.name: job.allocation.request_millicores for job in instance.jobs}
    for event in outcome.events:
        if event.kind == "resized":
            limit, request = event.detail["limit_millicores"], int(str(event.detail["request_millicores"]))
            if control == "limits":
                assert FLOOR_MILLICORES <= int(str(limit)) <= sizes[event.node]
            else:
                assert limit is None
                least = FLOOR_MILLICORES * came_with[event.job] / sizes[event.node]  # with more jobs it is more
                assert request >= least or request == came_with[event.job]


def check_totals(instance: Instance, outcome: RunOutcome) -> None:
    """Everyone ends unless the run was cut short, and the ratios are ratios."""
    if instance.duration_seconds is None:
        assert all(job.finished_seconds is not None for job in outcome.jobs)
        assert max(job.finished_seconds or 0.0 for job in outcome.jobs) == outcome.ended_seconds
    assert 0.0 <= outcome.cpu_utilisation_ratio <= 1.0 + ROUNDING
    stayed = sum(stay.to_seconds - stay.from_seconds for job in outcome.jobs for stay in job.stays)
    overlap = sum(running * seconds for running, seconds in outcome.overlap_seconds.items())
    assert overlap == pytest.approx(stayed, rel=ROUNDING, abs=ROUNDING)
    for job in outcome.jobs:
        used = job.allocated_used_cpu_seconds
        assert used <= min(job.allocated_cpu_seconds, job.served_cpu_seconds) * (1 + ROUNDING)
        reached = [job.deliverable_seconds, job.target_seconds, job.at_90_seconds, job.at_99_seconds]
        reported = [seconds for seconds in reached if seconds is not None]
        assert all(job.arrived_seconds <= seconds <= outcome.ended_seconds for seconds in reported)


@pytest.mark.parametrize("name", policies.names())
@examples(8)
@given(instance=instances(), control=st.sampled_from(["requests", "limits"]))
def test_every_policy_in_every_world_keeps_to_its_laws(name: str, control: CpuControl, instance: Instance) -> None:
    outcome = run(instance, a_run(name, control), trace=True)
    reported = stretches(outcome.events, outcome.ended_seconds)
    check_capacity(instance, reported)
    check_work(instance, outcome, reported)
    check_places(instance, outcome, reported)
    check_memory(instance, outcome)
    check_bounds(instance, outcome, control)
    check_totals(instance, outcome)

"""When fair sharing would have ended a job: of the docstring, and beside what it really does in simulated runs."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import msgspec
import pytest
from support.instances import AT_ONCE, a_policy_run, a_sim_job, a_sim_node, an_instance

from slopewise.allocation import capacity_cores
from slopewise.model import ClusterSnapshot, Departed, JobMemory, MemoryState, PassReport, PolicyMemory
from slopewise.policies.marginal.fair_ends import fair_end
from slopewise.policies.marginal.forecast import State
from slopewise.simulator.engine import controller_of, drive, run
from slopewise.simulator.world.default_scheduler import DefaultScheduler
from slopewise.simulator.world.model import Instance
from slopewise.simulator.world.observer import EPOCH_SECONDS
from slopewise.simulator.world.world import World


def stored(state: State) -> str:
    return msgspec.json.encode(state).decode()


def memory_of(**states: State) -> MemoryState:
    return MemoryState({uid: JobMemory(decided=PolicyMemory(state=stored(state))) for uid, state in states.items()})


BEGUN = State(0.0, served=0.0, work=10.0, cores=1.0, done=10.0)
BESIDE = State(0.0, served=0.0, work=30.0, cores=1.0, done=0.0)


def test_of_the_docstring() -> None:
    assert fair_end("a", 10.0, None, memory_of(a=BEGUN, b=BESIDE), 1.0) == (20.0, 10.0, 20.0)


def test_one_that_the_policy_has_not_seen_has_none() -> None:
    assert fair_end("c", 10.0, None, memory_of(a=BEGUN), 1.0) is None
    assert fair_end("c", 10.0, None, MemoryState({"c": JobMemory()}), 1.0) is None


def test_one_without_a_plan_has_done_what_it_has_used() -> None:
    unplanned = State(0.0, served=4.0, work=0.0, cores=1.0, done=6.0)
    assert fair_end("a", 4.0, 8.0, memory_of(a=unplanned), 1.0) == (4.0, 4.0, 4.0)
    assert fair_end("a", 4.0, None, memory_of(a=unplanned), 1.0) == (6.0, 6.0, 6.0)


def test_one_that_fair_sharing_had_ended_before_has_an_end_that_is_over() -> None:
    late = State(100.0, served=25.0, work=20.0, cores=2.0, done=19.0)
    assert fair_end("a", 101.0, None, memory_of(a=late), 2.0) == (97.5, 97.5, 97.5)


def test_jobs_that_have_left_go_on_until_fair_sharing_would_have_ended_them() -> None:
    gone = State(0.0, served=0.0, work=5.0, cores=1.0, done=5.0, over=True)
    memory = replace(memory_of(a=BEGUN), departed=(Departed("gone", stored(gone)),))
    assert fair_end("a", 10.0, None, memory, 1.0) == (15.0, 15.0, 15.0)


def an_instance_of(seed: int) -> Instance:
    luck = random.Random(seed)
    jobs = [a_sim_job(f"j{at}", luck.uniform(60, 400), luck.uniform(0, 200)) for at in range(8)]
    return an_instance(jobs, [a_sim_node(cpu=2.0)])


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_it_is_within_a_tenth_of_what_fair_sharing_takes_over_the_jobs_of_a_run(seed: int) -> None:
    instance = an_instance_of(seed)
    fair = {job.name: job for job in run(instance, a_policy_run("fair", behaviour=AT_ONCE)).jobs}
    reports: list[PassReport] = []
    world = World(instance, "requests")
    controller = controller_of(a_policy_run("marginal", behaviour=AT_ONCE), world)
    follow = controller._follow

    def record(report: PassReport) -> None:
        reports.append(report)
        follow(report)

    controller._follow = record  # type: ignore[method-assign]
    drive(world, DefaultScheduler(world, 1), controller)
    ended = {running.job.name: running.finished_seconds for running in world.jobs}
    estimated, taken = 0.0, 0.0
    for name, at in ended.items():
        assert at is not None
        report, snapshot = next((r, s) for r, s in with_snapshots(reports) if runs_in(name, s))
        assert report.decisions is not None
        capacity = math.fsum(map(capacity_cores, snapshot.nodes))
        found = fair_end(name, EPOCH_SECONDS + at, None, report.decisions.memory, capacity)
        assert found is not None
        assert found[1] <= found[0] <= found[2]
        arrived = fair[name].arrived_seconds
        estimated += found[0] - EPOCH_SECONDS - arrived
        fair_end_seconds = fair[name].finished_seconds
        assert fair_end_seconds is not None
        taken += fair_end_seconds - arrived
    assert estimated == pytest.approx(taken, rel=0.1)


def with_snapshots(reports: list[PassReport]) -> list[tuple[PassReport, ClusterSnapshot]]:
    """The newest first."""
    return [(each, each.snapshot) for each in reversed(reports) if each.snapshot is not None]


def runs_in(name: str, snapshot: ClusterSnapshot) -> bool:
    return any(job.uid == name and not job.state.ended for job in snapshot.jobs)

"""The queue of a batch system as default scheduler: whole nodes' worth of cores, strictly in the order of arrival."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.instances import Straight, a_sim_job, a_sim_node, an_instance

from slopewise.simulator.engine import run, run_unmanaged
from slopewise.simulator.scenario.scenario import load_scenario, policy_runs
from slopewise.simulator.world.model import Instance, RunOutcome, SimJob, SimNode


def started(outcome: RunOutcome) -> dict[str, tuple[str, float]]:
    """Node and time of each job's start."""
    return {job.name: (job.stays[0].node, job.stays[0].from_seconds) for job in outcome.jobs}


def queued(jobs: list[SimJob], nodes: list[SimNode]) -> Instance:
    return replace(an_instance(jobs, nodes), default_scheduler="fifo")


def a_job(name: str, work: float, arrives: float, cores: float) -> SimJob:
    return replace(a_sim_job(name, work, arrives, Straight()), parallelism_cores=cores)


def test_a_job_waits_for_all_the_cores_that_it_can_use_and_nothing_overtakes_it() -> None:
    jobs = [a_job("first", 60, 0, 3), a_job("large", 40, 1, 4), a_job("small", 10, 2, 1)]
    times = {name: at for name, (_, at) in started(run_unmanaged(queued(jobs, [a_sim_node("n1", 4.0)]), 1)).items()}
    # A core was free for the small one all the time.
    assert times == {"first": 0.0, "large": pytest.approx(20.0), "small": pytest.approx(30.0)}


def test_a_job_that_can_use_more_than_a_node_takes_a_whole_one() -> None:
    jobs = [a_job("giant", 40, 0, 16), a_job("next", 4, 1, 1)]
    outcome = run_unmanaged(queued(jobs, [a_sim_node("n1", 4.0)]), 1)
    assert started(outcome)["next"][1] == pytest.approx(10.0)


def test_of_two_nodes_with_room_the_fuller_one_takes_it() -> None:
    jobs = [a_job("a", 400, 0, 3), a_job("b", 400, 1, 1), a_job("c", 400, 2, 4)]
    found = started(run_unmanaged(queued(jobs, [a_sim_node("n1", 4.0), a_sim_node("n2", 4.0)]), 1))
    assert found["a"][0] == found["b"][0] != found["c"][0]
    assert found["c"][1] == 2.0


def test_it_is_a_baseline_of_a_scenario_by_its_label() -> None:
    fair, fifo = policy_runs(load_scenario("hours"), ["fifo"])
    assert (fair.name, fair.default_scheduler) == ("fair", None)
    assert (fifo.name, fifo.default_scheduler) == ("fair", "fifo")
    jobs = [a_job(f"j{n}", 20, n, 2) for n in range(6)]
    instance = an_instance(jobs, [a_sim_node("n1", 4.0)])
    shared, queue = run(instance, fair), run(instance, fifo)
    assert max(shared.overlap_seconds) > 2 >= max(queue.overlap_seconds)  # 4 cores, and each job can use 2

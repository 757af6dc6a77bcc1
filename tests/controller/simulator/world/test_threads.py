"""Threads of simulated trainings: what they cost beyond their CPU, and a number that follows it."""

from __future__ import annotations

import pytest
from support.instances import a_policy_run, a_sim_job, a_sim_node, a_world, an_instance, pass_to

from slopewise.model import Resize
from slopewise.simulator.engine import run
from slopewise.simulator.world.actuator import SimActuator
from slopewise.simulator.world.model import JobOutcome, SimJob
from slopewise.simulator.world.observer import SimObserver
from slopewise.simulator.world.threads import (
    FIRST_READING_SECONDS,
    READING_SECONDS,
    Penalty,
    RunningThreads,
    ThreadBehaviour,
    Threads,
)
from slopewise_exporter.threads.cpu import Reading
from slopewise_exporter.threads.following import FIRST_INTERVAL_SECONDS, INTERVAL_SECONDS

SPINNING = (Penalty(1.0, 1.0, 1.0), Penalty(2.0, 5.0, 0.2), Penalty(4.0, 20.0, 0.05))
SLEEPING = (Penalty(1.0, 1.0, 0.9), Penalty(2.0, 1.25, 0.6))
TWO_CORES = [a_sim_node(cpu=2.0)]


def a_threaded_job(
    name: str, work: float, behaviour: ThreadBehaviour = "spin", penalties: tuple[Penalty, ...] = SPINNING
) -> SimJob:
    return a_sim_job(name, work, parallelism_cores=2.0, threads=Threads(2, behaviour, penalties))


def outcomes(*jobs: SimJob) -> dict[str, JobOutcome]:
    return {job.name: job for job in run(an_instance(jobs, TWO_CORES), a_policy_run()).jobs}


def test_penalties_are_straight_between_the_measured_points_and_level_outside() -> None:
    threads = Threads(8, "spin", SPINNING)
    assert threads.penalty(4, 1.0) == Penalty(4.0, 20.0, 0.05)
    assert threads.penalty(3, 1.0) == Penalty(3.0, 12.5, 0.08)
    assert threads.penalty(8, 1.0)[1:] == (20.0, 0.05)
    assert threads.penalty(1, 0.1)[1:] == (1.0, 1.0)


@pytest.mark.parametrize(
    ("jobs", "seconds", "cpu_seconds"),
    [
        ([a_threaded_job("a", 20.0)], 10.0, 20.0),  # a core for each thread: as it was measured there
        ([a_threaded_job(name, 10.0) for name in "ab"], 50.0, 50.0),  # spinning does little with its share
        ([a_threaded_job(name, 12.0, "wait", SLEEPING) for name in "ab"], 20.0, 15.0),  # sleeping leaves some unused
        ([a_threaded_job(name, 4.2, "follow") for name in "ab"], 5.0, 5.0),  # it costs until the first reading alone
        # With one thread each from 1 to 11 s, with two to 12 s, which does a fifth of the work, then with one again.
        ([a_threaded_job(name, 0.2 + 10.0 + 0.2 + 3.0, "follow") for name in "ab"], 15.0, 15.0),
        ([a_sim_job("a", 30.0, threads=Threads(1, "spin", SPINNING))], 30.0, 30.0),  # one thread changes nothing
    ],
)
def test_what_threads_cost(jobs: list[SimJob], seconds: float, cpu_seconds: float) -> None:
    for job in outcomes(*jobs).values():
        assert (job.jct_seconds, job.served_cpu_seconds) == pytest.approx((seconds, cpu_seconds))


def test_a_second_thread_that_is_slower_is_tried_for_a_second_and_then_the_observer_says_one() -> None:
    slower = (Penalty(1.0, 8.0, 0.05), Penalty(2.0, 2.5, 0.4))
    # Two threads do a tenth of a core's work a second until 1 s and from 7 s to 8 s.
    (job,) = run(an_instance([a_threaded_job("a", 20.0, "follow", slower)], TWO_CORES), a_policy_run()).jobs
    assert job.jct_seconds == pytest.approx(20.0 + 2 * 0.9)
    world = a_world(an_instance([a_threaded_job("a", 20.0, "follow", slower)], TWO_CORES))
    observer, useful = SimObserver(world, oracle=False), []
    for at in (5.0, 15.0):
        pass_to(world, at)
        useful += [job.useful_parallelism_cores for job in observer.observe().snapshot.jobs]
    assert useful == [2.0, 1.0]


def test_it_rises_at_the_second_reading_after_a_neighbour_has_ended() -> None:
    jobs = outcomes(a_threaded_job("a", 4.2, "follow"), a_threaded_job("b", 4.2 + 6.0 + 50.0, "follow"))
    assert jobs["a"].jct_seconds == pytest.approx(5.0)
    assert jobs["b"].jct_seconds == pytest.approx(11.0 + 25.0)


def test_a_lower_limit_lowers_it_at_the_next_reading() -> None:
    world = a_world(an_instance([a_threaded_job("a", 100.0, "follow")], TWO_CORES), "limits")
    threads = world.by_uid["a"].threads
    assert threads is not None
    assert threads.number == 2
    SimActuator(world).carry_out(Resize("a", "n1", "limits", 2000, 500, "less"))
    reading, numbers = FIRST_READING_SECONDS, []
    for at in (reading - 0.5, reading, reading + READING_SECONDS):
        pass_to(world, at)
        numbers.append(threads.number)
    assert numbers == [2, 1, 1]


def test_the_readings_are_the_exporters() -> None:
    assert (FIRST_READING_SECONDS, READING_SECONDS) == (FIRST_INTERVAL_SECONDS, INTERVAL_SECONDS)
    threads = RunningThreads(Threads(4, "follow", SPINNING), 1.5)
    assert threads.number == 2
    assert not threads.read(Reading(1.5, 1.5, 0.0, 1.0))
    assert threads.next_reading_seconds == READING_SECONDS
    assert threads.read(Reading(3.0, 2.0, 0.0, 1.0))
    assert threads.next_reading_seconds == FIRST_READING_SECONDS
    assert RunningThreads(Threads(4, "wait", SPINNING), 1.5).number == 4

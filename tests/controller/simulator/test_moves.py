"""Moves in the simulator under `spec.migration`: what is seen of them, and that no job is thrown about."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import pytest
from support.instances import a_policy_run, a_sim_job, a_sim_node, a_world, an_instance

from slopewise.config.training_policy import Migration
from slopewise.model import (
    Checkpoint,
    ClusterSnapshot,
    Decisions,
    JobState,
    MemoryState,
    Migrate,
    Movability,
    PassReport,
    Place,
)
from slopewise.reconcile import reconcile
from slopewise.simulator.engine import Controller, pass_settings, run
from slopewise.simulator.world.model import Instance, TraceEvent
from slopewise.simulator.world.observer import EPOCH_SECONDS, SimObserver
from slopewise.simulator.world.world import World

HOURS = 3600.0
BOUNDED = Migration(enabled=True)
"""At most two moves away from a node in an hour, one at a time, and 600 s on a node: the defaults."""


@dataclass(frozen=True, slots=True)
class Flipping:
    """Falls and stands still in turn, for as much work as one interval sees of it; it has no end to its learning."""

    period_ratio: float

    def at(self, done_ratio: float) -> float:
        periods, within = divmod(done_ratio, self.period_ratio)
        fallen = periods * self.period_ratio + min(1.0, 2 * within / self.period_ratio) * self.period_ratio
        return 1.0 - fallen

    def reached(self, improvement_ratio: float) -> float | None:
        return improvement_ratio if improvement_ratio <= 1 else None


def flipping_jobs(count: int, hours: float) -> Instance:
    """Jobs that run for hours on three nodes; some short ones leave a node idle every now and then."""
    work = 40_000.0
    jobs = [
        a_sim_job(f"long-{n}", work, curve=Flipping(40.0 / work), noise=0.001, steps_planned=100_000)
        for n in range(count)
    ]
    jobs += [a_sim_job(f"short-{n}", 500.0, 900.0 * n, steps_planned=1000) for n in range(12)]
    return an_instance(jobs, [a_sim_node("n1"), a_sim_node("n2", cpu=2.0), a_sim_node("n3")], duration=hours * HOURS)


def migrations(events: Sequence[TraceEvent]) -> list[TraceEvent]:
    return [event for event in events if event.kind in ("migrated", "rebalanced")]


def check_bounds(events: Sequence[TraceEvent], bounds: Migration) -> None:
    """No job is thrown about: by job, by node, and at the same time."""
    moves = migrations(events)
    for job in {event.job for event in moves}:
        mine = [event for event in moves if event.job == job]
        for before, after in pairwise(mine):
            assert after.at_seconds - before.at_seconds >= bounds.min_stay_seconds
            if after.node == before.detail["from"]:
                assert after.at_seconds - before.at_seconds >= 2 * bounds.min_stay_seconds
    for node in {str(event.detail["from"]) for event in moves}:
        left = [event.at_seconds for event in moves if event.detail["from"] == node]
        assert all(sum(at <= other < at + HOURS for other in left) <= bounds.max_per_node_per_hour for at in left)
    begun = [event.at_seconds for event in moves]
    resumed = [event.at_seconds for event in events if event.kind == "resumed"]
    for earlier, later in pairwise(begun):
        assert any(earlier < back <= later for back in resumed)


@pytest.mark.parametrize(("policy", "jobs"), [("specon", 7), ("draps", 7)])
def test_growth_that_flips_every_interval_moves_no_job_more_often_than_the_bounds_allow(policy: str, jobs: int) -> None:
    # A fall of a thousandth of the first value an interval, against a range that is at least half of it.
    parameters = {"alpha": 0.0005} if policy == "specon" else {}
    bounded, unbounded = (
        run(
            flipping_jobs(jobs, hours=1.25),
            a_policy_run(policy, migration=migration, parameters=parameters),
            trace=True,
        ).events
        for migration in (BOUNDED, None)
    )
    assert migrations(bounded)
    check_bounds(bounded, BOUNDED)
    if policy == "specon":  # at most once for slow growth and once for the balance, whatever the bounds
        for events in (bounded, unbounded):
            assert max(Counter(event.job for event in migrations(events)).values()) <= 2
    else:
        assert len(migrations(bounded)) < len(migrations(unbounded))


def one_pass(world: World, desired: Migrate) -> PassReport:
    """A pass that wants one move; its ports are those of a run."""

    class Wishes:
        def decide(self, snapshot: ClusterSnapshot, memory: MemoryState) -> Decisions:
            return Decisions("wishes", (), {job.uid: "why" for job in snapshot.jobs}, memory, (desired,))

    settings = a_policy_run("specon", migration=Migration(enabled=True, min_stay_seconds=0.0))
    controller = Controller(world, Wishes(), pass_settings(settings))
    return reconcile(controller._ports, Wishes(), pass_settings(settings))


def test_a_simulated_job_saves_when_it_is_signalled_to_end_and_is_under_way_while_it_pauses() -> None:
    jobs = [a_sim_job(name, 1000.0, checkpoint_seconds=2.0, restart_seconds=5.0) for name in ("a", "b")]
    world = World(an_instance(jobs, [a_sim_node("n1"), a_sim_node("n2")]), "requests")
    for running in list(world.jobs):
        world.pass_time(0.0)
        world.place(running, 0)
    world.settle()
    observer = SimObserver(world, oracle=False)
    world.pass_time(10.0)
    before = observer.observe().snapshot
    assert before.jobs[0].checkpoint == Checkpoint(None, 2.0, on_sigterm=True)
    assert before.jobs[0].movability == Movability("restart", restart_seconds=5.0)
    assert before.moving == ()
    report = one_pass(world, Migrate("a", "n1", "n2", "why"))
    assert report.results.of(Place, Migrate)[0].decision.reason == (
        "why; gains 600 s over 600 s, costs 7 s (saving 2 s, starting 5 s, repeating 0 s)"
    )
    during = observer.observe().snapshot
    [moving] = during.moving
    assert (moving.job_uid, moving.from_node, moving.node) == ("a", "n1", "n2")
    assert moving.since_seconds == EPOCH_SECONDS + 10.0
    assert {job.uid: job.state for job in during.jobs}["a"] is JobState.STARTING
    world.settle()
    world.pass_time(17.0)
    assert observer.observe().snapshot.moving == ()


def test_a_job_that_only_crashes_is_not_under_way() -> None:
    world = a_world(an_instance([a_sim_job("a", 100.0, crashes_at_done_ratio=(0.2,), restart_seconds=50.0)]))
    world.pass_time(world.next_event_seconds)
    assert world.jobs[0].paused
    assert SimObserver(world, oracle=False).observe().snapshot.moving == ()

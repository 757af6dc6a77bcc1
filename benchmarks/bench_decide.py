"""Measure, decide and guard for many jobs, pure, from a made snapshot: every policy's CPU time, and how it grows.

Gate: 10,000 jobs on 500 nodes under 1 s of CPU with every policy that is found by its name, under 0.25 s with `fair`
and `flowcon`; and 10,000 jobs take at most 5.5 times as long as 2,500 (linear is 4). The baseline of the same run is
one pass of plain Python over the same jobs, so that a slow machine shows. The world gives every policy its own work
to do: half of the jobs have promises, all have paces, a burst of 100 waits for nodes, and the oracle is answered.
Jobs save on SIGTERM, may be moved, and were moved before; a third are in SpeCon's CC. Moves are bounded so widely that
for each that is wanted it is worked out what it gains and costs.

`marginal` has 50 raw points of each job, every other job has no plan, and the curves are fitted in a pass before those
that are timed: a curve is fitted once as its points double, and the passes of bench_pass.py have such fits.
"""

from __future__ import annotations

import math
import random
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from slopewise.estimators import growth, pace
from slopewise.feedback import move_tracking
from slopewise.guards.context import PassContext
from slopewise.guards.review import review
from slopewise.loop import calm_garbage_collector
from slopewise.model import (
    Anchor,
    Arrival,
    Bounds,
    Checkpoint,
    ClusterSnapshot,
    CpuAllocation,
    Evaluation,
    Growth,
    Job,
    JobMemory,
    JobState,
    Levels,
    MemoryState,
    Movability,
    MoveBounds,
    MoveRecord,
    Node,
    NodeMemory,
    Objectives,
    Pace,
    PaceAnchor,
    Points,
    PolicyMemory,
    Timing,
    Usage,
)
from slopewise.policies import Setting, build, find, names

NOW = 1_000_000.0
INTERVAL_SECONDS = 20.0
THEN = NOW - INTERVAL_SECONDS
BOUND_SECONDS = 1.0
TIGHTER_BOUND_SECONDS = {"fair": 0.25, "flowcon": 0.25}
BOUND_GROWTH = 5.5
SIZES = ((2_500, 125), (10_000, 500))
ROUNDS = 9
WAITING = 100
POINTS = 50
SERIES = 'training_loss{stage="eval"}'
GIB = 2.0**30

WIDE = MoveBounds(
    enabled=True,
    max_per_node_per_hour=1000,
    max_concurrent=1000,
    min_stay_seconds=0.0,
    max_checkpoint_age_seconds=300.0,
    horizon_seconds=600.0,
)
MOVABILITY = Movability("suspend", grace_seconds=30.0, restart_seconds=2.0)
MOVED = MoveRecord(NOW - 900.0, "elsewhere", "here", resumed_at_seconds=NOW - 890.0, resumed_on="here", steps_lost=0.0)

World = tuple[ClusterSnapshot, MemoryState]


def world(job_count: int, node_count: int) -> World:
    """A busy cluster: every job has its intervals to close, every node a look that is due."""
    rng = random.Random(7)
    nodes = tuple(Node(f"n{i}", 16.0, 64 * 2**30) for i in range(node_count))
    jobs, remembered, remaining = [], {}, {}
    for index in range(job_count):
        uid, node, level = f"job-{index}", nodes[index % node_count].name, rng.uniform(0.5, 1.0)
        jobs.append(_job(uid, node, level, rng))
        remembered[uid] = _memory(level, rng)
        remaining[uid] = rng.uniform(1.0, 1000.0)
    on_node: dict[str, set[str]] = {node.name: set() for node in nodes}
    for job in jobs:
        on_node[job.node].add(job.uid)
    looks = {name: NodeMemory(frozenset(uids), THEN, INTERVAL_SECONDS) for name, uids in on_node.items()}
    waiting = tuple(_arrival(f"new-{index}", rng) for index in range(WAITING))
    snapshot = ClusterSnapshot(NOW, nodes, tuple(jobs), waiting=waiting, remaining_work_cpu_seconds=remaining)
    return snapshot, MemoryState(remembered, looks)


def _job(uid: str, node: str, level: float, rng: random.Random) -> Job:
    return Job(
        uid, uid, "team", node, JobState.TRAINING, NOW - 500, CpuAllocation(8000, 1000),
        Evaluation(level, 4, NOW, SERIES), Usage(NOW, rng.uniform(490, 510), 2 * GIB), steps_total=1000.0,
        steps_planned=rng.uniform(1100, 5000), useful_parallelism_cores=rng.choice([1.0, 4.0, None]),
        objectives=_objectives(rng), memory_request_bytes=2 * GIB, migratable=True,
        checkpoint=Checkpoint(NOW - 60.0, 2.0, on_sigterm=True), movability=MOVABILITY,
        process_started_at_seconds=NOW - 500,
    )  # fmt: skip


def _memory(level: float, rng: random.Random) -> JobMemory:
    """A job in the middle of its life, in the state from which most policies have most to do."""
    anchor = Anchor(THEN, level * rng.uniform(1.0, 1.2), Usage(THEN, 490.0, 2 * GIB))
    before = Growth(THEN, INTERVAL_SECONDS, rng.uniform(0, 0.02), 0.8, {"cpu": rng.uniform(0, 0.02)})
    paces = tuple(Pace(THEN - 20 * i, rng.uniform(0.3, 0.7), rng.uniform(0.3, 1.0)) for i in range(pace.KEPT))
    slowed_down = rng.random() < 1 / 3
    return JobMemory(
        levels=Levels(SERIES, 2.0, level, anchor), growth=before, previous_growth=before,
        decided=PolicyMemory("CC" if slowed_down else None, wanted_cores=8.0),
        timing=Timing(PaceAnchor(THEN, 960.0, None, 490.0)), paces=paces, moves_total=1, moves=(MOVED,),
    )  # fmt: skip


def _objectives(rng: random.Random) -> Objectives:
    if rng.random() < 0.5:
        return Objectives()
    return Objectives(rng.uniform(0.2, 2.0), NOW + rng.uniform(100, 5000), 0.3, rng.uniform(0.4, 0.8))


def _arrival(uid: str, rng: random.Random) -> Arrival:
    return Arrival(uid, uid, "team", NOW - rng.uniform(0, 20), 1000, 2 * GIB, 1.0, 1000.0, _objectives(rng))


def with_curves(snapshot: ClusterSnapshot, memory: MemoryState) -> World:
    """The same cluster with raw points of each job, in steps, and a plan for every other one."""
    luck = np.random.default_rng(7)
    jobs, remembered = [], {}
    for index, job in enumerate(snapshot.jobs):
        steps = np.linspace(0, 1000.0, POINTS + 1)[1:]
        level = np.exp(-luck.uniform(1, 8) * steps / 1000.0) + 0.02 * luck.normal(size=POINTS)
        points = Points(
            "steps", SERIES, np.stack([steps, level], axis=1).astype("<f4").tobytes(), sampled_at_seconds=NOW - 1.0,
            work=1000.0, cpu_seconds=490.0, counter=490.0, counted_at_seconds=THEN, steps_first=0.0, steps=1000.0,
            steps_cpu_seconds=490.0, process_started_at_seconds=job.process_started_at_seconds,
        )  # fmt: skip
        jobs.append(job if index % 2 else job.altered(steps_planned=None))
        remembered[job.uid] = memory.jobs[job.uid].altered(points=points)
    return replace(snapshot, jobs=tuple(jobs)), replace(memory, jobs=remembered)


def seconds_of(work: Callable[[], object]) -> list[float]:
    """CPU time of this process in each round, shortest first: what other programs take is not in it."""
    times = []
    for _ in range(ROUNDS):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return sorted(times)


def decide_seconds(name: str, snapshot: ClusterSnapshot, memory: MemoryState) -> list[float]:
    """Times of measure + decide + guard, shortest first."""
    policy = build(name, find(name).parameters(), Setting(INTERVAL_SECONDS, "limits"))
    bounds = Bounds("Auto", 250, 64_000, 0.0, 2.0, 0.1, moving=WIDE)
    if name == "marginal":
        snapshot, memory = with_curves(snapshot, memory)
        states = {uid: each.decided.state for uid, each in policy.decide(snapshot, memory).memory.jobs.items()}
        assert all(states.values()), "nothing was kept of a job"
        memory = replace(
            memory,
            jobs={uid: each.with_decided(state=states[uid]) for uid, each in memory.jobs.items()},
        )

    def one_pass() -> None:
        grown = growth.measure(snapshot, memory, growth.Measuring(INTERVAL_SECONDS))
        decisions = policy.decide(snapshot, pace.measure(snapshot, grown, INTERVAL_SECONDS))
        followed = move_tracking.review(decisions.memory, memory, snapshot)
        review((*decisions.resizes, *decisions.moves), PassContext(snapshot, followed.memory, bounds))

    return seconds_of(one_pass)


def plain_python_seconds(snapshot: ClusterSnapshot) -> float:
    """The baseline: one logarithm and one dictionary entry a job."""
    times = seconds_of(lambda: {job.uid: math.log(job.evaluation.level) for job in snapshot.jobs if job.evaluation})
    return statistics.median(times)


def holds(name: str, worlds: dict[int, World]) -> bool:
    """Print one policy's figures; False when a bound is missed."""
    shortest, median = {}, 0.0
    for job_count, (snapshot, memory) in worlds.items():
        times = decide_seconds(name, snapshot, memory)
        shortest[job_count], median = times[0], statistics.median(times)
        ratio = median / plain_python_seconds(snapshot)
        print(f"{name:<14}{job_count:>8}{len(snapshot.nodes):>7}{median:>14.4f}{ratio:>16.0f}")
    growth_ratio = shortest[10_000] / shortest[2_500]  # of the shortest, which other work disturbs least
    bound = TIGHTER_BOUND_SECONDS.get(name, BOUND_SECONDS)
    held = median <= bound and growth_ratio <= BOUND_GROWTH
    print(
        f"{name:<14}4 times the jobs take {growth_ratio:.1f} times as long (bound {BOUND_GROWTH:g}); "
        f"10,000 jobs under {bound:g} s of CPU: {'held' if held else 'MISSED'}"
    )
    return held


def main() -> int:
    """Print the figures; 1 when a bound is missed."""
    calm_garbage_collector()  # as `slopewise run` and `slopewise demo` do
    worlds = {job_count: world(job_count, node_count) for job_count, node_count in SIZES}
    print(f"{'policy':<14}{'jobs':>8}{'nodes':>7}{'median CPU s':>14}{'x plain Python':>16}")
    missed = [name for name in (sys.argv[1:] or names()) if not holds(name, worlds)]
    print(f"missed a bound: {', '.join(missed)}" if missed else "every bound held")
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())

"""Measure, decide and guard for many jobs, pure, from a made snapshot: the time, and how it grows.

Gate: 10,000 jobs on 500 nodes under 0.25 s, and 10,000 jobs take at most 5.5 times as long as 2,500 (linear is
4). The baseline of the same run is one pass of plain Python over the same jobs, so that a slow machine shows.
"""

from __future__ import annotations

import math
import random
import statistics
import sys
import time

from controller.growth import Measuring, measure
from controller.guards import Bounds, review
from controller.loop import calm_garbage_collector
from controller.model import (
    Anchor,
    ClusterSnapshot,
    CpuAllocation,
    Evaluation,
    Job,
    JobMemory,
    JobState,
    MemoryState,
    Node,
    NodeMemory,
    Usage,
)
from controller.policies import Setting, build, find

NOW = 1_000_000.0
INTERVAL_SECONDS = 20.0
BOUND_SECONDS = 0.25
BOUND_GROWTH = 5.5
ROUNDS = 9
SERIES = 'training_loss{stage="eval"}'


def world(job_count: int, node_count: int) -> tuple[ClusterSnapshot, MemoryState]:
    """A busy cluster: every job has an interval to close, every node a look that is due."""
    rng = random.Random(7)
    nodes = tuple(Node(f"n{i}", 16.0, 64 * 2**30) for i in range(node_count))
    jobs, remembered = [], {}
    for index in range(job_count):
        uid, node, level = f"job-{index}", nodes[index % node_count].name, rng.uniform(0.5, 1.0)
        jobs.append(
            Job(
                uid, uid, "team", node, JobState.TRAINING, NOW - 500, CpuAllocation(8000, 1000),
                Evaluation(level, 4, NOW, SERIES), Usage(NOW, 500.0, 2**30),
            )
        )  # fmt: skip
        anchor = Anchor(NOW - INTERVAL_SECONDS, level * rng.uniform(1.0, 1.2), Usage(NOW - 20, 490.0, 2**30))
        remembered[uid] = JobMemory(SERIES, 2.0, level, anchor, wanted_cores=8.0)
    on_node: dict[str, set[str]] = {node.name: set() for node in nodes}
    for job in jobs:
        on_node[job.node].add(job.uid)
    looks = {name: NodeMemory(frozenset(uids), NOW - INTERVAL_SECONDS, 20.0) for name, uids in on_node.items()}
    return ClusterSnapshot(NOW, nodes, tuple(jobs)), MemoryState(remembered, looks)


def decide_seconds(name: str, snapshot: ClusterSnapshot, memory: MemoryState) -> list[float]:
    """Times of measure + decide + guard, shortest first."""
    policy = build(name, find(name).parameters(), Setting(INTERVAL_SECONDS, "limits"))
    bounds = Bounds("Auto", 250, 64_000, 0.0, 2.0, 0.1)
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        measured = measure(snapshot, memory, Measuring(INTERVAL_SECONDS))
        decisions = policy.decide(snapshot, measured)
        review(decisions.resizes, snapshot, decisions.memory, bounds)
        times.append(time.perf_counter() - start)
    return sorted(times)


def plain_python_seconds(snapshot: ClusterSnapshot) -> float:
    """The baseline: one logarithm and one dictionary entry a job."""
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        {job.uid: math.log(job.evaluation.level) for job in snapshot.jobs if job.evaluation}
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def main() -> int:
    """Print the figures; 1 when a bound is missed."""
    calm_garbage_collector()  # as `slopewise run` and `slopewise demo` do
    failed = False
    print(f"{'policy':<10}{'jobs':>8}{'nodes':>7}{'median s':>11}{'x plain Python':>16}")
    for name in ("fair", "flowcon"):
        shortest = {}
        for job_count, node_count in ((2_500, 125), (10_000, 500)):
            snapshot, memory = world(job_count, node_count)
            times = decide_seconds(name, snapshot, memory)
            shortest[job_count], median = times[0], statistics.median(times)
            ratio = median / plain_python_seconds(snapshot)
            print(f"{name:<10}{job_count:>8}{node_count:>7}{median:>11.4f}{ratio:>16.0f}")
        growth = shortest[10_000] / shortest[2_500]  # of the shortest, which the machine's other work disturbs least
        print(f"{name:<10}4 times the jobs take {growth:.1f} times as long (bound {BOUND_GROWTH:g})")
        failed |= median > BOUND_SECONDS or growth > BOUND_GROWTH
    print(f"bound: 10,000 jobs under {BOUND_SECONDS} s: {'MISSED' if failed else 'held'}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())

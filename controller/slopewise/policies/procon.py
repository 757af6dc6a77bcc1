"""ProCon-style: an arriving job goes where least work is waiting to be done. Placement only.

Source: ProCon, of which only a short account in the thesis (chapter 2) is at hand: this is a reconstruction, not the
paper's own text. It places by what the jobs of a node still have to do, and moves no job.

    cost_w = n_w · C_w,   C_w = 1 + Σ_j P_j,   P_j = iteration time ÷ CPU share × iterations left

Worked example: one job with P = 10 costs 1 · 11 = 11, two with P = 4 each cost 2 · 9 = 18: the first node.

Units, which are not given: an iteration time is read as the CPU time of one iteration (core-seconds). Divided by the
CPU that the job gets (cores), it is the time that an iteration takes now, in seconds, which is what is measured: the
newest of `JobMemory.paces`. So P is how many seconds the job still has to run at its present pace, and the 1 is a
second that keeps an otherwise finished node from being free.

Our readings:

- A job whose P cannot be known (no planned steps, no pace yet, a served model) counts as the mean of all P that are
  known; so does one that has just been placed. With none known at all P is 0, and the node with the fewest jobs wins.
- An empty node costs nothing, whatever its size; ties end by measured CPU use, then by name. Memory must fit.
- Within a node nothing is changed: the kernel shares CPU evenly.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from slopewise.model import Arrival, ClusterSnapshot, Decisions, Job, JobMemory, MemoryState, Node
from slopewise.policies import PolicyParameters, Setting, fair
from slopewise.policies.shared.placement import place_each

PURPOSE = "several nodes, and jobs that say how many steps they plan"
ACTIONS = ("place",)


class Parameters(PolicyParameters):
    """None: there is nothing to choose."""


class Policy:
    """Placement by remaining time; within a node, fair sharing."""

    def __init__(self, parameters: Parameters, setting: Setting) -> None:
        self._within_nodes = fair.Policy(fair.Parameters(), setting)

    def decide(self, snapshot: ClusterSnapshot, memory: MemoryState) -> Decisions:
        """No resize; every arriving job on the node of least cost, one after another."""
        running = [job for job in snapshot.jobs if not job.state.ended]
        known = {job.uid: _job_seconds_left(job, memory.jobs[job.uid]) for job in running}
        left = {uid: seconds for uid, seconds in known.items() if seconds is not None}
        mean = math.fsum(left.values()) / len(left) if left else 0.0
        jobs_on = snapshot.jobs_by_node()
        counts = {name: len(jobs) for name, jobs in jobs_on.items()}
        # fsum: the same in any order of the jobs
        waiting = {name: math.fsum(left.get(job.uid, mean) for job in jobs) for name, jobs in jobs_on.items()}

        def cost(arrival: Arrival, node: Node) -> float:
            return counts[node.name] * (1 + waiting[node.name])

        def placed(arrival: Arrival, node: Node) -> str:
            reason = f"least cost {cost(arrival, node):.3g}: {counts[node.name]} jobs, {waiting[node.name]:.3g} s to do"
            counts[node.name] += 1
            waiting[node.name] += mean
            return reason

        places = place_each(snapshot, memory, cost, placed)
        decisions = self._within_nodes.decide(snapshot, memory)
        reasons = {uid: _reason(uid, left, mean) for uid in decisions.reasons}
        return replace(decisions, policy="procon", reasons=reasons, moves=places)


def _job_seconds_left(job: Job, known: JobMemory) -> float | None:
    """Seconds a step at the newest pace, times the steps left; None when either is not known."""
    if job.steps_planned is None or job.steps_total is None or job.responses is not None or not known.paces:
        return None
    seconds = known.paces[-1].seconds * max(0.0, job.steps_planned - job.steps_total)
    return seconds if math.isfinite(seconds) else None


def _reason(uid: str, left: Mapping[str, float], mean: float) -> str:
    if uid in left:
        return f"unchanged: {left[uid]:.3g} s to do at its present pace"
    return f"unchanged: what it has to do is not known, counted as the mean of {mean:.3g} s"

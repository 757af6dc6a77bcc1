"""Whether all deadlines of a drawn instance could be met at all: a linear program, the bound of every scheduler.

The cluster is one pool of cores, jobs move between them for nothing, and everything is known beforehand: what no
schedule can do here, no policy can.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from slopewise.simulator.world.model import SimJob, SimNode

ENOUGH_RATIO = 1 - 1e-6


def all_could_be_met(jobs: Sequence[SimJob], nodes: Sequence[SimNode]) -> bool:
    """True when the work of every job fits between its arrival and its deadline, without contention.

    One variable for each job and each span between two arrivals or deadlines: the work done then, at most the span
    times the job's useful cores; all jobs together at most the span times the cluster. The most work is sought.
    """
    from scipy.optimize import linprog  # noqa: PLC0415 - half a second, and most settings have no deadline

    speed = sum(node.cpu_cores * node.speed for node in nodes)
    fastest = max(node.speed for node in nodes)
    due = [(job, job.deadline_seconds) for job in jobs if job.deadline_seconds is not None]
    moments = sorted({job.arrive_seconds for job, _ in due} | {deadline for _, deadline in due})
    spans = list(itertools.pairwise(moments))
    most = np.array([[_most(job, deadline, span) * fastest for span in spans] for job, deadline in due])
    of_span = np.tile(np.eye(len(spans)), len(due))
    of_job = np.kron(np.eye(len(due)), np.ones(len(spans)))
    works = np.array([job.work_cpu_seconds for job, _ in due])
    found = linprog(
        -np.ones(most.size),
        A_ub=np.vstack([of_span, of_job]),
        b_ub=np.concatenate([[(end - start) * speed for start, end in spans], works]),
        bounds=np.column_stack([np.zeros(most.size), most.ravel()]),
    )
    return bool(-found.fun >= ENOUGH_RATIO * works.sum())


def _most(job: SimJob, deadline_seconds: float, span: tuple[float, float]) -> float:
    """The core-seconds that a job can use within a span; none before it arrives or after its deadline."""
    start, end = span
    allowed = job.arrive_seconds <= start and end <= deadline_seconds
    return (end - start) * job.parallelism_cores if allowed else 0.0

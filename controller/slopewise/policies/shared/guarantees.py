"""When each job would end under fair sharing: the virtual clusters of `marginal`, kept up to date and remembered."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from slopewise.allocation import capacity_cores
from slopewise.estimators import virtual_shares
from slopewise.estimators.speed import useful_cores
from slopewise.estimators.virtual_shares import Clusters
from slopewise.model import ClusterSnapshot, Job, JobMemory, MemoryState, Node, VirtualShare
from slopewise.policies.shared.prospects import Prospects

REFRESH_SECONDS = 30.0
"""Ends are simulated so often, and whenever a job has come or its work has become known."""

TAKEN_OVER_SECONDS = 60.0
"""A job without a record that has run for longer was there before the policy: it stands where it is."""

ENDLESS = 1e12
"""Core-seconds of a job without a plan: under fair sharing it has not ended before it really does."""


ERROR_ALLOWED, MAX_ERROR = 0.05, 0.3
"""A job that ends after so much more service under fair sharing than its work was is an error; and the most of one."""

PSEUDO_JOBS, PSEUDO_ERROR = 3.0, 0.05
"""As if so many had ended so late."""

SERVICE_OF_ERROR, MAX_SERVICE_RATIO = 10.0, 0.9
"""Of the service under fair sharing, so many times the mean error is guaranteed: half of it for a mean of 5 %."""


@dataclass(frozen=True, slots=True)
class Guarantees:
    """What fair sharing would give."""

    due_at_seconds: Mapping[str, float]
    """By uid; of a job without an expected end far beyond all others."""
    service: Mapping[str, float]
    """What it would have had by now, in core-seconds, by uid."""
    least_service_ratio: float
    """Of that service a job without a plan is given so much at least."""
    memory: MemoryState
    """With the clusters as they are now."""


def guarantees(snapshot: ClusterSnapshot, memory: MemoryState, expected: Prospects) -> Guarantees:
    """Advance the virtual clusters to now, and simulate the ends if that is due."""
    now = snapshot.taken_at_seconds
    nodes = {node.name: node for node in snapshot.nodes}
    shares: dict[str, VirtualShare] = {each.job_uid: each.share for each in memory.departed}
    new: list[tuple[str, VirtualShare, str | None]] = []
    here: dict[str, JobMemory] = {}
    jobs = sorted(snapshot.jobs, key=_arrived)
    for job in jobs:
        known = memory.jobs[job.uid]
        here[job.uid] = known
        if known.virtual is not None:
            shares[job.uid] = known.virtual
        elif not job.state.ended and job.node in nodes:
            new.append(_met(job, known, nodes[job.node], now))
        else:
            del here[job.uid]
    if not nodes or not (shares or new):
        return Guarantees({}, {}, 0.0, memory)
    clusters = virtual_shares.gathered(_capacities(snapshot), shares, new, {job.node for job in jobs})
    clusters.advance(now)
    known_now = _follow_work(clusters, jobs, memory, expected)
    refreshed = float(clusters.refreshed.min(initial=now)) if not new else -math.inf
    if known_now or now - refreshed >= REFRESH_SECONDS:
        clusters.refresh(now)
    due = {uid: float(clusters.due[at]) for uid, at in clusters.index.items()}
    service = dict(zip(clusters.uids, clusters.mean_service().tolist(), strict=True))
    return Guarantees(due, service, least_service_ratio(memory), virtual_shares.kept(clusters, memory, here))


def _arrived(job: Job) -> tuple[float, str]:
    return job.started_at_seconds, job.uid


def _capacities(snapshot: ClusterSnapshot) -> dict[str, float]:
    return {node.name: capacity_cores(node) for node in snapshot.nodes}


def _met(job: Job, known: JobMemory, node: Node, now_seconds: float) -> tuple[str, VirtualShare, str | None]:
    """A job that is new to the clusters."""
    cores = useful_cores(job, node)
    used = known.points.cpu_seconds if known.points is not None else 0.0
    if now_seconds - job.started_at_seconds <= TAKEN_OVER_SECONDS:
        return job.uid, VirtualShare(now_seconds, b"", b"", ENDLESS, cores), None
    service = np.full(virtual_shares.CLUSTERS, used, "<f4").tobytes()
    return job.uid, VirtualShare(now_seconds, b"", service, ENDLESS, cores), job.node


def _follow_work(clusters: Clusters, jobs: list[Job], memory: MemoryState, expected: Prospects) -> bool:
    """What each job needs, as it is known now; of one that has ended, what it has used. True when one was not known."""
    known_now, promised = False, clusters.promised
    for job in jobs:
        at, prospect = clusters.index.get(job.uid), expected.by_uid.get(job.uid)
        if at is None:
            continue
        points = memory.jobs[job.uid].points
        if prospect is not None:
            # Without a plan work is stored as endless: ends are simulated in each pass, since estimates change.
            known_now = known_now or clusters.work[at] >= ENDLESS
            clusters.work[at] = prospect.low if prospect.planned else ENDLESS
            promised[at] = prospect.low
        elif job.state.ended:
            clusters.work[at] = promised[at] = points.cpu_seconds if points is not None else 0.0
    return bool(known_now)


def least_service_ratio(memory: MemoryState) -> float:
    """From the jobs that ended last: by how much later than under fair sharing, in work, on average."""
    errors = [
        min(MAX_ERROR, max(0.0, each.fair_service / each.work - 1.0 - ERROR_ALLOWED))
        for record in memory.classes.values()
        for each in record
        if each.work and each.fair_service is not None
    ]
    mean = (math.fsum(errors) + PSEUDO_JOBS * PSEUDO_ERROR) / (len(errors) + PSEUDO_JOBS)
    return min(MAX_SERVICE_RATIO, SERVICE_OF_ERROR * mean)

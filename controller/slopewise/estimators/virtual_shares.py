"""Virtual clusters: where each job would stand under fair sharing, by which `marginal` guarantees its end.

Eight clusters have the same nodes and the same jobs. An arrival goes to the node with the fewest jobs; ties fall by a
hash that differs from cluster to cluster. No job moves; each node shares its CPU evenly up to what its jobs can use.
The clusters are advanced at each decision, and a job's due time is the mean of its ends, simulated from there on.

Each job remembers its own part (`JobMemory.virtual`). A job that has ended early goes on in them until it would have
ended under fair sharing, or those beside it would seem to be due sooner (`MemoryState.departed`).

Worked example: two jobs of 100 core-seconds on one core, begun together, are due at 200 s. At 50 s a third one comes:
the first two are due at 275 s, since 75 core-seconds each then pass at a third of the core.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from slopewise.model import DEPARTED_KEPT, ClusterSnapshot, Departed, JobMemory, MemoryState, VirtualShare

Floats = NDArray[np.float64]

CLUSTERS = 8

MAX_STOPS = 16
"""Of the times at which jobs were stored, at most; between two of them jobs count as stored at the former."""

UNUSABLE = 10**9
"""As if so many jobs were on a node."""

OVER = 1e-6
"""Core-seconds; less is nothing, as is less than 1e-9 of what was left at first."""


def with_departed(snapshot: ClusterSnapshot, memory: MemoryState, remembered: MemoryState) -> MemoryState:
    """The memory with the jobs that have left since the last pass, and without those that came back or are over."""
    here = {job.uid for job in snapshot.jobs}
    now = snapshot.taken_at_seconds
    kept = [each for each in remembered.departed if each.job_uid not in here]
    known = {each.job_uid for each in kept}
    new = [
        # What reported nothing has nothing to go on with; its work was never known, and would never be done.
        Departed(uid, structs.replace(job.virtual, work=job.points.cpu_seconds if job.points else 0.0))
        for uid, job in remembered.jobs.items()
        if job.virtual is not None and uid not in here and uid not in known and job.virtual.due_at_seconds > now
    ]
    if not new and not remembered.departed:
        return memory
    back = {each.job_uid: each.share for each in remembered.departed if each.job_uid in here}
    jobs = memory.jobs
    if back:
        jobs = {**jobs, **{uid: jobs[uid].altered(virtual=share) for uid, share in back.items() if uid in jobs}}
    return replace(memory, jobs=jobs, departed=tuple([*kept, *sorted(new, key=_uid)][-DEPARTED_KEPT:]))


def _uid(departed: Departed) -> str:
    return departed.job_uid


@dataclass(slots=True)
class Clusters:
    """All jobs in the virtual clusters; arrays have shape (jobs,) or (jobs, clusters)."""

    uids: list[str]
    index: dict[str, int]
    capacity: Floats
    """Of each node, in cores, shape (nodes,)."""
    node_ids: NDArray[np.uint32]
    nodes: NDArray[np.int64]
    """The number of the node of each job in each cluster."""
    service: Floats
    work: Floats
    cores: Floats
    at_seconds: Floats
    due: Floats
    refreshed: Floats
    promised: Floats
    """What each needs until its due time: no more than `work` where that is uncertain."""

    def advance(self, now_seconds: float) -> None:
        """Bring all jobs to now, each from where it stands: after a restart some were stored earlier than others.

        Those that were met only now stand where they are.
        """
        before = self.at_seconds < now_seconds
        times = np.unique(self.at_seconds[before])
        if len(times) > MAX_STOPS:
            times = times[np.linspace(0, len(times) - 1, MAX_STOPS).astype(int)]
        for since, until in pairwise([*times.tolist(), now_seconds]):
            remaining = np.where(before[:, None], np.maximum(0.0, self.work[:, None] - self.service), 0.0)
            left, _ = _run(remaining, self, until - since)
            behind = self.at_seconds < until
            self.service[behind] += (remaining - left)[behind]
        self.at_seconds[:] = now_seconds

    def refresh(self, now_seconds: float) -> None:
        """Simulate the ends, with the jobs known so far."""
        if len(self.uids):
            _, ends = _run(np.maximum(0.0, self.promised[:, None] - self.service), self, np.inf)
            self.due = now_seconds + ends.mean(axis=1)
            self.refreshed[:] = now_seconds

    def share_of(self, at: int) -> VirtualShare:
        """As it is remembered."""
        return VirtualShare(
            float(self.at_seconds[at]),
            self.node_ids[self.nodes[at]].astype("<u4").tobytes(),
            self.service[at].astype("<f4").tobytes(),
            float(self.work[at]),
            float(self.cores[at]),
            float(self.due[at]),
            float(self.refreshed[at]),
        )

    def mean_service(self) -> Floats:
        """The mean over the clusters of what each job would have had, in core-seconds, shape (jobs,)."""
        mean: Floats = self.service.mean(axis=1)
        return mean


def mean_service(share: VirtualShare) -> float | None:
    """The mean over the clusters of what a job has had, in core-seconds; None: the clusters have not run yet."""
    return float(np.frombuffer(share.service, "<f4").mean()) if share.service else None


def node_id(name: str) -> int:
    """What a node is remembered by."""
    return zlib.crc32(name.encode())


def gathered(
    capacities: Mapping[str, float],
    shares: Mapping[str, VirtualShare],
    new: Sequence[tuple[str, VirtualShare, str | None]],
    in_use: Collection[str] = (),
) -> Clusters:
    """The clusters of these nodes. `new`: jobs in order of arrival, with their need and, if they run, their node.

    `in_use`: nodes that jobs run on. Others may be full, or tainted: no job is put there. None: all can be used.
    """
    names = sorted(capacities)
    ids = np.array([node_id(name) for name in names], np.uint32)
    number = {int(each): position for position, each in enumerate(ids)}
    uids = sorted(shares)
    count = len(uids) + len(new)
    nodes = np.zeros((count, CLUSTERS), np.int64)
    service = np.zeros((count, CLUSTERS))
    present = [shares[uid] for uid in uids]
    if present:
        stored = np.frombuffer(b"".join(each.nodes for each in present), "<u4").reshape(-1, CLUSTERS)
        service[: len(uids)] = np.frombuffer(b"".join(each.service for each in present), "<f4").reshape(-1, CLUSTERS)
        order = np.argsort(ids)
        found = order[np.minimum(np.searchsorted(ids[order], stored), len(ids) - 1)]
        gone = ids[found] != stored  # the node has left: its jobs go on elsewhere
        nodes[: len(uids)] = np.where(gone, len(ids), found)
    present = [*present, *(share for _, share, _ in new)]
    clusters = Clusters(
        [*uids, *(uid for uid, _, _ in new)], {}, np.array([capacities[name] for name in names]), ids, nodes, service,
        _array([each.work for each in present]), _array([each.cores for each in present]),
        _array([each.at_seconds for each in present]), _array([each.due_at_seconds for each in present]),
        _array([each.due_refreshed_at_seconds for each in present]),
        _array([each.work for each in present]),
    )  # fmt: skip
    clusters.index = {uid: position for position, uid in enumerate(clusters.uids)}
    usable = np.array([name in in_use for name in names]) if in_use else np.ones(len(names), bool)
    _place(clusters, new, len(uids), {name: number[node_id(name)] for name in names}, usable)
    return clusters


def _array(figures: Sequence[float]) -> Floats:
    return np.array(figures, np.float64)


def _place(
    clusters: Clusters,
    new: Sequence[tuple[str, VirtualShare, str | None]],
    first: int,
    number: Mapping[str, int],
    usable: NDArray[np.bool_],
) -> None:
    """Put the new jobs on nodes: those that run already where they are, others where the fewest jobs are.

    Those of a node that has gone, which have the number after the last, are put like new ones.
    """
    size = len(clusters.capacity)
    counts = np.zeros((CLUSTERS, size), np.int64)
    counts[:, ~usable] = UNUSABLE
    active = clusters.work[:first, None] - clusters.service[:first] > OVER
    here = active & (clusters.nodes[:first] < size)
    for cluster in range(CLUSTERS):
        np.add.at(counts[cluster], clusters.nodes[:first][here[:, cluster], cluster], 1)
    for at, cluster in np.argwhere(clusters.nodes[:first] == size).tolist():
        chosen = _fewest(counts[cluster], clusters.uids[at], cluster)
        clusters.nodes[at, cluster] = chosen
        counts[cluster, chosen] += active[at, cluster]
    for offset, (uid, share, node) in enumerate(new):
        at = first + offset
        if share.service:
            clusters.service[at] = np.frombuffer(share.service, "<f4")
        for cluster in range(CLUSTERS):
            chosen = number[node] if node is not None else _fewest(counts[cluster], uid, cluster)
            clusters.nodes[at, cluster] = chosen
            counts[cluster, chosen] += 1


def _fewest(counts: NDArray[np.int64], uid: str, cluster: int) -> int:
    """The number of the node with the fewest jobs; ties fall differently in each cluster."""
    fewest = np.flatnonzero(counts == counts.min())
    return int(fewest[zlib.crc32(f"{uid} {cluster}".encode()) % len(fewest)])


def _run(remaining: Floats, clusters: Clusters, span: float) -> tuple[Floats, Floats]:
    """What is left of each job after `span` seconds of fair sharing, and when it ends; shape (jobs, clusters) each.

    All nodes of all clusters run at once: one row each, padded to the most jobs of a row; one round ends a job a row.
    """
    jobs, size = len(clusters.uids), len(clusters.capacity)
    rows = (clusters.nodes + size * np.arange(CLUSTERS)).ravel()
    order = np.argsort(rows, kind="stable")
    counts = np.bincount(rows, minlength=size * CLUSTERS)
    width = int(counts.max())
    column = np.arange(len(rows)) - np.repeat(np.concatenate([[0], np.cumsum(counts)[:-1]]), counts)
    places = rows[order], column
    left = np.zeros((size * CLUSTERS, width))
    caps = np.zeros_like(left)
    left[places] = remaining.ravel()[order]
    caps[places] = np.repeat(clusters.cores, CLUSTERS)[order]
    nothing = np.maximum(OVER, 1e-9 * left)
    ends = np.zeros_like(left)
    capacity = np.tile(clusters.capacity, CLUSTERS)
    elapsed = np.zeros(len(left))
    for _ in range(width + 1):
        running = left > nothing
        busy = running.any(axis=1) & (elapsed < span)
        if not busy.any():
            break
        rates = _rates(np.where(running, caps, 0.0), running, capacity)
        with np.errstate(divide="ignore", invalid="ignore"):
            until = np.where(running & (rates > 0), left / rates, np.inf).min(axis=1)
        step = np.where(busy, np.minimum(until, span - elapsed), 0.0)
        step = np.where(np.isfinite(step), step, 0.0)
        left = np.maximum(0.0, left - rates * step[:, None])
        elapsed += step
        ended = running & (left <= nothing)
        left[ended] = 0.0
        ends[ended] = np.broadcast_to(elapsed[:, None], ends.shape)[ended]
    after, at = np.empty(jobs * CLUSTERS), np.empty(jobs * CLUSTERS)
    after[order], at[order] = left[places], ends[places]
    return after.reshape(jobs, CLUSTERS), at.reshape(jobs, CLUSTERS)


def _rates(caps: Floats, running: NDArray[np.bool_], capacity: Floats) -> Floats:
    """Max-min fair cores of each row's running jobs, shape (rows, jobs)."""
    count = running.sum(axis=1)
    ascending = np.sort(np.where(running, caps, np.inf), axis=1)
    finite = np.where(np.isfinite(ascending), ascending, 0.0)
    before = np.concatenate([np.zeros((len(caps), 1)), np.cumsum(finite, axis=1)[:, :-1]], axis=1)
    waiting = np.maximum(1, count[:, None] - np.arange(caps.shape[1]))
    levels = (capacity[:, None] - before) / waiting
    # The smallest need first: the level is that of the first job that does not fit.
    fits = (ascending <= levels) | ~np.isfinite(ascending)
    first = np.argmin(fits, axis=1)
    level = np.where(fits.all(axis=1), np.inf, levels[np.arange(len(caps)), first])
    rates: Floats = np.minimum(caps, np.maximum(0.0, level)[:, None])
    return rates


def kept(clusters: Clusters, memory: MemoryState, here: Mapping[str, JobMemory]) -> MemoryState:
    """The memory with the clusters as they are now; jobs that have departed and are over are forgotten."""
    jobs = {**memory.jobs}
    for uid, known in here.items():
        jobs[uid] = known.altered(virtual=clusters.share_of(clusters.index[uid]))
    departed = []
    for each in memory.departed:
        at = clusters.index.get(each.job_uid)
        if at is not None and (clusters.work[at] - clusters.service[at] > OVER).any():
            departed.append(Departed(each.job_uid, clusters.share_of(at)))
    return replace(memory, jobs=jobs, departed=tuple(departed))

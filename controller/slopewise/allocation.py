"""CPU arithmetic: max-min fair shares under limits, and millicores to write for the limits that a policy decides.

`limits` writes the limit L of the papers as a hard ceiling. `requests` writes shares: FlowCon's limits are soft (thesis
5.1.1), "1 beside 0.25" gives 75 % and 25 % (6.1.3), and other jobs use what a job leaves. The share of a job is its
max-min fair CPU under the limits, and the node's sum of requests stays that of the originals.

A job without a limit keeps its original limit, or its original weight; the others share the rest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from slopewise.model import ClusterSnapshot, CpuAllocation, CpuControl, Job, JobMemory, Node, Resize

MIN_MILLICORES = 1

MIN_CAPACITY_CORES = 1e-3
"""Of a node without room for managed jobs: shares of it are as good as nothing, and still defined."""


def capacity_cores(node: Node) -> float:
    """The CPU of a node that its managed jobs may be promised together, in cores, above 0.

    Worked example: 4 cores of which other pods request 1.5 are 2.5; all 4 where that is not known.
    """
    available = node.available_cores
    if available is None or not math.isfinite(available):
        return node.cpu_cores
    return min(node.cpu_cores, max(MIN_CAPACITY_CORES, available))


def promisable(node: Node) -> Node:
    """The node as large as its capacity: for policies that promise CPU."""
    capacity = capacity_cores(node)
    return node if capacity == node.cpu_cores else replace(node, cpu_cores=capacity, available_cores=None)


def water_filling(
    most_cores: Sequence[float], capacity_cores: float, weights: Sequence[float] | None = None
) -> list[float]:
    """Max-min fair CPU, shape (jobs,): in proportion to `weights`, or evenly; none above its `most_cores`.

    Worked example: at most 0.19 and 1, weights alike, of one core: 0.19 and 0.81. Going up by most / weight, a job that
    has its most leaves the rest to those after it.
    """
    if sum(most_cores) <= capacity_cores:
        return list(most_cores)
    if len(most_cores) == 1:  # as nearly each group of an order
        return [min(most_cores[0], max(0.0, capacity_cores))]
    each_weight = [1.0] * len(most_cores) if weights is None else weights
    shares = [0.0] * len(most_cores)
    left, weight_left = max(0.0, capacity_cores), sum(each_weight)
    for index in sorted(range(len(most_cores)), key=lambda i: most_cores[i] / each_weight[i]):
        weight = each_weight[index]
        shares[index] = min(most_cores[index], left, left * weight / weight_left if weight_left > weight else left)
        left -= shares[index]
        weight_left -= weight
    return shares


def even_shares(limits_cores: Sequence[float], capacity_cores: float) -> list[float]:
    """Max-min fair CPU under limits, in cores, shape (jobs,); scaled up when the limits leave some over.

    Worked example: limits 2.0 and 0.5 on 2 cores give 1.5 and 0.5; the papers' 75 % beside 25 %.
    """
    shares = water_filling(limits_cores, capacity_cores)
    total = sum(shares)
    scale = capacity_cores / total if 0 < total < capacity_cores else 1.0
    return [share * scale for share in shares]


Key = TypeVar("Key")


def down_an_order(
    given_cores: Mapping[Key, float],
    groups: Iterable[Collection[Key]],
    most_cores: Mapping[Key, float],
    capacity_cores: float,
) -> dict[Key, float]:
    """Cores of each job: what it is given, and of the rest each group in turn, evenly, up to `most_cores` each.

    Worked example: 0.1 core each of 1.5 for three jobs of one thread, in groups of one: 1.0, 0.4 and 0.1.
    """
    cores = dict(given_cores)
    left = max(0.0, capacity_cores - math.fsum(cores.values()))
    for group in groups:
        rooms = [max(0.0, most_cores[each] - cores[each]) for each in group]
        for each, more in zip(group, water_filling(rooms, left), strict=True):
            cores[each] += more
            left -= more
    return cores


def accepted_millicores(job: Job, node: Node, control: CpuControl) -> int:
    """The job's accepted CPU in the controlled dimension; no limit counts as the whole node."""
    return _millicores(job.allocation, job.pod_level, node, control)


def actual_millicores(job: Job, node: Node, control: CpuControl) -> int:
    """The job's CPU in effect, as the platform reports it; the accepted one where it does not report."""
    return _millicores(job.actual or job.allocation, job.pod_level, node, control)


def _millicores(has: CpuAllocation, of_pod: CpuAllocation | None, node: Node, control: CpuControl) -> int:
    """A container without CPU of its own uses what is set for its pod."""
    if control == "requests":
        return has.request_millicores or (of_pod.request_millicores if of_pod is not None else 0)
    limit = has.limit_millicores
    if of_pod is not None and of_pod.limit_millicores is not None:
        return of_pod.limit_millicores if limit is None else min(limit, of_pod.limit_millicores)
    return round(node.cpu_cores * 1000) if limit is None else limit


Millicores = Callable[[Job, Node, CpuControl], int]


def allotted_cores(
    snapshot: ClusterSnapshot,
    control: CpuControl,
    targets: Mapping[str, int] | None = None,
    has: Millicores = accepted_millicores,
) -> dict[str, float]:
    """The CPU that each job may use, in cores, by uid; `targets` (millicores) replaces the CPU of some jobs.

    A limit is in cores. A request is a weight; its value here is the share of the node when every job wants CPU. Worked
    example: weights 1500 and 500 on two cores are 1.5 and 0.5 cores.
    """
    targets = targets or {}
    allotted: dict[str, float] = {job.uid: 0.0 for job in snapshot.jobs}
    jobs_on = snapshot.jobs_by_node()
    for node in snapshot.nodes:
        jobs = jobs_on[node.name]
        held = [targets[job.uid] if job.uid in targets else has(job, node, control) for job in jobs]
        allotted.update(zip([job.uid for job in jobs], cores_of(held, node, control), strict=True))
    return allotted


def cores_of(millicores: Sequence[int], node: Node, control: CpuControl) -> list[float]:
    """The CPU that each job of a node may use, shape (jobs,): its limit, or its part of the node by all weights."""
    unit = 1000 if control == "limits" else (sum(millicores) or 1) / node.cpu_cores
    return [each / unit for each in millicores]


def even_share_millicores(
    jobs: Sequence[Job], remembered: Mapping[str, JobMemory], node: Node, control: CpuControl
) -> int:
    """What each of the node's jobs would have if all had the same, in millicores of the dimension that is controlled.

    `jobs` are those of the node that have not ended; there is at least one. `limits`: the node's CPU over the jobs.
    `requests`: the weight that gives just that part of the node, the requests that the jobs came with over the jobs.
    Worked example: four jobs on two cores have 500m each; with requests of 1000m each, they have weights of 1000m.
    """
    if control == "limits":
        return round(1000 * node.cpu_cores / len(jobs))
    return round(sum(_original(job, remembered).request_millicores for job in jobs) / len(jobs))


def weight_per_core_millicores(jobs: Sequence[Job], remembered: Mapping[str, JobMemory], node: Node) -> float:
    """The weight that gives one core of the node when every job wants CPU: what its jobs came with over its cores.

    `jobs` are those of the node that have not ended. Worked example: four jobs with requests of 1000m each on two cores
    have 2000m a core.
    """
    return sum(_original(job, remembered).request_millicores for job in jobs) / node.cpu_cores


def original_millicores(job: Job, remembered: Mapping[str, JobMemory], node: Node, control: CpuControl) -> int:
    """The job's CPU before the first change, in the controlled dimension."""
    return _millicores(_original(job, remembered), job.pod_level, node, control)


def share_ratio(some: Iterable[Job], jobs: Iterable[Job], remembered: Mapping[str, JobMemory]) -> float:
    """The part of a node, 0 to 1, that `some` of its jobs get by the weights that all of them came with.

    Worked example: one of three jobs with requests of 1000m each has a third.
    """
    total = sum(_original(job, remembered).request_millicores for job in jobs)
    return sum(_original(job, remembered).request_millicores for job in some) / total if total else 0.0


def targets_millicores(
    jobs: Sequence[Job],
    limits_cores: Sequence[float | None],
    remembered: Mapping[str, JobMemory],
    node: Node,
    control: CpuControl,
) -> list[int]:
    """Millicores to write so that each job gets its limit, shape (jobs,); None: its original.

    Worked example: weights of 1000m each on one core, limits of 1, 0.25 and None: the third keeps its 1000m, which is a
    third of the node; of the rest the first two get 0.417 and 0.25 cores, by weights of 1250m and 750m.
    """
    if control == "limits":
        return [
            original_millicores(job, remembered, node, control) if limit is None else _at_least(1000 * limit)
            for job, limit in zip(jobs, limits_cores, strict=True)
        ]
    weights = [_original(job, remembered).request_millicores for job in jobs]
    unit = weight_per_core_millicores(jobs, remembered, node)
    limited = [index for index, limit in enumerate(limits_cores) if limit is not None]
    left_cores = sum(weights[index] for index in limited) / unit if unit else 0.0
    shares = even_shares([limit for limit in limits_cores if limit is not None], left_cores)
    for index, share in zip(limited, shares, strict=True):
        weights[index] = _at_least(share * unit)
    return weights


def _at_least(millicores: float) -> int:
    return max(MIN_MILLICORES, round(millicores))


def _original(job: Job, remembered: Mapping[str, JobMemory]) -> CpuAllocation:
    known = remembered.get(job.uid)
    original = known.original if known else None
    return original or job.allocation


def allotment_texts(
    limits_cores: Sequence[float | None], targets: Sequence[int], node: Node, control: CpuControl
) -> list[str]:
    """The allotment of each job of a node as text, shape (jobs,); `targets` in millicores.

    Empty without a limit. Worked example: `weight 848 of 2000, as if limited to 0.57 of 2 cores`.
    """
    whole, total = f"{node.cpu_cores:.3g} cores", sum(targets)
    texts = []
    for target, limit in zip(targets, limits_cores, strict=True):
        if limit is None:
            texts.append("")
        elif control == "limits":
            texts.append(f"limit {limit:.3g} of {whole}")
        else:
            texts.append(f"weight {target} of {total}, as if limited to {limit:.3g} of {whole}")
    return texts


def resizes(
    jobs: Sequence[Job],
    limits_cores: Sequence[float | None],
    targets: Sequence[int],
    reasons: Mapping[str, str],
    node: Node,
    control: CpuControl,
) -> list[Resize]:
    """The changes that bring the jobs of one node to their targets (millicores); none for a job that is there.

    A job without a limit that was changed before is restored to its original.
    """
    changes = []
    for job, limit, target in zip(jobs, limits_cores, targets, strict=True):
        now = accepted_millicores(job, node, control)
        if target != now:
            is_rollback = limit is None
            changes.append(Resize(job.uid, node.name, control, now, target, reasons[job.uid], is_rollback))
    return changes

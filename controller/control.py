"""From the limits that a policy decides on (the papers' L, in cores) to what is written to a container.

`limits` writes L itself, as a hard ceiling. `requests` writes shares: FlowCon's limits are soft (thesis 5.1.1),
"1 beside 0.25" gives 75 % and 25 % (6.1.3), and what a job leaves unused goes to the others. So each job's
share is what it would get if CPU were handed out evenly up to the limits, and the node's sum of requests
stays what it was before we came.

A job that no limit is decided for keeps what it came with: its own limit, or its own weight beside the others, who
share what that leaves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from controller.model import ClusterSnapshot, CpuAllocation, CpuControl, Job, JobMemory, Node, Resize

MIN_MILLICORES = 1


def even_shares(limits_cores: Sequence[float], capacity_cores: float) -> list[float]:
    """Max-min fair CPU under limits, in cores, shape (jobs,); scaled up when the limits leave some over.

    Worked example: limits 2.0 and 0.5 on 2 cores give 1.5 and 0.5; the papers' 75 % beside 25 %.
    """
    shares = [0.0] * len(limits_cores)
    left, waiting = capacity_cores, len(limits_cores)
    for index in sorted(range(len(limits_cores)), key=lambda i: limits_cores[i]):
        shares[index] = min(limits_cores[index], left / waiting)
        left -= shares[index]
        waiting -= 1
    total = sum(shares)
    scale = capacity_cores / total if 0 < total < capacity_cores else 1.0
    return [share * scale for share in shares]


def now_millicores(job: Job, node: Node, control: CpuControl) -> int:
    """What the job has now in the dimension that is controlled; no limit counts as the whole node."""
    return _millicores(job.allocation, node, control)


def _millicores(allocation: CpuAllocation, node: Node, control: CpuControl) -> int:
    if control == "requests":
        return allocation.request_millicores
    return round(node.cpu_cores * 1000) if allocation.limit_millicores is None else allocation.limit_millicores


def allotted_cores(
    snapshot: ClusterSnapshot, control: CpuControl, targets: Mapping[str, int] | None = None
) -> dict[str, float]:
    """What each job may use, in cores, by uid; `targets` replaces what some jobs have now, in millicores.

    A limit is cores already. A request is a weight: it is told as the share of the node that it gives when every
    job wants CPU. Worked example: weights 1500 and 500 on two cores are 1.5 and 0.5 cores.
    """
    targets = targets or {}
    allotted: dict[str, float] = {job.uid: 0.0 for job in snapshot.jobs}
    jobs_on = snapshot.jobs_by_node()
    for node in snapshot.nodes:
        jobs = jobs_on[node.name]
        held = {job.uid: targets.get(job.uid, now_millicores(job, node, control)) for job in jobs}
        unit = 1000 if control == "limits" else (sum(held.values()) or 1) / node.cpu_cores
        allotted.update({uid: millicores / unit for uid, millicores in held.items()})
    return allotted


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


def own_millicores(job: Job, remembered: Mapping[str, JobMemory], node: Node, control: CpuControl) -> int:
    """What the job came with, before our first change, in the dimension that is controlled."""
    return _millicores(_original(job, remembered), node, control)


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
    """What to write for each job so that it gets its limit, in millicores, shape (jobs,); None: what it came with.

    Worked example: weights of 1000m each on one core, limits of 1, 0.25 and None: the third keeps its 1000m, which is a
    third of the node; of the rest the first two get 0.417 and 0.25 cores, by weights of 1250m and 750m.
    """
    if control == "limits":
        return [
            own_millicores(job, remembered, node, control) if limit is None else _at_least(1000 * limit)
            for job, limit in zip(jobs, limits_cores, strict=True)
        ]
    weights = [_original(job, remembered).request_millicores for job in jobs]
    unit = sum(weights) / node.cpu_cores
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


def resizes(
    jobs: Sequence[Job],
    limits_cores: Sequence[float | None],
    reasons: Mapping[str, str],
    remembered: Mapping[str, JobMemory],
    node: Node,
    control: CpuControl,
) -> list[Resize]:
    """The changes that bring the jobs of one node to their limits; none for a job that is there already.

    One without a limit that was changed before gets back what it came with.
    """
    wanted = targets_millicores(jobs, limits_cores, remembered, node, control)
    changes = []
    for job, limit, target in zip(jobs, limits_cores, wanted, strict=True):
        now = now_millicores(job, node, control)
        if target != now:
            gives_back = limit is None
            changes.append(Resize(job.uid, node.name, control, now, target, reasons[job.uid], gives_back))
    return changes

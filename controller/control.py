"""From the limits that a policy decides on (the papers' L, in cores) to what is written to a container.

`limits` writes L itself, as a hard ceiling. `requests` writes shares: FlowCon's limits are soft (thesis 5.1.1),
"1 beside 0.25" gives 75 % and 25 % (6.1.3), and what a job leaves unused goes to the others. So each job's
share is what it would get if CPU were handed out evenly up to the limits, and the node's sum of requests
stays what it was before we came.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

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
    """What was accepted for the job in the dimension that is controlled; no limit counts as the whole node."""
    return _millicores(job.allocation, job.pod_level, node, control)


def actual_millicores(job: Job, node: Node, control: CpuControl) -> int:
    """What of it is in effect, as the platform reports it."""
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
    has: Millicores = now_millicores,
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
        held = {job.uid: targets.get(job.uid, has(job, node, control)) for job in jobs}
        unit = 1000 if control == "limits" else (sum(held.values()) or 1) / node.cpu_cores
        allotted.update({uid: millicores / unit for uid, millicores in held.items()})
    return allotted


def targets_millicores(
    jobs: Sequence[Job],
    limits_cores: Sequence[float],
    remembered: Mapping[str, JobMemory],
    node: Node,
    control: CpuControl,
) -> list[int]:
    """What to write for each job so that it gets its limit, in millicores, shape (jobs,)."""
    if control == "limits":
        return [max(MIN_MILLICORES, round(limit * 1000)) for limit in limits_cores]
    shares = even_shares(limits_cores, node.cpu_cores)
    total = sum(_original_request(job, remembered) for job in jobs)
    return [max(MIN_MILLICORES, round(share / node.cpu_cores * total)) for share in shares]


def _original_request(job: Job, remembered: Mapping[str, JobMemory]) -> int:
    known = remembered.get(job.uid)
    original = known.original if known else None
    return (original or job.allocation).request_millicores


def given_texts(limits_cores: Sequence[float], targets: Sequence[int], node: Node, control: CpuControl) -> list[str]:
    """What each job of a node is given, in the unit that is written, shape (jobs,); `targets` in millicores.

    Worked example: `weight 848 of 2000, as if limited to 0.57 of 2 cores`.
    """
    whole = f"{node.cpu_cores:.3g} cores"
    if control == "limits":
        return [f"limit {limit:.3g} of {whole}" for limit in limits_cores]
    total = sum(targets)
    return [
        f"weight {target} of {total}, as if limited to {limit:.3g} of {whole}"
        for target, limit in zip(targets, limits_cores, strict=True)
    ]


def resizes(
    jobs: Sequence[Job], targets: Sequence[int], reasons: Mapping[str, str], node: Node, control: CpuControl
) -> list[Resize]:
    """The changes that bring the jobs of one node to their targets (millicores); none for a job that is there."""
    changes = []
    for job, target in zip(jobs, targets, strict=True):
        now = now_millicores(job, node, control)
        if target != now:
            changes.append(Resize(job.uid, node.name, control, now, target, reasons[job.uid]))
    return changes

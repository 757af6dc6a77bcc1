"""Jobs with accelerators, for the policies that change their CPU: what each keeps, can use, and why.

A job whose need is known (`estimators/gpu_need.py`) takes part with its useful cores as what it can use, and keeps what
makes it as fast as with the CPU that it came with. Every other one keeps its original CPU, as a silent job does.

Worked example: on 24 cores two jobs of 12 each, with 20 and 4 useful cores, under `Share`: the second keeps
1.2 * 4 = 4.8 cores at least, the first gets 19.2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from slopewise.allocation import allotted_cores, down_an_order, original_millicores
from slopewise.estimators.gpu_need import GpuNeed, explained, gpu_need, least_cores
from slopewise.estimators.speed import useful_cores
from slopewise.model import ClusterSnapshot, Job, JobMemory, MemoryState, Node
from slopewise.policies import Setting
from slopewise.policies.shared.node_passes import Verdict
from slopewise.policies.shared.silence import Silence
from slopewise.text import duration

STALE_INTERVALS = 10.0
"""A job without a measured step in ten intervals, or ten steps, evaluates or hangs: it gets its original CPU back."""

INPUT_BOUND, GPU_BOUND = "input-bound", "GPU-bound"


@dataclass(frozen=True, slots=True)
class GpuJobs:
    """The jobs of a snapshot whose CPU may be changed although they have accelerators, and those that keep theirs."""

    snapshot: ClusterSnapshot
    """With their useful and least cores."""
    needs: Mapping[str, GpuNeed]
    """By uid."""
    originals: Mapping[str, float]
    """Cores that they came with, by uid."""
    kept: Mapping[str, str]
    """Why each other one keeps its CPU, by uid."""

    def silence(self, of_others: Silence) -> Silence:
        """A job with accelerators is silent whose need is not known, whatever it reports."""
        if not (self.needs or self.kept):
            return of_others

        def silence(job: Job, known: JobMemory) -> str | None:
            return None if job.uid in self.needs else self.kept.get(job.uid) or of_others(job, known)

        return silence

    def by_need(self, uids: Sequence[str]) -> list[str]:
        """Those of these jobs, the least need first, as if the work of all had the same value."""
        return sorted(self.needs.keys() & set(uids), key=lambda uid: (self.needs[uid].useful_cores or 0.0, uid))

    def with_idle(self, cores: Mapping[str, float], total_cores: float) -> dict[str, float]:
        """CPU that no job can use stays with the jobs that came with it."""
        lent = [uid for uid in cores if cores[uid] < self.originals.get(uid, 0.0)]
        return down_an_order(cores, [lent], self.originals, total_cores)

    def verdict(self, uid: str, cores: float) -> Verdict:
        """The decision on one of them, by its need alone."""
        listed = GPU_BOUND if self.needs[uid].limiting == "gpu" else INPUT_BOUND
        return Verdict(cores, listed, f"{listed}: {explained(self.needs[uid], self.originals[uid])}")

    def because(self, uid: str) -> str:
        """What a policy adds to its reason for one of them; empty for any other job."""
        return f"; {explained(self.needs[uid], self.originals[uid])}" if uid in self.needs else ""


def gpu_jobs(snapshot: ClusterSnapshot, memory: MemoryState, setting: Setting) -> GpuJobs:
    """The jobs with accelerators of this pass; none where their owner has not consented (`Setting.accelerators`)."""
    having = [job for job in snapshot.jobs if job.accelerators and not job.state.ended]
    if setting.accelerators == "Ignore" or not having:
        return GpuJobs(snapshot, {}, {}, {})
    nodes, kept = {node.name: node for node in snapshot.nodes}, {}
    millicores = {
        job.uid: original_millicores(job, memory.jobs, nodes[job.node], setting.control)
        for job in snapshot.jobs
        if not job.state.ended
    }
    cores, needs = allotted_cores(snapshot, setting.control, millicores), {}
    for job in having:
        need = gpu_need(job, memory.jobs[job.uid])
        if (because := _unknown(job, need, snapshot, setting)) is None:
            needs[job.uid] = need
        else:
            kept[job.uid] = because
    originals = {uid: cores[uid] for uid in needs}
    jobs = {job.uid: job for job in snapshot.jobs}
    jobs |= {uid: jobs[uid].altered(least_cores=cores[uid]) for uid in kept}
    for uid, need in needs.items():
        jobs[uid] = _with_need(jobs[uid], need, memory.jobs[uid], originals[uid], setting)
    return GpuJobs(replace(snapshot, jobs=tuple(jobs.values())), needs, originals, kept)


def _unknown(job: Job, need: GpuNeed, snapshot: ClusterSnapshot, setting: Setting) -> str | None:
    """Why its CPU is not changed; None: its need is known, and it may be changed."""
    if job.ineligible_reason is not None:
        return job.ineligible_reason
    if need.useful_cores is None or need.at_seconds is None:
        return "whether its GPU waits for its CPU is not known"
    age, step = snapshot.taken_at_seconds - need.at_seconds, need.gpu_seconds or 0.0
    if age > STALE_INTERVALS * max(setting.interval_seconds, step):
        return f"no step for {duration(age)}"
    return None


def _with_need(job: Job, need: GpuNeed, known: JobMemory, original_cores: float, setting: Setting) -> Job:
    useful = min(need.useful_cores or 0.0, job.useful_parallelism_cores or need.useful_cores or 0.0)
    least = least_cores(need, known, original_cores, setting.accelerators)
    return job.altered(useful_parallelism_cores=useful, least_cores=least, migratable=False)


def divide(gpus: GpuJobs, jobs: Sequence[Job], node: Node) -> dict[str, float]:
    """The CPU of a node among jobs with accelerators, by need alone: each its least, and the rest evenly.

    With less than it can use a job's time is as 1 / cores, so the first core more of each job saves most: of Synergy's
    jobs on 4 and 8 servers, evenly gives .85 and .83 of the mean completion, and the least need first .87 and .83.
    """
    most = {job.uid: useful_cores(job, node) for job in jobs}
    least = {job.uid: job.least_cores or 0.0 for job in jobs}
    given = down_an_order(least, [list(most)], most, node.cpu_cores)
    return gpus.with_idle(given, node.cpu_cores)

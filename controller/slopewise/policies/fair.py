"""Fair sharing: no job is changed. The baseline of every comparison.

The kernel shares CPU evenly between containers of equal weight, which is what the papers call NA.

Where `spec.resources.accelerators` says so, jobs with GPUs are changed, by need alone: GPUs that wait for CPU get what
lies idle, and what GPU-bound jobs cannot use, in even parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from slopewise.model import ClusterSnapshot, Decisions, Job, JobMemory, MemoryState, Node, NodeMemory
from slopewise.policies import PolicyParameters, Setting
from slopewise.policies.shared.accelerators import GpuJobs, divide, gpu_jobs
from slopewise.policies.shared.node_passes import NodeDecision, decide_by_node
from slopewise.policies.shared.silence import without_decision

PURPOSE = "the baseline: no job is changed"
ACTIONS = ()
ACCELERATORS = True

UNCHANGED = "fair sharing: unchanged"


class Parameters(PolicyParameters):
    """None: there is nothing to choose."""


class Policy:
    """Evaluates at the regular interval, so that growth is measured and shown, and changes nothing."""

    def __init__(self, parameters: Parameters, setting: Setting) -> None:
        self._setting = setting

    def decide(self, snapshot: ClusterSnapshot, memory: MemoryState) -> Decisions:
        """No resize, the same reason for every job; of jobs with accelerators what their need asks for."""
        if self._setting.accelerators != "Ignore":
            return self._by_need(gpu_jobs(snapshot, memory, self._setting), memory)
        now, interval = snapshot.taken_at_seconds, self._setting.interval_seconds
        nodes = {
            name: NodeMemory(frozenset(job.uid for job in jobs), now, interval)
            for name, jobs in snapshot.jobs_by_node().items()
        }
        reasons = {job.uid: UNCHANGED for job in snapshot.jobs if not job.state.ended}
        # The class and the end that another policy saw in a job, before the user changed policies, mean nothing here.
        jobs = {uid: without_decision(known) for uid, known in memory.jobs.items()}
        return Decisions("fair", (), reasons, MemoryState(jobs, nodes))

    def _by_need(self, gpus: GpuJobs, memory: MemoryState) -> Decisions:
        """A job without accelerators, or whose need is not known, keeps its original CPU."""

        def decide_node(node: Node, jobs: Sequence[Job], last: NodeMemory | None) -> NodeDecision:
            given = divide(gpus, jobs, node)
            return NodeDecision(
                {uid: gpus.verdict(uid, cores) for uid, cores in given.items()}, self._setting.interval_seconds
            )

        def silence(job: Job, known: JobMemory) -> str:
            return "fair sharing"

        decided = decide_by_node(
            "fair",
            gpus.snapshot,
            memory,
            self._setting.control,
            decide_node,
            silence=gpus.silence(silence),
            reserves=True,
            longest_seconds=self._setting.interval_seconds,
        )
        others = {uid: UNCHANGED for uid in decided.reasons if uid not in gpus.needs and uid not in gpus.kept}
        return replace(decided, reasons={**decided.reasons, **others})

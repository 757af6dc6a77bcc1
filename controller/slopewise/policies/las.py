"""LAS: CPU first to the jobs that have had least of it. A baseline without losses or sizes of jobs.

Source: least attained service, in the discretised form of Tiresias (NSDI 2019); a baseline of every comparison.

Plain LAS makes equals take turns at every evaluation: the job that had a second less goes first, and is behind a moment
later. So attained service is counted in queues whose thresholds double: with a first queue of 10 core-seconds, jobs
that had less than 10 are in queue 0, less than 20 in queue 1, less than 40 in queue 2. The jobs of one queue share
evenly; a lower queue goes before a higher one, each job up to its useful parallelism; everyone else gets a floor, or
its exporter would fall silent.

What is not stated elsewhere, and is our reading:

- Service is the CPU that the job's process has used. A job that was moved or restarted begins at 0.
- Where it is not counted, it is the most that the job can have used: its age times what it can use. A newcomer
  before its first sample is so in queue 0, and a job without samples does not stay there.
- A job that reports nothing, neither a loss nor steps, keeps its original CPU, and the others share the rest; unless
  `silentJobs: count`, which is the published form: its CPU counts as of any other.
- Arriving jobs are left to the default scheduler, and no job is moved.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal

from slopewise.model import ClusterSnapshot, Decisions, Job, MemoryState, Node, NodeMemory
from slopewise.policies import PolicyParameters, Setting, parameter
from slopewise.policies.shared.node_passes import NodeDecision, Verdict, decide_by_node
from slopewise.policies.shared.shares import down_the_order, floor_ratio_parameter, useful_cores
from slopewise.policies.shared.silence import none_is_silent, without_a_report

PURPOSE = "the baseline without losses: least CPU so far first"
ACTIONS = ("resize",)
IN_TURNS = True
DECIDES_ON = "reports"
SIMULATOR_ONLY = "it is a baseline of the simulator; write fair or marginal"


class Parameters(PolicyParameters):
    """The width of the queues, and what those who wait are given."""

    first_queue_cpu_seconds: float = parameter(
        10.0,
        gt=0,
        le=1e9,
        unit="core-seconds",
        source="reading: of the order of a tenth of a job",
        description="attained service up to which a job is in the first queue; each further queue ends at the double",
    )
    floor_ratio: float = floor_ratio_parameter()
    silent_jobs: Literal["leave", "count"] = parameter(
        "leave",
        unit="leave or count",
        source="ours",
        description="a job that reports nothing: leave its original CPU, or count its CPU as of any other",
    )


class Policy:
    """Per node: queues of attained service, lowest first."""

    def __init__(self, parameters: Parameters, setting: Setting) -> None:
        self._parameters = parameters
        self._setting = setting

    def decide(self, snapshot: ClusterSnapshot, memory: MemoryState) -> Decisions:
        """Decide on every node that is due; a job's class is its queue."""

        def decide_node(node: Node, jobs: Sequence[Job], last: NodeMemory | None) -> NodeDecision:
            attained = {job.uid: _attained_cpu_seconds(job, node, snapshot.taken_at_seconds) for job in jobs}
            return self._decide_node(node, jobs, attained)

        silence = without_a_report(snapshot) if self._parameters.silent_jobs == "leave" else none_is_silent
        return decide_by_node("las", snapshot, memory, self._setting.control, decide_node, silence=silence)

    def _decide_node(self, node: Node, jobs: Sequence[Job], attained: Mapping[str, float]) -> NodeDecision:
        queues: dict[int, list[Job]] = {}
        for job in jobs:
            queues.setdefault(self._queue(attained[job.uid]), []).append(job)
        cores = down_the_order([queues[number] for number in sorted(queues)], node, self._parameters.floor_ratio)
        verdicts = {}
        for number, queued in queues.items():
            for job in queued:
                had, given = attained[job.uid], cores[job.uid]
                reason = f"queue {number}: has had {had:.3g} core-s"
                verdicts[job.uid] = Verdict(given, f"queue {number}", reason)
        return NodeDecision(verdicts, self._setting.interval_seconds)

    def _queue(self, attained_cpu_seconds: float) -> int:
        """0 below the first threshold, then one more for each doubling: 10 core-s of 10 are queue 1, 20 are 2."""
        ratio = attained_cpu_seconds / self._parameters.first_queue_cpu_seconds
        return 0 if ratio < 1 else 1 + math.floor(math.log2(ratio))


def _attained_cpu_seconds(job: Job, node: Node, now_seconds: float) -> float:
    """What the job has had, in core-seconds; the most that it can have had where it is not counted."""
    counted = job.usage.cpu_seconds_total if job.usage else None
    if counted is not None and math.isfinite(counted):
        return counted
    return max(0.0, now_seconds - job.started_at_seconds) * useful_cores(job, node)

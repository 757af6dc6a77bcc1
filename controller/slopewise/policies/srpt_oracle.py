"""SRPT oracle: CPU first to the job with the least work left, which only an oracle knows.

Runs in the simulator only, which fills `ClusterSnapshot.remaining_work_cpu_seconds`; nothing else can know it.

Source: shortest remaining processing time; the bound for the mean completion time that every comparison includes
(no policy without its knowledge can be expected to reach it). Per node, not over the cluster: arriving jobs are left
to the default scheduler and no job is moved, so that what it gains is gained by order alone.

CPU goes down the order of remaining work, to each job up to its useful parallelism; everyone else gets a floor. A
job whose end is not known (not in the oracle's mapping, or a served model without an end) comes after all that
have one, and those share evenly. A job that reports nothing keeps its original CPU.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from slopewise.model import ClusterSnapshot, Decisions, Job, MemoryState, Node, NodeMemory
from slopewise.policies import PolicyParameters, Setting
from slopewise.policies.shared.node_passes import NodeDecision, Verdict, decide_by_node
from slopewise.policies.shared.shares import down_the_order, floor_ratio_parameter
from slopewise.policies.shared.silence import without_a_report

PURPOSE = "the bound: who has least work left goes first"
ACTIONS = ("resize",)
IN_TURNS = True
DECIDES_ON = "reports"

SIMULATOR_ONLY = (
    "it must know how much work each job has left, which only the simulator does; use `slopewise simulate`, or another "
    "policy"
)

RUNS, WAITS, ENDLESS = "runs", "waits", "no end known"


class Parameters(PolicyParameters):
    """What those who wait are given."""

    floor_ratio: float = floor_ratio_parameter()


class Policy:
    """Per node: least remaining work first."""

    def __init__(self, parameters: Parameters, setting: Setting) -> None:
        self._parameters = parameters
        self._setting = setting

    def decide(self, snapshot: ClusterSnapshot, memory: MemoryState) -> Decisions:
        """Decide on every node that is due; `snapshot.remaining_work_cpu_seconds` is the oracle."""

        def decide_node(node: Node, jobs: Sequence[Job], last: NodeMemory | None) -> NodeDecision:
            return self._decide_node(node, jobs, snapshot.remaining_work_cpu_seconds)

        silence = without_a_report(snapshot)
        return decide_by_node("srpt-oracle", snapshot, memory, self._setting.control, decide_node, silence=silence)

    def _decide_node(self, node: Node, jobs: Sequence[Job], remaining: Mapping[str, float]) -> NodeDecision:
        finite = [job for job in jobs if math.isfinite(remaining.get(job.uid, math.inf))]
        order = sorted(finite, key=lambda job: (remaining[job.uid], job.uid))
        endless = [job for job in jobs if not math.isfinite(remaining.get(job.uid, math.inf))]
        floor = self._parameters.floor_ratio
        cores = down_the_order([*([job] for job in order), endless], node, floor)
        waiting_at = floor * node.cpu_cores / len(jobs) if jobs else 0.0
        verdicts = {job.uid: Verdict(cores[job.uid], ENDLESS, f"{ENDLESS}: no end of it is known") for job in endless}
        for place, job in enumerate(order, start=1):
            listed = WAITS if math.isclose(cores[job.uid], waiting_at) else RUNS
            reason = f"{listed}: {remaining[job.uid]:.3g} core-s left, {place} in order"
            verdicts[job.uid] = Verdict(cores[job.uid], listed, reason)
        return NodeDecision(verdicts, self._setting.interval_seconds)

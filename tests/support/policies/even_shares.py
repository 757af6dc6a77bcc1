"""A policy for tests: an even share of the node for each job, at once and for ever, whatever it reports."""

from __future__ import annotations

from collections.abc import Sequence

from slopewise.model import ClusterSnapshot, Decisions, Job, MemoryState, Node, NodeMemory
from slopewise.policies import PolicyParameters, Setting
from slopewise.policies.shared.node_passes import NodeDecision, Verdict, decide_by_node
from slopewise.policies.shared.shares import useful_cores
from slopewise.policies.shared.silence import none_is_silent

IN_TURNS = True
"""No test of it is about growth, so nothing is rolled back for that."""


class Parameters(PolicyParameters):
    """None."""


class Policy:
    """Needs no metrics."""

    def __init__(self, parameters: Parameters, setting: Setting) -> None:
        self._setting = setting

    def decide(self, snapshot: ClusterSnapshot, memory: MemoryState) -> Decisions:
        """The same share for each job of a node that is due."""

        def decide_node(node: Node, jobs: Sequence[Job], last: NodeMemory | None) -> NodeDecision:
            shares = {job.uid: min(node.cpu_cores / len(jobs), useful_cores(job, node)) for job in jobs}
            verdicts = {uid: Verdict(share, "even", "even: as set by the test") for uid, share in shares.items()}
            return NodeDecision(verdicts, self._setting.interval_seconds)

        return decide_by_node(
            "even-shares", snapshot, memory, self._setting.control, decide_node, silence=none_is_silent
        )

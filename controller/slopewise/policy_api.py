"""The public API for policies: a policy file imports its names from here, and nothing else of Slopewise.

These names stay and keep their meaning; fields are added with defaults. `docs/own-policies.md` lists them and explains
how to write a policy.
"""

from __future__ import annotations

from slopewise.allocation import even_shares
from slopewise.estimators.growth import is_usable
from slopewise.model import (
    Arrival,
    ClusterSnapshot,
    CpuAllocation,
    CpuControl,
    Decisions,
    Evaluation,
    Growth,
    Job,
    JobMemory,
    JobState,
    MemoryState,
    Migrate,
    Movability,
    MoveUnderWay,
    Node,
    NodeMemory,
    Objectives,
    Pace,
    Place,
    Resize,
    Responses,
    Usage,
)
from slopewise.policies import PolicyParameters, Setting, parameter
from slopewise.policies.shared.node_passes import NodeDecision, Verdict, decide_by_node
from slopewise.policies.shared.placement import (
    blocked_reason_on,
    by_cpu_fraction,
    can_move,
    cpu_use_cores,
    place_each,
    refused_nodes,
)
from slopewise.policies.shared.shares import down_the_order, in_proportion, useful_cores
from slopewise.policies.shared.silence import Silence, none_is_silent, without_a_loss, without_a_report

__all__ = [
    "Arrival",
    "ClusterSnapshot",
    "CpuAllocation",
    "CpuControl",
    "Decisions",
    "Evaluation",
    "Growth",
    "Job",
    "JobMemory",
    "JobState",
    "MemoryState",
    "Migrate",
    "Movability",
    "MoveUnderWay",
    "Node",
    "NodeDecision",
    "NodeMemory",
    "Objectives",
    "Pace",
    "Place",
    "PolicyParameters",
    "Resize",
    "Responses",
    "Setting",
    "Silence",
    "Usage",
    "Verdict",
    "blocked_reason_on",
    "by_cpu_fraction",
    "can_move",
    "cpu_use_cores",
    "decide_by_node",
    "down_the_order",
    "even_shares",
    "in_proportion",
    "is_usable",
    "none_is_silent",
    "parameter",
    "place_each",
    "refused_nodes",
    "useful_cores",
    "without_a_loss",
    "without_a_report",
]

"""What a policy of one's own imports: all of it from here, and nothing else of Slopewise.

Whatever else moves or is renamed in this project, these names stay, and mean what they mean today; fields are added
with defaults. `docs/policies.md` says how a policy is written, and lists them.
"""

from __future__ import annotations

from controller.control import even_shares
from controller.growth import is_usable
from controller.model import (
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
    Mobility,
    MoveUnderWay,
    Node,
    NodeMemory,
    Pace,
    Place,
    Promises,
    Resize,
    Responses,
    Usage,
)
from controller.policies import PolicyParameters, Setting, parameter
from controller.policies._looks import Look, Verdict, decide_by_node
from controller.policies._placement import (
    by_cpu_fraction,
    can_move,
    cpu_use_cores,
    place_each,
    refused_nodes,
    why_it_stays,
)
from controller.policies._shares import down_the_order, in_proportion, useful_cores
from controller.policies._silence import Silence, nobody_is_silent, without_a_loss, without_a_report

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
    "Look",
    "MemoryState",
    "Migrate",
    "Mobility",
    "MoveUnderWay",
    "Node",
    "NodeMemory",
    "Pace",
    "Place",
    "PolicyParameters",
    "Promises",
    "Resize",
    "Responses",
    "Setting",
    "Silence",
    "Usage",
    "Verdict",
    "by_cpu_fraction",
    "can_move",
    "cpu_use_cores",
    "decide_by_node",
    "down_the_order",
    "even_shares",
    "in_proportion",
    "is_usable",
    "nobody_is_silent",
    "parameter",
    "place_each",
    "refused_nodes",
    "useful_cores",
    "why_it_stays",
    "without_a_loss",
    "without_a_report",
]

"""The immutable data of one pass: ClusterSnapshot -> Decisions -> PassReport.

Units are in the names. Times are Unix seconds of the Clock port. Nothing here reads a clock, a file or a socket.
"""

from __future__ import annotations

from slopewise.model.containers import (
    AcceptedRange,
    ContainerHealth,
    CpuAllocation,
    CpuControl,
    MemoryAllocation,
    MemoryBound,
    MemoryControl,
    OutcomeResult,
    PendingResize,
    Unconfirmed,
)
from slopewise.model.decisions import (
    NO_RESULTS,
    Decision,
    Decisions,
    JobView,
    Migrate,
    Move,
    MoveEvent,
    MoveStage,
    Outcome,
    PassReport,
    Place,
    Resize,
    ResizeMemory,
    Restored,
    RestoreResult,
    Results,
    Stop,
    Withheld,
    only,
)
from slopewise.model.freezes import NO_FREEZES, Freeze, FreezeEffect, Freezes, FreezeScope, strictest
from slopewise.model.jobs import (
    NO_OBJECTIVES,
    Absence,
    AbsentState,
    Arrival,
    ClusterSnapshot,
    Evaluation,
    Job,
    JobState,
    JobUid,
    MissingEvaluation,
    MoveUnderWay,
    Node,
    Objective,
    Objectives,
    Observation,
    Responses,
    Usage,
    reaches,
)
from slopewise.model.learning import DEPARTED_KEPT, ClassFigures, Departed, Ends, Points, RawPoint
from slopewise.model.limits import (
    BUDGET_SECONDS,
    AcceleratorControl,
    Bounds,
    MoveBounds,
    StudyControl,
    Veto,
    acts,
    in_canary,
)
from slopewise.model.memory import (
    MEMORY_JSON,
    MOVES_KEPT,
    Anchor,
    Backoff,
    Change,
    Doubts,
    Growth,
    JobMemory,
    Levels,
    MemoryResizes,
    MemoryState,
    MemoryUse,
    MoveRecord,
    NodeMemory,
    Outlier,
    PolicyMemory,
    StopRecord,
    Unmet,
)
from slopewise.model.movability import Checkpoint, Movability, MoveWay
from slopewise.model.objective_status import (
    Confirmed,
    DeadlineStatus,
    ObjectiveMemory,
    ObjectiveStatus,
    QoeClass,
    QoeStatus,
    TargetHits,
    TargetStatus,
)
from slopewise.model.paces import Answering, GpuMemory, LearnedCores, Pace, PaceAnchor, Timing

__all__ = [
    "BUDGET_SECONDS", "DEPARTED_KEPT", "MEMORY_JSON", "MOVES_KEPT", "NO_FREEZES", "NO_OBJECTIVES", "NO_RESULTS",
    "Absence", "AbsentState", "AcceleratorControl", "AcceptedRange", "Anchor", "Answering", "Arrival", "Backoff",
    "Bounds", "Change", "Checkpoint", "ClassFigures", "ClusterSnapshot", "Confirmed", "ContainerHealth",
    "CpuAllocation", "CpuControl", "DeadlineStatus", "Decision", "Decisions", "Departed", "Doubts", "Ends",
    "Evaluation", "Freeze", "FreezeEffect", "FreezeScope", "Freezes", "GpuMemory", "Growth", "Job", "JobMemory",
    "JobState", "JobUid", "JobView", "LearnedCores", "Levels", "MemoryAllocation", "MemoryBound", "MemoryControl",
    "MemoryResizes", "MemoryState", "MemoryUse", "Migrate", "MissingEvaluation", "Movability", "Move", "MoveBounds",
    "MoveEvent", "MoveRecord", "MoveStage", "MoveUnderWay", "MoveWay", "Node", "NodeMemory", "Objective",
    "ObjectiveMemory", "ObjectiveStatus", "Objectives", "Observation", "Outcome", "OutcomeResult", "Outlier", "Pace",
    "PaceAnchor", "PassReport", "PendingResize", "Place", "Points", "PolicyMemory", "QoeClass", "QoeStatus", "RawPoint",
    "Resize", "ResizeMemory", "Responses", "RestoreResult", "Restored", "Results", "Stop", "StopRecord", "StudyControl",
    "TargetHits", "TargetStatus", "Timing", "Unconfirmed", "Unmet", "Usage", "Veto", "Withheld", "acts", "in_canary",
    "only", "reaches", "strictest",
]  # fmt: skip

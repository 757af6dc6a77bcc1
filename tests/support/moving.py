"""Worlds in which jobs may be moved: what bounds moves, and jobs that checkpoint."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from support.worlds import START, a_job, a_node, a_snapshot

from slopewise.model import (
    Bounds,
    Checkpoint,
    ClusterSnapshot,
    Growth,
    Job,
    JobMemory,
    MemoryState,
    Migrate,
    Movability,
    MoveBounds,
)

MOVING = MoveBounds(
    enabled=True,
    max_per_node_per_hour=2,
    max_concurrent=1,
    min_stay_seconds=600.0,
    max_checkpoint_age_seconds=300.0,
    horizon_seconds=600.0,
)
"""The defaults of `spec.migration`, enabled."""

AUTO = Bounds("Auto", 1, 64_000, 0.0, 100.0, 0.0, moving=MOVING)
LONG_AGO = START - 3600.0
SAVES = Checkpoint(START - 100.0, duration_seconds=2.0, on_sigterm=True)
MOBILE = Movability("suspend", grace_seconds=30.0, restart_seconds=2.0)


def bounded(**limits: object) -> Bounds:
    """Mode Auto, with other bounds of moves than the defaults."""
    return replace(AUTO, moving=replace(MOVING, **limits))  # type: ignore[arg-type]


def a_mobile_job(uid: str, node: str = "n1", **more: Any) -> Job:
    """A job of one thread that has been on its node for an hour and saves on SIGTERM; a pod without a limit."""
    job = a_job(uid, node=node, useful_cores=1.0, started_at=LONG_AGO, life=LONG_AGO)
    mobile = job.altered(
        migratable=True, checkpoint=SAVES, movability=MOBILE, steps_total=500.0, steps_planned=10_000.0
    )
    return mobile.altered(**more)


def crowded(*uids: str, idle: str = "n2", at: float = START, **more: Any) -> ClusterSnapshot:
    """Mobile jobs on n1, which has one core, beside a node that idles."""
    jobs = [a_mobile_job(uid, **more) for uid in uids]
    return a_snapshot(jobs, [a_node("n1"), a_node(idle)], at)


def remembered(*uids: str, **more: object) -> MemoryState:
    """What is known of jobs: the same of each."""
    return MemoryState({uid: JobMemory(**more) for uid in uids})  # type: ignore[arg-type]


def measured(progress: float, cores: float | None = None) -> Growth:
    """A growth that was measured just now."""
    return Growth(START, 20.0, progress, cores)


def to(node: str, uid: str = "a", relieves: str | None = None) -> Migrate:
    """The wish to move a job there."""
    return Migrate(uid, "n1", node, "why", relieves)

"""What all limiters share: the period of a limit, the allocation before the first change, the error for no job."""

from __future__ import annotations

from slopewise.errors import ActuationError
from slopewise.model import CpuAllocation

CPU_PERIOD_SECONDS = 0.1
"""The kernel's own default. Shorter periods cost more switches, longer ones make training steps bimodal."""

NEUTRAL_REQUEST_MILLICORES = 1000
"""The weight of a process by default: 1024 shares (cgroup v1), weight 100 (cgroup v2)."""

UNLIMITED = CpuAllocation(limit_millicores=None, request_millicores=NEUTRAL_REQUEST_MILLICORES)
"""A job's allocation before the first change: no limit, and the default weight."""


def unknown_job(job_uid: str) -> ActuationError:
    """The error for a job that was never admitted, or was released."""
    return ActuationError(f"{job_uid}: no such job runs on this machine; it has ended or was never started.")

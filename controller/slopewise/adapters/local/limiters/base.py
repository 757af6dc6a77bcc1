"""The protocol of all limiters: admit, limit, weigh, measure and release a job.

A job is admitted once, as the leader of a process group of its own, and released once. Between the two it is
known here by its `job_uid`; targets are absolute, and setting one twice does no harm.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from slopewise.errors import ActuationError
from slopewise.model import CpuAllocation, CpuControl, Usage

CPU_PERIOD_SECONDS = 0.1
"""The kernel's own default. Shorter periods cost more switches, longer ones make training steps bimodal."""

NEUTRAL_REQUEST_MILLICORES = 1000
"""The weight of a process by default: 1024 shares (cgroup v1), weight 100 (cgroup v2)."""

UNLIMITED = CpuAllocation(limit_millicores=None, request_millicores=NEUTRAL_REQUEST_MILLICORES)
"""A job's allocation before the first change: no limit, and the default weight."""


class Limiter(Protocol):
    """Gives CPU to jobs and takes it away. Unknown jobs and failed writes raise `ActuationError`."""

    @property
    def description(self) -> str:
        """How CPU is limited, for the output and the report."""
        ...

    @property
    def controls(self) -> frozenset[CpuControl]:
        """What can be changed here: `limits` everywhere, `requests` only with cgroups."""
        ...

    def admit(self, job_uid: str, pid: int) -> None:
        """Admit the process group that `pid` leads, without a limit; its later children follow."""
        ...

    def include(self, job_uid: str, pids: Sequence[int]) -> None:
        """Admit further processes that an admitted job had started before its admission."""
        ...

    def attach(self, job_uid: str, pid: int) -> None:
        """Admit a process that runs already, with its children; its release puts them back.

        UsageError when that cannot be done, and then nothing has been changed.
        """
        ...

    def read(self, job_uid: str) -> CpuAllocation:
        """What the job is allowed now, as the kernel (or the duty cycle) holds it."""
        ...

    def set_limit(self, job_uid: str, millicores: int) -> None:
        """Let the job use at most `millicores` of CPU."""
        ...

    def set_request(self, job_uid: str, millicores: int) -> None:
        """Let the job weigh `millicores` against the others when CPU is short."""
        ...

    def restore(self, job_uid: str, original: CpuAllocation) -> None:
        """Restore what `read` returned before the first change. A job that has ended is no error."""
        ...

    def usage(self, job_uid: str) -> Usage:
        """Cumulative use, read now. A job that is gone has nothing but the time of reading.

        Network is never observable, because jobs share the machine's network namespace.
        """
        ...

    def members(self, job_uid: str) -> list[int]:
        """The job's processes, also those that left its group; none for a job that is unknown or released."""
        ...

    def release(self, job_uid: str) -> None:
        """Lift every limit and forget the job; its processes run on. Idempotent."""
        ...

    def close(self) -> None:
        """Release every job and remove all that was made."""
        ...


def unknown_job(job_uid: str) -> ActuationError:
    """The error for a job that was never admitted, or was released."""
    return ActuationError(f"{job_uid}: no such job runs on this machine; it has ended or was never started.")

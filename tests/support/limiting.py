"""A limiter that limits nothing, for tests of what stands around one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace
from support.worlds import START

from slopewise.adapters.local.limiters.base import UNLIMITED, unknown_job
from slopewise.adapters.local.limiters.duty_cycle import DutyCycleLimiter
from slopewise.model import CpuAllocation, CpuControl, Usage


@dataclass
class FakeLimiter(DutyCycleLimiter):
    """Allocations in a dictionary; jobs that are not in it have ended."""

    allocations: dict[str, CpuAllocation] = field(default_factory=dict)
    included: dict[str, list[int]] = field(default_factory=dict)
    description: str = "fake"
    controls: frozenset[CpuControl] = frozenset({"limits", "requests"})

    def read(self, job_uid: str) -> CpuAllocation:
        if job_uid not in self.allocations:
            raise unknown_job(job_uid)
        return self.allocations[job_uid]

    def set_limit(self, job_uid: str, millicores: int) -> None:
        self.allocations[job_uid] = replace(self.read(job_uid), limit_millicores=millicores)

    def set_request(self, job_uid: str, millicores: int) -> None:
        self.allocations[job_uid] = replace(self.read(job_uid), request_millicores=millicores)

    def restore(self, job_uid: str, original: CpuAllocation) -> None:
        if job_uid in self.allocations:
            self.allocations[job_uid] = original

    def usage(self, job_uid: str) -> Usage:
        return Usage(START, cpu_seconds_total=3.0)

    def admit(self, job_uid: str, pid: int) -> None:
        self.allocations[job_uid] = UNLIMITED

    def attach(self, job_uid: str, pid: int) -> None:
        self.allocations[job_uid] = UNLIMITED

    def include(self, job_uid: str, pids: Sequence[int]) -> None:
        self.included[job_uid] = list(pids)

    def release(self, job_uid: str) -> None:
        self.allocations.pop(job_uid, None)

    def members(self, job_uid: str) -> list[int]:
        return []

    def close(self) -> None:
        self.allocations.clear()

"""The container of a job: its CPU and memory, what bounds and delays a change of them, and its health."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Self

import msgspec

CpuControl = Literal["limits", "requests"]
"""How CPU is given: `limits` are hard ceilings; `requests` are shares, work-conserving within a node."""

MemoryControl = Literal["Ignore", "Requests", "Limits"]
"""What of memory is changed: nothing; requests of jobs that need little; also limits, before they kill."""

MemoryBound = Literal["request", "limit"]

OutcomeResult = Literal["applied", "deferred", "infeasible", "failed"]


class CpuAllocation(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """CPU that a container may use. `limit_millicores=None` means: no limit."""

    limit_millicores: int | None
    request_millicores: int


class MemoryAllocation(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Memory of a container, in bytes. None: it states no request, or has no limit."""

    request_bytes: int | None = None
    limit_bytes: int | None = None

    def of(self, bound: MemoryBound) -> int | None:
        """The request or the limit."""
        return self.request_bytes if bound == "request" else self.limit_bytes

    def altered(self, bound: MemoryBound, to_bytes: int | None) -> MemoryAllocation:
        """The same with another request or limit."""
        if bound == "request":
            return MemoryAllocation(to_bytes, self.limit_bytes)
        return MemoryAllocation(self.request_bytes, to_bytes)


class ContainerHealth(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Restarts, OOM kills, throttling and CPU pressure of a job's container, cumulative.

    The effect of a change is a difference of two.
    None: not counted (a machine without cgroup statistics, a Prometheus that does not scrape kubelets).
    """

    restarts_total: int = 0
    oom_killed_at_seconds: float | None = None
    cpu_periods_total: float | None = None
    cpu_throttled_periods_total: float | None = None
    cpu_waiting_seconds_total: float | None = None
    """Seconds in which a thread of it was ready to run and had no CPU (PSI, "some"); None: the kernel counts none."""


@dataclass(frozen=True, slots=True)
class PendingResize:
    """An accepted resize that the node has not carried out: deferred for lack of room, or infeasible."""

    result: OutcomeResult
    since_seconds: float
    detail: str
    actual: CpuAllocation
    """The container's CPU in effect."""
    actual_memory: MemoryAllocation | None = None
    """The container's memory in effect; None: not reported."""


@dataclass(frozen=True, slots=True)
class Unconfirmed:
    """Accepted CPU that is not in effect, without a reason from the node (with one: `PendingResize`)."""

    detail: str
    """What its kubelet reports, and what to check."""
    late: bool = False
    """Late enough to count the kubelet as behind."""


@dataclass(frozen=True, slots=True)
class AcceptedRange:
    """The targets that the platform accepts in the controlled dimension, and the reason of the bounds.

    Worked example: a limit cannot go below its container's request, `AcceptedRange(500, None, "request 500m")`.
    """

    min_millicores: int | None = None
    max_millicores: int | None = None
    reason: str = ""


class Record(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Data of a pass or of the memory, and how another one is made of it."""

    if TYPE_CHECKING:

        def altered(self, **changes: Any) -> Self:
            """The same with other values for these fields. TypeError for a name that is none."""
            return self

    else:  # msgspec's own method: a pass alters a job's records 20 times, and a function around it is half of the time
        altered = msgspec.Struct.__replace__

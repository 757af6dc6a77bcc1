"""The schema of `JobGrowth`: status and memory of one workload, as the API server stores it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import Field

from slopewise.config.quantities import cpu_quantity, memory_quantity, parse_cpu_millicores, parse_memory_bytes
from slopewise.crds.conditions import Conditions, StatusPart
from slopewise.model import CpuAllocation, MemoryAllocation

UNKNOWN = "-"
"""In a column that has nothing to show."""


class WorkloadRef(StatusPart):
    """The object that a JobGrowth is about: the top controlling owner of its pods."""

    api_version: str
    kind: str
    name: str
    uid: str


class JobGrowthSpec(StatusPart):
    """Set once, when the controller makes the object."""

    workload: WorkloadRef


class Original(StatusPart):
    """What a container had before the first change; it is restored when the controller no longer manages it."""

    cpu_limit: str | None = Field(None, description="quantity; missing: it had no limit")
    cpu_request: str = Field(description="quantity")
    memory_limit: str | None = Field(None, description="quantity; missing: none, or its memory was never changed")
    memory_request: str | None = Field(None, description="quantity; missing: its memory was never changed")

    @classmethod
    def of(cls, allocation: CpuAllocation, memory: MemoryAllocation | None = None) -> Original:
        """As it is stored; `memory`: None until that is changed."""
        limit, memory = allocation.limit_millicores, memory or MemoryAllocation()
        return cls(
            cpu_limit=None if limit is None else cpu_quantity(limit),
            cpu_request=cpu_quantity(allocation.request_millicores),
            memory_limit=None if memory.limit_bytes is None else memory_quantity(memory.limit_bytes),
            memory_request=None if memory.request_bytes is None else memory_quantity(memory.request_bytes),
        )

    def memory(self) -> MemoryAllocation | None:
        """Its memory as it is used; None: never changed. ValueError as for `allocation`."""
        if self.memory_limit is None and self.memory_request is None:
            return None
        return MemoryAllocation(
            None if self.memory_request is None else parse_memory_bytes(self.memory_request),
            None if self.memory_limit is None else parse_memory_bytes(self.memory_limit),
        )

    def allocation(self) -> CpuAllocation:
        """As it is used; ValueError when somebody has written something else into it."""
        limit = None if self.cpu_limit is None else parse_cpu_millicores(self.cpu_limit)
        return CpuAllocation(limit, 0 if self.cpu_request == "0" else parse_cpu_millicores(self.cpu_request))


class PodGrowth(StatusPart):
    """One pod of the workload, by its slot: it stays when the pod is replaced."""

    slot: str = Field(description="completion index, 0 for an only pod, or the pod's name")
    name: str = ""
    uid: str = ""
    node: str = Field("", description="where it runs; empty once it has ended")
    container: str = Field("", description="the container that is resized")
    original: Original | None = None
    memory: str = Field("", description="what the controller remembers between passes: JSON, compressed for many pods")
    """As text: the API server leaves out nulls of an object that it stores, and lists each of its fields as managed."""


SLOTS: dict[str, Any] = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["slot"]}


class PodMove(StatusPart):
    """One pod that is evicted, so that its replacement can be placed."""

    slot: str
    name: str
    uid: str = Field(description="of the pod that leaves")
    node: str = Field(description="where it leaves from")
    created: datetime = Field(description="when it was made; its replacement is younger")
    owner: WorkloadRef = Field(description="its direct owner, which makes the replacement")


class MoveIntent(StatusPart):
    """A move by eviction that is under way: stored before the first eviction, so that a next leader goes on with it."""

    node: str = Field(description="where the replacements are to run; empty: given up, the scheduler places them")
    since: datetime
    pods: tuple[PodMove, ...] = Field((), json_schema_extra=SLOTS)


class Action(StatusPart):
    """One thing that was done to a workload, or tried; `controller/slopewise/crds/history.py` makes them."""

    time: datetime
    slot: str = Field(description="of the pod; 0 for an only pod")
    action: str = Field(description="Resize, Restore, Place, Move or Stop")
    change: str = Field(description="limits 2 to 500m, node-a to node-b, or at its target")
    result: str = Field(
        description="applied, deferred, infeasible or failed; of a move also withheld, begun, resumed, cancelled "
        "or released (from the node that it was tied to)"
    )
    detail: str = Field("", description="the reason or the outcome")


HISTORY_KEPT = 10
"""Actions of a workload; the decision record of each pass has all of them."""


class JobGrowthStatus(StatusPart):
    """Written by the controller only: on transitions at once, for progress at most once a minute."""

    state: str | None = Field(
        None,
        description="Starting, Training, NoLoss, Checkpointing, Finished or Failed; without a pod on a node Moving, "
        "Waiting (its pod has no node yet), Suspended (its owner wants no pods) or Stopped (at its target); Unmanaged: "
        "no policy has it",
    )
    progress: str | None = Field(None, description="steps done of the steps planned")
    progress_ratio: float | None = Field(None, description="0 to 1")
    eta: str | None = Field(
        None,
        description="time until its end, with the earliest (served alone) and the latest (as under fair sharing) where "
        "the policy expects one; else until the planned steps are done, at the pace measured last",
    )
    cpu: str | None = Field(None, description="cores in effect → cores wanted; sums where there are several pods")
    cpu_millicores: int | None = Field(None, description="actual: in effect, as the kubelets report it")
    cpu_accepted_millicores: int | None = Field(None, description="what the API server has accepted")
    cpu_wanted_millicores: int | None = Field(None, description="desired: what the policy wants")
    memory: str | None = Field(None, description="working set / request / limit of the container; sums over the pods")
    memory_working_set_bytes: int | None = Field(None, description="as its kubelet reports it")
    memory_request_bytes: int | None = Field(None, description="what the API server has accepted")
    memory_limit_bytes: int | None = Field(None, description="what the API server has accepted")
    memory_reason: str | None = Field(None, description="why its memory was changed, or why it was not")
    reason: str | None = Field(None, description="why it is wanted, or why it is not done")
    job_class: str | None = Field(None, alias="class", description="the class that the policy put the job in")
    loss: float | None = Field(None, description="level of the evaluation that is decided on")
    growth: float | None = Field(None, description="growth efficiency (Eq. 4.2) in 1/s, per whole node of CPU")
    policy: str | None = Field(None, description="name of the TrainingPolicy")
    node: str | None = None
    study: str | None = Field(None, description="the study of which it is a trial")
    chance: float | None = Field(None, description="0 to 1: to be the best of its study, of the trials that run")
    promise: str | None = Field(
        None, description="how it stands to its objective, deadline and targets; - where its owner states none"
    )
    objective_seconds: float | None = Field(None, description="objective: seconds a response or a step")
    took_seconds: float | None = Field(None, description="seconds that the newest responses or steps took")
    deviation_ratio: float | None = Field(None, description="(asked - took) / asked; below 0: slower than asked")
    deadline: datetime | None = Field(None, description="when it must have ended")
    slack_seconds: int | None = Field(None, description="time to spare at the present pace; below 0: late by that")
    last_action: str | None = None
    last_action_time: datetime | None = None
    conditions: Conditions = ()
    pods: tuple[PodGrowth, ...] = Field((), json_schema_extra=SLOTS)
    move: MoveIntent | None = Field(None, description="a move by eviction that is under way")
    history: tuple[Action, ...] = Field((), description="the last ten actions, oldest first", max_length=HISTORY_KEPT)


class JobGrowth(StatusPart):
    """How the training of one workload grows, what CPU it has and wants, and why; owned by the workload."""

    spec: JobGrowthSpec
    status: JobGrowthStatus = JobGrowthStatus()

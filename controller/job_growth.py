"""`JobGrowth`: what is told of one workload, and what is remembered of it, as the API server stores it.

Before it: `growth_face.py` makes a status out of a pass. After it: `adapters/kube/growth_objects.py` reads and writes
the objects, and `crds/definitions.py` makes the schema out of these models.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import Field

from controller.conditions import Conditions, StatusPart
from controller.model import CpuAllocation
from controller.settings import cpu_quantity, parse_cpu_millicores


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
    """The CPU that a container had before our first change; it comes back when the controller lets go of it."""

    cpu_limit: str | None = Field(None, description="quantity; missing: it had no limit")
    cpu_request: str = Field(description="quantity")

    @classmethod
    def of(cls, allocation: CpuAllocation) -> Original:
        """As it is stored."""
        limit = allocation.limit_millicores
        request = cpu_quantity(allocation.request_millicores)
        return cls(cpu_limit=None if limit is None else cpu_quantity(limit), cpu_request=request)

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
    memory: str = Field("", description="what the controller remembers between passes, as JSON; its own")
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
    """One thing that was done to a workload, or tried; `controller/history.py` makes them."""

    time: datetime
    slot: str = Field(description="of the pod; 0 for an only pod")
    action: str = Field(description="Resize, Restore, Place or Move")
    change: str = Field(description="limits 2 to 500m, or node-a to node-b")
    result: str = Field(
        description="applied, deferred, infeasible or failed; of a move also withheld, begun, resumed, cancelled, "
        "released (from the node that it was tied to) or harmed"
    )
    detail: str = Field("", description="why, or what became of it")


HISTORY_KEPT = 10
"""Actions of a workload; the decision record of each pass has all of them."""


class JobGrowthStatus(StatusPart):
    """Written by the controller only: on transitions at once, for progress at most once a minute."""

    state: str | None = Field(
        None,
        description="Starting, Training, NoLoss, Checkpointing, Finished or Failed; without a pod on a node Moving, "
        "Waiting (its pod has no node yet) or Suspended (its owner wants no pods); Unmanaged: no policy has it",
    )
    progress: str | None = Field(None, description="steps done of the steps planned")
    progress_ratio: float | None = Field(None, description="0 to 1")
    eta: str | None = Field(None, description="time until the planned steps are done, at the pace measured last")
    cpu: str | None = Field(None, description="cores in effect → cores wanted; sums where there are several pods")
    cpu_millicores: int | None = Field(None, description="actual: in effect, as the kubelets report it")
    cpu_accepted_millicores: int | None = Field(None, description="what the API server has accepted")
    cpu_wanted_millicores: int | None = Field(None, description="desired: what the policy wants")
    reason: str | None = Field(None, description="why it is wanted, or why it is not done")
    job_class: str | None = Field(None, alias="class", description="the class that the policy put the job in")
    loss: float | None = Field(None, description="level of the evaluation that is decided on")
    growth: float | None = Field(None, description="growth efficiency (Eq. 4.2) in 1/s, per whole node of CPU")
    policy: str | None = Field(None, description="name of the TrainingPolicy")
    node: str | None = None
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

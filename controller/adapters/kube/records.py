"""What is kept of each Kubernetes object: the few fields that are needed, parsed once, frozen.

`watching.py` keeps stores of these up to date; `observer.py` joins them into a snapshot. A pod of the API server is
10 KB of JSON; 5,000 of these records are 10 MB.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from controller.model import CpuAllocation

GROUP = "slopewise.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"

MANAGED_LABEL = f"{GROUP}/managed"
"""A pod is managed only with `slopewise.dev/managed: "true"`: the owner opts in, and the admission policy that keeps
our account within its purpose has one fixed thing to check. Policies select among the pods that carry it. A pod that
carries it with another value is watched all the same, so that it gets back what we have changed."""

MIGRATABLE = f"{GROUP}/migratable"
"""Annotation of a pod, `"true"`: it checkpoints, and may be moved."""

PLACE_GATE = f"{GROUP}/place"
"""The scheduling gate that an owner puts on a pod template: its pods wait for us to place them, for a while."""

MOVE = f"{GROUP}/move"
"""Annotation of a Job that is being moved, or was and is pinned: how far that is, as JSON (`job_moves.py`)."""

PLACED = f"{GROUP}/placed"
"""Annotation of a pod that we have placed: the node's name."""

GUARANTEED = "Guaranteed"
BEST_EFFORT = "BestEffort"
"""QoS classes of pods; the third is Burstable, and is what every other pod has."""

FIELD_MANAGER = "slopewise"
FINALIZER = f"{GROUP}/restore"

READ_BACK_RATIO = 0.02
READ_BACK_MILLICORES = 10
"""What a kubelet reports of a cgroup differs from what was asked: shares and quotas are rounded, by 10m at the most."""


@dataclass(frozen=True, slots=True)
class OwnerRef:
    """One object that owns another, or a workload itself."""

    api_version: str
    kind: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class ContainerRecord:
    """One container (or restartable init container) of a pod, as accepted (`spec`) and as it is (`status`)."""

    name: str
    wished: CpuAllocation
    """What the API server has accepted: spec.containers[].resources; a request that is missing is its limit, and 0
    without one."""
    has_request: bool
    in_effect: CpuAllocation | None
    """What its kubelet reported last: status.containerStatuses[].resources; None: nothing, as one that does not support
    resizing."""
    memory_request_bytes: int | None
    memory_limit_bytes: int | None
    extended_resources: tuple[str, ...] = ()
    """Names of what it asks for besides cpu, memory and ephemeral storage, e.g. `nvidia.com/gpu`."""
    resize_restarts: bool = False
    """resizePolicy RestartContainer for cpu."""
    ready: bool = False
    running_since_seconds: float | None = None
    restarts_total: int = 0
    oom_killed_at_seconds: float | None = None
    exit_code: int | None = None
    """What it ended with; None while it runs, is yet to run, or was started again."""
    init: bool = False
    """A restartable init container (a sidecar): it is resized under `initContainers`."""

    @property
    def actual(self) -> CpuAllocation | None:
        """What is in effect as its kubelet reports it, without the rounding of cgroups; None: it reports nothing."""
        if self.in_effect is None or self.in_effect == self.wished:
            return self.in_effect
        limit, request = self.in_effect.limit_millicores, self.in_effect.request_millicores
        return CpuAllocation(
            self.wished.limit_millicores if _is_read_back(limit, self.wished.limit_millicores) else limit,
            self.wished.request_millicores if _is_read_back(request, self.wished.request_millicores) else request,
        )

    @property
    def follows(self) -> bool:
        """Limit and request that were accepted are in effect; also true where its kubelet reports nothing."""
        return self.actual in (None, self.wished)

    @property
    def cpu_is_equal(self) -> bool:
        """CPU request and limit are the same."""
        return self.wished.limit_millicores == self.wished.request_millicores

    @property
    def memory_is_equal(self) -> bool:
        """Memory has a limit, and a request of the same size."""
        return self.memory_limit_bytes is not None and self.memory_request_bytes == self.memory_limit_bytes


def _is_read_back(reported: int | None, accepted: int | None) -> bool:
    """Whether a kubelet reports what was accepted, but for the rounding of a cgroup."""
    if reported is None or accepted is None:
        return reported is accepted
    return abs(reported - accepted) <= max(READ_BACK_MILLICORES, READ_BACK_RATIO * accepted)


@dataclass(frozen=True, slots=True)
class Taint:
    """What a node does not want; `PreferNoSchedule` is a preference, and forbids nothing."""

    key: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True)
class Toleration:
    """What a pod does not mind. Empty means any: an empty key with `Exists` tolerates everything."""

    key: str
    operator: str
    value: str
    effect: str

    def tolerates(self, taint: Taint) -> bool:
        """As the scheduler sees it (k8s.io/component-helpers, `ToleratesTaint`)."""
        if self.effect and self.effect != taint.effect:
            return False
        if self.key and self.key != taint.key:
            return False
        return self.operator == "Exists" or (bool(self.key) and self.value == taint.value)


@dataclass(frozen=True, slots=True)
class VolumeRecord:
    """One volume of a pod: what kind of source it has, and the claim's name where it is a claim."""

    name: str
    kind: str
    """As the API spells it: `persistentVolumeClaim`, `emptyDir`, `hostPath`, `configMap` …"""
    claim: str = ""
    """The name of a `persistentVolumeClaim`."""


@dataclass(frozen=True, slots=True)
class SchedulingFacts:
    """What decides on where a pod can run and whether it can come back; of pods that may be moved or wait for us.

    Hashable, so that all pods of one template share one (`scheduling.py`): it costs 5,000 pods nothing.
    """

    affinity_json: str = ""
    node_selector: tuple[tuple[str, str], ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    volumes: tuple[VolumeRecord, ...] = ()
    grace_seconds: float = 30.0
    restart_policy: str = "Always"
    spreads_strictly: bool = False
    """A topology spread constraint with DoNotSchedule."""
    claims_devices: bool = False
    """Dynamic resource allocation: `spec.resourceClaims`."""
    must_stay: str = ""
    """The annotation that forbids to disrupt it, as `key: value`; empty: none."""
    external_checkpoints: bool = False
    """`slopewise.dev/checkpoints: external`: they are kept in an object store, and no volume is needed."""

    @property
    def affinity(self) -> dict[str, Any] | None:
        """`spec.affinity`, a copy; None: it has none."""
        affinity: dict[str, Any] | None = json.loads(self.affinity_json) if self.affinity_json else None
        return affinity


@dataclass(frozen=True, slots=True)
class PodRecord:
    """One pod."""

    uid: str
    name: str
    namespace: str
    resource_version: str
    created_at_seconds: float
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    """Only those of `slopewise.dev/`, and those that say who else resizes (`hands_off_marks`)."""
    owner: OwnerRef | None
    """The controlling owner; None: a bare pod."""
    node: str | None
    phase: str
    qos_class: str
    containers: tuple[ContainerRecord, ...]
    deleting: bool = False
    pod_level_resources: bool = False
    foreign_resizers: tuple[str, ...] = ()
    """Field managers other than ours whose CPU, written through `pods/resize`, a container of it still has. Of any
    container: while somebody's wish for a sidecar waits for room, the kubelet does not carry out ours either."""
    pending: PodPending | None = None
    unobserved: bool = False
    """Its kubelet has not seen its newest spec yet: what its status says is of an older one."""
    pod_level: CpuAllocation | None = None
    """CPU of the pod as a whole (`spec.resources`), which all of its containers share; None: none is set."""
    gates: tuple[str, ...] = ()
    started_at_seconds: float | None = None
    unschedulable_since_seconds: float | None = None
    """Since when no node takes it, as the scheduler says, by its clock; None: it is placed, gated, or not looked at
    yet. Of a pod that was gated before it is the time of its creation: only a change of True and False moves it."""
    scheduling: SchedulingFacts | None = None
    """Only of a pod that is migratable or carries our gate."""

    @property
    def ended(self) -> bool:
        """True when it runs no more."""
        return self.phase in ("Succeeded", "Failed")

    @property
    def is_in_effect(self) -> bool:
        """All CPU of its containers that the API server has accepted is in effect, as its kubelet reports."""
        return not self.unobserved and all(container.follows for container in self.containers)

    @property
    def awaits_kubelet(self) -> bool:
        """Something was accepted, and its kubelet has neither carried it out nor said that it waits or cannot be."""
        answered = self.pending is not None and self.pending.kind != "Error"
        return self.phase == "Running" and not (self.deleting or answered or self.is_in_effect)

    @property
    def migratable(self) -> bool:
        """Its owner says that it may be moved."""
        return self.annotations.get(MIGRATABLE) == "true"

    @property
    def waits_for_us(self) -> bool:
        """It carries our gate, so nobody places it before that is taken away."""
        return PLACE_GATE in self.gates and not self.deleting

    def guaranteed_but_for_cpu_of(self, container: ContainerRecord) -> bool:
        """Whether it would be Guaranteed if this container's CPU request were equal to its limit: all else is equal."""
        others = (each for each in self.containers if each.name != container.name)
        return container.memory_is_equal and all(each.memory_is_equal and each.cpu_is_equal for each in others)


@dataclass(frozen=True, slots=True)
class PodPending:
    """The pod's condition PodResizePending, or PodResizeInProgress with an error."""

    kind: Literal["Deferred", "Infeasible", "Error"]
    since_seconds: float
    message: str


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """One node."""

    name: str
    uid: str
    labels: Mapping[str, str]
    allocatable_millicores: int
    allocatable_memory_bytes: int
    ready: bool
    unschedulable: bool = False
    static_cpu_manager: bool | None = None
    """None: not known; the API server does not tell."""
    taints: tuple[Taint, ...] = ()


NO_ANNOTATIONS: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class ObjectRecord:
    """What is kept of objects of which only the metadata matters: namespaces, Jobs."""

    uid: str
    name: str
    namespace: str
    labels: Mapping[str, str]
    owner: OwnerRef | None
    annotations: Mapping[str, str] = field(default_factory=lambda: NO_ANNOTATIONS)
    """Only those of `slopewise.dev/`."""
    deleting: bool = False
    generation: int = 0
    """Of its spec: another one means that its template may be another."""


@dataclass(frozen=True, slots=True)
class ManagedPod:
    """A job of the snapshot, as the cluster knows it: what a pass's uid stands for.

    `job_uid` is `<workload uid>:<slot>`: it stays the same when the pod is replaced, so memory outlives an eviction.
    `slot` is the completion index, or `0` for a workload's only pod, or the pod's name where several are alike.
    """

    job_uid: str
    workload: OwnerRef
    slot: str
    pod: PodRecord
    container: ContainerRecord

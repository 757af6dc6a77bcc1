"""The kept fields of each Kubernetes object, parsed once and frozen.

`cache/reflector.py` keeps stores of these up to date; `observer.py` joins them into a snapshot. A pod of the API server
is 10 KB of JSON; 5,000 of these records are 10 MB.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import msgspec

from slopewise.config import validation
from slopewise.model import CpuAllocation, MemoryAllocation

API_VERSION, GROUP = validation.API_VERSION, validation.GROUP

MANAGED_LABEL = f"{GROUP}/managed"
"""A pod is managed only with `slopewise.dev/managed: "true"`: the owner opts in, and the admission policy that bounds
our account checks this label. Policies select among these pods. A pod with another value is watched too, so that its
original resources are restored."""

MIGRATABLE = f"{GROUP}/migratable"
"""Annotation of a pod, `"true"`: it checkpoints, and may be moved."""

PLACE_GATE = f"{GROUP}/place"
"""The scheduling gate that an owner puts on a pod template: its pods wait, for a bounded time, to be placed."""

MOVE = f"{GROUP}/move"
"""Annotation of a Job that is being moved, or is pinned after a move: the step, as JSON (`suspend/annotation.py`)."""

PLACED = f"{GROUP}/placed"
"""Annotation of a pod that Slopewise has placed: the node's name."""

AT_TARGET = f"{GROUP}/at-target"
STOP = "stop"
"""Annotation of a pod, and its value with which the job is stopped at its final target (`suspend/stop.py`)."""

STOPPED = f"{GROUP}/stopped"
"""Annotation of a Job that was stopped at its target: when, why, and by which policy (`moves/stop_note.py`)."""

MOVES_LABEL = f"{GROUP}/moves"
MOVES_ALLOWED = "allowed"
"""Label of a namespace, and its value, with which running jobs may be moved there. An eviction names no pod labels, so
admission policies can check only the namespace."""

GUARANTEED = "Guaranteed"
BEST_EFFORT = "BestEffort"
"""QoS classes of pods; the third is Burstable, and is what every other pod has."""

FINALIZER = f"{GROUP}/restore"

READ_BACK_RATIO = 0.02
READ_BACK_MILLICORES = 10
"""A kubelet's report of a cgroup differs from the accepted value: shares and quotas are rounded, by 10m at most."""
READ_BACK_BYTES = 65_536
"""The kernel rounds a memory limit to whole pages, which have 64 KiB at most."""


class OwnerRef(msgspec.Struct, frozen=True, gc=False):
    """One object that owns another, or a workload itself."""

    api_version: str
    kind: str
    name: str
    uid: str


class Resources(NamedTuple):
    """What a resize may change of a container."""

    cpu: CpuAllocation
    memory: MemoryAllocation


class ContainerRecord(msgspec.Struct, frozen=True, gc=False):
    """One container (or restartable init container) of a pod: desired (`spec`) and reported (`status`)."""

    name: str
    desired: CpuAllocation
    """What the API server has accepted; a missing request is the limit, and 0 without one."""
    has_request: bool
    reported: CpuAllocation | None
    """What its kubelet reported last; None: nothing, as from one that does not support resizing."""
    memory_request_bytes: int | None
    memory_limit_bytes: int | None
    extended_resources: tuple[str, ...] = ()
    """Names of requested resources besides cpu, memory and ephemeral storage, e.g. `nvidia.com/gpu`."""
    resize_restarts: bool = False
    """resizePolicy RestartContainer for cpu."""
    memory_resize_restarts: bool = False
    """resizePolicy RestartContainer for memory."""
    reported_memory: MemoryAllocation | None = None
    """Memory that its kubelet reported last; None: none."""
    ready: bool = False
    running_since_seconds: float | None = None
    restarts_total: int = 0
    oom_killed_at_seconds: float | None = None
    exit_code: int | None = None
    """Its exit code; None while it runs, is yet to run, or was restarted."""
    program: str = ""
    """A digest of image, command and arguments, without the names of the pod and of its owner; empty: no image."""
    init: bool = False
    """A restartable init container (a sidecar): it is resized under `initContainers`."""
    is_rank: bool = False
    """One of its variables names the pod of the first rank of its training (`wire.FIRST_RANK`)."""

    @property
    def actual(self) -> CpuAllocation | None:
        """CPU in effect as its kubelet reports it, without the rounding of cgroups; None: no report."""
        if self.reported is None or self.reported == self.desired:
            return self.reported
        limit, request = self.reported.limit_millicores, self.reported.request_millicores
        return CpuAllocation(
            self.desired.limit_millicores if _is_read_back(limit, self.desired.limit_millicores) else limit,
            self.desired.request_millicores if _is_read_back(request, self.desired.request_millicores) else request,
        )

    @property
    def memory(self) -> MemoryAllocation:
        """The memory that the API server has accepted."""
        return MemoryAllocation(self.memory_request_bytes, self.memory_limit_bytes)

    @property
    def resources(self) -> Resources:
        """All that the API server has accepted."""
        return Resources(self.desired, self.memory)

    @property
    def matches_spec(self) -> bool:
        """The accepted limits and requests are in effect; also true where its kubelet reports nothing."""
        return self.actual in (None, self.desired) and self.memory_matches_spec

    @property
    def memory_matches_spec(self) -> bool:
        """The accepted memory is in effect, but for the rounding to pages; also true where nothing is reported."""
        reported = self.reported_memory
        if reported is None or reported == self.memory:
            return True
        return _is_near(reported.request_bytes, self.memory_request_bytes) and _is_near(
            reported.limit_bytes, self.memory_limit_bytes
        )

    @property
    def cpu_is_equal(self) -> bool:
        """CPU request and limit are the same."""
        return self.desired.limit_millicores == self.desired.request_millicores

    @property
    def memory_is_equal(self) -> bool:
        """Memory has a limit, and a request of the same size."""
        return self.memory_limit_bytes is not None and self.memory_request_bytes == self.memory_limit_bytes


def _is_near(reported: int | None, accepted: int | None) -> bool:
    """Whether a kubelet reports the accepted memory, but for the rounding to pages, or reports none."""
    return reported is None or accepted is None or abs(reported - accepted) <= READ_BACK_BYTES


def _is_read_back(reported: int | None, accepted: int | None) -> bool:
    """Whether a kubelet reports the accepted value, but for the rounding of a cgroup."""
    if reported is None or accepted is None:
        return reported is accepted
    return abs(reported - accepted) <= max(READ_BACK_MILLICORES, READ_BACK_RATIO * accepted)


class Taint(msgspec.Struct, frozen=True, gc=False):
    """A taint of a node; `PreferNoSchedule` is a preference, and forbids nothing."""

    key: str
    value: str = ""
    effect: str = ""


class Toleration(msgspec.Struct, frozen=True, gc=False):
    """A toleration of a pod. Empty means any: an empty key with `Exists` tolerates everything."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""

    def tolerates(self, taint: Taint) -> bool:
        """As the scheduler sees it (k8s.io/component-helpers, `ToleratesTaint`)."""
        if (self.effect and self.effect != taint.effect) or (self.key and self.key != taint.key):
            return False
        return self.operator == "Exists" or (bool(self.key) and self.value == taint.value)


class VolumeRecord(msgspec.Struct, frozen=True, gc=False):
    """One volume of a pod: what kind of source it has, and the claim's name where it is a claim."""

    name: str
    kind: str
    """As the API spells it: `persistentVolumeClaim`, `emptyDir`, `hostPath`, `configMap` …"""
    claim: str = ""
    """The name of a `persistentVolumeClaim`."""


class SchedulingFacts(msgspec.Struct, frozen=True, gc=False):
    """What decides where a pod can run and whether it is recreated; only of movable or gated pods.

    Hashable, so that all pods of one template share one (`cache/scheduling_facts.py`): it costs 5,000 pods nothing.
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
    do_not_disrupt: str = ""
    """The annotation that forbids to disrupt it, as `key: value`; empty: none."""
    needs_no_volume: bool = False
    """`slopewise.dev/checkpoints: external` or `none`: an object store has its checkpoints, or it makes none."""

    @property
    def affinity(self) -> dict[str, Any] | None:
        """`spec.affinity`, a copy; None: it has none."""
        affinity: dict[str, Any] | None = json.loads(self.affinity_json) if self.affinity_json else None
        return affinity


class PodRecord(msgspec.Struct, frozen=True, gc=False):
    """One pod."""

    uid: str
    name: str
    namespace: str
    resource_version: str
    created_at_seconds: float
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    """Only those of `slopewise.dev/`, and those that name other resizers (`parsing.VPA_MARKS`)."""
    owner: OwnerRef | None
    """The controlling owner; None: a bare pod."""
    node: str | None
    phase: str
    qos_class: str
    containers: tuple[ContainerRecord, ...]
    accelerators: float = 0.0
    """How many devices its containers request: GPUs, parts of GPUs, TPUs."""
    deleting: bool = False
    pod_level_resources: bool = False
    foreign_memory_resizers: tuple[str, ...] = ()
    """Other field managers whose memory, written through `pods/resize`, a container of the pod has."""
    foreign_resizers: tuple[str, ...] = ()
    """Likewise of CPU. Of any container: while a resize of a sidecar waits for room, its kubelet carries out none."""
    pending: PodPending | None = None
    unobserved: bool = False
    """Its kubelet has not seen its newest spec yet: its status is of an older one."""
    pod_level: CpuAllocation | None = None
    """CPU of the pod as a whole (`spec.resources`), which all of its containers share; None: none is set."""
    start_millicores: int = 0
    """CPU that its init containers request, which its cgroup keeps as its weight while the containers run."""
    gates: tuple[str, ...] = ()
    started_at_seconds: float | None = None
    unschedulable_since_seconds: float | None = None
    """Since when no node takes it, by the scheduler's clock; None: it is placed, gated, or not evaluated yet. For a pod
    that was gated before it is the time of its creation: only a change of True and False moves it."""
    scheduling: SchedulingFacts | None = None
    """Only of a pod that is migratable or carries our gate."""

    @property
    def ended(self) -> bool:
        """True when it has ended."""
        return self.phase in ("Succeeded", "Failed")

    @property
    def matches_spec(self) -> bool:
        """All accepted CPU of its containers is in effect, as its kubelet reports."""
        return not self.unobserved and all(container.matches_spec for container in self.containers)

    @property
    def awaits_kubelet(self) -> bool:
        """Accepted CPU is not in effect, and its kubelet has reported neither pending nor infeasible."""
        answered = self.pending is not None and self.pending.kind != "Error"
        return self.phase == "Running" and not (self.deleting or answered or self.matches_spec)

    @property
    def migratable(self) -> bool:
        """Its owner allows moves."""
        return self.annotations.get(MIGRATABLE) == "true"

    @property
    def waits_for_us(self) -> bool:
        """It carries our gate, so no scheduler places it until the gate is released."""
        return PLACE_GATE in self.gates and not self.deleting

    def guaranteed_but_for_cpu_of(self, container: ContainerRecord) -> bool:
        """Whether the pod would be Guaranteed if this container's CPU request equalled its limit."""
        others = (each for each in self.containers if each.name != container.name)
        return container.memory_is_equal and all(each.memory_is_equal and each.cpu_is_equal for each in others)

    def guaranteed_but_for_memory_of(self, container: ContainerRecord) -> bool:
        """Whether the pod would be Guaranteed if this container's memory request equalled its limit."""
        others = (each for each in self.containers if each.name != container.name)
        return container.cpu_is_equal and all(each.memory_is_equal and each.cpu_is_equal for each in others)


class OtherPod(msgspec.Struct, frozen=True, gc=False):
    """A pod without the label `slopewise.dev/managed`: all that is kept of it. 100,000 of these are 20 MB."""

    namespace: str
    name: str
    node: str
    request_millicores: int
    """What the scheduler reserves for it."""


class PodPending(msgspec.Struct, frozen=True, gc=False):
    """The pod's condition PodResizePending, or PodResizeInProgress with an error."""

    kind: Literal["Deferred", "Infeasible", "Error"]
    since_seconds: float
    message: str


class NodeRecord(msgspec.Struct, frozen=True, gc=False):
    """One node."""

    name: str
    uid: str
    labels: Mapping[str, str]
    allocatable_millicores: int
    allocatable_memory_bytes: int
    ready: bool
    unschedulable: bool = False
    static_cpu_manager: bool | None = None
    """None: unknown. Kubelets of 1.36.3 declare nothing of it: `status.declaredFeatures` is the same with either."""
    taints: tuple[Taint, ...] = ()
    memory_pressure: bool = False
    """The condition MemoryPressure."""
    swap_bytes: int = 0
    """`status.nodeInfo.swap.capacity`; 0 also where the kubelet does not report it."""


NO_ANNOTATIONS: Mapping[str, str] = {}


class ObjectRecord(msgspec.Struct, frozen=True, gc=False):
    """An object of which only the metadata matters: a namespace, a Job."""

    uid: str
    name: str
    namespace: str
    labels: Mapping[str, str]
    owner: OwnerRef | None
    annotations: Mapping[str, str] = msgspec.field(default_factory=lambda: NO_ANNOTATIONS)
    """Only those of `slopewise.dev/`."""
    deleting: bool = False
    generation: int = 0
    """The generation of its spec: when it changes, the template may have changed."""


class ManagedPod(msgspec.Struct, frozen=True, gc=False):
    """A job of the snapshot and its pod: what a job uid stands for.

    `job_uid` is `<workload uid>:<slot>`: it stays the same when the pod is replaced, so memory outlives an eviction.
    `slot` is the completion index, or `0` for a workload's only pod, or the pod's name where several are alike.
    """

    job_uid: str
    workload: OwnerRef
    slot: str
    pod: PodRecord
    container: ContainerRecord
    study: str = ""

"""The fields of the API's objects that are decoded: msgspec checks their types and skips all others.

`parsing.py` turns them into records. The API's JSON has null for a time that was never set, and some clients write it
for an empty list.

Quantities (`250m`, `2`, `1.5Gi`, `1e3`) become whole millicores and bytes by the API server's grammar, which is wider
than what `config/quantities.py` accepts from users: whatever another tool has stored must be readable. Numbers are
exact (Decimal) and rounded up as Kubernetes rounds them: a container with `100n` CPU has 1m.
"""

from __future__ import annotations

import re
from datetime import datetime
from decimal import ROUND_CEILING, Decimal
from functools import lru_cache
from typing import Any

import msgspec
from kubernetes.utils.quantity import parse_quantity

from slopewise.adapters.kube.cache.records import Taint

_BOUNDED = re.compile(r"[+-]?[0-9.]{1,41}([a-zA-Z]{0,2}|[eE][+-]?[0-9]{1,2})")
"""The input of `parse_quantity`, with bounded digits: a hostile `1e999999999` must not cost a gigabyte. Decimal also
accepts `nan`, `1_000` and digits of other alphabets, which this excludes."""

Quantity = str | int | float
"""As JSON has it: a number is a quantity too."""

LARGEST = 2**63 - 1
"""Kubernetes caps a quantity's whole number here."""


@lru_cache(maxsize=4096)
def cpu_millicores(quantity: Quantity) -> int:
    """A CPU quantity in millicores, rounded up, e.g. `1.5` is 1500; ValueError with what was found."""
    return _whole(quantity, 1000)


@lru_cache(maxsize=4096)
def memory_bytes(quantity: Quantity) -> int:
    """A memory quantity in bytes, rounded up, e.g. `1.5Gi` is 1610612736; ValueError with what was found."""
    return _whole(quantity, 1)


_DEVICES = re.compile(r".+/(gpu|gpu\.shared|mig-.+|tpu|i915|xe|gaudi|neuron|neuroncore|neurondevice)")
"""Extended resources that compute: of nvidia.com, amd.com, google.com, gpu.intel.com, habana.ai, aws.amazon.com."""


def devices(spec: PodSpec) -> float:
    """How many devices that compute a pod's containers request together; a part of one counts as one."""
    found = [each.resources.limits or each.resources.requests or {} for each in spec.containers if each.resources]
    return float(sum(_whole(of[name], 1) for of in found for name in of if _DEVICES.fullmatch(name)))


def _whole(quantity: Quantity, unit: int) -> int:
    """The quantity in units of 1/`unit`."""
    text = str(quantity)
    try:
        exact: Decimal = parse_quantity(text if _BOUNDED.fullmatch(text) else "")  # type: ignore[no-untyped-call]
    except ValueError as error:
        raise ValueError(f"{text[:40]!r} is not a Kubernetes quantity") from error
    if exact < 0:
        raise ValueError(f"{text[:40]!r} is a negative quantity")
    return min(int((exact * unit).to_integral_value(ROUND_CEILING)), LARGEST)


class Wire(msgspec.Struct, gc=False, rename="camel"):
    """Part of an object as the API spells it."""


class Owner(Wire):
    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool = False


class ObjectMeta(Wire):
    name: str
    uid: str
    namespace: str = ""
    generation: int = 0
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[Owner] | None = None
    deletion_timestamp: str | None = None


class ManagedFields(Wire):
    """Who wrote which fields. `fields_v1` is read of resizes alone: for other writes it is long and unused."""

    fields_v1: dict[str, Any] | None = None
    manager: str = "unknown"
    subresource: str | None = None


class WrittenContainer(msgspec.Struct):
    resources: dict[str, dict[str, Any]] = msgspec.field(name="f:resources", default_factory=dict)
    """By `f:limits`, `f:requests`."""


class WrittenSpec(msgspec.Struct):
    containers: dict[str, WrittenContainer] = msgspec.field(name="f:containers", default_factory=dict)
    init_containers: dict[str, WrittenContainer] = msgspec.field(name="f:initContainers", default_factory=dict)


class PodMeta(ObjectMeta, kw_only=True):
    namespace: str
    resource_version: str
    creation_timestamp: datetime
    managed_fields: list[ManagedFields] | None = None


FIRST_RANK = frozenset({"MASTER_ADDR", "PET_MASTER_ADDR", "PET_RDZV_ENDPOINT", "JAX_COORDINATOR_ADDRESS", "TF_CONFIG"})
"""Variables that say where the first process of a training is: of PyTorch, torchrun, JAX and TensorFlow."""


class Named(Wire):
    name: str


class Resources(Wire):
    requests: dict[str, Quantity] | None = None
    limits: dict[str, Quantity] | None = None
    claims: list[Named] | None = None


class ResizePolicy(Wire):
    resource_name: str | None = None
    restart_policy: str | None = None


class Variable(Wire):
    name: str
    value: str = ""

    @property
    def names_another_pod(self) -> bool:
        """Whether it says where the first process of a training is, and that is not on the same machine."""
        return self.name in FIRST_RANK and self.value != "" and not self.value.startswith(("localhost", "127."))


class Container(Wire):
    name: str
    image: str = ""
    command: list[str] | None = None
    args: list[str] | None = None
    env: list[Variable] | None = None
    resources: Resources | None = None
    resize_policy: list[ResizePolicy] | None = None
    restart_policy: str | None = None


class PodSpec(Wire):
    containers: list[Container]
    init_containers: list[Container] | None = None
    node_name: str | None = None
    resources: Resources | None = None
    scheduling_gates: list[Named] | None = None
    overhead: dict[str, Quantity] | None = None


class StateDetail(Wire):
    started_at: datetime | None = None
    finished_at: datetime | None = None
    exit_code: int | None = None
    reason: str | None = None


class State(Wire):
    running: StateDetail | None = None
    terminated: StateDetail | None = None


class ContainerStatus(Wire):
    name: str
    ready: bool = False
    restart_count: int = 0
    state: State | None = None
    last_state: State | None = None
    resources: Resources | None = None


class Condition(Wire):
    type: str
    status: str = ""
    reason: str | None = None
    message: str = ""
    last_transition_time: datetime | None = None
    observed_generation: int | None = None


class PodStatus(Wire):
    phase: str = "Pending"
    qos_class: str = ""
    start_time: datetime | None = None
    observed_generation: int | None = None
    conditions: list[Condition] | None = None
    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None


class Pod(Wire):
    metadata: PodMeta
    spec: PodSpec
    status: PodStatus | None = None


class NodeSpec(Wire):
    unschedulable: bool = False
    taints: tuple[Taint, ...] | None = None


class Allocatable(Wire):
    cpu: Quantity
    memory: Quantity


class NodeSwap(Wire):
    capacity: int = 0


class NodeInfo(Wire):
    swap: NodeSwap | None = None


class NodeStatus(Wire):
    allocatable: Allocatable
    conditions: list[Condition] | None = None
    node_info: NodeInfo | None = None


class Node(Wire):
    metadata: ObjectMeta
    status: NodeStatus
    spec: NodeSpec | None = None


class Object(Wire):
    metadata: ObjectMeta

"""The fields of the API's objects that are decoded: msgspec checks their types and skips all others.

`parsing.py` turns them into records. The API's JSON has null for a time that was never set, and some clients write it
for an empty list.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from slopewise.adapters.kube.cache.quantities import Quantity
from slopewise.adapters.kube.cache.records import Taint


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


class Named(Wire):
    name: str


class Resources(Wire):
    requests: dict[str, Quantity] | None = None
    limits: dict[str, Quantity] | None = None
    claims: list[Named] | None = None


class ResizePolicy(Wire):
    resource_name: str | None = None
    restart_policy: str | None = None


class Container(Wire):
    name: str
    image: str = ""
    command: list[str] | None = None
    args: list[str] | None = None
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

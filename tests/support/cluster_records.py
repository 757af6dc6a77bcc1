"""Small clusters for unit tests: records with one line each, the API server's JSON, and stores that tests fill."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from msgspec import structs
from support.worlds import START

from slopewise.adapters.kube.cache.records import (
    MANAGED_LABEL,
    ContainerRecord,
    NodeRecord,
    ObjectRecord,
    OtherPod,
    OwnerRef,
    PodRecord,
)
from slopewise.adapters.kube.client.errors import ApiError
from slopewise.adapters.kube.workloads.autoscalers import AutoscalerRecord
from slopewise.model import CpuAllocation

GIB = 2**30
Record = TypeVar("Record", PodRecord, NodeRecord, ObjectRecord, AutoscalerRecord, OtherPod)


def a_container(name: str = "trainer", *, limit: int | None = 2000, request: int = 500, **more: Any) -> ContainerRecord:
    """A container that runs and is ready."""
    desired = CpuAllocation(limit, request)
    made = ContainerRecord(
        name=name,
        desired=desired,
        has_request=request > 0,
        reported=desired,
        memory_request_bytes=GIB,
        memory_limit_bytes=2 * GIB,
        ready=True,
        running_since_seconds=START - 100,
    )
    return structs.replace(made, **more)


def a_pod(name: str = "p", *containers: ContainerRecord, **more: Any) -> PodRecord:
    """A running Burstable pod on n1 that its owner lets us manage."""
    made = PodRecord(
        uid=f"uid-{name}",
        name=name,
        namespace="team",
        resource_version="1",
        created_at_seconds=START - 110,
        labels={MANAGED_LABEL: "true"},
        annotations={},
        owner=None,
        node="n1",
        phase="Running",
        qos_class="Burstable",
        containers=containers or (a_container(),),
        started_at_seconds=START - 105,
    )
    return structs.replace(made, **more)


def a_node_record(name: str = "n1", *, cpu: int = 4000, **more: Any) -> NodeRecord:
    """A node that is ready."""
    made = NodeRecord(name, f"uid-{name}", {}, cpu, 8 * GIB, ready=True)
    return structs.replace(made, **more)


def an_object(name: str, uid: str, *, owner: OwnerRef | None = None, namespace: str = "team") -> ObjectRecord:
    """The metadata of something."""
    return ObjectRecord(uid, name, namespace, {}, owner)


def owned_by(kind: str, name: str, uid: str, api_version: str = "batch/v1") -> OwnerRef:
    """A reference to an owner."""
    return OwnerRef(api_version, kind, name, uid)


@dataclass
class FakeStore(Generic[Record]):
    """A store with the shape of `protocol.Store`; `put` and `drop` change it as a watch would."""

    records: Sequence[Record] = ()
    synced: bool = True
    silent: float = 0.0

    def silent_seconds(self) -> float:
        return self.silent

    def items(self) -> Sequence[Record]:
        return self.records

    def get(self, namespace: str, name: str) -> Record | None:
        return next((each for each in self.records if _key(each) == (namespace, name)), None)

    def put(self, *records: Record) -> None:
        keys = {_key(each) for each in records}
        kept: list[Record] = [each for each in self.records if _key(each) not in keys]
        kept.extend(records)
        self.records = tuple(sorted(kept, key=_key))

    def drop(self, name: str) -> None:
        self.records = tuple(each for each in self.records if each.name != name)


def _key(record: PodRecord | NodeRecord | ObjectRecord | AutoscalerRecord | OtherPod) -> tuple[str, str]:
    return ("" if isinstance(record, NodeRecord) else record.namespace), record.name


@dataclass
class FakeOwnersApi:
    """Answers reads by path: an object or its metadata, or the status of a refusal; notes what it was asked."""

    answers: dict[str, Any] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    version: tuple[int, int] | None = (1, 36)

    def server_version(self) -> tuple[int, int]:
        if self.version is None:
            raise ApiError(0, "", "no answer")
        return self.version

    def get(self, path: str, params: Mapping[str, str] | None = None, *, metadata_only: bool = False) -> dict[str, Any]:
        self.asked.append(path)
        answer = self.answers.get(path, 404)
        if isinstance(answer, int):
            raise ApiError(answer, {404: "NotFound", 403: "Forbidden"}.get(answer, ""), "refused")
        return {"metadata": dict(answer)} if metadata_only else dict(answer)


def pod_json(
    *, metadata: Mapping[str, Any] = {}, spec: Mapping[str, Any] = {}, status: Mapping[str, Any] = {}
) -> dict[str, Any]:
    """A pod as the API server (1.36.3) sends it, cut down to what matters; what is given replaces keys of each part."""
    resources = {"limits": {"cpu": "400m"}, "requests": {"cpu": "100m", "memory": "32Mi"}}
    return {
        "metadata": {
            "name": "p",
            "namespace": "team",
            "uid": "uid-p",
            "resourceVersion": "407",
            "creationTimestamp": "2026-11-21T15:25:31Z",
            "labels": {MANAGED_LABEL: "true"},
            **metadata,
        },
        "spec": {
            "nodeName": "node-a",
            "containers": [{"name": "trainer", "image": "i", "resources": resources}],
            **spec,
        },
        "status": {
            "phase": "Running",
            "qosClass": "Burstable",
            "startTime": "2026-11-21T15:25:32Z",
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-21T15:25:33Z"}],
            "containerStatuses": [container_status(resources=resources)],
            **status,
        },
    }


def container_status(**more: Any) -> dict[str, Any]:
    """The status of the container `trainer`, which runs."""
    return {
        "name": "trainer",
        "ready": True,
        "restartCount": 0,
        "state": {"running": {"startedAt": "2026-11-21T15:25:33Z"}},
        "lastState": {},
        **more,
    }

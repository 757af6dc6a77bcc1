"""Pods that Slopewise manages, for tests of what is written to them: as records, and as the API server's JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from slopewise.adapters.kube.cache.parsing import parse_pod
from slopewise.adapters.kube.cache.records import ContainerRecord, ManagedPod, OwnerRef, PodRecord
from slopewise.model import CpuAllocation

NAMESPACE = "team-a"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
MIB = 2**20
STARTED = "2026-01-01T00:00:00Z"
UNSCHEDULABLE = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "lastTransitionTime": STARTED,
}


def a_container(
    name: str = "trainer",
    *,
    limit: int | None = 2000,
    request: int = 500,
    memory: tuple[int | None, int | None] = (None, None),
    reported: CpuAllocation | None = None,
    **more: Any,
) -> ContainerRecord:
    """A container that runs. `memory`: request and limit, in MiB; `reported`: the desired CPU, if not given."""
    desired = CpuAllocation(limit, request)
    low, high = (None if each is None else each * MIB for each in memory)
    more = {"has_request": request > 0, "ready": True, "running_since_seconds": 1.0, **more}
    return ContainerRecord(
        name, desired, reported=reported or desired, memory_request_bytes=low, memory_limit_bytes=high, **more
    )


def a_managed_pod(container: ContainerRecord | None = None, *, qos: str = "Burstable", **more: Any) -> ManagedPod:
    """A pod of one container, and what else is said of it, e.g. `containers` beside it."""
    container = container or a_container()
    fields = {"containers": (container,), "owner": None, "node": "node-a", "phase": "Running", **more}
    pod = PodRecord(
        uid="pod-uid",
        name="p",
        namespace=NAMESPACE,
        resource_version="7",
        created_at_seconds=0.0,
        labels={},
        annotations={},
        qos_class=qos,
        **fields,
    )
    return managed(pod)


def managed(pod: PodRecord) -> ManagedPod:
    """The pod as a job of its own, trained by its first container."""
    return ManagedPod(f"{pod.uid}:0", OwnerRef("v1", "Pod", pod.name, pod.uid), "0", pod, pod.containers[0])


def parsed(raw: dict[str, Any]) -> ManagedPod:
    """The same of the API server's JSON."""
    return managed(parse_pod(raw))


def a_raw_pod(
    cpu: dict[str, dict[str, str]] | None = None,
    *,
    reported: dict[str, dict[str, str]] | None = None,
    conditions: tuple[dict[str, str], ...] = (),
    qos: str = "Burstable",
    ready: bool = True,
) -> dict[str, Any]:
    """A pod that runs on node-a, as an API server stores it; 500m to 2 CPUs if nothing is said."""
    cpu = cpu or {"requests": {"cpu": "500m"}, "limits": {"cpu": "2"}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "labels": {"slopewise.dev/managed": "true"}},
        "spec": {"nodeName": "node-a", "containers": [{"name": "trainer", "image": "i", "resources": cpu}]},
        "status": {
            "phase": "Running",
            "qosClass": qos,
            "conditions": list(conditions),
            "containerStatuses": [
                {
                    "name": "trainer",
                    "ready": ready,
                    "restartCount": 0,
                    "state": {"running": {"startedAt": STARTED}},
                    "resources": reported or cpu,
                }
            ],
        },
    }


def resized_by(manager: str) -> dict[str, Any]:
    """The entry of `managedFields` of somebody else who has written a pod's CPU limit through `pods/resize`."""
    fields: dict[str, Any] = {
        "f:spec": {"f:containers": {'k:{"name":"trainer"}': {"f:resources": {"f:limits": {"f:cpu": {}}}}}}
    }
    return {"manager": manager, "operation": "Update", "subresource": "resize", "fieldsV1": fields}


def deferred() -> dict[str, str]:
    """The condition of a resize that waits for room."""
    return {
        "type": "PodResizePending",
        "status": "True",
        "reason": "Deferred",
        "lastTransitionTime": STARTED,
        "message": "no room",
    }


@dataclass
class KnownJob:
    """An index that finds one pod for every job; None: it is gone."""

    managed: ManagedPod | None

    def find(self, job_uid: str) -> ManagedPod | None:
        return self.managed

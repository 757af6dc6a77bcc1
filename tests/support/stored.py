"""What controllers have stored in a small API server: the lease, and JobGrowths of Jobs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from support.api_server import ApiServer

from slopewise.adapters.kube.client.protocol import path_of
from slopewise.adapters.kube.state.job_growth_object import growth_path

SINCE = "2026-11-21T15:00:00Z"


def condition(kind: str, status: str, reason: str, message: str = "") -> dict[str, str]:
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": SINCE}


def action(change: str, detail: str, **more: str) -> dict[str, str]:
    """One of a workload's history."""
    done = {"time": SINCE, "slot": "0", "action": "Move", "change": change, "result": "resumed", "detail": detail}
    return {**done, **more}


def put_lease(
    server: ApiServer, seconds_ago: float = 0.0, holder: str = "controller-0", namespace: str = "slopewise-system"
) -> None:
    renewed = datetime.now(UTC) - timedelta(seconds=seconds_ago)
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": renewed.isoformat()}
    lease = {"metadata": {"name": "slopewise-controller", "namespace": namespace}, "spec": spec}
    server.put(path_of("coordination.k8s.io/v1", "leases", namespace), lease)


def put_growth(server: ApiServer, name: str, namespace: str = "team-a", **status: Any) -> None:
    """`job_class`: what the API calls `class`."""
    if "job_class" in status:
        status["class"] = status.pop("job_class")
    workload = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": f"uid-of-{name}"}
    metadata = {"name": name, "namespace": namespace}
    server.put(growth_path(namespace), {"metadata": metadata, "spec": {"workload": workload}, "status": status})

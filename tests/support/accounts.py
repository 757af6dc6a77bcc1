"""A service account of a real cluster, as our own client speaks for it: with a token, not by impersonation."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from support.cluster import Kubectl

from slopewise.adapters.kube.client.client import KubeApi
from slopewise.adapters.kube.client.errors import ApiError
from slopewise.adapters.kube.events import REPORTING_CONTROLLER

SYSTEM = "slopewise-system"
ACCOUNT = "slopewise-controller"
GROUP = "/apis/slopewise.dev/v1alpha1"
EARLIER = "2026-01-01T00:00:00.000000Z"


def api_of_account(kubectl: Kubectl, namespace: str, account: str, folder: Path) -> KubeApi:
    """The API server as the account sees it, for ten minutes; its kubeconfig is written into `folder`."""
    token = kubectl.run("create", "token", account, "-n", namespace, "--duration=10m").strip()
    config = json.loads(kubectl.run("config", "view", "--raw", "--minify", "--flatten", "-o", "json"))
    config["users"] = [{"name": account, "user": {"token": token}}]
    config["contexts"][0]["context"]["user"] = account
    path = folder / f"{namespace}-{account}.kubeconfig"
    path.write_text(json.dumps(config), encoding="utf-8")
    return KubeApi.connect(kubeconfig=str(path))


def refusal(call: Callable[[], object]) -> str:
    """Why the API server refuses it; empty when it does not."""
    try:
        call()
    except ApiError as error:
        return error.message
    return ""


def growths(namespace: str) -> str:
    """The path of a namespace's JobGrowths."""
    return f"{GROUP}/namespaces/{namespace}/jobgrowths"


def a_growth(workload: Mapping[str, Any] | None = None, **metadata: Any) -> dict[str, Any]:
    """A JobGrowth `a` as the controller makes it, of a Job that need not be there."""
    of = {"apiVersion": "batch/v1", "kind": "Job", "name": "a", "uid": "1"}
    if workload is not None:
        of |= {"name": workload["metadata"]["name"], "uid": workload["metadata"]["uid"]}
    owner = {**of, "controller": False, "blockOwnerDeletion": False}
    return {
        "apiVersion": "slopewise.dev/v1alpha1",
        "kind": "JobGrowth",
        "metadata": {"name": "a", "ownerReferences": [owner], **metadata},
        "spec": {"workload": of},
    }


def an_event(namespace: str) -> dict[str, Any]:
    """As the controller reports of a pod."""
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "managed.1", "namespace": namespace},
        "eventTime": EARLIER,
        "reportingController": REPORTING_CONTROLLER,
        "reportingInstance": "test",
        "action": "Resize",
        "reason": "Resized",
        "note": "from 1 to 2 cores",
        "type": "Normal",
        "regarding": {"apiVersion": "v1", "kind": "Pod", "name": "managed", "uid": "1", "namespace": namespace},
    }


def a_lease() -> dict[str, Any]:
    """As the first replica makes it."""
    spec = {
        "holderIdentity": "a",
        "leaseDurationSeconds": 15,
        "leaseTransitions": 0,
        "acquireTime": EARLIER,
        "renewTime": EARLIER,
    }
    metadata = {"name": ACCOUNT, "namespace": SYSTEM}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}

"""A service account of a real cluster, as our own client speaks for it: with a token, not by impersonation."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from support.cluster import Kubectl

from controller.adapters.kube.api import KubeApi
from controller.adapters.kube.api_error import ApiError

SYSTEM = "slopewise-system"
ACCOUNT = "slopewise-controller"
GROUP = "/apis/slopewise.dev/v1alpha1"


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


def a_growth(**metadata: Any) -> dict[str, Any]:
    """A JobGrowth `a` of a Job that need not be there."""
    workload = {"apiVersion": "batch/v1", "kind": "Job", "name": "a", "uid": "1"}
    return {
        "apiVersion": "slopewise.dev/v1alpha1",
        "kind": "JobGrowth",
        "metadata": {"name": "a", **metadata},
        "spec": {"workload": workload},
    }

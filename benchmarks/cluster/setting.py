"""What all benchmarks of this folder need of a cluster: an administrator's API, our kinds, a namespace, a policy."""

from __future__ import annotations

import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from slopewise.adapters.kube.cache.records import API_VERSION, MANAGED_LABEL, MOVES_ALLOWED, MOVES_LABEL
from slopewise.adapters.kube.client.client import KubeApi
from slopewise.adapters.kube.client.errors import ApiError
from slopewise.adapters.kube.connection import LEASE_NAME, other_leaders
from slopewise.crds.schema.definitions import definitions

_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_POLL_SECONDS = 0.05
Seen = TypeVar("Seen")


def connect() -> KubeApi:
    """To the cluster of KUBECONFIG."""
    return KubeApi.connect(timeout_seconds=30.0)


def bring_kinds(api: KubeApi) -> None:
    """TrainingPolicy and JobGrowth, where the cluster does not know them yet.

    Before that: SystemExit with a sentence and 2 beside a controller, which would take the benchmark's pods for those
    of a deleted policy and give them back in the middle of the measurement.
    """
    if leaders := other_leaders(api):
        namespace, holder = next(iter(leaders.items()))
        print(
            f"{Path(sys.argv[0]).name}: {holder} leads in namespace {namespace}, and would give back what is measured "
            f"here; scale it down first: kubectl -n {namespace} scale deployment {LEASE_NAME} --replicas=0",
            file=sys.stderr,
        )
        raise SystemExit(2)
    for definition in definitions().values():
        create_missing(api, _DEFINITIONS, definition)
    wait_for("our kinds are served", lambda: _serves_growths(api), bool, 30.0)


def _serves_growths(api: KubeApi) -> bool:
    try:
        api.get(f"/apis/{API_VERSION}/jobgrowths", {"limit": "1"})
    except ApiError:
        return False
    return True


def create_missing(api: KubeApi, path: str, body: dict[str, Any]) -> None:
    """Make an object unless there is one of that name."""
    try:
        api.create(path, body)
    except ApiError as error:
        if not error.already_exists:
            raise


@contextmanager
def own_namespace(api: KubeApi) -> Iterator[str]:
    """One in which jobs may be moved; it goes again with all that is in it."""
    name = f"slopewise-bench-{uuid.uuid4().hex[:6]}"
    api.create("/api/v1/namespaces", {"metadata": {"name": name, "labels": {MOVES_LABEL: MOVES_ALLOWED}}})
    try:
        yield name
    finally:
        api.delete(f"/api/v1/namespaces/{name}")


def only(namespace: str) -> dict[str, Any]:
    """The selector of a TrainingPolicy for one namespace."""
    return {"namespaces": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}


def policy(namespace: str, interval_seconds: float, **spec: Any) -> dict[str, Any]:
    """A TrainingPolicy that acts on one namespace, and waits for no cooldown."""
    return {
        "apiVersion": API_VERSION,
        "kind": "TrainingPolicy",
        "metadata": {"name": "bench"},
        "spec": {
            "mode": "Auto",
            "selector": only(namespace),
            "behaviour": {"intervalSeconds": interval_seconds, "cooldownSeconds": 0, "maxStepRatio": 100},
            **spec,
        },
    }


def pod(name: str, node: str, image: str, command: Sequence[str], **container: Any) -> dict[str, Any]:
    """A managed pod of one container, `trainer`, 100m to 500m of CPU."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {MANAGED_LABEL: "true"}},
        "spec": {
            "nodeName": node,
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": False,
            "restartPolicy": "Never",
            "containers": [
                {
                    "name": "trainer",
                    "image": image,
                    "imagePullPolicy": "IfNotPresent",
                    "command": list(command),
                    "resources": {"requests": {"cpu": "100m"}, "limits": {"cpu": "500m"}},
                    **container,
                }
            ],
        },
    }


def start_pods(api: KubeApi, namespace: str, pods: Sequence[Mapping[str, Any]]) -> None:
    """Make these pods and wait until they run."""
    path = f"/api/v1/namespaces/{namespace}/pods"
    account = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    wait_for("the namespace's account", lambda: api.get(account)["items"], bool, 30.0)
    for each in pods:
        api.create(path, dict(each))
    wait_for(
        "the pods run",
        lambda: [each["status"].get("phase") for each in api.get(path)["items"]],
        lambda phases: set(phases) == {"Running"},
        60.0,
    )


def wait_for(what: str, look: Callable[[], Seen], done: Callable[[Seen], object], timeout_seconds: float) -> Seen:
    """Look until `done` says yes of what is seen, and return that; RuntimeError with what was seen last."""
    deadline = time.monotonic() + timeout_seconds
    while not done(seen := look()):
        if time.monotonic() > deadline:
            raise RuntimeError(f"{what}: not within {timeout_seconds:g} s; seen last: {seen}")
        time.sleep(_POLL_SECONDS)
    return seen

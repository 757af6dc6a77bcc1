"""Sends one eviction, or a dry run of it, and checks whether the pod would be recreated.

`evict/controller.py` evicts, `moves/disruption.py` sends dry runs, and `moves/gated_pods.py` and the sweeper evict pods
that found no room. Pods are never deleted: disruption budgets apply to evictions, and `podFailurePolicy`
distinguishes them from failures.
"""

from __future__ import annotations

from collections.abc import Callable

from slopewise.adapters.kube.cache.records import ManagedPod, OwnerRef, PodRecord
from slopewise.adapters.kube.client.errors import ApiError
from slopewise.adapters.kube.client.meanings import Refused, explain
from slopewise.adapters.kube.client.paths import path_of
from slopewise.adapters.kube.client.protocol import Api, Json
from slopewise.adapters.kube.moves.recreation import ended_reason, not_recreated_reason_of
from slopewise.adapters.kube.workloads.owners import owner_path

OnRefused = Callable[[ManagedPod, Refused], str]
"""Gets each move of a pod that could not be begun; returns the message (`backoff.MoveBackoff.note`)."""


def as_it_is(managed: ManagedPod, refused: Refused) -> str:
    """Where refusals are not remembered."""
    return refused.detail


def not_recreated_reason(api: Api, pod: PodRecord) -> str | None:
    """Why this pod would not be recreated behind our gate, by its owner's current state; None: it would.

    ApiError when the owner cannot be read.
    """
    if pod.owner is None:
        return "a bare pod is not recreated; run it as a Job"
    path = owner_path(pod.namespace, pod.owner)
    if path is None:
        return not_recreated_reason_of(pod.owner.kind, {})
    owner = api.get(path)
    if owner["metadata"]["uid"] != pod.owner.uid:
        return f"its {pod.owner.kind} has been replaced"
    return not_recreated_reason_of(pod.owner.kind, owner, pod.name)


def is_not_replaced(api: Api, namespace: str, owner: OwnerRef, pod_name: str) -> bool:
    """Whether this owner is deleted, or does not replace this pod now; False where it cannot be read."""
    path = owner_path(namespace, owner)
    if path is None:
        return False
    try:
        found = api.get(path)
    except ApiError as error:
        return error.is_not_found
    return found["metadata"]["uid"] != owner.uid or ended_reason(owner.kind, found, pod_name) is not None


def evict(api: Api, pod: PodRecord, *, dry_run: bool = False) -> Refused | None:
    """None: granted; with `dry_run` nothing happens, and the budgets are checked all the same.

    The uid is a precondition: another pod of that name (a StatefulSet's next one) is not touched.
    """
    options: Json = {"preconditions": {"uid": pod.uid}}
    if dry_run:
        options["dryRun"] = ["All"]
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod.name, "namespace": pod.namespace},
        "deleteOptions": options,
    }
    try:
        api.create(f"{path_of('v1', 'pods', pod.namespace, pod.name)}/eviction", body)
    except ApiError as error:
        return explain(error, "evict")
    return None

"""Sends one eviction, or a dry run of it, and checks disruption budgets before several pods are ended together.

`evict/controller.py` evicts, and `moves/gated_pods.py` and the sweeper evict pods that found no room. Pods are never
deleted: disruption budgets apply to evictions, and `podFailurePolicy` distinguishes them from failures.

`suspend/begin.py` ends all pods of a Job at once, which no budget restrains, and `evict/controller.py` moves a workload
whole or not at all. A budget that allows one disruption grants the dry run of each of four evictions, so budgets are
read, and counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from pydantic import ValidationError

from slopewise.adapters.kube.cache.records import ManagedPod, OwnerRef, PodRecord
from slopewise.adapters.kube.client.errors import ApiError
from slopewise.adapters.kube.client.fencing import unless
from slopewise.adapters.kube.client.meanings import Refused, explain
from slopewise.adapters.kube.client.protocol import Api, Json, path_of
from slopewise.adapters.kube.moves.recreation import ended_reason, not_recreated_reason_of
from slopewise.adapters.kube.workloads.owners import owner_path
from slopewise.config.training_policy import LabelSelector

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


def disruption_refusal(api: Api, pods: Sequence[PodRecord]) -> Refused | None:
    """Why these pods, all of one namespace, must not end at once; None: they may."""
    for pod in pods:
        with unless(lambda: None):  # the write that follows asks whether it is frozen
            refused = evict(api, pod, dry_run=True)
        if refused is not None and not refused.gone:
            return refused
    return _refused_together(api, pods) if len(pods) > 1 else None


def _refused_together(api: Api, pods: Sequence[PodRecord]) -> Refused | None:
    try:
        found = api.get(path_of("policy/v1", "poddisruptionbudgets", pods[0].namespace))
    except ApiError as error:
        return explain(error, "list budgets")
    return next(_violated(found["items"], pods), None)


def _violated(budgets: Sequence[Json], pods: Sequence[PodRecord]) -> Iterator[Refused]:
    for budget in budgets:
        selected = sum(_selects(budget, pod) for pod in pods)
        allowed = (budget.get("status") or {}).get("disruptionsAllowed", 0)
        if selected > allowed:
            yield Refused(
                "deferred",
                f"a disruption budget says no: {budget['metadata']['name']} allows {allowed} disruptions now, and "
                f"{selected} pods would end at once",
                "budget",
            )


def _selects(budget: Json, pod: PodRecord) -> bool:
    """A selector that cannot be read counts as selecting: better no move than one too many."""
    selector = budget["spec"].get("selector")
    if selector is None:
        return False
    try:
        return LabelSelector.model_validate(selector).matches(pod.labels)
    except ValidationError:
        return True

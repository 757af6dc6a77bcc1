"""One eviction, or only the question whether it would be granted: what is sent, and what the answer means.

`evictions.py` evicts, `budgets.py` only asks (before a Job is suspended, about which nobody asks the disruption
budgets, and before the first of several evictions), and `gates.py` and the sweeper evict pods that found no place.
Never a delete: evictions are what disruption budgets are made for, and what `podFailurePolicy` tells from a failure.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from controller.adapters.kube.api_error import ApiError
from controller.adapters.kube.coming_back import why_not_back, why_over
from controller.adapters.kube.contracts import Api, Json
from controller.adapters.kube.owners import owner_path
from controller.adapters.kube.paths import path_of
from controller.adapters.kube.records import ManagedPod, OwnerRef, PodRecord
from controller.model import OutcomeResult

COMPONENT = "apply manifests/components/moves"
"""What grants our account everything that moves need."""

_SEVERAL_BUDGETS = "more than one PodDisruptionBudget"


Cause = Literal["moment", "budget", "rule", "trouble"]
"""What has to change before the same may be granted: nothing that lasts longer than a pass; a disruption budget; what
somebody has written (a right, an admission policy, the Job itself); or an error of the API server, which passes."""


@dataclass(frozen=True, slots=True)
class Refused:
    """A move that was not begun, or an eviction that was not granted or of which nothing is known."""

    result: OutcomeResult
    detail: str
    cause: Cause = "moment"
    maybe_done: bool = False
    gone: bool = False
    """The pod or its Job is no more: what an eviction was for has happened."""


OnRefused = Callable[[ManagedPod, Refused], str]
"""Is handed each move of a pod that could not be begun; returns why, in words (`move_backoff.MoveBackoff.note`)."""


def as_it_is(managed: ManagedPod, refused: Refused) -> str:
    """Where nothing is remembered of refusals."""
    return refused.detail


def why_it_would_stay_away(api: Api, pod: PodRecord) -> str | None:
    """Why this pod would not come back behind our gate, by its owner as it is at this moment; None: it would.

    ApiError when the owner cannot be read.
    """
    if pod.owner is None:
        return "it is a bare pod, which nobody makes again; run it as a Job"
    path = owner_path(pod.namespace, pod.owner)
    if path is None:
        return why_not_back(pod.owner.kind, {})
    owner = api.get(path)
    if owner["metadata"]["uid"] != pod.owner.uid:
        return f"its {pod.owner.kind} has been replaced"
    return why_not_back(pod.owner.kind, owner, pod.name)


def makes_no_more(api: Api, namespace: str, owner: OwnerRef, pod_name: str) -> bool:
    """Whether this owner is gone, or makes none in the place of this pod just now; False where it cannot be read."""
    path = owner_path(namespace, owner)
    if path is None:
        return False
    try:
        found = api.get(path)
    except ApiError as error:
        return error.is_gone
    return found["metadata"]["uid"] != owner.uid or why_over(owner.kind, found, pod_name) is not None


def evict(api: Api, pod: PodRecord, *, dry_run: bool = False) -> Refused | None:
    """None: granted; with `dry_run` nothing happens, and the budgets are asked all the same.

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
        return _meaning(error)
    return None


def _meaning(error: ApiError) -> Refused:
    said = error.message
    if error.is_gone or error.is_conflict:
        return Refused("failed", "its pod is gone, or another one has its name", gone=True)
    if error.is_throttled:
        return _throttled(error)
    if _SEVERAL_BUDGETS in said:
        why = "several PodDisruptionBudgets select its pod, and Kubernetes asks only one; leave one"
        return Refused("infeasible", why, "budget")
    if error.is_denied:
        return Refused("infeasible", error.denial, "rule")
    if error.is_forbidden:
        return Refused("infeasible", f"our account may not evict its pod; {COMPONENT} ({said})", "rule")
    if error.is_invalid or error.status == 400:
        return Refused("infeasible", f"Kubernetes does not take the eviction ({said})", "rule")
    return Refused("failed", f"the eviction was not answered well ({said})", "trouble", maybe_done=error.maybe_done)


def _throttled(error: ApiError) -> Refused:
    budget = next((cause.message for cause in error.causes if cause.reason == "DisruptionBudget"), None)
    if budget is not None:
        return Refused("deferred", f"a disruption budget says no: {budget}", "budget")
    return Refused("deferred", f"the API server does not evict it now ({error.message})", "trouble")

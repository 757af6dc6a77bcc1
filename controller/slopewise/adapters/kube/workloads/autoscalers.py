"""HorizontalPodAutoscalers that scale by CPU: a resize of their pods would change their replicas.

A lower limit lowers the usage that an autoscaler measures, and a lower request raises its ratio. So pods whose owner is
scaled by CPU are not resized (`eligibility.py`). VerticalPodAutoscalers mark the pods that they size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from slopewise.adapters.kube.cache.records import ManagedPod, OwnerRef
from slopewise.adapters.kube.client.protocol import Json, Store

Target = tuple[str, str, str]
"""Namespace, kind and name of what is scaled."""

_RESOURCE_KINDS = {"Resource": "resource", "ContainerResource": "containerResource"}


@dataclass(frozen=True, slots=True)
class AutoscalerRecord:
    """One HorizontalPodAutoscaler, and what it scales."""

    namespace: str
    name: str
    target_kind: str
    target_name: str
    counts_cpu: bool


def parse_autoscaler(raw: Json) -> AutoscalerRecord:
    """KeyError for anything else."""
    meta, spec = raw["metadata"], raw["spec"]
    target = spec["scaleTargetRef"]
    metrics = [each.get(_RESOURCE_KINDS.get(each.get("type", ""), ""), {}) for each in spec.get("metrics") or ()]
    return AutoscalerRecord(
        namespace=meta["namespace"],
        name=meta["name"],
        target_kind=target["kind"],
        target_name=target["name"],
        counts_cpu=any(metric.get("name") == "cpu" for metric in metrics),
    )


class Autoscalers:
    """The autoscalers that scale by CPU, by target. Costs nothing while none of them changes."""

    def __init__(self, store: Store[AutoscalerRecord] | None) -> None:
        """None: autoscalers may not be read."""
        self._store = store
        self._seen: Sequence[AutoscalerRecord] = ()
        self._by_target: Mapping[Target, str] = {}

    def by_target(self) -> Mapping[Target, str]:
        """Their names now, by namespace, kind and name of the target."""
        records = () if self._store is None else self._store.items()
        if records is not self._seen:
            self._by_target = {
                (each.namespace, each.target_kind, each.target_name): each.name for each in records if each.counts_cpu
            }
            self._seen = records
        return self._by_target

    def scaling(self, managed: ManagedPod) -> str | None:
        """The name of the one that scales a pod's owner; None: there is none."""
        return autoscaler_of(self.by_target(), managed.pod.namespace, managed.workload, managed.pod.owner)


def autoscaler_of(by_target: Mapping[Target, str], namespace: str, *owners: OwnerRef | None) -> str | None:
    """The name of the autoscaler of any of these owners of a pod; None: there is none."""
    if not by_target:
        return None
    found = (by_target.get((namespace, owner.kind, owner.name)) for owner in owners if owner is not None)
    return next((name for name in found if name is not None), None)

"""HorizontalPodAutoscalers that scale by CPU or by memory: a resize of their pods would change their replicas.

A lower limit lowers the usage that an autoscaler measures, and a lower request raises its ratio. So pods whose owner is
scaled by CPU are not resized, and the memory of those whose owner is scaled by memory is not changed
(`eligibility.py`). VerticalPodAutoscalers mark the pods that they size.

Worked example: 300 MiB used of a request of 1 GiB are 29 %. With a request of 360 MiB they are 83 %, and an autoscaler
with a target of 80 % adds a replica.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from slopewise.adapters.kube.cache.records import OwnerRef
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
    counts_memory: bool = False


@dataclass(frozen=True, slots=True)
class ScaledBy:
    """The names of the autoscalers that scale an owner by CPU and by memory; None: there is none."""

    cpu: str | None = None
    memory: str | None = None


UNSCALED = ScaledBy()


def parse_autoscaler(raw: Json) -> AutoscalerRecord:
    """KeyError for anything else."""
    meta, spec = raw["metadata"], raw["spec"]
    target = spec["scaleTargetRef"]
    metrics = [each.get(_RESOURCE_KINDS.get(each.get("type", ""), ""), {}) for each in spec.get("metrics") or ()]
    counted = {metric.get("name") for metric in metrics}
    return AutoscalerRecord(
        namespace=meta["namespace"],
        name=meta["name"],
        target_kind=target["kind"],
        target_name=target["name"],
        counts_cpu="cpu" in counted,
        counts_memory="memory" in counted,
    )


class Autoscalers:
    """The autoscalers that scale by CPU or by memory, by target. Costs nothing while none of them changes."""

    def __init__(self, store: Store[AutoscalerRecord] | None) -> None:
        """None: autoscalers may not be read."""
        self._store = store
        self._seen: Sequence[AutoscalerRecord] = ()
        self._by_target: Mapping[Target, ScaledBy] = {}

    def by_target(self) -> Mapping[Target, ScaledBy]:
        """Their names now, by namespace, kind and name of the target."""
        records = () if self._store is None else self._store.items()
        if records is not self._seen:
            self._by_target = names_by_target(records)
            self._seen = records
        return self._by_target


def names_by_target(records: Iterable[AutoscalerRecord]) -> Mapping[Target, ScaledBy]:
    """The targets that are scaled by CPU or by memory; several autoscalers may scale one target."""
    found: dict[Target, ScaledBy] = {}
    for each in records:
        if each.counts_cpu or each.counts_memory:
            target = (each.namespace, each.target_kind, each.target_name)
            known = found.get(target, UNSCALED)
            found[target] = ScaledBy(
                each.name if each.counts_cpu else known.cpu, each.name if each.counts_memory else known.memory
            )
    return found


def scaled_by(by_target: Mapping[Target, ScaledBy], namespace: str, *owners: OwnerRef | None) -> ScaledBy:
    """The autoscalers of any of these owners of a pod."""
    if not by_target:
        return UNSCALED
    named = ((namespace, owner.kind, owner.name) for owner in owners if owner is not None)
    found = [by_target[target] for target in named if target in by_target]
    return ScaledBy(
        next((each.cpu for each in found if each.cpu is not None), None),
        next((each.memory for each in found if each.memory is not None), None),
    )

"""Parses what decides where a pod can run and whether it is recreated: JSON to `SchedulingFacts`.

`parsing.py` reads them of migratable or gated pods, and `suspend/begin.py` of a Job's template. 5,000 ordinary pods
cost nothing, and the pods of one template share one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec

from slopewise.adapters.kube.cache.records import GROUP, SchedulingFacts, Toleration, VolumeRecord
from slopewise.adapters.kube.client.protocol import Json

CHECKPOINTS = f"{GROUP}/checkpoints"
EXTERNAL = "external"
NO_CHECKPOINTS = "none"

_FORBIDDING: Mapping[str, str] = {
    "karpenter.sh/do-not-disrupt": "true",
    "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
}
"""Annotations that forbid to disrupt a pod, and the value that does."""

_DEFAULT_GRACE_SECONDS = 30.0
_MAX_SHARED = 4_096


class _Spread(msgspec.Struct, rename="camel"):
    when_unsatisfiable: str | None = None


class _Spec(msgspec.Struct, rename="camel"):
    """The fields of a pod's `spec` that are read."""

    affinity: dict[str, Any] | None = None
    node_selector: dict[str, str] | None = None
    tolerations: tuple[Toleration, ...] | None = None
    volumes: list[dict[str, Any]] | None = None
    termination_grace_period_seconds: float | None = None
    restart_policy: str | None = None
    topology_spread_constraints: list[_Spread] | None = None
    resource_claims: list[Any] | None = None


def scheduling_facts(meta: Json, spec: Json) -> SchedulingFacts:
    """From a pod's `metadata` and `spec`; equal facts are one object. ValueError where a field is malformed."""
    read = msgspec.convert(spec, _Spec)
    annotations = meta.get("annotations") or {}
    grace_seconds = read.termination_grace_period_seconds
    return _shared(
        SchedulingFacts(
            affinity_json=json.dumps(read.affinity, sort_keys=True) if read.affinity else "",
            node_selector=tuple(sorted((read.node_selector or {}).items())),
            tolerations=read.tolerations or (),
            volumes=tuple(_volume(each) for each in read.volumes or ()),
            grace_seconds=_DEFAULT_GRACE_SECONDS if grace_seconds is None else grace_seconds,
            restart_policy=read.restart_policy or "Always",
            spreads_strictly=any(
                each.when_unsatisfiable == "DoNotSchedule" for each in read.topology_spread_constraints or ()
            ),
            claims_devices=bool(read.resource_claims),
            do_not_disrupt=next((f"{key}: {no}" for key, no in _FORBIDDING.items() if annotations.get(key) == no), ""),
            needs_no_volume=annotations.get(CHECKPOINTS) in (EXTERNAL, NO_CHECKPOINTS),
        )
    )


@lru_cache(maxsize=_MAX_SHARED)
def _shared(facts: SchedulingFacts) -> SchedulingFacts:
    return facts


def _volume(raw: Json) -> VolumeRecord:
    """Beside its name a volume has one key: the kind of its source. Without any it is an emptyDir."""
    kind, source = next(((key, value or {}) for key, value in raw.items() if key != "name"), ("emptyDir", {}))
    claim = source["claimName"] if kind == "persistentVolumeClaim" else ""
    return VolumeRecord(raw["name"], kind, claim)

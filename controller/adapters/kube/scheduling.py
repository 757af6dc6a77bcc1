"""What of a pod decides on where it can run and whether it can come back: the API's JSON to `SchedulingFacts`.

Before it: `parsing.py`, for a pod that is migratable or gated, and `suspending.py`, for a Job's template. After it:
`mobility.py` and `node_fit.py`. 5,000 ordinary pods cost nothing, and the pods of one template share one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache

from controller.adapters.kube.contracts import Json
from controller.adapters.kube.records import GROUP, SchedulingFacts, Taint, Toleration, VolumeRecord

CHECKPOINTS = f"{GROUP}/checkpoints"
EXTERNAL = "external"

_FORBIDDING: Mapping[str, str] = {
    "karpenter.sh/do-not-disrupt": "true",
    "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
}
"""Annotations with which owners forbid to disrupt a pod, and the value that does."""

_DEFAULT_GRACE_SECONDS = 30.0
_MOST_SHARED = 4_096


def scheduling_facts(meta: Json, spec: Json) -> SchedulingFacts:
    """From a pod's `metadata` and `spec`; the one that is kept of all that are equal."""
    annotations = meta.get("annotations") or {}
    affinity = spec.get("affinity")
    grace = spec.get("terminationGracePeriodSeconds")
    return _shared(
        SchedulingFacts(
            affinity_json=json.dumps(affinity, sort_keys=True) if affinity else "",
            node_selector=tuple(sorted((spec.get("nodeSelector") or {}).items())),
            tolerations=tuple(_toleration(each) for each in spec.get("tolerations") or ()),
            volumes=tuple(_volume(each) for each in spec.get("volumes") or ()),
            grace_seconds=_DEFAULT_GRACE_SECONDS if grace is None else float(grace),
            restart_policy=spec.get("restartPolicy") or "Always",
            spreads_strictly=any(
                each.get("whenUnsatisfiable") == "DoNotSchedule" for each in spec.get("topologySpreadConstraints") or ()
            ),
            claims_devices=bool(spec.get("resourceClaims")),
            must_stay=next((f"{key}: {no}" for key, no in _FORBIDDING.items() if annotations.get(key) == no), ""),
            external_checkpoints=annotations.get(CHECKPOINTS) == EXTERNAL,
        )
    )


@lru_cache(maxsize=_MOST_SHARED)
def _shared(facts: SchedulingFacts) -> SchedulingFacts:
    return facts


def taints(spec: Json) -> tuple[Taint, ...]:
    """The taints of a node."""
    return tuple(Taint(each["key"], each.get("value", ""), each["effect"]) for each in spec.get("taints") or ())


def _toleration(raw: Json) -> Toleration:
    return Toleration(
        raw.get("key") or "", raw.get("operator") or "Equal", raw.get("value") or "", raw.get("effect") or ""
    )


def _volume(raw: Json) -> VolumeRecord:
    """Beside its name a volume has one key: the kind of its source. Without any it is an emptyDir."""
    kind, source = next(((key, value or {}) for key, value in raw.items() if key != "name"), ("emptyDir", {}))
    claim = source["claimName"] if kind == "persistentVolumeClaim" else ""
    return VolumeRecord(raw["name"], kind, claim)

"""Writes the TrainingPolicy that fits a history: its namespaces, bounds from requests, and the best replayed policy.

Its mode is Recommend: it changes nothing until somebody says `Auto`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import yaml

from slopewise.advise.findings import JobFinding
from slopewise.advise.replay import PolicyReplay, Replays
from slopewise.config.training_policy import EvaluationSettings, PolicyChoice, TrainingPolicy
from slopewise.config.validation import API_VERSION, validate
from slopewise.model import Objective
from slopewise.own_policies.catalogue import find

NAMESPACE_LABEL = "kubernetes.io/metadata.name"
"""The API server sets it on every namespace."""

WORST_JOB = 1.1
"""A policy under which some job takes more than a tenth longer is not proposed."""

MEASURE = "jct_mean_seconds"

_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_MAX_NAMESPACES = 64
_FLOOR_CORES, _CEILING_CORES = 0.1, 64.0


def proposed_policy(replays: Replays) -> PolicyReplay | None:
    """The replayed policy for real jobs under which they end soonest.

    None where none is better, or each makes a job much later.
    """
    better = [
        each
        for each in replays.policies
        if each.verdict(MEASURE) == "better"
        and (each.worst_job.mean or math.inf) <= WORST_JOB
        and not find(each.policy).simulator_only
    ]
    return min(better, key=lambda each: each.ratios[MEASURE].mean or math.inf, default=None)


def proposal(
    findings: Sequence[JobFinding], replays: Replays, metric: str, objective: Objective
) -> tuple[TrainingPolicy, str]:
    """The document, and its text with a comment on the choice of its policy."""
    best = proposed_policy(replays)
    evaluation = {"metric": metric, "objective": objective}
    default = EvaluationSettings()
    document = {
        "apiVersion": API_VERSION,
        "kind": "TrainingPolicy",
        "metadata": {"name": "training"},
        "spec": {
            "mode": "Recommend",
            "selector": _selector(findings),
            "policy": {"name": PolicyChoice().name if best is None else best.policy},
            "evaluation": {key: value for key, value in evaluation.items() if value != getattr(default, key)},
            "resources": {
                "control": "requests",
                "cpu": _bounds(findings),
                "memory": "Requests" if any(each.memory_never_used_gib for each in findings) else "Ignore",
            },
            "behaviour": {"intervalSeconds": 60, "cooldownSeconds": 120, "maxStepRatio": 2.0},
        },
    }
    document["spec"] = {key: value for key, value in document["spec"].items() if value}  # type: ignore[attr-defined]
    policy = validate(TrainingPolicy, document, where="the proposed TrainingPolicy")
    text = yaml.safe_dump(document, sort_keys=False, default_flow_style=False)
    return policy, f"# {_comment(best, replays)}\n{text}"


def _comment(best: PolicyReplay | None, replays: Replays) -> str:
    if best is not None:
        ratio = best.ratios[MEASURE].mean or 1.0
        return f"{best.policy}: the replayed jobs end {1 - ratio:.0%} sooner on average than under fair sharing."
    if replays.policies:
        return "The default policy: in the replays none ended jobs sooner without making one much later."
    return "The default policy: there was nothing to replay."


def _selector(findings: Sequence[JobFinding]) -> dict[str, object]:
    """The namespaces of the jobs; all of them where there are more than a document holds, or one is no such name."""
    namespaces = sorted({each.namespace for each in findings})
    if len(namespaces) > _MAX_NAMESPACES or not all(map(_NAMESPACE.fullmatch, namespaces)):
        return {}
    return {"namespaces": {"matchExpressions": [{"key": NAMESPACE_LABEL, "operator": "In", "values": namespaces}]}}


def _bounds(findings: Sequence[JobFinding]) -> dict[str, str]:
    """A floor of a tenth of the median request, and the largest request as the ceiling."""
    requests = sorted(each.cpu_request_cores for each in findings if each.cpu_request_cores)
    if not requests:
        return {"min": "100m", "max": "8"}
    floor = max(_FLOOR_CORES, requests[len(requests) // 2] / 10)
    ceiling = min(_CEILING_CORES, max(math.ceil(requests[-1]), floor))
    return {"min": f"{round(1000 * min(floor, ceiling))}m", "max": f"{round(1000 * ceiling)}m"}

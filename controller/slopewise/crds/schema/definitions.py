"""The CustomResourceDefinitions: `TrainingPolicy` and `Freeze`, which people write, and `JobGrowth`, which they read.

There is one version, `v1alpha1`; fields are added with defaults and never change their meaning, so
that what is stored stays readable when the definitions are applied again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from slopewise.config.training_policy import PlacementChoice, PolicyChoice, TrainingPolicy, TrainingPolicySpec
from slopewise.config.validation import GROUP, VERSION
from slopewise.crds.freezes import Freeze
from slopewise.crds.job_growth import JobGrowth, JobGrowthSpec
from slopewise.crds.policy_status import TrainingPolicyStatus
from slopewise.crds.schema.from_models import Rule, Schema, Translation
from slopewise.crds.schema.parameters import parameters_rules, parameters_schema, runnable_policies
from slopewise.crds.schema.rules import (
    FORMATS,
    RULES,
    beside_a_placement_rule,
    known_policy_rules,
    placing_policy_rules,
)

_READY = '.status.conditions[?(@.type=="Ready")]'


def definitions() -> dict[str, dict[str, Any]]:
    """All definitions by the name of their file."""
    return {"trainingpolicies.yaml": training_policies(), "jobgrowths.yaml": job_growths(), "freezes.yaml": freezes()}


def patches() -> dict[str, list[dict[str, Any]]]:
    """What the component `policies` makes of the definition, as a JSON patch by the name of its file."""
    spec = ("spec", "versions", 0, "schema", "openAPIV3Schema", "properties", "spec")
    others = training_policies(others=True)
    choices = ("policy", "placement")
    return {"admits-others.yaml": [_replacement((*spec, "properties", key), others) for key in choices]}


def _replacement(place: Sequence[str | int], by: Any) -> dict[str, Any]:
    for key in place:
        by = by[key]
    return {"op": "replace", "path": "/" + "/".join(map(str, place)), "value": by}


def training_policies(*, others: bool = False) -> dict[str, Any]:
    """`trainingpolicies.slopewise.dev`: cluster-scoped, because CPU is shared per node, across namespaces.

    With `others` it admits policies that do not come with Slopewise.
    """
    runnable = runnable_policies()
    placing = [policy for policy in runnable if policy.chooses_nodes]
    translation = Translation(
        rules={
            **RULES,
            PolicyChoice: (*known_policy_rules(others=others), *parameters_rules(runnable, others=others)),
            PlacementChoice: (*placing_policy_rules(others=others), *parameters_rules(placing, others=others)),
            TrainingPolicySpec: (beside_a_placement_rule(),),
        },
        formats=FORMATS,
        fields={
            (PolicyChoice, "parameters"): parameters_schema(runnable, others=others),
            (PlacementChoice, "parameters"): parameters_schema(placing, others=others),
        },
    )
    schema = translation.structural(TrainingPolicy)
    schema["properties"]["status"] = translation.structural(TrainingPolicyStatus)
    schema["description"] = "Which jobs are given CPU by their growth, by which policy, and within which bounds."
    columns = [
        _column("Mode", ".spec.mode"),
        _column("Policy", ".spec.policy.name"),
        _column("Jobs", ".status.jobs.total", kind="integer"),
        _column("Ready", f"{_READY}.status"),
        _column("Reason", f"{_READY}.reason"),
        _column("Age", ".metadata.creationTimestamp", kind="date"),
        _column("Placement", ".spec.placement.name", wide=True),
        _column("Canary", ".status.canary", wide=True),
        _column("Message", f"{_READY}.message", wide=True),
    ]
    names = {"kind": "TrainingPolicy", "plural": "trainingpolicies", "singular": "trainingpolicy", "shortNames": ["tp"]}
    return _definition(names, "Cluster", schema, columns)


def job_growths() -> dict[str, Any]:
    """`jobgrowths.slopewise.dev`: one per managed workload, beside it, and gone with it."""
    same = Rule("self == oldSelf", "a JobGrowth stays that of its workload; delete it instead", field_path=".workload")
    schema = Translation(rules={JobGrowthSpec: (same,)}).structural(JobGrowth)
    schema["properties"]["status"].pop("default", None)
    columns = [
        _column("State", ".status.state"),
        _column("Progress", ".status.progress"),
        _column("ETA", ".status.eta"),
        _column("CPU", ".status.cpu"),
        _column("Promise", ".status.promise"),
        _column("Reason", ".status.reason"),
        _column("Age", ".metadata.creationTimestamp", kind="date"),
        _column("Class", ".status.class", wide=True),
        _column("Loss", ".status.loss", kind="number", wide=True),
        _column("Growth", ".status.growth", kind="number", wide=True),
        _column("Study", ".status.study", wide=True),
        _column("Chance", ".status.chance", kind="number", wide=True),
        _column("Memory", ".status.memory", wide=True),
        _column("Policy", ".status.policy", wide=True),
        _column("Last action", ".status.lastAction", wide=True),
        _column("Node", ".status.node", wide=True),
    ]
    names = {"kind": "JobGrowth", "plural": "jobgrowths", "singular": "jobgrowth", "shortNames": ["growth", "jg"]}
    return _definition(names, "Namespaced", schema, columns, selectable=".status.study")


def freezes() -> dict[str, Any]:
    """`freezes.slopewise.dev`: cluster-scoped, because a node and a policy are too."""
    schema = Translation(rules=RULES).structural(Freeze)
    schema["properties"]["status"].pop("default", None)
    columns = [
        _column("Scope", ".spec.scope"),
        _column("Of", ".spec.name"),
        _column("Effect", ".spec.effect"),
        _column("State", ".status.state"),
        _column("Until", ".spec.until"),
        _column("Reason", ".spec.reason"),
        _column("Age", ".metadata.creationTimestamp", kind="date"),
        _column("Source", ".spec.source", wide=True),
    ]
    names = {"kind": "Freeze", "plural": "freezes", "singular": "freeze", "shortNames": ["fz"]}
    return _definition(names, "Cluster", schema, columns, selectable=".status.state")


def _column(name: str, path: str, *, kind: str = "string", wide: bool = False) -> Schema:
    column: Schema = {"name": name, "type": kind, "jsonPath": path}
    return {**column, "priority": 1} if wide else column


def _definition(names: Schema, scope: str, schema: Schema, columns: list[Schema], selectable: str = "") -> Schema:
    head = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"}}
    schema["properties"] = {**head, **{key: schema["properties"][key] for key in ("spec", "status")}}
    version = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
        "additionalPrinterColumns": columns,
        **({"selectableFields": [{"jsonPath": selectable}]} if selectable else {}),
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{names['plural']}.{GROUP}",
            "labels": {"app.kubernetes.io/name": "slopewise", "app.kubernetes.io/part-of": "slopewise"},
        },
        "spec": {
            "group": GROUP,
            "names": {**names, "listKind": f"{names['kind']}List", "categories": ["slopewise"]},
            "scope": scope,
            "versions": [version],
        },
    }

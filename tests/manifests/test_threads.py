"""The component `threads`: what the exporter sets, for pods that opt in, and a failure that refuses none."""

from __future__ import annotations

import ast
from pathlib import Path

from support.rendering import MANIFESTS, ROOT, only, render, render_mine

from slopewise.adapters.kube.cache.records import MANAGED_LABEL
from slopewise_exporter.threads.at_start import VARIABLE, waiting

COMPONENT = MANIFESTS / "components/threads"
OPTED_IN = {"matchLabels": {MANAGED_LABEL: "true"}}


def test_the_variables_are_those_that_the_exporter_sets() -> None:
    (variable,) = only(render(COMPONENT), "MutatingAdmissionPolicy")["spec"]["variables"]
    page = (ROOT / "docs/exporters-threads.md").read_text(encoding="utf-8")

    assert dict(ast.literal_eval(variable["expression"])) == waiting({})
    assert [name for name, value in waiting({}).items() if f"`{name}={value}`" not in page] == []


def test_what_switches_the_exporter_off_switches_the_policy_off() -> None:
    (mutation,) = only(render(COMPONENT), "MutatingAdmissionPolicy")["spec"]["mutations"]

    assert waiting({VARIABLE: "off"}) == {}
    assert f"given.name == '{VARIABLE}'" in mutation["applyConfiguration"]["expression"]


def test_it_reaches_new_pods_of_managed_trainings_and_refuses_none() -> None:
    spec = only(render(COMPONENT), "MutatingAdmissionPolicy")["spec"]
    pods = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}

    assert spec["matchConstraints"] == {"objectSelector": OPTED_IN, "resourceRules": [pods]}
    assert spec["failurePolicy"] == "Ignore"


def test_it_reaches_only_namespaces_that_opt_in() -> None:
    documents = render(COMPONENT)
    binding = only(documents, "MutatingAdmissionPolicyBinding")["spec"]

    assert binding["policyName"] == only(documents, "MutatingAdmissionPolicy")["metadata"]["name"]
    assert binding["matchResources"] == {"namespaceSelector": OPTED_IN}


def test_it_adds_the_policy_and_its_binding_and_changes_nothing_else(tmp_path: Path) -> None:
    documents = render_mine(tmp_path, "minimal", components=["slopewise/manifests/components/threads"])
    minimal = render(MANIFESTS / "overlays/minimal")

    assert [d for d in documents if d not in minimal] == render(COMPONENT)
    assert len(documents) == len(minimal) + 2
    ours = {"app.kubernetes.io/name": "slopewise", "app.kubernetes.io/part-of": "slopewise"}
    assert all(d["metadata"]["labels"] == ours for d in render(COMPONENT))

"""The Helm chart gives the objects of the kustomize overlays, and each of its values does what it says."""

from __future__ import annotations

import itertools
import json
import re
import shlex
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.helm import CHART, Helm
from support.rendering import MANIFESTS, ROOT, Documents, only, render_mine

from release.build import write_chart
from slopewise.config.training_policy import TrainingPolicy
from slopewise.config.validation import validate

URL = "http://prometheus.example.org:9090/a%20path"
AS_OBJECTS = {"namespace": {"create": True}, "crds": {"keep": False}}
"""As an overlay has it; by default the chart has no namespace, and Helm keeps the definitions."""

COMPONENTS: dict[str, dict[str, Any]] = {
    "high-availability": {"replicas": 2},
    "moves": {"moves": {"enabled": True}},
    "prometheus-operator": {"prometheusOperator": {"monitors": True, "rules": True}},
    "prometheus-credentials": {"prometheus": {"credentials": True}},
    "decision-record": {"decisionRecord": {"enabled": True}},
    "alerts": {"alerts": {"enabled": True}},
    "threads": {"threads": {"enabled": True}},
}
PAGE = (ROOT / "docs/helm.md").read_text(encoding="utf-8")
_LINES = "".join(re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)).replace("\\\n", "").splitlines()
HELM_COMMANDS = [shlex.split(line) for line in _LINES if re.match(r"helm (install|upgrade)", line)]
ON_A_CLUSTER = ("--create-namespace", "--take-ownership", "--reset-then-reuse-values")

Key = tuple[str, str]


def by_name(documents: Documents) -> dict[Key, dict[str, Any]]:
    """The objects by kind and name, none of them twice."""
    found = {(document["kind"], document["metadata"]["name"]): document for document in documents}
    assert len(found) == len(documents)
    return found


def container(documents: Documents) -> dict[str, Any]:
    return dict(only(documents, "Deployment")["spec"]["template"]["spec"]["containers"][0])


def test_by_default_it_is_the_overlay_minimal_without_its_namespace(helm: Helm, tmp_path: Path) -> None:
    expected = by_name(render_mine(tmp_path, "minimal"))
    del expected["Namespace", "slopewise-system"]
    for (kind, _), document in expected.items():
        if kind == "CustomResourceDefinition":
            document["metadata"]["annotations"] = {"helm.sh/resource-policy": "keep"}

    assert by_name(helm.template()) == expected


@pytest.mark.parametrize(
    "components",
    [(), *((name,) for name in COMPONENTS), tuple(COMPONENTS)],
    ids=lambda names: "+".join(names) or "minimal",
)
def test_each_component_is_the_same_as_a_value(helm: Helm, tmp_path: Path, components: tuple[str, ...]) -> None:
    values: dict[str, Any] = dict(AS_OBJECTS)
    for name in components:
        values.update(COMPONENTS[name])
    paths = [f"slopewise/manifests/components/{name}" for name in components]

    assert by_name(helm.template(values)) == by_name(render_mine(tmp_path, "minimal", components=paths))


def test_another_image_address_and_namespace_are_those_of_an_overlay_of_ones_own(helm: Helm, tmp_path: Path) -> None:
    image = {"name": "slopewise", "newName": "registry.example.org/slopewise", "newTag": "9"}
    settings = {"name": "slopewise-settings", "behavior": "merge", "literals": [f"PROMETHEUS_URL={URL}"]}
    overlay = render_mine(
        tmp_path,
        "moves",
        namespace="elsewhere",
        images=[image],
        configMapGenerator=[{**settings, "namespace": "slopewise-system"}],
    )
    for document in overlay:
        if document["kind"].startswith("ValidatingAdmissionPolicy"):  # kustomize 5.5 takes them for namespaced
            document["metadata"].pop("namespace", None)
    values = {
        **AS_OBJECTS,
        **COMPONENTS["moves"],
        "image": {"repository": "registry.example.org/slopewise", "tag": "9"},
        "prometheus": {"url": URL},
    }

    assert by_name(helm.template(values, namespace="elsewhere")) == by_name(overlay)


def test_the_digest_names_the_image_instead_of_the_tag(helm: Helm) -> None:
    digest = "sha256:" + "0" * 64
    documents = helm.template({"image": {"tag": "9", "digest": digest, "pullPolicy": "Always"}, **COMPONENTS["moves"]})
    sweeper = only(documents, "CronJob")["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"][0]

    for each in (container(documents), sweeper):
        assert (each["image"], each["imagePullPolicy"]) == (f"slopewise@{digest}", "Always")


def test_where_pods_run_goes_for_the_controller_and_the_sweeper(helm: Helm) -> None:
    wanted: dict[str, Any] = {
        "imagePullSecrets": [{"name": "registry"}],
        "nodeSelector": {"kubernetes.io/arch": "amd64"},
        "tolerations": [{"key": "control-plane", "operator": "Exists"}],
        "priorityClassName": "infrastructure",
    }
    documents = helm.template({**wanted, **COMPONENTS["moves"]})
    sweeper = only(documents, "CronJob")["spec"]["jobTemplate"]

    for template in (only(documents, "Deployment")["spec"]["template"], sweeper["spec"]["template"]):
        assert wanted.items() <= template["spec"].items()


def test_arguments_and_resources_are_those_of_the_controllers_container(helm: Helm) -> None:
    given = {
        "extraArgs": ["--record-max-mib=8"],
        "prometheus": {"scrapeIntervalSeconds": 5},
        "resources": {"limits": {"memory": "1Gi"}},
        "prometheusOperator": {"monitors": True},
    }
    documents = helm.template(given)
    trainers = only(documents, "PodMonitor", "slopewise-trainers")["spec"]["podMetricsEndpoints"][0]

    assert container(documents)["args"][-2:] == ["--scrape-interval=5", "--record-max-mib=8"]
    assert container(documents)["resources"]["limits"] == {"memory": "1Gi"}
    assert trainers["interval"] == "5s"


def test_the_network_policy_names_the_prometheus_of_the_values(helm: Helm) -> None:
    policy = {"prometheusNamespace": "observability", "prometheusPort": 9091}
    spec = only(helm.template({"networkPolicy": policy}), "NetworkPolicy")["spec"]
    peers = [spec["egress"][0]["to"], spec["ingress"][0]["from"]]

    names = [peer[0]["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"] for peer in peers]
    assert names == ["observability"] * 2
    assert spec["egress"][0]["ports"] == [{"port": 9091}]


def test_monitors_and_rules_get_the_labels_by_which_a_prometheus_selects(helm: Helm) -> None:
    operator = {"monitors": True, "rules": True, "labels": {"release": "kube-prometheus-stack"}}
    made = [d for d in helm.template({"prometheusOperator": operator}) if d["apiVersion"] == "monitoring.coreos.com/v1"]

    assert [document["metadata"]["labels"]["release"] for document in made] == ["kube-prometheus-stack"] * 3
    assert all(document["metadata"]["labels"]["app.kubernetes.io/name"] == "slopewise" for document in made)


@pytest.mark.parametrize(
    ("values", "left_out"),
    [
        ({"crds": {"install": False}}, {"CustomResourceDefinition"}),
        ({"networkPolicy": {"enabled": False}, **COMPONENTS["moves"]}, {"NetworkPolicy"}),
        ({"prometheusOperator": {"monitors": True}}, {"PrometheusRule"}),
        ({"prometheusOperator": {"rules": True}}, {"PodMonitor"}),
        ({}, {"PodMonitor", "PrometheusRule", "CronJob", "PodDisruptionBudget", "Namespace"}),
    ],
)
def test_what_is_switched_off_is_not_there(helm: Helm, values: dict[str, Any], left_out: set[str]) -> None:
    kinds = {document["kind"] for document in helm.template(values)}

    assert not kinds & left_out
    assert kinds > {"Deployment", "ClusterRole", "ValidatingAdmissionPolicy"}


def test_dashboards_are_left_out_where_they_are_switched_off(helm: Helm) -> None:
    maps = [
        d["metadata"]["name"] for d in helm.template({"dashboards": {"enabled": False}}) if d["kind"] == "ConfigMap"
    ]

    assert [name.rpartition("-")[0] for name in maps] == ["slopewise-settings"]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"replicas": "two"}, r"/replicas.*want integer"),
        ({"replicas": -1}, r"/replicas.*minimum"),
        ({"replica": 2}, r"'replica' not allowed"),
        ({"prometheus": {"url": "prometheus:9090"}}, r"/prometheus/url.*does not match pattern"),
        ({"prometheus": {"url": "https://user:secret@example.org"}}, r"/prometheus/url.*does not match pattern"),
        ({"image": {"digest": "latest"}}, r"/image/digest.*does not match pattern"),
        ({"image": {"pullPolicy": "Sometimes"}}, r"/image/pullPolicy.*must be one of"),
        ({"moves": {"enabled": "no"}}, r"/moves/enabled.*want boolean"),
        ({"extraArgs": ["interval"]}, r"/extraArgs/0.*does not match pattern"),
        ({"resources": {"request": {}}}, r"'request' not allowed"),
    ],
)
def test_a_value_that_is_none_is_refused_with_its_place(helm: Helm, values: dict[str, Any], message: str) -> None:
    assert re.search(message, helm.refusal(values)), helm.refusal(values)


def test_lint_has_nothing_to_say(helm: Helm) -> None:
    printed = helm.run("lint", "--strict", CHART)

    assert "0 chart(s) failed" in printed
    assert "[WARNING]" not in printed
    assert "[ERROR]" not in printed


def test_every_value_has_a_default_a_rule_and_a_row_in_the_readme() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    readme = (CHART / "README.md").read_text(encoding="utf-8")
    ruled = set(_leaves(schema)) - {"global"}

    assert ruled == set(_paths(yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8")), ruled))
    assert ruled == set(re.findall(r"^\| `([A-Za-z.]+)` \| `", readme, re.MULTILINE))


def test_every_value_is_used_by_a_template() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in (CHART / "templates").iterdir())
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))

    assert [value for value in _leaves(schema) if value != "global" and f".Values.{value}" not in text] == []


def test_it_needs_the_kubernetes_that_resizes_in_place(helm: Helm) -> None:
    done = helm.attempt("template", "slopewise", CHART, "--kube-version", "1.34.0")

    assert done.returncode != 0
    assert "kubeVersion: >=1.35.0-0" in done.stderr


def test_a_release_with_everything_in_it_fits_into_the_secret_that_helm_keeps(helm: Helm) -> None:
    everything: dict[str, Any] = dict(AS_OBJECTS)
    for value in COMPONENTS.values():
        everything.update(value)
    stored = len(json.dumps(helm.template(everything))) + sum(p.stat().st_size for p in CHART.rglob("*") if p.is_file())

    assert stored < 1024 * 1024, "it is compressed, to about a tenth; even as it is a Secret of 1 MiB would do"


def test_the_packed_chart_renders_as_the_folder_does(helm: Helm, tmp_path: Path) -> None:
    write_chart(tmp_path, "7.11.13")
    rendered = helm.run("template", "slopewise", tmp_path / "slopewise-7.11.13-chart.tgz", "--kube-version", "1.36.3")

    assert rendered == helm.run("template", "slopewise", CHART, "--kube-version", "1.36.3")


def test_the_policy_of_the_notes_is_valid_and_changes_nothing(helm: Helm) -> None:
    notes = helm.run("install", "slopewise", CHART, "--dry-run=client").split("NOTES:")[1]
    policy = yaml.safe_load(textwrap.dedent(re.findall(r"<<POLICY\n(.*?) *POLICY", notes, re.DOTALL)[0]))

    assert validate(TrainingPolicy, policy, where="NOTES.txt").spec.mode == "Recommend"
    assert "image.repository is `slopewise`, which is in no registry" in notes


@pytest.mark.parametrize("command", HELM_COMMANDS, ids=lambda words: words[1])
def test_a_command_of_the_page_renders(helm: Helm, command: list[str]) -> None:
    """Without a cluster; what Helm does on one is tested there."""
    options = [word for word in command[3:] if word not in ON_A_CLUSTER]

    helm.run("template", *command[2:3], *options, "--kube-version", "1.36.3")


def test_the_values_of_the_page_are_valid(helm: Helm) -> None:
    (values,) = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)

    documents = helm.template(yaml.safe_load(values))

    assert {"PodMonitor", "PrometheusRule", "PodDisruptionBudget", "CronJob"} <= {each["kind"] for each in documents}


def test_the_page_names_each_component_that_is_a_value_or_says_that_it_is_none() -> None:
    folders = {path.name for path in (MANIFESTS / "components").iterdir()}

    assert {name for name in folders if f"`{name}`" not in PAGE} == set()
    assert folders - COMPONENTS.keys() == {"policies"}


def _leaves(schema: dict[str, Any], prefix: str = "") -> Iterator[str]:
    for name, value in schema["properties"].items():
        yield from _leaves(value, f"{prefix}{name}.") if "properties" in value else [f"{prefix}{name}"]


def _paths(values: dict[str, Any], leaves: set[str], prefix: str = "") -> Iterator[str]:
    for name, value in values.items():
        at = f"{prefix}{name}"
        yield from itertools.chain([at] if at in leaves else _paths(value, leaves, f"{at}."))

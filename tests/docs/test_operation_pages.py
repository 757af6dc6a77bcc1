"""Security, sizing, GitOps, upgrade, comparison, FAQ: figures, rights and names are those of code and manifests."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from slopewise.adapters.kube.cache.parsing import VPA_MARKS
from slopewise.adapters.kube.client.protocol import FIELD_MANAGER
from slopewise.adapters.kube.workloads.eligibility import KUEUE_LABEL
from slopewise.config.training_policy import TrainingPolicy
from slopewise.config.validation import VERSION

ROOT = Path(__file__).parents[2]


def page(name: str) -> str:
    return (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")


def documents(path: str) -> list[dict[str, Any]]:
    return [each for each in yaml.safe_load_all((ROOT / path).read_text(encoding="utf-8")) if each]


def rules(path: str) -> dict[str, set[str]]:
    """The verbs for each resource of a file of roles."""
    found: dict[str, set[str]] = {}
    for document in documents(path):
        for rule in document.get("rules", ()):
            for resource in rule["resources"]:
                found.setdefault(resource, set()).update(rule["verbs"])
    return found


def constants(benchmark: str) -> dict[str, Any]:
    """The figures that a benchmark assigns to names of its own."""
    found: dict[str, Any] = {}
    for node in ast.parse((ROOT / f"benchmarks/{benchmark}.py").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign):
            try:
                value = ast.literal_eval(node.value)
            except ValueError:
                continue
            (target,) = node.targets
            names = target.elts if isinstance(target, ast.Tuple) else [target]
            values = value if isinstance(target, ast.Tuple) else [value]
            found |= {ast.unparse(name): each for name, each in zip(names, values, strict=True)}
    return found


def test_the_table_of_rights_is_the_role() -> None:
    section = page("security").partition("## Rights")[2].partition("\n## ")[0]
    table: dict[str, set[str]] = {}
    for resources, verbs in re.findall(r"^\| (`.*?) \| ([a-z, ]+) \|$", section, re.MULTILINE):
        table |= {resource: set(verbs.split(", ")) for resource in re.findall(r"`([^`]+)`", resources)}
    assert table == rules("manifests/cluster/controller-role.yaml")


def test_the_rights_of_moves_are_named() -> None:
    section = " ".join(page("security").partition("## Rights")[2].partition("\n## ")[0].split())
    for resource, verbs in rules("manifests/components/moves/controller-role.yaml").items():
        named = section.partition("The component `moves` adds")[2]
        assert f"`{resource}`" in named
        assert re.search(rf"`{resource}`[^,.]*? {' '.join(verbs)}", named), resource


def test_the_network_table_has_the_ports_of_the_network_policy() -> None:
    (policy,) = documents("manifests/base/networkpolicy.yaml")
    out = {port["port"] for rule in policy["spec"]["egress"] for port in rule["ports"]}
    section = page("security").partition("## Network")[2].partition("\n## ")[0]
    listed = {
        int(port) for row in re.findall(r"^\| .* \| ([\d, ]+) \|$", section, re.MULTILINE) for port in row.split(",")
    }
    assert listed == out | {8080}


def test_the_pods_hardening_is_that_of_the_deployment() -> None:
    (deployment,) = documents("manifests/base/deployment.yaml")
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    section = page("security").partition("## Pod and image")[2].partition("\n## ")[0]
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert f"user {pod['securityContext']['runAsUser']}" in section
    assert f"`seccompProfile: {pod['securityContext']['seccompProfile']['type']}`" in section
    assert [volume["name"] for volume in pod["volumes"]] == ["tmp"]


SIZES = [
    ("cluster/bench_rest", "CPU_BOUND_RATIO", "{:.0%} of a core"),
    ("cluster/bench_rest", "MEMORY_BOUND_MIB", "{:.0f} MiB"),
    ("bench_controller", "CPU_BOUND_RATIO", "{:.0%} of a core"),
    ("bench_decide", "BOUND_SECONDS", "{:g} s of CPU for the decision"),
    ("bench_decide", "BOUND_GROWTH", "{:g} times as long"),
    ("cluster/bench_scale", "START_BOUND_SECONDS", "within {:g} s"),
    ("bench_exporter", "MAX_MEMORY_MB", "{:g} MB"),
    ("bench_exporter", "MAX_SCRAPE_MS", "{:g} ms"),
    ("bench_dashboards", "BOUND_SECONDS", "{:g} s of query time"),
]


@pytest.mark.parametrize(("benchmark", "name", "written"), SIZES, ids=lambda value: str(value))
def test_a_size_is_the_bound_of_its_benchmark(benchmark: str, name: str, written: str) -> None:
    text = page("sizing").replace(" %", "%")
    assert f"`{benchmark.rpartition('/')[2]}" in text or f"{benchmark}.py" in text
    assert written.format(constants(benchmark)[name]) in text


def test_the_sizes_of_thousands_of_pods_are_those_of_the_benchmark() -> None:
    scale = constants("cluster/bench_scale")
    rows = [line for line in page("sizing").splitlines() if "pods on 200 nodes" in line]
    assert len(rows) == len(scale["BOUNDS"])
    for policy, (seconds, mebibytes) in scale["BOUNDS"].items():
        (row,) = [row for row in rows if f"`{policy}`" in row]
        assert f"{seconds:g} s of CPU a pass, {mebibytes:g} MiB" in row
    assert scale["QUERIES_BOUND"] == 6
    assert "at most six queries" in page("sizing")
    assert f"less than {max(each for _, each in scale['BOUNDS'].values()):.0f} MiB for 5,000 pods" in page("faq")


def test_every_benchmark_that_is_named_exists() -> None:
    for name in re.findall(r"bench_\w+", page("sizing")):
        assert list((ROOT / "benchmarks").rglob(f"{name}.py")), name


def test_the_requests_are_those_of_the_deployment() -> None:
    (deployment,) = documents("manifests/base/deployment.yaml")
    resources = deployment["spec"]["template"]["spec"]["containers"][0]["resources"]
    said = f"request {resources['requests']['cpu']} and {resources['requests']['memory']}"
    assert said in page("sizing")
    assert f"limit memory to {resources['limits']['memory']}" in page("sizing")


def test_argo_cd_ignores_our_field_manager() -> None:
    (block,) = [
        each
        for each in re.findall(r"^```yaml\n(.*?)^```", page("gitops"), re.MULTILINE | re.DOTALL)
        if "ignoreDifferences" in each
    ]
    ignored = yaml.safe_load(block)["spec"]["ignoreDifferences"]
    assert [each["managedFieldsManagers"] for each in ignored] == [[FIELD_MANAGER]] * 2


def test_the_comparison_names_the_marks_that_the_code_reads() -> None:
    text = page("comparison")
    assert [mark for mark in (*VPA_MARKS, KUEUE_LABEL) if f"`{mark}`" not in text] == []


def test_the_defaults_that_the_pages_name_are_the_defaults() -> None:
    spec = TrainingPolicy.model_validate({"spec": {}}).spec
    assert f"`behaviour.deferredDeadlineSeconds` ({spec.behaviour.deferred_deadline_seconds:g})" in page("faq")
    assert f"`control: {spec.resources.control}` (the default)" in page("faq")
    assert spec.behaviour.canary_ratio == 0.1  # "a tenth of the jobs"
    assert spec.mode == "Recommend"
    assert VERSION in page("upgrade")

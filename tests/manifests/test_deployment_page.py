"""docs/deployment.md: its kustomizations render, its scrape configuration is one, its tables name what there is."""

import copy
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.own_policy import a_file
from support.rendering import MANIFESTS, OVERLAYS, ROOT, only, render, render_in

from slopewise.adapters.kube.client.protocol import FIELD_MANAGER
from slopewise.adapters.kube.workloads.annotations import KNOWN

PAGE = (ROOT / "docs/deployment.md").read_text(encoding="utf-8")
EXAMPLES = [yaml.safe_load(code) for code in re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)]
OVERLAYS_OF_USERS = [e for e in EXAMPLES if str(e.get("apiVersion")).startswith("kustomize.config.k8s.io")]


@pytest.mark.parametrize("example", OVERLAYS_OF_USERS, ids=lambda example: Path(example["resources"][0]).name)
def test_an_overlay_of_the_page_renders_as_it_stands(example: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text((ROOT / "examples/cluster/policy.yaml").read_text(encoding="utf-8"))
    a_file(tmp_path, name="mine")

    documents = render_in(tmp_path, example)

    assert only(documents, "Deployment")["metadata"]["name"] == "slopewise-controller"


def test_the_patches_of_the_first_one_reach_what_they_name(tmp_path: Path) -> None:
    documents = render_in(tmp_path, OVERLAYS_OF_USERS[0])
    network = only(documents, "NetworkPolicy", "slopewise-controller")["spec"]
    peers = [network["egress"][0]["to"], network["ingress"][0]["from"]]
    monitors = [d for d in documents if d["apiVersion"] == "monitoring.coreos.com/v1"]

    assert [rule["port"] for rule in network["egress"][0]["ports"]] == [9090]
    assert all(
        p[0]["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"] == "observability" for p in peers
    )
    assert [monitor["metadata"]["labels"]["release"] for monitor in monitors] == ["kube-prometheus-stack"] * 3
    assert only(documents, "Deployment")["spec"]["replicas"] == 2


def test_the_network_policy_is_narrowed_where_the_page_says(tmp_path: Path) -> None:
    egress = only(render_in(tmp_path, OVERLAYS_OF_USERS[1]), "NetworkPolicy")["spec"]["egress"]

    assert [(rule["ports"][0]["port"], rule["to"][-1]["ipBlock"]["cidr"]) for rule in egress[1:]] == [
        (53, "169.254.20.10/32"),
        (443, "192.0.2.10/32"),
    ]


def test_the_scrape_configuration_is_one(promtool: Path, tmp_path: Path) -> None:
    (config,) = [copy.deepcopy(example) for example in EXAMPLES if "scrape_configs" in example]
    for job in config["scrape_configs"]:
        del job["kubernetes_sd_configs"]  # a promtool may be built without this way of finding targets
    (tmp_path / "prometheus.yaml").write_text(yaml.safe_dump(config))

    command = (promtool, "check", "config", "--syntax-only", tmp_path / "prometheus.yaml")
    result = subprocess.run(command, capture_output=True, text=True, check=False)

    assert result.returncode == 0, result.stderr


def test_the_page_names_every_overlay_and_every_admission_policy() -> None:
    everything = render(MANIFESTS / "overlays/moves")
    admission = [d["metadata"]["name"] for d in everything if d["kind"] == "ValidatingAdmissionPolicy"]

    assert [name for name in OVERLAYS if f"| [{name}](" not in PAGE] == []
    assert [name for name in admission if f"| `{name}` |" not in PAGE] == []
    assert only(everything, "ConfigMap", "slopewise-settings")["data"]["PROMETHEUS_URL"] in PAGE


def test_argo_cd_ignores_what_our_field_manager_writes() -> None:
    (application,) = [example for example in EXAMPLES if example.get("kind") == "Application"]

    assert application["spec"]["ignoreDifferences"][0]["managedFieldsManagers"] == [FIELD_MANAGER]


def test_the_page_has_every_annotation_that_is_read_and_no_other() -> None:
    section = PAGE.partition("## What the owner of a job states")[2].partition("\n## ")[0]

    assert sorted(re.findall(r"^\| `(slopewise\.dev/[a-z-]+)`", section, re.MULTILINE)) == sorted(KNOWN)


def test_the_page_lists_every_check_of_doctor() -> None:
    sources = ROOT / "controller/slopewise"
    machine = (sources / "operate/doctor/machine.py").read_text()
    code = "".join(path.read_text() for path in (sources / "operate/doctor").glob("*.py")).replace(machine, "")
    made = set(re.findall(r'(?:Finding|grouped)\(\s*"([^"]+)"', code))
    section = PAGE.split("## Check an installation")[1].split("\n## ")[0]
    assert set(re.findall(r"^\| `([^`]+)` \|", section, re.MULTILINE)) == made
    here = set(re.findall(r'Finding\("([^"]+)"', machine))
    assert here <= set(re.findall(r"`([^`]+)`", section.split("`slopewise doctor --local`")[1]))

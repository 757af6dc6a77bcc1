"""Slopewise installed by other tools than kubectl: by Flux from a Git repository, and by Helm from its chart."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.accounts import SYSTEM
from support.cluster import Kubectl, PodShape
from support.flux import Flux, of_the_page, running_flux
from support.git_server import GitServer
from support.helm import CHART, RELEASE, Helm, helm_program
from support.images import Images
from support.installation import DEPLOYMENT, Installation, kustomization
from support.rendering import ROOT
from support.trainers import Trainers
from support.waiting import wait_for

from slopewise.adapters.kube.cache.records import API_VERSION

pytestmark = pytest.mark.faults

PRUNED_NEVER = {
    "op": "add",
    "path": "/metadata/labels/kustomize.toolkit.fluxcd.io~1prune",
    "value": "disabled",
}
"""As docs/gitops.md has it: the definitions outlast the Kustomization."""

SCRAPE_SECONDS = 5
CONTROLLER, POLICIES = "cluster/slopewise/kustomization.yaml", "cluster/policies/policy.yaml"
PODS = ("a", "b")

Json = dict[str, Any]


@pytest.fixture
def nothing_installed(kubectl: Kubectl) -> Iterator[None]:
    """Skipped beside another installation; what a failed test has left is removed."""
    if Installation(kubectl, ROOT).is_there_already():
        pytest.skip("Slopewise is installed on this cluster; remove it (docs/deployment.md), or use another one")
    yield
    kubectl.run("delete", "namespace", SYSTEM, "--ignore-not-found", "--timeout=90s")


@pytest.fixture
def pods(kubectl: Kubectl, namespace: str, idle: PodShape, images: Images) -> Iterator[None]:
    """Two that report a loss, on the node with two CPUs."""
    shape = Trainers(idle).serving("training_loss 1\n", node="node-a", cpu_request="100m", cpu_limit="300m")
    kubectl.apply(*(shape.pod(name) for name in PODS), namespace=namespace)
    kubectl.wait_running(namespace, *PODS)
    yield
    policy = kubectl.attempt("get", "trainingpolicy", namespace, "-o", "name")
    if policy.returncode == 0:  # its controller may be gone
        kubectl.attempt("patch", "trainingpolicy", namespace, "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
        kubectl.attempt("delete", "trainingpolicy", namespace)


def a_policy(namespace: str, mode: str) -> Json:
    """Without a target loss, each job gets an even share of the node."""
    spec = {
        "mode": mode,
        "selector": {"namespaces": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}},
        "policy": {"name": "tradl"},
        "resources": {"control": "limits", "cpu": {"min": "250m"}},
        "behaviour": {"intervalSeconds": 4 * SCRAPE_SECONDS, "cooldownSeconds": 0, "maxStepRatio": 8},
    }
    return {"apiVersion": API_VERSION, "kind": "TrainingPolicy", "metadata": {"name": namespace}, "spec": spec}


def limits(kubectl: Kubectl, namespace: str) -> dict[str, str]:
    found = kubectl.get("pods", "-n", namespace)["items"]
    return {one["metadata"]["name"]: one["spec"]["containers"][0]["resources"]["limits"]["cpu"] for one in found}


def wait_for_limits(kubectl: Kubectl, namespace: str, cpu: str) -> None:
    wanted = dict.fromkeys(PODS, cpu)
    wait_for(f"limits of {cpu}", lambda: limits(kubectl, namespace), lambda seen: seen == wanted)


def the_repository(image: str, prometheus_url: str) -> dict[str, str | None]:
    """Our manifests as a platform engineer has them, beside an overlay."""
    sources = [
        *(ROOT / "manifests").rglob("*.yaml"),
        *(ROOT / "grafana").rglob("*.yaml"),
        *(ROOT / "grafana").rglob("*.json"),
    ]
    copied = {f"slopewise/{path.relative_to(ROOT)}": path.read_text(encoding="utf-8") for path in sources}
    return {**copied, CONTROLLER: yaml.safe_dump(an_overlay(image, prometheus_url))}


def an_overlay(image: str, prometheus_url: str) -> Json:
    """`minimal` with the image, the Prometheus and the intervals of the test-bed."""
    made = kustomization(image, prometheus_url, SCRAPE_SECONDS, ours="../../slopewise")
    kept = {"target": {"kind": "CustomResourceDefinition"}, "patch": yaml.safe_dump([PRUNED_NEVER])}
    return {**made, "patches": [*made["patches"], kept]}


@pytest.mark.usefixtures("nothing_installed", "pods")
def test_flux_installs_it_keeps_a_broken_release_out_and_prunes_in_the_right_order(
    kubectl: Kubectl, namespace: str, images: Images, prometheus_url: str, tmp_path: Path
) -> None:
    with GitServer(tmp_path) as git, running_flux(kubectl, namespace, tmp_path) as flux:
        git.commit("Slopewise", the_repository(images.controller, prometheus_url))
        revision = git.commit("A policy", {POLICIES: yaml.safe_dump(a_policy(namespace, "Recommend"))})
        flux.follow(git.url)
        flux.kustomization("policies", "./cluster/policies", depends_on=["slopewise"], **of_the_page())
        wait_for("the policy waits", lambda: flux.ready("policies"), lambda one: "dependency" in one.get("message", ""))
        flux.kustomization("slopewise", "./cluster/slopewise", timeout_seconds=120)
        flux.wait_applied("slopewise", revision)
        flux.wait_applied("policies", revision)
        assert limits(kubectl, namespace) == dict.fromkeys(PODS, "300m")

        flux.wait_applied("policies", git.commit("Auto", {POLICIES: yaml.safe_dump(a_policy(namespace, "Auto"))}))
        wait_for_limits(kubectl, namespace, "1")
        _a_broken_release(kubectl, git, flux, an_overlay("slopewise:no-such-tag", prometheus_url))

        flux.delete("policies")
        assert limits(kubectl, namespace) == dict.fromkeys(PODS, "300m")
        assert kubectl.attempt("get", "trainingpolicy", namespace).returncode != 0
        flux.delete("slopewise")
        kubectl.wait_gone("deployment", "slopewise-controller", SYSTEM)
        assert kubectl.get("customresourcedefinition", "trainingpolicies.slopewise.dev")


def _a_broken_release(kubectl: Kubectl, git: GitServer, flux: Flux, overlay: Json) -> None:
    """The former pod leads on, and the next commit is applied."""
    leads = ("get", "lease", "slopewise-controller", "-n", SYSTEM, "-o", "jsonpath={.spec.holderIdentity}")
    leader = kubectl.run(*leads)
    # Flux ends the health check of one revision before it takes the next one.
    flux.kustomization("slopewise", "./cluster/slopewise", timeout_seconds=15)
    refused = flux.wait_refused("slopewise", git.commit("A release", {CONTROLLER: yaml.safe_dump(overlay)}))
    assert f"Deployment/{SYSTEM}/slopewise-controller status: 'InProgress'" in refused
    assert kubectl.run(*leads) == leader
    flux.wait_applied("slopewise", git.revert())
    assert kubectl.run(*leads) == leader


@pytest.mark.usefixtures("nothing_installed", "pods")
def test_helm_installs_upgrades_and_uninstalls_it_and_keeps_the_definitions(
    kubectl: Kubectl, namespace: str, images: Images, prometheus_url: str, tmp_path: Path
) -> None:
    helm = Helm(helm_program(), tmp_path, kubectl.kubeconfig)
    name, _, tag = images.controller.rpartition(":")
    values = {
        "image": {"repository": name, "tag": tag},
        "prometheus": {"url": prometheus_url, "scrapeIntervalSeconds": SCRAPE_SECONDS},
    }
    (tmp_path / "own.json").write_text(json.dumps(values), encoding="utf-8")
    place = ("--namespace", SYSTEM)
    # Tests before this one have applied the definitions with kubectl.
    install = ("--create-namespace", "--take-ownership", "--values", tmp_path / "own.json", "--wait", "--timeout=120s")
    try:
        helm.run("install", RELEASE, CHART, *place, *install)
        kubectl.apply(a_policy(namespace, "Auto"))
        wait_for_limits(kubectl, namespace, "1")

        upgrade = (
            "--reset-then-reuse-values",
            "--set",
            f"prometheus.url={prometheus_url}/",
            "--wait",
            "--timeout=120s",
        )
        helm.run("upgrade", RELEASE, CHART, *place, *upgrade)
        kubectl.run("rollout", "status", DEPLOYMENT, "-n", SYSTEM, "--timeout=90s")
        (settings,) = _settings(kubectl)
        assert settings["data"]["PROMETHEUS_URL"] == f"{prometheus_url}/"
        assert limits(kubectl, namespace) == dict.fromkeys(PODS, "1")

        kubectl.run("delete", "trainingpolicy", namespace, "--timeout=90s")
        assert limits(kubectl, namespace) == dict.fromkeys(PODS, "300m")
    finally:
        uninstalled = helm.attempt("uninstall", RELEASE, *place, "--wait", "--timeout=90s")
    assert uninstalled.returncode == 0, uninstalled.stderr
    assert kubectl.get("customresourcedefinition", "trainingpolicies.slopewise.dev")
    assert kubectl.attempt("get", "clusterrole", "slopewise-controller").returncode != 0


def _settings(kubectl: Kubectl) -> list[Json]:
    found = kubectl.get("configmaps", "-n", SYSTEM)["items"]
    return [one for one in found if one["metadata"]["name"].startswith("slopewise-settings-")]

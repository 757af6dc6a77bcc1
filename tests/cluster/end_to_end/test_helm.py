"""Slopewise installed by Helm from its chart."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.accounts import SYSTEM
from support.cluster import Kubectl, PodShape
from support.fault_stage import EVEN_SHARES
from support.helm import CHART, RELEASE, Helm, helm_program
from support.images import Images
from support.installation import DEPLOYMENT, Installation
from support.rendering import ROOT
from support.waiting import wait_for

from slopewise.adapters.kube.cache.records import API_VERSION

pytestmark = [pytest.mark.faults, pytest.mark.timeout(900)]

SCRAPE_SECONDS = 5
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
    """Two that wait, on the node with two CPUs."""
    shape = replace(idle, node="node-a", cpu_request="100m", cpu_limit="300m")
    kubectl.apply(*(shape.pod(name) for name in PODS), namespace=namespace)
    kubectl.wait_running(namespace, *PODS)
    yield
    policy = kubectl.attempt("get", "trainingpolicy", namespace, "-o", "name")
    if policy.returncode == 0:  # its controller may be gone
        kubectl.attempt("patch", "trainingpolicy", namespace, "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
        kubectl.attempt("delete", "trainingpolicy", namespace)


def a_policy(namespace: str, mode: str) -> Json:
    """An even share of the node for each job, at once; it needs no metrics."""
    spec = {
        "mode": mode,
        "selector": {"namespaces": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}},
        "policy": EVEN_SHARES,
        "resources": {"control": "limits", "cpu": {"min": "250m"}},
        "behaviour": {"intervalSeconds": 4 * SCRAPE_SECONDS, "cooldownSeconds": 0, "maxStepRatio": 8},
    }
    return {"apiVersion": API_VERSION, "kind": "TrainingPolicy", "metadata": {"name": namespace}, "spec": spec}


def limits(kubectl: Kubectl, namespace: str) -> dict[str, str]:
    found = kubectl.get("pods", "-n", namespace)["items"]
    return {one["metadata"]["name"]: one["spec"]["containers"][0]["resources"]["limits"]["cpu"] for one in found}


def wait_for_limits(kubectl: Kubectl, namespace: str, cpu: str) -> None:
    wanted = dict.fromkeys(PODS, cpu)
    wait_for(f"limits of {cpu}", lambda: limits(kubectl, namespace), lambda seen: seen == wanted, 90)


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

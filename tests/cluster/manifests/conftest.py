"""manifests/ applied to the cluster, and the controller's account on it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from support.accounts import ACCOUNT, SYSTEM, api_of_account
from support.cluster import Kubectl
from support.rendering import MANIFESTS, render
from support.waiting import wait_for

from slopewise.adapters.kube.client.client import KubeApi

LAST = "slopewise-test-last-policy"


@pytest.fixture(scope="module")
def installed(kubectl: Kubectl) -> Iterator[Kubectl]:
    """kubectl, with all applied but what runs. What was there before stays there afterwards."""
    objects = [d for d in render(MANIFESTS / "overlays/moves") if d["kind"] not in ("Deployment", "CronJob")]
    bundle = yaml.safe_dump_all(objects)
    names = kubectl.run("create", "--dry-run=client", "-o", "name", "-f", "-", stdin=bundle).split()
    there = kubectl.run("get", "--ignore-not-found", "-o", "name", "-f", "-", stdin=bundle).split()
    try:
        kubectl.run("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=bundle)
        yield kubectl
    finally:
        if added := [name for name in names if name not in there]:
            kubectl.run("delete", "-n", SYSTEM, "--ignore-not-found", *added)


@pytest.fixture(scope="module")
def controller(installed: Kubectl, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubeApi]:
    """The API server as the controller sees it, once all admission policies are in force (a second, if at all).

    The API server learns of policies, and of their bindings, in the order in which they were stored: once the last
    policy with the last binding refuses, all do. One policy that refuses says nothing of those stored after it.
    """
    last = yaml.safe_dump_all(_last_policy())
    try:
        installed.run("apply", "--server-side", "-f", "-", stdin=last)
        wait_for("the admission policies are in force", lambda: _refused_try(installed), lambda said: LAST in said)
        yield api_of_account(installed, SYSTEM, ACCOUNT, tmp_path_factory.mktemp("account"))
    finally:
        installed.run("delete", "--ignore-not-found", "-f", "-", stdin=last)


def _last_policy() -> list[dict[str, Any]]:
    """A policy that refuses a ConfigMap of its own name, and its binding."""
    version, metadata = "admissionregistration.k8s.io/v1", {"name": LAST}
    configmaps = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}
    policy = {
        "matchConstraints": {"resourceRules": [{**configmaps, "resourceNames": [LAST]}]},
        "validations": [{"expression": "false", "message": f"{LAST} is in force"}],
    }
    binding = {"policyName": LAST, "validationActions": ["Deny"]}
    return [
        {"apiVersion": version, "kind": "ValidatingAdmissionPolicy", "metadata": metadata, "spec": policy},
        {"apiVersion": version, "kind": "ValidatingAdmissionPolicyBinding", "metadata": metadata, "spec": binding},
    ]


def _refused_try(kubectl: Kubectl) -> str:
    return kubectl.attempt("create", "configmap", LAST, "-n", "default", "--dry-run=server").stderr

"""manifests/ applied to the cluster, and the controller's account on it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import yaml
from support.accounts import ACCOUNT, SYSTEM, a_growth, api_of_account, growths, refusal
from support.cluster import Kubectl
from support.rendering import MANIFESTS, render
from support.waiting import wait_for

from controller.adapters.kube.api import KubeApi


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
def controller(installed: Kubectl, tmp_path_factory: pytest.TempPathFactory) -> KubeApi:
    """The API server as the controller sees it, once the admission policies are in force (a second, if at all)."""
    api = api_of_account(installed, SYSTEM, ACCOUNT, tmp_path_factory.mktemp("account"))
    wait_for("the admission policies are in force", lambda: _refused_try(api), lambda said: "slopewise-growths" in said)
    return api


def _refused_try(api: KubeApi) -> str:
    body = a_growth(finalizers=["example.org/for-ever"])
    return refusal(lambda: api.create(growths("default"), body, {"dryRun": "All"}))

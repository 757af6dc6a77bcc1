"""Slopewise on the cluster under test, as its manifests install it, and removed again without a trace.

`tests/cluster/end_to_end/conftest.py` hands it out. On the test-bed it is `testbed/slopewise`, which is what
docs/testbed.md says to apply; elsewhere an overlay of our own says where the image and Prometheus are.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.accounts import SYSTEM
from support.cluster import Kubectl
from support.rendering import ROOT
from support.waiting import wait_for

ON_THE_TESTBED = ROOT / "testbed/slopewise"
DEPLOYMENT = "deployment/slopewise-controller"


@dataclass
class Installation:
    """One `kubectl apply -k`. `folder`: the kustomization."""

    kubectl: Kubectl
    folder: Path
    _added: list[str] = field(default_factory=list)

    def is_there_already(self) -> bool:
        """Somebody else's, which is not ours to change or remove."""
        return self.kubectl.attempt("get", DEPLOYMENT, "-n", SYSTEM).returncode == 0

    def install(self) -> None:
        """Apply it and wait until the controller is ready, which is when it has read the cluster."""
        bundle = self.kubectl.run("kustomize", str(self.folder))
        names = self.kubectl.run("create", "--dry-run=client", "-o", "name", "-f", "-", stdin=bundle).split()
        there = self.kubectl.run("get", "--ignore-not-found", "-o", "name", "-f", "-", stdin=bundle).split()
        self._added = [name for name in names if name not in there and not name.startswith("customresourcedefinition")]
        # A namespace that is still going away from an earlier time takes nothing in.
        wait_for(
            "the objects are accepted",
            lambda: self.kubectl.attempt("apply", "--server-side", "-k", str(self.folder)).stderr,
            lambda complaint: "forbidden" not in complaint and "Error" not in complaint and "error" not in complaint,
            60,
        )
        self.kubectl.run("rollout", "status", DEPLOYMENT, "-n", SYSTEM, "--timeout=90s")

    def remove(self) -> None:
        """Everything that was not there before, but the definitions: with them go other tests' objects."""
        print(self.kubectl.attempt("logs", DEPLOYMENT, "-n", SYSTEM, "--tail=200").stdout)  # shown where a test fails
        if self._added:
            self.kubectl.run("delete", "-n", SYSTEM, "--ignore-not-found", *self._added)


@contextmanager
def installed(kubectl: Kubectl, folder: Path) -> Iterator[Installation]:
    """Ready until the block ends; the test is skipped where somebody else's is there."""
    installation = Installation(kubectl, folder)
    if installation.is_there_already():
        pytest.skip("Slopewise is installed on this cluster; remove it (docs/deployment.md), or use another one")
    try:
        installation.install()
        yield installation
    finally:
        installation.remove()


def kustomization(
    image: str, prometheus_url: str, scrape_seconds: float, variant: str = "minimal", ours: str = "slopewise"
) -> dict[str, Any]:
    """One like that of docs/deployment.md. `ours`: where this repository lies beside it."""
    name, _, tag = image.rpartition(":")
    settings = {
        "name": "slopewise-settings",
        "namespace": SYSTEM,
        "behavior": "merge",
        "literals": [f"PROMETHEUS_URL={prometheus_url}"],
    }
    return {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [f"{ours}/manifests/overlays/{variant}"],
        "images": [{"name": "slopewise", "newName": name, "newTag": tag}],
        "configMapGenerator": [settings],
        "patches": [{"target": {"kind": "Deployment"}, "patch": yaml.safe_dump([_argument(scrape_seconds)])}],
    }


def overlay(
    folder: Path, image: str, prometheus_url: str, scrape_seconds: float, variant: str = "minimal", **more: Any
) -> Path:
    """Write such a kustomization into an empty folder, with `more` in it; returns the folder."""
    whole = {**kustomization(image, prometheus_url, scrape_seconds, variant), **more}
    os.symlink(ROOT, folder / "slopewise")
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(whole), encoding="utf-8")
    return folder


def _argument(scrape_seconds: float) -> dict[str, str]:
    path = "/spec/template/spec/containers/0/args/-"
    return {"op": "add", "path": path, "value": f"--scrape-interval={scrape_seconds:g}"}

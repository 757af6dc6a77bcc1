"""What the API server of a real cluster says to manifests/, and which rights come of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.cluster import Kubectl
from support.rendering import MANIFESTS, OVERLAYS, render, render_mine
from support.waiting import wait_for

OPERATOR_CRDS = Path(__file__).with_name("prometheus-operator-crds.yaml")


@pytest.fixture(scope="module")
def operators_kinds(kubectl: Kubectl) -> Iterator[None]:
    """PodMonitor and PrometheusRule, for a while where the cluster has no prometheus-operator."""
    was_there = kubectl.attempt("get", "crd", "podmonitors.monitoring.coreos.com").returncode == 0
    if was_there:
        yield
        return
    kubectl.run("apply", "--server-side", "-f", str(OPERATOR_CRDS))
    kubectl.run("wait", "--for=condition=Established", "--timeout=30s", "-f", str(OPERATOR_CRDS))
    yield
    kubectl.run("delete", "-f", str(OPERATOR_CRDS))


@pytest.mark.usefixtures("operators_kinds")
@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_api_server_accepts_every_object_and_knows_every_field(
    installed: Kubectl, namespace: str, tmp_path: Path, overlay: str
) -> None:
    objects = render_mine(tmp_path, overlay, namespace=namespace)

    validated = installed.run(
        "apply", "--server-side", "--dry-run=server", "--validate=strict", "--force-conflicts", "-f", "-",
        stdin=yaml.safe_dump_all(objects),
    )  # fmt: skip

    assert len(validated.splitlines()) == len(objects) >= 10


def test_the_server_finds_no_fault_in_the_expressions_of_the_admission_policies(installed: Kubectl) -> None:
    names = [
        document["metadata"]["name"]
        for document in render(MANIFESTS / "overlays/moves")
        if document["kind"] == "ValidatingAdmissionPolicy"
    ]

    def statuses() -> list[dict[str, Any]]:
        return [installed.get("validatingadmissionpolicy", name).get("status", {}) for name in names]

    checked = wait_for("types are checked", statuses, lambda found: all("typeChecking" in one for one in found))

    assert len(checked) == 10
    assert not any(status["typeChecking"].get("expressionWarnings") for status in checked)

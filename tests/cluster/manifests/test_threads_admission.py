"""What the component `threads` adds to pods, on a real API server. All pods but the last are dry runs."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from support.cluster import Kubectl, PodShape
from support.rendering import render_in
from support.waiting import wait_for

from slopewise.adapters.kube.cache.records import MANAGED_LABEL
from slopewise.adapters.kube.client.protocol import Json
from slopewise_exporter.threads.at_start import waiting

SERVED_FROM = (1, 36)
"""The first Kubernetes that serves MutatingAdmissionPolicies as v1, without a feature gate."""

WAITING = [{"name": name, "value": value} for name, value in waiting({}).items()]
FIELD = {"name": "GOMP_SPINCOUNT", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}}
COMPONENT = {
    "apiVersion": "kustomize.config.k8s.io/v1beta1",
    "kind": "Kustomization",
    "namespace": "elsewhere",  # kustomize gives it to kinds that it does not know, and the API server drops it
    "components": ["slopewise/manifests/components/threads"],
}


@pytest.fixture(scope="module")
def stage(
    kubectl: Kubectl, server_version: tuple[int, int], idle: PodShape, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """A namespace that opts in, once the component is in force there."""
    if server_version < SERVED_FROM:
        pytest.skip(f"MutatingAdmissionPolicies are served from 1.36 on; this server is {server_version}")
    objects = yaml.safe_dump_all(render_in(tmp_path_factory.mktemp("threads"), COMPONENT))
    there = kubectl.run("get", "--ignore-not-found", "-o", "name", "-f", "-", stdin=objects)
    with kubectl.own_namespace() as namespace:
        try:
            kubectl.run("apply", "--server-side", "--validate=strict", "--force-conflicts", "-f", "-", stdin=objects)
            wait_for("it is in force", lambda: environment(kubectl, namespace, idle.pod("first")), lambda env: env)
            yield namespace
        finally:
            if not there:
                kubectl.run("delete", "--ignore-not-found", "-f", "-", stdin=objects)


def made(kubectl: Kubectl, namespace: str, pod: Json) -> list[Any]:
    """The containers of the pod as the API server would store it."""
    arguments = ("create", "-n", namespace, "--dry-run=server", "-o", "json", "-f", "-")
    containers: list[Any] = json.loads(kubectl.run(*arguments, stdin=json.dumps(pod)))["spec"]["containers"]
    return containers


def environment(kubectl: Kubectl, namespace: str, pod: Json, **container: Any) -> list[Any]:
    """The variables of the pod's one container, made with these fields."""
    pod = copy.deepcopy(pod)
    pod["spec"]["containers"][0].update(container)
    return list(made(kubectl, namespace, pod)[0].get("env", []))


def test_a_container_without_variables_gets_those_of_the_exporter(kubectl: Kubectl, stage: str, idle: PodShape) -> None:
    assert environment(kubectl, stage, idle.pod("none")) == WAITING


@pytest.mark.parametrize(
    ("given", "missing"),
    [
        ([{"name": "OMP_WAIT_POLICY", "value": "active"}], WAITING[1:]),
        ([FIELD], [WAITING[0], *WAITING[2:]]),
        ([{"name": "A", "value": "1"}, {"name": "B", "value": "$(A)"}, {"name": "A", "value": "2"}], WAITING),
        ([{"name": "SLOPEWISE_THREADS", "value": "follow"}], WAITING),
        ([{"name": "SLOPEWISE_THREADS", "value": "off"}], []),
        (WAITING, []),
    ],
    ids=["value", "valueFrom", "one name twice", "follow", "off", "all"],
)
def test_what_a_container_sets_stays_and_what_is_missing_comes_after_it(
    kubectl: Kubectl, stage: str, idle: PodShape, given: list[Json], missing: list[Json]
) -> None:
    assert environment(kubectl, stage, idle.pod("some"), env=given) == [*given, *missing]


def test_a_container_with_variables_of_a_configmap_is_left_alone(kubectl: Kubectl, stage: str, idle: PodShape) -> None:
    assert environment(kubectl, stage, idle.pod("from"), envFrom=[{"configMapRef": {"name": "a"}}]) == []


def test_each_container_is_looked_at_by_itself(kubectl: Kubectl, stage: str, idle: PodShape) -> None:
    pod = idle.pod("several")
    (trainer,) = pod["spec"]["containers"]
    active = {"name": "OMP_WAIT_POLICY", "value": "active"}
    pod["spec"]["containers"] = [{**trainer, "name": "set", "env": [active]}, {**trainer, "name": "bare"}]
    without = {**pod, "metadata": {"name": "several"}}
    before, after = made(kubectl, stage, without), made(kubectl, stage, pod)

    assert [container.pop("env", []) for container in after] == [[active, *WAITING[1:]], WAITING]
    assert [container.pop("env", []) for container in before] == [[active], []]
    assert after == before, "nothing else of them is changed"


@pytest.mark.parametrize("labels", [{}, {MANAGED_LABEL: "false"}])
def test_a_pod_without_the_label_is_untouched(
    kubectl: Kubectl, stage: str, idle: PodShape, labels: dict[str, str]
) -> None:
    pod = idle.pod("other")
    pod["metadata"]["labels"] = labels

    assert environment(kubectl, stage, pod) == []


def test_a_namespace_that_does_not_opt_in_is_untouched(kubectl: Kubectl, stage: str, idle: PodShape) -> None:
    kubectl.run("label", "namespace", stage, f"{MANAGED_LABEL}-")
    try:
        pod = idle.pod("elsewhere")
        assert wait_for("it is out", lambda: environment(kubectl, stage, pod), lambda env: not env) == []
    finally:
        kubectl.run("label", "namespace", stage, f"{MANAGED_LABEL}=true")
        wait_for("it is in again", lambda: environment(kubectl, stage, pod), lambda env: env)

"""Pods that a HorizontalPodAutoscaler or a VerticalPodAutoscaler of their owner looks after: left to it, and said."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from support.cluster import MANAGED
from support.fault_stage import ORIGINAL, SHAPE, Stage
from support.waiting import wait_for

Json = dict[str, Any]


def a_deployment(stage: Stage, annotations: dict[str, str] | None = None) -> None:
    """One pod, `web`, on node-a."""
    template = replace(stage.idle, **{**SHAPE, "annotations": annotations or {}}).template()
    template["metadata"]["labels"] = {**MANAGED, "app": "web"}
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    stage.kubectl.apply(
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec},
        namespace=stage.namespace,
    )
    wait_for("its pod runs", lambda: pods(stage), lambda found: bool(found) and all(map(_is_running, found)))


def pods(stage: Stage) -> list[Json]:
    return list(stage.kubectl.get("pods", "-l", "app=web", "-n", stage.namespace)["items"])


def _is_running(pod: Json) -> bool:
    return bool(pod["status"]["phase"] == "Running")


def limits(stage: Stage) -> set[int | None]:
    return set(stage.limits(*(pod["metadata"]["name"] for pod in pods(stage))).values())


def an_autoscaler(metric: Json) -> Json:
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    spec = {"scaleTargetRef": target, "minReplicas": 1, "maxReplicas": 3, "metrics": [metric]}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web"},
        "spec": spec,
    }


CPU = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}
MEMORY = {"type": "Resource", "resource": {"name": "memory", "target": {"type": "AverageValue", "averageValue": "1Gi"}}}


def test_pods_whose_deployment_is_scaled_by_cpu_keep_what_they_came_with(stage: Stage) -> None:
    a_deployment(stage)
    stage.policy()
    stage.controller()
    wait_for("it gets its share", lambda: limits(stage), lambda seen: seen == {2000})

    stage.kubectl.apply(an_autoscaler(CPU), namespace=stage.namespace)
    wait_for(
        "its original resources are restored", lambda: limits(stage), lambda seen: seen == {ORIGINAL.limit_millicores}
    )
    status = stage.wait_for_growth("web", "Managed", "Ineligible")
    assert "HorizontalPodAutoscaler web scales it by CPU, which a resize changes" in status["reason"]

    stage.kubectl.apply(an_autoscaler(MEMORY), namespace=stage.namespace)
    wait_for("it gets its share again", lambda: limits(stage), lambda seen: seen == {2000})


@pytest.mark.faults
def test_a_deployment_that_is_scaled_out_and_in_keeps_even_shares_and_true_originals(stage: Stage) -> None:
    """What a HorizontalPodAutoscaler does by another metric than CPU."""
    a_deployment(stage)
    stage.policy()
    stage.controller()
    wait_for("it gets its share", lambda: limits(stage), lambda seen: seen == {2000})
    stage.kubectl.run("scale", "deployment", "web", "--replicas=3", "-n", stage.namespace)
    wait_for("three share the node", lambda: (len(pods(stage)), limits(stage)), lambda seen: seen == (3, {667}))
    stage.kubectl.run("scale", "deployment", "web", "--replicas=1", "-n", stage.namespace)
    wait_for("one has it alone", lambda: (len(pods(stage)), limits(stage)), lambda seen: seen == (1, {2000}))
    stage.delete_policy()
    assert limits(stage) == {ORIGINAL.limit_millicores}


def test_pods_that_a_vertical_autoscaler_begins_to_resize_in_place_are_left_to_it(stage: Stage) -> None:
    a_deployment(stage)
    stage.policy()
    stage.controller()
    wait_for("it gets its share", lambda: limits(stage), lambda seen: seen == {2000})
    [pod] = pods(stage)
    name = pod["metadata"]["name"]
    resized = {"spec": {"containers": [{"name": "trainer", "resources": {"limits": {"cpu": "700m"}}}]}}
    stage.kubectl.patch("pod", name, stage.namespace, resized, "--subresource=resize", "--field-manager=vpa-updater")
    stage.wait_for_growth("web", "Managed", "Ineligible")
    condition = stage.wait_for_condition("Conflict", "OtherResizer")
    assert "1 pod is resized by vpa-updater too, and not by Slopewise" in condition["message"]
    stage.delete_policy()
    assert limits(stage) == {700}

"""Pods that Kubernetes, their owners or their nodes do not let us change: unchanged, with a reason that people find."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from support.fault_stage import Stage
from support.waiting import wait_for

DEVICE = "slopewise.dev/fake-gpu"


@pytest.fixture
def device(stage: Stage) -> Iterator[str]:
    """An extended resource on node-a, as device plugins announce them."""
    path = "/status/capacity/" + DEVICE.replace("/", "~1")
    patch = ("patch", "node", "node-a", "--subresource=status", "--type=json", "-p")
    stage.kubectl.run(*patch, json.dumps([{"op": "add", "path": path, "value": "1"}]))
    look = ("node", "node-a")
    wait_for("it is offered", lambda: stage.kubectl.get(*look)["status"]["allocatable"], lambda seen: DEVICE in seen)
    yield DEVICE
    stage.kubectl.run(*patch, json.dumps([{"op": "remove", "path": path}]))


def test_each_pod_that_is_not_to_be_changed_says_why_and_keeps_what_it_has(stage: Stage, device: str) -> None:
    shape = replace(stage.idle, node="node-a", cpu_request="50m", cpu_limit="600m")
    gpu, restarts = shape.pod("gpu"), shape.pod("restarts")
    gpu["spec"]["containers"][0]["resources"]["limits"][device] = "1"
    restarts["spec"]["containers"][0]["resizePolicy"] = [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]
    same: dict[str, Any] = {
        "cpu_request": "100m",
        "cpu_limit": "100m",
        "memory_request": "32Mi",
        "memory_limit": "32Mi",
    }
    whole_pod = replace(shape, cpu_request=None, cpu_limit=None).pod("whole-pod")
    whole_pod["spec"]["resources"] = {"requests": {"cpu": "50m"}, "limits": {"cpu": "700m"}}
    stage.kubectl.apply(
        gpu,
        restarts,
        whole_pod,
        replace(shape, cpu_request=None, cpu_limit=None).pod("best-effort"),
        replace(shape, cpu_limit=None).pod("no-limit"),
        replace(shape, **same).pod("guaranteed"),
        replace(shape, cpu_request="450m", cpu_limit="450m").pod("equal"),
        replace(shape, labels={}).pod("not-ours"),
        shape.pod("ordinary"),
        namespace=stage.namespace,
    )
    reasons = {
        "gpu": (f"ineligible: it asks for {DEVICE}", "Ineligible"),
        "restarts": ("ineligible: its resizePolicy restarts it", "Ineligible"),
        "whole-pod": ("its resources are set for the whole pod", "Ineligible"),
        "best-effort": ("a BestEffort pod cannot be resized", "Ineligible"),
        "no-limit": ("it has no CPU limit", "Ineligible"),
        "guaranteed": ("ineligible: it is Guaranteed", "Ineligible"),
        "equal": ("accepted_range: ", "Managed"),
    }
    managed = (*reasons, "ordinary")
    stage.kubectl.wait_running(stage.namespace, *managed, "not-ours")
    before = stage.cpu()
    stage.policy()
    controller = stage.controller()
    stage.wait_for_limits({"ordinary": round(2000 / len(managed))})
    for name, (words, managed_reason) in reasons.items():
        status = stage.wait_for_growth(name, "Managed", managed_reason)
        assert words in status["reason"]
    assert stage.growth("whole-pod")["cpu"].startswith("0.7")
    listed = stage.kubectl.run("get", "growth", "-n", stage.namespace)
    assert all(words.removeprefix("ineligible: ")[:30] in listed for words, _ in reasons.values())
    assert "not-ours" not in listed
    for name in ("gpu", "restarts", "guaranteed", "equal"):
        stage.wait_for_event(name, "ResizeWithheld", reasons[name][0])
    controller.wait_for_passes(1)
    assert controller.metric("slopewise_withheld_total", guard="ineligible") >= 3
    after = stage.cpu()
    assert {name for name in before if before[name] != after[name]} == {"ordinary"}
    assert stage.originals().keys() == {"ordinary"}
    stage.delete_policy()
    assert stage.cpu() == before


@pytest.mark.parametrize(
    ("kind", "spec", "reason", "words", "outcome"),
    [
        pytest.param(
            "LimitRange",
            {"limits": [{"type": "Container", "max": {"cpu": "500m"}, "min": {"cpu": "20m"}}]},
            "ResizeInfeasible",
            "the LimitRange of its namespace does not allow it",
            "infeasible",
            id="limit-range",
        ),
        pytest.param(
            "ResourceQuota",
            {"hard": {"limits.cpu": "1"}},
            "ResizeDeferred",
            "the ResourceQuota of its namespace has no room",
            "deferred",
            id="quota",
        ),
    ],
)
def test_a_namespace_that_allows_no_more_keeps_its_pods_and_is_asked_again_after_a_while(
    stage: Stage, kind: str, spec: dict[str, Any], reason: str, words: str, outcome: str
) -> None:
    stage.kubectl.apply(
        {"apiVersion": "v1", "kind": kind, "metadata": {"name": "bounds"}, "spec": spec}, namespace=stage.namespace
    )
    stage.pods("a", "b")
    if kind == "ResourceQuota":
        look = ("resourcequota", "bounds", "-n", stage.namespace)
        wait_for(
            "it counts both", lambda: stage.kubectl.get(*look)["status"]["used"], lambda it: it["limits.cpu"] == "600m"
        )
    gateway = stage.gateway()
    stage.policy()
    controller = stage.controller(gateway)
    for name in ("a", "b"):
        stage.wait_for_event(name, reason, words)
        shown = wait_for("it is shown", partial(stage.growth, name), lambda it: words in it.get("reason", ""))["reason"]
        assert shown.startswith(f"{outcome}: ")
        assert "tried again at " in shown
    controller.wait_for_passes(3)
    assert len(gateway.writes("pods/resize")) <= 4  # once more after half a minute, and not in each pass
    assert stage.limits() == {"a": 300, "b": 300}
    assert controller.metric("slopewise_resizes_total", outcome=outcome) >= 2
    stage.kubectl.run("delete", kind, "bounds", "-n", stage.namespace)
    stage.wait_for_limits({"a": 1000, "b": 1000})
    stage.delete_policy()

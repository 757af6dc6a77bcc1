"""HorizontalPodAutoscalers: what they scale, and by what."""

from __future__ import annotations

from typing import Any

import pytest

from slopewise.adapters.kube.cache.records import OwnerRef
from slopewise.adapters.kube.workloads.autoscalers import (
    UNSCALED,
    AutoscalerRecord,
    ScaledBy,
    names_by_target,
    parse_autoscaler,
    scaled_by,
)


def an_autoscaler(*metrics: dict[str, Any]) -> dict[str, Any]:
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    return {
        "metadata": {"namespace": "team", "name": "hpa"},
        "spec": {"scaleTargetRef": target, "metrics": list(metrics)},
    }


OF_CPU = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}
OF_A_CONTAINERS_CPU = {"type": "ContainerResource", "containerResource": {"name": "cpu", "container": "trainer"}}
OF_MEMORY = {"type": "Resource", "resource": {"name": "memory"}}
OF_A_CONTAINERS_MEMORY = {"type": "ContainerResource", "containerResource": {"name": "memory", "container": "trainer"}}
A_METRIC_OF_THAT_NAME = {"type": "Pods", "pods": {"metric": {"name": "memory"}}, "resource": {"name": "memory"}}
OF_A_QUEUE = {"type": "External", "external": {"metric": {"name": "queue"}}}


@pytest.mark.parametrize(
    ("metrics", "counts_cpu", "counts_memory"),
    [
        ((OF_CPU,), True, False),
        ((OF_MEMORY, OF_A_CONTAINERS_CPU), True, True),
        ((OF_MEMORY, OF_A_QUEUE), False, True),
        ((OF_A_QUEUE, OF_A_CONTAINERS_MEMORY), False, True),
        ((OF_A_QUEUE, A_METRIC_OF_THAT_NAME), False, False),
        ((), False, False),
    ],
)
def test_what_it_scales_and_by_what(metrics: tuple[dict[str, Any], ...], counts_cpu: bool, counts_memory: bool) -> None:
    record = parse_autoscaler(an_autoscaler(*metrics))
    assert record == AutoscalerRecord("team", "hpa", "Deployment", "web", counts_cpu, counts_memory)


def test_several_autoscalers_of_one_target_are_all_named_and_others_are_not() -> None:
    records = (
        AutoscalerRecord("team", "by-cpu", "Deployment", "web", counts_cpu=True),
        AutoscalerRecord("team", "by-memory", "Deployment", "web", counts_cpu=False, counts_memory=True),
        AutoscalerRecord("team", "by-queue", "Deployment", "web", counts_cpu=False),
        AutoscalerRecord("team", "by-queue", "Deployment", "other", counts_cpu=False),
    )
    for each in (records, tuple(reversed(records))):
        assert names_by_target(each) == {("team", "Deployment", "web"): ScaledBy("by-cpu", "by-memory")}


def test_any_owner_of_a_pod_may_be_what_is_scaled() -> None:
    by_target = {("team", "Deployment", "web"): ScaledBy("hpa")}
    deployment, replicas = (
        OwnerRef("apps/v1", "Deployment", "web", "d"),
        OwnerRef("apps/v1", "ReplicaSet", "web-1", "r"),
    )
    assert scaled_by(by_target, "team", deployment, replicas) == ScaledBy("hpa")
    assert scaled_by(by_target, "team", replicas, None) == UNSCALED
    assert scaled_by(by_target, "another", deployment) == UNSCALED
    assert scaled_by({}, "team", deployment) == UNSCALED
    apart = {**by_target, ("team", "ReplicaSet", "web-1"): ScaledBy(memory="of-replicas")}
    assert scaled_by(apart, "team", deployment, replicas) == ScaledBy("hpa", "of-replicas")

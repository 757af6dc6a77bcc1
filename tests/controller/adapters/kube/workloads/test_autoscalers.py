"""HorizontalPodAutoscalers: what they scale, and by what."""

from __future__ import annotations

from typing import Any

import pytest

from slopewise.adapters.kube.cache.records import OwnerRef
from slopewise.adapters.kube.workloads.autoscalers import autoscaler_of, parse_autoscaler


def an_autoscaler(*metrics: dict[str, Any]) -> dict[str, Any]:
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    return {
        "metadata": {"namespace": "team", "name": "hpa"},
        "spec": {"scaleTargetRef": target, "metrics": list(metrics)},
    }


OF_CPU = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}
OF_A_CONTAINERS_CPU = {"type": "ContainerResource", "containerResource": {"name": "cpu", "container": "trainer"}}
OF_MEMORY = {"type": "Resource", "resource": {"name": "memory"}}
OF_A_QUEUE = {"type": "External", "external": {"metric": {"name": "queue"}}}


@pytest.mark.parametrize(
    ("metrics", "counts_cpu"),
    [
        ((OF_CPU,), True),
        ((OF_MEMORY, OF_A_CONTAINERS_CPU), True),
        ((OF_MEMORY, OF_A_QUEUE), False),
        ((), False),
    ],
)
def test_what_it_scales_and_whether_by_cpu(metrics: tuple[dict[str, Any], ...], counts_cpu: bool) -> None:
    record = parse_autoscaler(an_autoscaler(*metrics))
    assert (record.target_kind, record.target_name, record.counts_cpu) == ("Deployment", "web", counts_cpu)


def test_any_owner_of_a_pod_may_be_what_is_scaled() -> None:
    by_target = {("team", "Deployment", "web"): "hpa"}
    deployment, replicas = (
        OwnerRef("apps/v1", "Deployment", "web", "d"),
        OwnerRef("apps/v1", "ReplicaSet", "web-1", "r"),
    )
    assert autoscaler_of(by_target, "team", deployment, replicas) == "hpa"
    assert autoscaler_of(by_target, "team", replicas, None) is None
    assert autoscaler_of(by_target, "another", deployment) is None
    assert autoscaler_of({}, "team", deployment) is None

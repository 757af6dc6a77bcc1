"""What must not be touched is named with what would allow it; what may be is bounded as Kubernetes bounds it."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs
from support.cluster_records import GIB, a_container, a_node_record, a_pod, owned_by

from slopewise.adapters.kube.cache.records import ContainerRecord, NodeRecord, PodRecord
from slopewise.adapters.kube.workloads.eligibility import (
    KUEUE_LABEL,
    Case,
    accepted_range,
    ineligible_reason,
    memory_ineligible_reason,
)
from slopewise.config.training_policy import ResourceSettings
from slopewise.model import CpuAllocation

LIMITS = ResourceSettings(control="limits")
LOWER = ResourceSettings(control="limits", lower_requests=True)
REQUESTS = ResourceSettings(control="requests")
EQUAL_MEMORY: dict[str, Any] = {"memory_request_bytes": GIB, "memory_limit_bytes": GIB}


PINS_CORES = a_node_record(static_cpu_manager=True)
GUARANTEED_MEMORY = "it is Guaranteed, and another memory request would change its QoS class"


def case(
    pod: PodRecord | None = None,
    settings: ResourceSettings | None = None,
    *,
    node: NodeRecord | None = None,
    original: CpuAllocation | None = None,
    **more: Any,
) -> Case:
    pod = pod or a_pod()
    container = pod.containers[0]
    return Case(pod, container, node or a_node_record(), settings or LIMITS, original or container.desired, **more)


def guaranteed(cpu: int = 1000, **more: Any) -> PodRecord:
    return a_pod("g", a_container(limit=cpu, request=cpu, **EQUAL_MEMORY), qos_class="Guaranteed", **more)


def with_container(**more: Any) -> PodRecord:
    return a_pod("p", a_container(**more))


@pytest.mark.parametrize(
    ("pod", "reason"),
    [
        (a_pod(deleting=True), "the pod is being deleted"),
        (a_pod(owner=owned_by("Node", "n1", "u", "v1")), "a static pod belongs to its node's kubelet"),
        (
            with_container(extended_resources=("nvidia.com/gpu",)),
            "it asks for nvidia.com/gpu, and such a pod is never changed",
        ),
        (a_pod(pod_level_resources=True), "its resources are set for the whole pod"),
        (a_pod(qos_class="BestEffort"), "a BestEffort pod cannot be resized; give its container a CPU request"),
        (with_container(resize_restarts=True), "its resizePolicy restarts it when CPU changes; remove"),
        (a_pod(foreign_resizers=("vpa-updater",)), "vpa-updater resizes it too; set slopewise.dev/managed to 'false'"),
        (a_pod(annotations={"vpaUpdates": "x"}), "a VerticalPodAutoscaler sizes it; delete that"),
        (with_container(limit=None), "it has no CPU limit, and one that is added cannot be removed; set one, or spec."),
        (guaranteed(), "it is Guaranteed, so its request must stay equal to its limit; set spec.resources.lower"),
        (with_container(running_since_seconds=None), "container trainer does not run yet"),
        (with_container(ready=False), "container trainer is not ready"),
        (with_container(running_since_seconds=None, restarts_total=2), "container trainer is restarting;"),
        (
            with_container(running_since_seconds=None, restarts_total=2, oom_killed_at_seconds=1.0),
            "container trainer is restarting after it was killed for memory",
        ),
        (with_container(reported=None), "its node's kubelet does not report actual CPU"),
    ],
)
def test_what_is_withheld_says_why_and_what_would_allow_it(pod: PodRecord, reason: str) -> None:
    found = ineligible_reason(case(pod))
    assert found is not None
    assert found.startswith(reason)


@pytest.mark.parametrize(
    ("pod", "reason"),
    [
        (guaranteed(), "it is Guaranteed, and another memory request would change its QoS class; make its memory"),
        (with_container(memory_request_bytes=None), "it has no memory request that could be lowered; set one"),
        (with_container(memory_resize_restarts=True), "its resizePolicy restarts it when memory changes; remove"),
        (a_pod(pod_level_resources=True), "its resources are set for the whole pod"),
        (a_pod(foreign_memory_resizers=("vpa",)), "vpa resizes its memory; it is left to that"),
        (with_container(ready=False), "container trainer is not ready"),
        (with_container(reported=None), "its node's kubelet does not report actual CPU"),
    ],
)
def test_memory_that_is_withheld_says_why(pod: PodRecord, reason: str) -> None:
    found = memory_ineligible_reason(case(pod))
    assert found is not None
    assert found.startswith(reason)


def test_memory_of_a_pod_whose_owner_is_scaled_by_memory_is_left_alone_and_its_cpu_is_not() -> None:
    scaled = case(memory_autoscaler="web")
    assert memory_ineligible_reason(scaled) == (
        "HorizontalPodAutoscaler web scales it by memory, which a resize changes; scale it by another metric, or set "
        "spec.resources.memory: Ignore"
    )
    assert ineligible_reason(scaled) is None
    assert memory_ineligible_reason(case(autoscaler="web")) == ineligible_reason(case(autoscaler="web"))


@pytest.mark.parametrize(
    ("annotations", "of_memory", "cpu", "memory"),
    [
        ({"vpaUpdates": "Pod resources updated by web: container 0: memory request"}, (), True, True),
        ({"vpaObservedContainers": "trainer"}, (), True, True),
        ({}, ("vpa-updater",), False, True),
    ],
    ids=["sized at its start", "observed at its start", "sized in place"],
)
def test_a_vertical_autoscaler_of_memory_keeps_the_memory(
    annotations: dict[str, str], of_memory: tuple[str, ...], cpu: bool, memory: bool
) -> None:
    seen = case(a_pod(annotations=annotations, foreign_memory_resizers=of_memory))
    assert (ineligible_reason(seen) is not None, memory_ineligible_reason(seen) is not None) == (cpu, memory)


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (case(), None),
        (case(a_pod(phase="Succeeded", deleting=True)), None),
        (case(with_container(limit=None), ResourceSettings(control="limits", add_limits=True)), None),
        (case(with_container(limit=None), REQUESTS), None),
        (case(guaranteed(), LOWER), None),
        (case(guaranteed(), LOWER, node=PINS_CORES), "static CPU manager pins cores"),
        (case(a_pod(), LOWER, node=PINS_CORES), None),
        (case(node=a_node_record(ready=False)), "node n1 is not ready; changes go on when it is"),
        (case(with_container(request=0), REQUESTS), "it has no CPU request to give shares by; set one, or spec."),
        (
            case(a_pod("p", a_container(request=500), start_millicores=500), REQUESTS),
            "its init containers request 500m",
        ),
        (case(a_pod("p", a_container(request=500), start_millicores=500), LIMITS), None),
        (
            case(a_pod("p", a_container(), a_container("s", extended_resources=("a", "b", "c", "d")))),
            "it asks for a, b, c and 1 more, and such a pod is never changed",
        ),
    ],
)
def test_what_may_be_changed_depends_on_the_policy_and_the_node(made: Case, reason: str | None) -> None:
    found = ineligible_reason(made)
    assert found is None if reason is None else reason in (found or "")


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (case(), None),
        (case(with_container(limit=None)), None),
        (case(with_container(**EQUAL_MEMORY), LOWER), None),
        (case(node=a_node_record(swap_bytes=2**30)), "node n1 swaps: what is swapped out is not in its working set"),
        *((case(guaranteed(), each), GUARANTEED_MEMORY) for each in (LIMITS, LOWER, REQUESTS)),
    ],
)
def test_memory_may_be_changed_where_it_is_not_pinned_or_swapped(made: Case, reason: str | None) -> None:
    """The static memory manager of a kubelet pins the memory of Guaranteed pods."""
    found = memory_ineligible_reason(made)
    assert found is None if reason is None else (found or "").startswith(reason)


KUEUES = a_pod(labels={"kueue.x-k8s.io/queue-name": "q"})
LATER_STARTED = a_pod("p", a_container(request=500), a_container("sidecar", request=50), start_millicores=150)
NEXT_TO_GUARANTEED = a_pod("p", a_container(**EQUAL_MEMORY), a_container("s", limit=100, request=100, **EQUAL_MEMORY))
NEXT_TO_BURSTABLE = a_pod("p", a_container(**EQUAL_MEMORY), a_container("s", limit=200, request=100, **EQUAL_MEMORY))


@pytest.mark.parametrize(
    ("made", "least", "most", "reason"),
    [
        (case(), 500, None, "request 500m; spec.resources.lowerRequests: true allows less"),
        (case(a_pod(), LOWER), 1, None, ""),
        (case(with_container(**EQUAL_MEMORY), LOWER), 2, None, ""),
        (case(guaranteed(400), LOWER, original=CpuAllocation(1000, 1000)), 1, 1000, ""),
        (case(a_pod(), REQUESTS), 1, 2000, ""),
        (case(with_container(**EQUAL_MEMORY), REQUESTS), 1, 1999, ""),
        (case(with_container(limit=None), REQUESTS), 1, None, ""),
        (case(KUEUES, REQUESTS, original=CpuAllocation(2000, 800)), 1, 800, "Kueue admitted it with 800m"),
        (case(LATER_STARTED, REQUESTS), 100, 2000, "its init containers request 150m"),
        (case(with_container(**EQUAL_MEMORY)), 501, None, ""),
        (case(NEXT_TO_GUARANTEED), 501, None, ""),
        (case(NEXT_TO_BURSTABLE), 500, None, ""),
        (case(with_container(memory_limit_bytes=None)), 500, None, ""),
    ],
)
def test_the_range_keeps_the_class_and_what_was_granted(made: Case, least: int, most: int | None, reason: str) -> None:
    accepted = accepted_range(made)
    assert (accepted.min_millicores, accepted.max_millicores) == (least, most)
    assert accepted.reason.endswith(reason)


SHARE = ResourceSettings(control="limits", accelerators="Share")
GPU: dict[str, Any] = {"extended_resources": ("nvidia.com/gpu", "rdma/hca")}


def with_gpus(container: ContainerRecord, **more: Any) -> PodRecord:
    return a_pod("g", structs.replace(container, **GPU), accelerators=2.0, **more)


def a_guaranteed_one_with_gpus(**more: Any) -> PodRecord:
    return with_gpus(a_container(limit=6000, request=6000, **EQUAL_MEMORY), qos_class="Guaranteed", **more)


def test_a_pod_with_gpus_may_be_changed_with_consent_and_its_memory_never() -> None:
    assert ineligible_reason(case(with_gpus(a_container()), SHARE)) is None
    assert str(ineligible_reason(case(with_gpus(a_container())))).startswith(
        "it asks for nvidia.com/gpu, rdma/hca; only spec.resources.accelerators: Raise or Share"
    )
    assert memory_ineligible_reason(case(with_gpus(a_container()), SHARE)) is not None


def test_devices_that_do_not_compute_and_claims_stay_unchanged() -> None:
    only_hca = with_container(extended_resources=("rdma/hca",))
    assert str(ineligible_reason(case(only_hca, SHARE))).startswith("it asks for rdma/hca, and")
    claimed = structs.replace(with_gpus(a_container()), containers=(a_container(extended_resources=("claim gpus",)),))
    assert str(ineligible_reason(case(claimed, SHARE))).startswith("it has a device claim (DRA), and kubelets refuse")


def test_a_guaranteed_pod_with_gpus_may_reserve_more_unless_kueue_admitted_it() -> None:
    assert ineligible_reason(case(a_guaranteed_one_with_gpus(), SHARE)) is None
    free = accepted_range(case(a_guaranteed_one_with_gpus(), SHARE))
    assert (free.min_millicores, free.max_millicores) == (1, None)
    queued = accepted_range(case(a_guaranteed_one_with_gpus(labels={KUEUE_LABEL: "q"}), SHARE))
    assert (queued.max_millicores, queued.reason) == (6000, "it is Guaranteed and reserved 6000m")
    by_shares = ResourceSettings(control="requests", accelerators="Share")
    reason = ineligible_reason(case(a_guaranteed_one_with_gpus(), by_shares))
    assert reason == "it is Guaranteed, so its request is its limit; set spec.resources.control: limits"

"""What must not be touched is named with what would allow it; what may be is bounded as Kubernetes bounds it."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs
from support.cluster_records import GIB, a_container, a_node_record, a_pod, owned_by

from slopewise.adapters.kube.cache.records import ContainerRecord, NodeRecord, PodRecord
from slopewise.adapters.kube.workloads.accepted_range import accepted_range
from slopewise.adapters.kube.workloads.eligibility import (
    KUEUE_LABEL,
    Case,
    ineligible_reason,
    memory_ineligible_reason,
)
from slopewise.config.training_policy import ResourceSettings
from slopewise.model import CpuAllocation

LIMITS = ResourceSettings(control="limits")
LOWER = ResourceSettings(control="limits", lower_requests=True)
REQUESTS = ResourceSettings(control="requests")
EQUAL_MEMORY: dict[str, Any] = {"memory_request_bytes": GIB, "memory_limit_bytes": GIB}


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


def test_an_ordinary_pod_may_be_changed() -> None:
    assert ineligible_reason(case()) is None


@pytest.mark.parametrize(
    ("pod", "reason"),
    [
        (a_pod(deleting=True), "the pod is being deleted"),
        (a_pod(owner=owned_by("Node", "n1", "u", "v1")), "a static pod belongs to its node's kubelet"),
        (with_container(extended_resources=("nvidia.com/gpu",)), "it asks for nvidia.com/gpu, and CPU is not what"),
        (a_pod(pod_level_resources=True), "its resources are set for the whole pod"),
        (a_pod(qos_class="BestEffort"), "a BestEffort pod cannot be resized; give its container a CPU request"),
        (with_container(resize_restarts=True), "its resizePolicy restarts it when CPU changes; remove"),
        (a_pod(foreign_resizers=("vpa-updater",)), "vpa-updater resizes it too; set slopewise.dev/managed to 'false'"),
        (a_pod(annotations={"vpaUpdates": "x"}), "a VerticalPodAutoscaler sizes it; delete that"),
        (with_container(limit=None), "it has no CPU limit, and one that is added cannot be removed; set one, or spec."),
        (guaranteed(), "it is Guaranteed, so its request must stay equal to its limit; set spec.resources.lower"),
        (with_container(ready=False), "container trainer is not ready"),
        (with_container(running_since_seconds=None), "container trainer does not run yet"),
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
        (a_pod(qos_class="BestEffort"), "a BestEffort pod cannot be resized"),
        (a_pod(foreign_memory_resizers=("vpa",)), "vpa resizes its memory; it is left to that"),
        (a_pod(foreign_resizers=("vpa-updater",)), "vpa-updater resizes it too"),
        (with_container(ready=False), "container trainer is not ready"),
        (with_container(reported=None), "its node's kubelet does not report actual CPU"),
    ],
)
def test_memory_that_is_withheld_says_why(pod: PodRecord, reason: str) -> None:
    found = memory_ineligible_reason(case(pod))
    assert found is not None
    assert found.startswith(reason)


def test_memory_of_an_ordinary_pod_may_be_changed_whatever_becomes_of_its_cpu() -> None:
    for pod in (a_pod(), with_container(limit=None), with_container(resize_restarts=True)):
        assert memory_ineligible_reason(case(pod)) is None


def test_on_a_node_that_swaps_no_memory_is_changed() -> None:
    reason = memory_ineligible_reason(case(node=a_node_record(swap_bytes=2**30)))
    assert reason is not None
    assert reason.startswith("node n1 swaps: what is swapped out is not in its working set")
    assert ineligible_reason(case(node=a_node_record(swap_bytes=2**30))) is None


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


@pytest.mark.parametrize("settings", [LIMITS, LOWER, REQUESTS])
def test_where_memory_is_pinned_only_that_of_guaranteed_pods_stays(settings: ResourceSettings) -> None:
    """The static memory manager of a kubelet pins the memory of Guaranteed pods, whatever may become of their CPU."""
    told = memory_ineligible_reason(case(guaranteed(), settings))
    assert told is not None
    assert told.startswith("it is Guaranteed, and another memory request would change its QoS class")
    assert memory_ineligible_reason(case(with_container(**EQUAL_MEMORY), settings)) is None


def test_a_lost_node_holds_its_jobs() -> None:
    reason = ineligible_reason(case(node=a_node_record(ready=False)))
    assert reason == "node n1 is not ready; changes go on when it is"


def test_a_gpu_of_a_sidecar_makes_it_a_job_with_a_gpu() -> None:
    assert ineligible_reason(
        case(a_pod("p", a_container(), a_container("s", extended_resources=("a", "b", "c", "d"))))
    ) == ("it asks for a, b, c and 1 more, and CPU is not what such a job is short of; it is never changed")


def test_a_guaranteed_pod_is_refused_where_cores_are_pinned_even_if_requests_may_follow() -> None:
    node = a_node_record(static_cpu_manager=True)
    reason = ineligible_reason(case(guaranteed(), LOWER, node=node))
    assert reason is not None
    assert "static CPU manager pins cores" in reason
    assert ineligible_reason(case(a_pod(), LOWER, node=node)) is None


def test_a_pod_that_has_ended_needs_no_reason() -> None:
    assert ineligible_reason(case(a_pod(phase="Succeeded", deleting=True))) is None


def test_what_is_withheld_by_default_may_be_allowed_by_the_policy() -> None:
    assert (
        ineligible_reason(case(with_container(limit=None), ResourceSettings(control="limits", add_limits=True))) is None
    )
    assert ineligible_reason(case(with_container(limit=None), REQUESTS)) is None
    assert ineligible_reason(case(guaranteed(), LOWER)) is None


def test_shares_need_a_request() -> None:
    reason = ineligible_reason(case(with_container(request=0), REQUESTS))
    assert reason == "it has no CPU request to give shares by; set one, or spec.resources.control: limits"


def bounds(
    pod: PodRecord, settings: ResourceSettings | None = None, original: CpuAllocation | None = None
) -> tuple[int | None, int | None]:
    accepted = accepted_range(case(pod, settings, original=original))
    return accepted.min_millicores, accepted.max_millicores


def test_a_limit_goes_down_to_its_request_and_says_what_allows_less() -> None:
    accepted = accepted_range(case())
    assert (accepted.min_millicores, accepted.max_millicores) == (500, None)
    assert accepted.reason == "request 500m; spec.resources.lowerRequests: true allows less"


def test_a_limit_that_equals_its_request_may_only_rise() -> None:
    assert bounds(with_container(limit=500, request=500)) == (500, None)


def test_requests_that_may_follow_leave_limits_free() -> None:
    assert bounds(a_pod(), LOWER) == (1, None)


@pytest.mark.parametrize(
    ("containers", "least"),
    [
        ((a_container(**EQUAL_MEMORY),), 501),
        ((a_container(**EQUAL_MEMORY), a_container("s", limit=100, request=100, **EQUAL_MEMORY)), 501),
        ((a_container(**EQUAL_MEMORY), a_container("s", limit=200, request=100, **EQUAL_MEMORY)), 500),
        ((a_container(**EQUAL_MEMORY), a_container("s", limit=100, request=100)), 500),
        ((a_container(memory_limit_bytes=None),), 500),
    ],
)
def test_a_burstable_pod_never_becomes_guaranteed(containers: tuple[ContainerRecord, ...], least: int) -> None:
    assert bounds(a_pod("p", *containers)) == (least, None)


def test_a_burstable_pod_stays_apart_also_where_the_request_follows() -> None:
    assert bounds(a_pod("p", a_container(**EQUAL_MEMORY)), LOWER) == (2, None)


def test_a_guaranteed_pod_gets_back_what_it_reserved_and_no_more() -> None:
    assert bounds(guaranteed(400), LOWER, CpuAllocation(1000, 1000)) == (1, 1000)


def test_a_request_rises_to_its_limit() -> None:
    assert bounds(a_pod(), REQUESTS) == (1, 2000)
    assert bounds(a_pod("p", a_container(**EQUAL_MEMORY)), REQUESTS) == (1, 1999)
    assert bounds(with_container(limit=None), REQUESTS) == (1, None)


def test_requests_of_pods_that_kueue_admitted_never_rise_above_that() -> None:
    pod = a_pod(labels={"kueue.x-k8s.io/queue-name": "q"})
    accepted = accepted_range(case(pod, REQUESTS, original=CpuAllocation(2000, 800)))
    assert (accepted.max_millicores, accepted.reason) == (800, "Kueue admitted it with 800m")
    assert bounds(pod) == (500, None)


def test_a_pod_whose_init_container_requests_as_much_cpu_cannot_be_squeezed_by_shares() -> None:
    pod = a_pod("p", a_container(request=500), start_millicores=500)
    assert "init containers request 500m" in (ineligible_reason(case(pod, REQUESTS)) or "")
    assert ineligible_reason(case(pod, LIMITS)) is None, "a limit is the container's own"


def test_one_that_requests_less_bounds_how_far_a_request_goes_down() -> None:
    pod = a_pod("p", a_container(request=500), a_container("sidecar", request=50), start_millicores=150)
    assert ineligible_reason(case(pod, REQUESTS)) is None
    accepts = accepted_range(case(pod, REQUESTS))
    assert (accepts.min_millicores, accepts.reason.rpartition("; ")[2]) == (100, "its init containers request 150m")
    assert accepted_range(case(a_pod("p", a_container(request=500)), REQUESTS)).min_millicores == 1


SHARE = ResourceSettings(control="limits", accelerators="Share")
GPU: dict[str, Any] = {"extended_resources": ("nvidia.com/gpu", "rdma/hca")}


def with_gpus(container: ContainerRecord, **more: Any) -> PodRecord:
    return a_pod("g", structs.replace(container, **GPU), accelerators=2.0, **more)


def a_guaranteed_one_with_gpus(**more: Any) -> PodRecord:
    return with_gpus(a_container(limit=6000, request=6000, **EQUAL_MEMORY), qos_class="Guaranteed", **more)


def test_a_pod_with_gpus_may_be_changed_with_consent_and_its_memory_never() -> None:
    assert ineligible_reason(case(with_gpus(a_container()), SHARE)) is None
    assert str(ineligible_reason(case(with_gpus(a_container())))).startswith(
        "it asks for nvidia.com/gpu, rdma/hca, and"
    )
    assert memory_ineligible_reason(case(with_gpus(a_container()), SHARE)) is not None


def test_devices_that_do_not_compute_and_claims_stay_unchanged() -> None:
    only_hca = with_container(extended_resources=("rdma/hca",))
    assert str(ineligible_reason(case(only_hca, SHARE))).startswith("it asks for rdma/hca, and")
    claimed = structs.replace(with_gpus(a_container()), containers=(a_container(extended_resources=("claim gpus",)),))
    assert str(ineligible_reason(case(claimed, SHARE))).startswith("it has a device claim (DRA), and kubelets refuse")


def test_a_guaranteed_pod_with_gpus_may_reserve_more_unless_kueue_admitted_it() -> None:
    assert ineligible_reason(case(a_guaranteed_one_with_gpus(), SHARE)) is None
    assert bounds(a_guaranteed_one_with_gpus(), SHARE) == (1, None)
    assert bounds(a_guaranteed_one_with_gpus(labels={KUEUE_LABEL: "q"}), SHARE) == (1, 6000)
    by_shares = ResourceSettings(control="requests", accelerators="Share")
    reason = ineligible_reason(case(a_guaranteed_one_with_gpus(), by_shares))
    assert reason == "it is Guaranteed, so its request is its limit; set spec.resources.control: limits"


def test_a_guaranteed_pod_with_gpus_beside_a_static_cpu_manager_says_why_it_is_not_changed() -> None:
    pinned = a_node_record(static_cpu_manager=True)
    reason = ineligible_reason(case(a_guaranteed_one_with_gpus(), SHARE, node=pinned))
    assert str(reason).startswith("it is Guaranteed on node n1, whose static CPU manager pins cores and refuses every")

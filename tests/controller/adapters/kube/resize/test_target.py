"""What a resize writes to a container, and what Kubernetes would refuse for good and is therefore never sent."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from support.managed_pods import a_container, a_managed_pod

from slopewise.adapters.kube.cache.records import ManagedPod, Resources
from slopewise.adapters.kube.resize.target import Impossible, left_by_other_control, patch_body, resized, restored
from slopewise.config.training_policy import ResourceSettings
from slopewise.model import CpuAllocation, CpuControl, Resize

PLAIN = ResourceSettings()
LOWERS = ResourceSettings(lower_requests=True)
ADDS = ResourceSettings(add_limits=True)
MEMORY_FIXED = (64, 64)


def after(
    managed: ManagedPod,
    to: int,
    settings: ResourceSettings = PLAIN,
    control: CpuControl = "limits",
    original: CpuAllocation | None = None,
) -> CpuAllocation | Impossible:
    resize = Resize(managed.job_uid, "node-a", control, 2000, to, "why")
    return resized(managed, resize, original or managed.container.desired, settings)


def why_not(verdict: CpuAllocation | Impossible) -> str:
    assert isinstance(verdict, Impossible)
    return verdict.reason


class TestLimits:
    def test_a_limit_goes_below_its_request_only_with_it_and_only_where_that_is_allowed(self) -> None:
        expected = "a limit cannot go below its request of 500m; set resources.lowerRequests, or lower the request"
        assert why_not(after(a_managed_pod(), 400)) == expected
        assert after(a_managed_pod(), 400, LOWERS) == CpuAllocation(400, 400)
        assert after(a_managed_pod(), 800) == CpuAllocation(800, 500)
        assert after(a_managed_pod(), 4000, LOWERS) == CpuAllocation(4000, 500)

    @pytest.mark.parametrize(("to", "reserves"), [(300, 300), (450, 450), (500, 500), (1500, 500)])
    def test_a_lowered_request_rises_with_its_limit_and_never_above_its_original(self, to: int, reserves: int) -> None:
        squeezed = a_managed_pod(a_container(limit=200, request=200))
        assert after(squeezed, to, LOWERS, original=CpuAllocation(2000, 500)) == CpuAllocation(to, reserves)

    def test_a_container_without_a_limit_gets_one_only_where_that_is_allowed(self) -> None:
        without = a_managed_pod(a_container(limit=None, request=100))
        assert "set resources.addLimits" in why_not(after(without, 800))
        assert after(without, 800, ADDS) == CpuAllocation(800, 100)

    @pytest.mark.parametrize(
        ("settings", "expected"), [(PLAIN, CpuAllocation(501, 500)), (LOWERS, CpuAllocation(500, 499))]
    )
    def test_no_burstable_pod_becomes_guaranteed(self, settings: ResourceSettings, expected: CpuAllocation) -> None:
        fixed = a_container(memory=MEMORY_FIXED)
        assert after(a_managed_pod(fixed), 500, settings) == expected
        burstable_beside = (fixed, a_container("sidecar", memory=MEMORY_FIXED))
        assert after(a_managed_pod(fixed, containers=burstable_beside), 500, settings) == CpuAllocation(500, 500)
        guaranteed_beside = (fixed, a_container("sidecar", limit=100, request=100, memory=MEMORY_FIXED))
        assert after(a_managed_pod(fixed, containers=guaranteed_beside), 500, settings) == expected


class TestQualityOfService:
    def test_a_guaranteed_pod_keeps_request_and_limit_equal_and_reserves_no_more_than_its_original(self) -> None:
        lowered = a_managed_pod(a_container(limit=400, request=400, memory=MEMORY_FIXED), qos="Guaranteed")
        original = CpuAllocation(1000, 1000)
        assert after(lowered, 1000, LOWERS, original=original) == CpuAllocation(1000, 1000)
        assert "beyond its original 1000m" in why_not(after(lowered, 1001, LOWERS, original=original))
        pod = a_managed_pod(a_container(limit=1000, request=1000, memory=MEMORY_FIXED), qos="Guaranteed")
        assert after(pod, 400, LOWERS) == CpuAllocation(400, 400)
        assert "set resources.lowerRequests" in why_not(after(pod, 400))

    def test_what_kubernetes_would_never_take_is_impossible(self) -> None:
        guaranteed = a_managed_pod(a_container(limit=1000, request=1000), qos="Guaranteed")
        assert "use resources.control: limits" in why_not(after(guaranteed, 400, control="requests"))
        best_effort = a_managed_pod(a_container(limit=None, request=0), qos="BestEffort")
        for control in get_args(CpuControl):
            assert "BestEffort" in why_not(after(best_effort, 400, ADDS, control))


class TestRequests:
    def test_a_request_moves_alone_and_stays_within_its_limit(self) -> None:
        assert after(a_managed_pod(), 800, control="requests") == CpuAllocation(2000, 800)
        assert "above its limit of 2000m" in why_not(after(a_managed_pod(), 2001, control="requests"))
        unbounded = a_managed_pod(a_container(limit=None, request=100))
        assert after(unbounded, 9000, control="requests") == CpuAllocation(None, 9000)
        fixed = a_managed_pod(a_container(memory=MEMORY_FIXED))
        assert after(fixed, 2000, control="requests") == CpuAllocation(2000, 1999), "it would become Guaranteed"
        assert after(a_managed_pod(), 2000, control="requests") == CpuAllocation(2000, 2000)


class TestRestoring:
    def test_the_original_comes_back_but_for_a_limit_that_was_added_and_that_is_said(self) -> None:
        original = CpuAllocation(1000, 250)
        back = restored(a_managed_pod(), original, None, PLAIN)
        assert (back.resources.cpu, back.note) == (original, "")
        goal = restored(a_managed_pod(), CpuAllocation(None, 250), None, PLAIN)
        assert goal.resources.cpu == CpuAllocation(64_000, 250)
        assert goal.note == "its limit was added by us and cannot be removed; it stays, at 64000m"

    def test_an_added_limit_that_stays_makes_no_pod_guaranteed(self) -> None:
        squeezed = a_managed_pod(a_container(limit=500, request=499, memory=MEMORY_FIXED))
        ceiling = ResourceSettings.model_validate({"addLimits": True, "cpu": {"max": "2"}})
        goal = restored(squeezed, CpuAllocation(None, 2000), None, ceiling)
        assert goal.resources.cpu == CpuAllocation(2001, 2000)

    def test_without_room_the_limit_comes_back_and_the_request_as_far_as_it_is_in_effect(self) -> None:
        pod = a_managed_pod(a_container(limit=1000, request=1000, reported=CpuAllocation(300, 300)))
        goal = restored(pod, CpuAllocation(1000, 1000), None, PLAIN)
        assert goal.without_room(pod).cpu == CpuAllocation(1000, 300)
        guaranteed = structs.replace(pod, pod=structs.replace(pod.pod, qos_class="Guaranteed"))
        assert goal.without_room(guaranteed).cpu == CpuAllocation(300, 300)


@pytest.mark.parametrize(
    ("control", "has", "original", "left"),
    [
        ("requests", (500, 300), (2000, 500), True),
        ("requests", (2000, 300), (2000, 500), False),
        ("requests", (None, 300), (None, 500), False),
        # a limit that was added cannot be removed
        ("requests", (500, 500), (None, 500), True),
        ("requests", (64_000, 300), (None, 500), False),
        ("limits", (2000, 300), (2000, 500), True),
        ("limits", (2000, 900), (2000, 500), True),
        ("limits", (300, 300), (2000, 500), False),
        ("limits", (500, 499), (2000, 500), False),
        ("limits", (None, 5), (None, 500), True),
    ],
)
def test_cpu_of_the_other_control_is_found(
    control: CpuControl, has: tuple[int | None, int], original: tuple[int | None, int], left: bool
) -> None:
    container, settings = a_container(limit=has[0], request=has[1]), ResourceSettings(control=control)
    assert left_by_other_control(a_managed_pod(container), CpuAllocation(*original), settings) is left
    resized_by_others = a_managed_pod(container, foreign_resizers=("kubectl",))
    assert not left_by_other_control(resized_by_others, CpuAllocation(*original), settings)


class TestPatch:
    def test_a_restartable_init_container_is_named_as_one(self) -> None:
        pod = a_managed_pod(a_container(init=True))
        body = patch_body(pod.pod, pod.container, Resources(CpuAllocation(3000, 250), pod.container.memory))
        resources = {"limits": {"cpu": "3"}, "requests": {"cpu": "250m"}}
        assert body["spec"] == {"initContainers": [{"name": "trainer", "resources": resources}]}

    def test_a_limit_that_is_added_brings_no_request_with_it(self) -> None:
        pod = a_managed_pod(a_container(limit=None, request=0, memory=(64, None)))
        body = patch_body(pod.pod, pod.container, Resources(CpuAllocation(800, 0), pod.container.memory))
        assert body["spec"]["containers"][0]["resources"] == {"limits": {"cpu": "800m"}, "requests": {"cpu": "0"}}


millicores = st.integers(1, 4000)


@given(request=millicores, more=st.integers(0, 4000), to=millicores, original=millicores, fixed=st.booleans())
def test_whatever_is_written_is_valid(request: int, more: int, to: int, original: int, fixed: bool) -> None:
    limit = request + more
    if fixed and not more:
        limit += 1  # else it were Guaranteed
    pod = a_managed_pod(a_container(limit=limit, request=request, memory=MEMORY_FIXED if fixed else (None, None)))
    for settings in (PLAIN, LOWERS):
        written = after(pod, to, settings, original=CpuAllocation(5000, original))
        if isinstance(written, Impossible):
            assert settings is PLAIN
            assert to < request
            continue
        assert written.limit_millicores is not None
        assert written.request_millicores <= written.limit_millicores
        assert abs(written.limit_millicores - to) <= 1
        assert written.request_millicores <= max(request, original)
        assert not (fixed and written.request_millicores == written.limit_millicores)


def test_a_guaranteed_pod_with_gpus_moves_request_and_limit_together_also_beyond_its_original() -> None:
    shares = ResourceSettings(accelerators="Raise")
    container = a_container(limit=2000, request=2000)
    plain = a_managed_pod(container, qos="Guaranteed")
    with_gpus = structs.replace(plain, pod=structs.replace(plain.pod, accelerators=1.0))
    assert after(with_gpus, 6000, shares) == CpuAllocation(6000, 6000)
    assert after(with_gpus, 1500, shares) == CpuAllocation(1500, 1500)
    assert "set resources.lowerRequests" in why_not(after(with_gpus, 6000))
    assert "set resources.lowerRequests" in why_not(after(plain, 6000, shares))

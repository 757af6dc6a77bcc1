"""Changes of memory: what is written of a container, what is refused before it is sent, and how it is restored."""

from __future__ import annotations

from typing import Any

import pytest
from support.api_server import ApiServer, refusal
from support.managed_pods import MIB, STARTED, a_container, a_managed_pod, a_raw_pod, deferred
from support.resize_world import ORIGINAL, World

from slopewise.adapters.kube.cache.records import Resources
from slopewise.adapters.kube.resize.target import Impossible, restored, with_memory
from slopewise.adapters.pauses import GRANT_SECONDS
from slopewise.config.training_policy import ResourceSettings
from slopewise.model import Decision, MemoryAllocation, MemoryBound, Outcome, ResizeMemory


def a_change(bound: MemoryBound, to_mib: int, from_mib: int = 512) -> ResizeMemory:
    return ResizeMemory("j", "node-a", bound, from_mib * MIB, to_mib * MIB, "why")


def memory(request: str, limit: str) -> dict[str, dict[str, str]]:
    """Resources of a container, with the CPU of `ORIGINAL`."""
    return {"requests": {"cpu": "500m", "memory": request}, "limits": {"cpu": "2", "memory": limit}}


HAD = MemoryAllocation(512 * MIB, 1024 * MIB)
WHOLE = memory("512Mi", "1Gi")
LOWERED = memory("128Mi", "1Gi")
RAISED = memory("512Mi", "1280Mi")


@pytest.fixture
def world(server: ApiServer) -> World:
    made = World(server)
    made.put(a_raw_pod(WHOLE))
    return made


def in_error(message: str) -> dict[str, str]:
    """The condition of a kubelet that fails to carry a resize out."""
    fields = {"type": "PodResizeInProgress", "status": "True", "reason": "Error"}
    return {**fields, "lastTransitionTime": STARTED, "message": message}


class TestTarget:
    def test_only_the_one_bound_changes(self) -> None:
        pod = a_managed_pod(a_container(memory=(512, 1024)))
        assert with_memory(pod, a_change("request", 128)) == Resources(
            pod.container.desired, MemoryAllocation(128 * MIB, 1024 * MIB)
        )
        assert with_memory(pod, a_change("limit", 2048)) == Resources(
            pod.container.desired, MemoryAllocation(512 * MIB, 2048 * MIB)
        )

    def test_a_request_that_would_make_the_pod_guaranteed_is_a_byte_less(self) -> None:
        equal_cpu = a_container(limit=1000, request=1000, memory=(512, 1024))
        found = with_memory(a_managed_pod(equal_cpu), a_change("request", 1024))
        assert found == Resources(equal_cpu.desired, MemoryAllocation(1024 * MIB - 1, 1024 * MIB))
        unequal = a_container(memory=(512, 1024))
        found = with_memory(a_managed_pod(unequal), a_change("request", 1024))
        assert found == Resources(unequal.desired, MemoryAllocation(1024 * MIB, 1024 * MIB))

    @pytest.mark.parametrize(
        ("sizes", "change", "qos", "reason"),
        [
            ((512, 512), a_change("request", 128), "Guaranteed", "its pod is Guaranteed, and a resize may not"),
            ((None, None), a_change("request", 128), "Burstable", "it has no memory request, and one that is added"),
            ((512, None), a_change("limit", 1024), "Burstable", "it has no memory limit, and one that is added"),
            ((512, 1024), a_change("request", 2048), "Burstable", "its memory request of 2147483648 would be above"),
        ],
    )
    def test_what_kubernetes_would_refuse_is_impossible(
        self, sizes: tuple[int | None, int | None], change: ResizeMemory, qos: str, reason: str
    ) -> None:
        verdict = with_memory(a_managed_pod(a_container(memory=sizes), qos=qos), change)
        assert isinstance(verdict, Impossible)
        assert verdict.reason.startswith(reason)

    def test_a_part_of_the_original_that_is_not_given_stays(self) -> None:
        pod = a_managed_pod(a_container(memory=(128, 1280)))
        given = (None, HAD, MemoryAllocation(512 * MIB))
        kept = [restored(pod, ORIGINAL, each, ResourceSettings()).resources.memory for each in given]
        assert kept == [pod.container.memory, HAD, MemoryAllocation(512 * MIB, 1280 * MIB)]


class TestReported:
    def matches(self, world: World, cpu: dict[str, dict[str, str]], reported: dict[str, dict[str, str]]) -> bool:
        """Whether what was accepted counts as in effect."""
        world.put(a_raw_pod(cpu, reported=reported))
        assert world.index.seen is not None
        return world.index.seen.pod.matches_spec

    def test_memory_in_effect_is_compared_but_for_whole_pages(self, world: World) -> None:
        assert self.matches(world, WHOLE, WHOLE)
        assert not self.matches(world, LOWERED, WHOLE)
        assert not self.matches(world, WHOLE, LOWERED)
        assert "(it reports limit 2000m, request 500m, and not the accepted memory)" in (
            world.actuator.restore("j", ORIGINAL, HAD).detail
        )
        assert not self.matches(world, RAISED, WHOLE)
        assert self.matches(world, memory("100M", "200M"), memory("100M", "199999488"))
        assert self.matches(world, WHOLE, {"requests": {"cpu": "500m"}, "limits": {"cpu": "2"}}), "none is reported"


class TestPatch:
    def resize(self, world: World, change: ResizeMemory) -> Outcome[Decision]:
        return world.actuator.carry_out(change)

    @pytest.mark.parametrize(
        ("change", "patch"),
        [
            (a_change("request", 128), {"requests": {"memory": "128Mi"}}),
            (a_change("limit", 1280, 1024), {"limits": {"memory": "1280Mi"}}),
        ],
    )
    def test_it_has_the_one_bound_of_memory_alone(self, world: World, change: ResizeMemory, patch: Any) -> None:
        assert self.resize(world, change).result == "applied"
        world.index.look()
        assert world.resize(1500).result == "applied"
        assert world.patches() == [patch, {"limits": {"cpu": "1500m"}}]

    def test_a_refused_one_is_not_repeated_and_another_is(self, world: World) -> None:
        world.server.fault(refusal(403, "Forbidden", "exceeded quota: q"), method="PATCH")
        assert self.resize(world, a_change("limit", 1280, 1024)).result != "applied"
        assert self.resize(world, a_change("limit", 1280, 1024)).result != "applied"
        assert len(world.server.asked("PATCH")) == 1
        assert self.resize(world, a_change("request", 128)).result == "applied"


class TestRestore:
    def test_cpu_and_memory_go_back_in_one_patch_and_are_back_once_reported(self, world: World) -> None:
        changed: dict[str, Any] = {**LOWERED, "limits": {"cpu": "800m", "memory": "1280Mi"}}
        world.put(a_raw_pod(changed))
        assert world.actuator.restore("j", ORIGINAL, HAD).result == "accepted"
        assert (len(world.patches()), world.cpu()) == (1, memory("512Mi", "1024Mi"))
        world.put(a_raw_pod(changed))
        world.actuator.restore("j", ORIGINAL)
        assert world.patches()[1:] == [{"limits": {"cpu": "2"}}], "memory that was never changed is not written"
        world.put(a_raw_pod(WHOLE, reported=changed))
        assert world.actuator.restore("j", ORIGINAL, HAD).result == "accepted"
        world.put(a_raw_pod(WHOLE))
        assert world.actuator.restore("j", ORIGINAL, HAD).result == "applied"

    def test_a_request_without_room_is_taken_back_and_tried_again(self, world: World) -> None:
        world.put(a_raw_pod(WHOLE, reported=LOWERED, conditions=(deferred(),)))
        restored = world.actuator.restore("j", ORIGINAL, HAD)
        assert (restored.result, world.cpu()["requests"]["memory"]) == ("deferred", "128Mi")
        assert "node-a has no room for its request of 500m and its memory (no room)" in restored.detail
        world.put(a_raw_pod(world.cpu()))
        assert world.actuator.restore("j", ORIGINAL, HAD).detail.startswith("its request waits for room")
        world.clock.seconds += GRANT_SECONDS
        assert world.actuator.restore("j", ORIGINAL, HAD).result == "accepted"

    def test_a_limit_that_its_kubelet_does_not_lower_below_the_use_is_taken_back_and_stays(self, world: World) -> None:
        world.put(a_raw_pod(WHOLE, reported=RAISED, conditions=(in_error("usage is above the limit"),)))
        restored = world.actuator.restore("j", ORIGINAL, HAD)
        assert (restored.result, world.cpu()["limits"]["memory"]) == ("deferred", "1280Mi")
        world.put(a_raw_pod(world.cpu()))
        restored = world.actuator.restore("j", ORIGINAL, HAD)
        assert restored.result == "applied"
        assert restored.detail == "its raised memory limit stays: usage is above the limit"

    def test_where_the_api_server_lowers_no_limit_the_rest_goes_back(self, world: World) -> None:
        world.put(a_raw_pod({**RAISED, "requests": LOWERED["requests"]}))
        world.server.fault(refusal(422, "Invalid", "memory limits cannot be decreased"), method="PATCH")
        restored = world.actuator.restore("j", ORIGINAL, HAD)
        assert restored.result == "accepted"
        assert (world.cpu()["requests"]["memory"], world.cpu()["limits"]["memory"]) == ("512Mi", "1280Mi")
        world.put(a_raw_pod(world.cpu()))
        assert "memory limits cannot be decreased" in world.actuator.restore("j", ORIGINAL, HAD).detail

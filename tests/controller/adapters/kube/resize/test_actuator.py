"""Resizing and restoring pods over real HTTP: what is sent, what is not, and what is said of it."""

from __future__ import annotations

from typing import Any

import pytest
from support.api_server import ApiServer, Drop, Hang, refusal
from support.managed_pods import PODS, a_raw_pod, deferred, resized_by
from support.resize_world import ORIGINAL, P, World

from slopewise.adapters.kube.client.fencing import NotLeadingError
from slopewise.adapters.pauses import GRANT_SECONDS
from slopewise.config.training_policy import ResourceSettings
from slopewise.model import NO_FREEZES, CpuAllocation, Freeze, Freezes, Migrate, ResizeMemory

FOREIGN = resized_by("vpa-updater")
LATER = "2026-01-01T00:00:00Z"
RAW = a_raw_pod()
THEIRS = {"requests": {"cpu": "500m"}, "limits": {"cpu": "3"}}
ENDS = "its pod is ending; there is nothing to resize"


@pytest.fixture
def world(server: ApiServer) -> World:
    return World(server)


class TestOnePatch:
    def test_a_resize_is_one_strategic_patch_of_one_container_by_name(self, world: World) -> None:
        meta = world.server.get(P)["metadata"]
        assert world.resize().result == "applied"
        assert [each["spec"]["containers"][0]["resources"]["limits"]["cpu"] for each in world.written] == ["1500m"]
        [request] = world.server.requests
        assert (request.method, request.path, request.params) == ("PATCH", f"{P}/resize", {"fieldManager": "slopewise"})
        assert request.headers["Content-Type"] == "application/strategic-merge-patch+json"
        assert request.body == {
            "metadata": {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]},
            "spec": {"containers": [{"name": "trainer", "resources": {"limits": {"cpu": "1500m"}}}]},
        }

    def test_a_pod_that_has_it_already_is_not_written_and_without_a_mover_nothing_is_moved(self, world: World) -> None:
        outcome = world.resize(2000)
        assert (outcome.result, outcome.detail, world.server.requests) == ("applied", "it has that already", [])
        outcome = world.actuator.carry_out(Migrate("j", "node-a", "node-b", "why"))
        assert (outcome.result, outcome.detail) == (
            "infeasible",
            "nothing is moved or stopped while a policy is finalized",
        )


class TestNothingIsSent:
    def test_without_leadership(self, world: World) -> None:
        world.leads_for_checks = 0
        with pytest.raises(NotLeadingError, match="does not lead any more; nothing was sent"):
            world.resize()
        with pytest.raises(NotLeadingError):
            world.actuator.restore("j", CpuAllocation(1000, 250))

        def lose_the_lease() -> Freezes:
            world.leads_for_checks = 0
            return NO_FREEZES

        world.leads_for_checks, world.freezes = 1000, lose_the_lease
        with pytest.raises(NotLeadingError):
            world.resize()
        assert world.server.requests == []

    def test_without_a_turn_or_a_stored_original(self, world: World) -> None:
        world.turns.reason = "node-a has had its 6 resizes this minute; the next one in 8 s"
        outcome = world.resize()
        assert (outcome.result, outcome.detail) == ("deferred", world.turns.reason)
        assert world.turns.taken == [("node-a", "team-a")]
        world.turns.reason = None
        world.original = "its original resources could not be stored: no right"
        outcome = world.resize()
        assert (outcome.result, outcome.detail, world.server.requests) == ("failed", world.original, [])

    def test_under_a_freeze_of_its_node(self, world: World) -> None:
        frozen = Freezes(nodes={"node-a": Freeze("f", "Freeze", "Freeze f")})
        world.put(a_raw_pod({"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"cpu": "2", "memory": "2Gi"}}))
        world.freezes = lambda: frozen
        memory = ResizeMemory("j", "node-a", "request", 2**30, 2**29, "why")
        restored = world.actuator.restore("j", CpuAllocation(1000, 250))
        for outcome in (world.resize(), world.actuator.carry_out(memory), restored):
            assert (outcome.result, outcome.detail) == ("deferred", "frozen: Freeze f")
        assert world.server.requests == []

        world.turns.taken.clear()
        assert world.actuator.restore("j", CpuAllocation(1000, 250)).result == "deferred"
        assert world.turns.taken == [], "it is tried all the time, and others on its node wait for their turns"

        frozen = Freezes(nodes={"node-a": Freeze("f", "Recommend", "Freeze f")})
        assert (world.resize().result, world.actuator.restore("j", CpuAllocation(1000, 250)).result) == (
            "deferred",
            "accepted",
        )

    @pytest.mark.parametrize(
        ("change", "result", "said"),
        [
            ({"metadata": {"managedFields": [FOREIGN]}}, "failed", "vpa-updater has resized it; it is left to that"),
            ({"status": {"phase": "Succeeded"}}, "failed", ENDS),
            ({"metadata": {"deletionTimestamp": LATER}}, "failed", ENDS),
            (None, "failed", "its pod is gone; there is nothing to resize"),
            (
                {"status": {"containerStatuses": []}},
                "deferred",
                "its container trainer is starting or not ready; tried in the next pass",
            ),
        ],
    )
    def test_to_a_pod_that_is_not_ready_ends_is_gone_or_resized_by_somebody_else(
        self, world: World, change: dict[str, dict[str, Any]] | None, result: str, said: str
    ) -> None:
        if change is None:
            world.index.seen = None
        else:
            world.put({**RAW, **{part: {**RAW[part], **more} for part, more in change.items()}})
        outcome = world.resize()
        assert (outcome.result, outcome.detail, world.server.requests) == (result, said, [])


class TestConflicts:
    def test_after_a_conflict_the_pod_is_read_and_patched_once_more(self, world: World) -> None:
        raw = a_raw_pod()
        raw["metadata"]["labels"]["somebody"] = "was here"
        world.server.put(PODS, raw)
        assert world.resize().result == "applied"
        assert [each.method for each in world.server.requests] == ["PATCH", "GET", "PATCH"]
        assert world.cpu()["limits"] == {"cpu": "1500m"}
        world.put(a_raw_pod())
        world.server.fault(refusal(409, "Conflict", "the object has been modified"), method="PATCH", times=2)
        outcome = world.resize()
        assert (outcome.result, len(world.server.asked("PATCH"))) == ("failed", 4)
        assert "changes faster than it can be read" in outcome.detail

    @pytest.mark.parametrize(
        ("part", "change", "result", "said"),
        [
            (
                "spec",
                {"containers": a_raw_pod(THEIRS)["spec"]["containers"]},
                "failed",
                "somebody has changed its resources meanwhile; decided again in the next pass",
            ),
            ("metadata", {"labels": {}}, "infeasible", "its label slopewise.dev/managed was taken off"),
            ("metadata", {"managedFields": [FOREIGN]}, "failed", "vpa-updater has resized it; it is left to that"),
        ],
    )
    def test_changes_meanwhile(self, world: World, part: str, change: dict[str, Any], result: str, said: str) -> None:
        changed = world.server.put(PODS, {**RAW, part: {**RAW[part], **change}})
        outcome = world.resize()
        assert (outcome.result, world.cpu()) == (result, changed["spec"]["containers"][0]["resources"])
        assert outcome.detail.startswith(said)

    def test_a_pod_that_was_deleted_is_gone_and_one_of_its_name_is_not_touched(self, world: World) -> None:
        world.server.remove(P)
        assert world.resize().detail == "its pod is gone; there is nothing to resize"
        assert world.actuator.restore("j", CpuAllocation(1000, 250)).result == "gone"
        world.server.put(PODS, a_raw_pod())
        outcome = world.resize()
        assert (outcome.result, world.cpu()["limits"]) == ("failed", {"cpu": "2"})
        assert outcome.detail == "its pod was replaced; the new one is decided on in the next pass"


class TestAnswersThatAreLost:
    def test_a_patch_that_was_done_without_an_answer_is_applied_and_not_sent_again(self, world: World) -> None:
        world.server.fault(Drop(after=True), method="PATCH")
        outcome = world.resize()
        assert (outcome.result, outcome.detail) == ("applied", "the API server's answer was lost; the pod has it")
        assert [each.method for each in world.server.requests] == ["PATCH", "GET"]
        world.put(a_raw_pod())
        world.server.fault(Drop(after=True), method="PATCH")
        world.server.fault(Drop(), method="GET")
        outcome = world.resize()
        assert outcome.detail == "not known whether it was done (it closed the connection); the next pass will see"

    def test_a_patch_that_was_not_done_is_left_to_the_next_pass(self, world: World) -> None:
        world.use(ResourceSettings(), timeout_seconds=0.5)
        world.server.fault(Hang(), method="PATCH")
        outcome = world.resize()
        assert outcome.result == "failed"
        assert outcome.detail == "it was not done (nothing came in time); tried again in the next pass"
        assert [each.method for each in world.server.requests] == ["PATCH", "GET"]


class TestRefusals:
    QOS = "Pod QOS Class may not change as a result of resizing"

    def test_what_is_refused_for_good_is_not_asked_again_until_the_target_changes(self, world: World) -> None:
        world.server.fault(refusal(422, "Invalid", self.QOS), method="PATCH")
        first = world.resize()
        world.clock.seconds += 1e6
        assert (first.result, world.resize().detail) == ("infeasible", first.detail)
        assert len(world.server.requests) == 1
        world.server.fault(refusal(422, "Invalid", self.QOS), method="PATCH")
        assert world.resize(1600).result == "infeasible"
        world.put(a_raw_pod({"requests": {"cpu": "250m"}, "limits": {"cpu": "2"}}))
        assert world.resize(1600).result == "applied"

    def test_a_quota_is_asked_again_after_a_while(self, world: World) -> None:
        world.server.fault(refusal(403, "Forbidden", "exceeded quota: q"), method="PATCH")
        assert (world.resize().result, world.resize().result) == ("deferred", "deferred")
        assert len(world.server.requests) == 1
        world.clock.seconds += 30
        assert world.resize().result == "applied"


class TestRestoring:
    SQUEEZED = {"requests": {"cpu": "500m"}, "limits": {"cpu": "800m"}}
    LOWERED = {"requests": {"cpu": "100m"}, "limits": {"cpu": "100m"}}
    WHOLE = {"requests": {"cpu": "500m"}, "limits": {"cpu": "2"}}

    def test_a_limit_is_asked_back_at_once_and_is_back_once_its_kubelet_reports_it(self, world: World) -> None:
        world.put(a_raw_pod(self.SQUEEZED, ready=False))
        restored = world.actuator.restore("j", ORIGINAL)
        assert (restored.result, world.cpu()) == ("accepted", self.WHOLE), "also where its container is not ready"
        assert restored.detail == "the API server has accepted it; node-a has not reported it yet"

        world.put(a_raw_pod(self.WHOLE, reported=self.SQUEEZED))
        assert world.actuator.restore("j", ORIGINAL).result == "accepted"
        world.put(a_raw_pod(self.WHOLE))
        assert world.actuator.restore("j", ORIGINAL).result == "applied"
        assert len(world.server.requests) == 1

    def test_a_kubelet_that_does_not_follow_is_waited_for_and_that_is_said(self, world: World) -> None:
        world.put(a_raw_pod(self.WHOLE, reported=self.SQUEEZED))
        world.waited = 61.0
        restored = world.actuator.restore("j", ORIGINAL)
        assert (restored.result, world.server.requests) == ("deferred", [])
        assert restored.detail == (
            "the API server has accepted limit 2000m, request 500m; node-a does not carry it out; see whether its "
            "kubelet runs (it reports limit 800m, request 500m)"
        )

    def test_what_a_kubelet_reported_of_an_older_spec_is_not_taken_for_the_new_one(self, world: World) -> None:
        """It may have squeezed the pod, and died before it reported that."""
        raw = a_raw_pod(self.WHOLE)
        raw["status"]["observedGeneration"] = 0
        world.put(raw)
        assert world.actuator.restore("j", ORIGINAL).result == "accepted"
        world.waited = 61.0
        assert "it has not seen the last change" in world.actuator.restore("j", ORIGINAL).detail
        raw["status"]["observedGeneration"] = 1
        world.put(raw)
        assert world.actuator.restore("j", ORIGINAL).result == "applied"

    def test_a_request_without_room_is_taken_back_but_not_its_limit_and_tried_again(self, world: World) -> None:
        world.put(a_raw_pod(self.WHOLE, reported=self.LOWERED, conditions=(deferred(),)))
        restored = world.actuator.restore("j", ORIGINAL)
        assert restored.result == "deferred"
        assert restored.detail == "node-a has no room for its request of 500m (no room); tried again after 60 s"
        without_room = {"requests": {"cpu": "100m"}, "limits": {"cpu": "2"}}
        assert world.cpu() == without_room

        world.put(a_raw_pod(without_room))
        assert world.actuator.restore("j", ORIGINAL).detail == "its request waits for room on node-a; tried in 60 s"
        assert len(world.server.requests) == 1
        world.clock.seconds += GRANT_SECONDS
        assert world.actuator.restore("j", ORIGINAL).result == "accepted"
        assert world.cpu() == self.WHOLE

    @pytest.mark.parametrize("change", [{"status": {"phase": "Failed"}}, {"metadata": {"deletionTimestamp": LATER}}])
    def test_a_pod_that_ends_or_is_gone_needs_nothing(self, world: World, change: dict[str, dict[str, Any]]) -> None:
        raw = a_raw_pod(self.SQUEEZED)
        world.put({**raw, **{part: {**raw[part], **more} for part, more in change.items()}})
        assert world.actuator.restore("j", ORIGINAL).result == "gone"
        world.index.seen = None
        assert world.actuator.restore("j", ORIGINAL).result == "gone"
        assert world.server.requests == []

    def test_a_pod_that_somebody_else_resizes_keeps_what_that_gave(self, world: World) -> None:
        raw = a_raw_pod(self.SQUEEZED)
        raw["metadata"]["managedFields"] = [FOREIGN]
        world.put(raw)
        restored = world.actuator.restore("j", ORIGINAL)
        assert (restored.result, world.server.requests) == ("infeasible", [])
        assert restored.detail == "vpa-updater resizes it now, and it keeps what that gave"

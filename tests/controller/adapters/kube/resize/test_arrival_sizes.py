"""Gated pods that get the CPU of their promise before they are released, and their owners' CPU back in the end."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from support.api_server import ApiServer, Drop, refusal
from support.gated_pods import Stage, is_gated
from support.growths import GROWTHS
from support.managed_pods import PODS

from slopewise.adapters.kube.client.fencing import NotLeadingError
from slopewise.adapters.kube.resize.actuator import KubeActuator
from slopewise.adapters.kube.resize.arrival_sizes import ArrivalSizer
from slopewise.adapters.kube.state.job_memory import KubeMemory
from slopewise.config.training_policy import ResourceSettings
from slopewise.feedback.restore import RestoreReport, due, restore_originals
from slopewise.model import CpuAllocation, JobMemory, MemoryState, Move, Outcome, Place

TRAIN = "uid-of-train:0"
OWNERS = {"requests": {"cpu": "500m"}, "limits": {"cpu": "2"}}


class Turns:
    def take(self, node: str, namespace: str) -> str | None:
        return None


@pytest.fixture
def stage() -> Iterator[Stage]:
    with ApiServer() as server:
        stage = Stage(server)
        stage.put_job()
        stage.put_pod("train-x", gated=True)
        yield stage


def place(stage: Stage, millicores: int | None = 800, autoscaler: str | None = None) -> Outcome[Move]:
    sizer = ArrivalSizer(
        "training", stage.api, stage, stage.memories.job_growths, ResourceSettings(), autoscaler_of=lambda _: autoscaler
    )
    move = Place(TRAIN, "node-b", "why", request_millicores=millicores)
    return stage.gates.place(move, partial(sizer.size, move))


def memory_of(stage: Stage) -> KubeMemory:
    return KubeMemory("training", stage.memories.job_growths, stage)


def restore(stage: Stage) -> RestoreReport:
    memory = memory_of(stage)
    actuator = KubeActuator(stage.api, stage, ResourceSettings(), Turns(), stage.clock, memory.original)
    return restore_originals(memory, actuator)


def resources(stage: Stage, name: str = "train-x") -> dict[str, Any]:
    found: dict[str, Any] = stage.pod(name)["spec"]["containers"][0]["resources"]
    return found


def stored(stage: Stage) -> dict[str, Any]:
    """The pod's part of its JobGrowth."""
    stage.memories.writer.write()
    pod: dict[str, Any] = stage.server.get(f"{GROWTHS}/train")["status"]["pods"][0]
    return pod


class TestSizing:
    def test_the_pod_has_its_size_before_it_is_released_and_the_outcome_says_so(self, stage: Stage) -> None:
        outcome = place(stage)
        assert (outcome.result, outcome.detail) == (
            "applied",
            "may run on node-b only; with a CPU request of 800m, not 500m",
        )
        assert resources(stage) == {"requests": {"cpu": "800m"}, "limits": {"cpu": "2"}}
        assert not is_gated(stage.pod("train-x"))
        written = [each.path for each in stage.server.asked("PATCH", "train") if "/pods/" in each.path]
        assert [path.rpartition("/")[2].partition("?")[0] for path in written] == ["resize", "train-x"]

    def test_a_size_above_the_limit_raises_the_limit(self, stage: Stage) -> None:
        place(stage, 3000)
        assert resources(stage) == {"requests": {"cpu": "3"}, "limits": {"cpu": "3"}}

    def test_what_it_came_with_is_stored_before_it_is_sized(self, stage: Stage) -> None:
        stage.server.fault(Drop(), method="PATCH", path="/resize$")
        place(stage)
        assert stored(stage)["cameWith"] == {"cpuLimit": "2", "cpuRequest": "500m"}
        assert resources(stage) == OWNERS

    def test_without_a_size_nothing_is_written_but_the_gate(self, stage: Stage) -> None:
        assert place(stage, None).detail == "may run on node-b only"
        assert stage.server.asked("PATCH", "/resize$") == []

    @pytest.mark.parametrize(
        ("status", "reason", "message"),
        [
            (403, "Forbidden", "exceeded quota: q, requested: requests.cpu=300m"),
            (422, "Invalid", "spec: Forbidden: pod updates may not change fields"),
            (500, "InternalError", "etcd"),
        ],
    )
    def test_one_that_is_refused_starts_with_what_it_came_with(
        self, stage: Stage, status: int, reason: str, message: str
    ) -> None:
        stage.server.fault(refusal(status, reason, message), method="PATCH", path="/resize$")
        outcome = place(stage)
        assert outcome.result == "applied"
        assert message in outcome.detail
        assert (is_gated(stage.pod("train-x")), resources(stage)) == (False, OWNERS)

    def test_of_one_that_is_refused_nothing_is_to_be_restored(self, stage: Stage) -> None:
        stage.server.fault(refusal(403, "Forbidden", "exceeded quota: q"), method="PATCH", path="/resize$")
        place(stage)
        assert "cameWith" not in stored(stage)
        assert not memory_of(stage).holds_originals()

    def test_one_whose_own_cpu_cannot_be_stored_is_not_sized(self, stage: Stage) -> None:
        stage.server.fault(refusal(403, "Forbidden", "no rights"), method="POST", path="/jobgrowths$")
        outcome = place(stage)
        assert "could not be stored" in outcome.detail
        assert (outcome.result, resources(stage)) == ("applied", OWNERS)
        assert stage.server.asked("PATCH", "/resize$") == []

    def test_a_replica_that_does_not_lead_writes_nothing(self, stage: Stage) -> None:
        stage.leads = False
        with pytest.raises(NotLeadingError):
            place(stage)
        assert resources(stage) == OWNERS

    def test_one_that_an_autoscaler_scales_is_left_to_that(self, stage: Stage) -> None:
        assert "HorizontalPodAutoscaler web" in place(stage, autoscaler="web").detail
        assert resources(stage) == OWNERS

    def test_what_kueue_admitted_stays(self, stage: Stage) -> None:
        stage.put_pod("train-x", gated=True, labels={"kueue.x-k8s.io/queue-name": "q"})
        assert "Kueue admitted it with 500m" in place(stage).detail
        assert resources(stage) == OWNERS

    def test_a_job_that_was_changed_in_an_earlier_pod_is_not_sized(self, stage: Stage) -> None:
        place(stage)
        memory = memory_of(stage)
        memory.load()
        memory.save(MemoryState({TRAIN: JobMemory(original=CpuAllocation(2000, 800))}))
        stage.end("train-x")
        stage.server.remove(f"{PODS}/train-x")
        stage.put_pod("train-y", gated=True, created="2026-01-01T01:00:00Z")
        assert "earlier pod" in place(stage).detail
        assert resources(stage, "train-y") == OWNERS


class TestRestoring:
    def test_its_owners_cpu_comes_back_and_not_the_size(self, stage: Stage) -> None:
        place(stage)
        stage.schedule("train-x", "node-b")
        memory = memory_of(stage)
        known = memory.load().jobs[TRAIN]
        memory.save(MemoryState({TRAIN: known.altered(original=CpuAllocation(2000, 800))}))
        assert memory.original(TRAIN) == CpuAllocation(2000, 800)
        restore(stage)
        assert resources(stage) == OWNERS
        assert restore(stage).restored.keys() == {TRAIN}
        assert {"cameWith", "original"}.isdisjoint(stored(stage))

    def test_a_leader_that_dies_between_the_size_and_the_release_leaves_it_restorable(self, stage: Stage) -> None:
        stage.server.fault(refusal(500, "InternalError", "etcd"), method="PATCH", path="/train-x$")
        place(stage)
        assert (is_gated(stage.pod("train-x")), resources(stage)["requests"]) == (True, {"cpu": "800m"})
        stage.restart()
        assert due(memory_of(stage).load(), "Recommend", 1.0, ()) == [TRAIN]
        restore(stage)
        assert resources(stage) == OWNERS

    def test_the_next_leader_sizes_it_again_and_keeps_what_its_owner_gave(self, stage: Stage) -> None:
        stage.server.fault(refusal(500, "InternalError", "etcd"), method="PATCH", path="/train-x$")
        place(stage)
        stage.restart()
        memory_of(stage).load()
        place(stage, 900)
        assert resources(stage)["requests"] == {"cpu": "900m"}
        assert memory_of(stage).load().jobs[TRAIN].came_with == CpuAllocation(2000, 500)

    def test_a_leader_that_dies_before_the_size_restores_nothing_else(self, stage: Stage) -> None:
        stage.server.fault(Drop(), method="PATCH", path="/resize$")
        place(stage)
        stage.restart()
        restore(stage)
        assert resources(stage) == OWNERS
        assert not memory_of(stage).holds_originals()

    def test_the_memory_of_a_pass_that_sized_it_keeps_what_it_came_with(self, stage: Stage) -> None:
        memory = memory_of(stage)
        state = memory.load()
        place(stage)
        memory.save(MemoryState({**state.jobs, TRAIN: JobMemory(streak=1)}))
        assert memory.load().jobs[TRAIN] == JobMemory(streak=1, came_with=CpuAllocation(2000, 500))

    def test_another_policy_takes_over_what_it_came_with(self, stage: Stage) -> None:
        place(stage)
        other = KubeMemory("other", stage.memories.job_growths, stage)
        other.load()
        other.save(MemoryState({TRAIN: JobMemory()}))
        assert other.load().jobs[TRAIN].came_with == CpuAllocation(2000, 500)

"""After a pass: whose status is written at once, and which events are told."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from support.api_server import ApiServer
from support.growths import GROWTHS, Pods, Replica
from support.worlds import START, a_job, a_snapshot, known

from controller.adapters.kube.events import Event, EventRecorder
from controller.adapters.kube.memory import KubeMemory
from controller.adapters.kube.policies import PolicyDocument, parse_policy, policy_path
from controller.adapters.kube.reporting import StatusReporter, tell_invalid
from controller.model import (
    CpuAllocation,
    Decisions,
    Job,
    JobMemory,
    JobState,
    MemoryState,
    MissingEvaluation,
    Outcome,
    OutcomeResult,
    PassReport,
    Resize,
    Withheld,
)
from controller.policy_status import Conflict
from controller.restoring import GivenBack
from controller.settings import TrainingPolicySpec


@dataclass
class Told:
    """Keeps the events instead of sending them."""

    events: list[Event] = field(default_factory=list)

    def emit(self, event: Event) -> None:
        self.events.append(event)

    def of(self, kind: str) -> list[tuple[str, str]]:
        return [(event.reason, event.note) for event in self.events if event.about.kind == kind]


class World:
    """One policy over some workloads, and the passes that a test makes up."""

    def __init__(self, server: ApiServer) -> None:
        self.server = server
        self.pods = Pods()
        self.replica = Replica(server.client(), self.pods)
        self.memory: KubeMemory = self.replica.memory()
        self.told = Told()
        policy = server.put(policy_path(), {"metadata": {"name": "training"}, "spec": {}})
        record = parse_policy(policy)
        self.document = PolicyDocument(record)
        self.reporter = StatusReporter(
            "training",
            TrainingPolicySpec(mode="Auto"),
            self.replica.book,
            self.pods,
            as_recorder(self.told),
            document=self.document,
            policy_uid=record.uid,
        )

    def a_pass(self, *jobs: Job, at: float = START, memory: dict[str, JobMemory] | None = None, **more: Any) -> None:
        state = MemoryState({job.uid: known(job_class="NL") for job in jobs} | (memory or {}))
        self.memory.load()
        self.memory.save(state)
        decisions = Decisions("flowcon", (), {}, state)
        snapshot = a_snapshot(jobs, at=at)
        self.reporter(PassReport(at, "flowcon", {}, at + 60, snapshot=snapshot, decisions=decisions, **more))

    def growth(self, name: str) -> Any:
        return self.server.get(f"{GROWTHS}/{name}")["status"]


def as_recorder(told: Told) -> EventRecorder:
    recorder: Any = told
    return recorder


@pytest.fixture
def world() -> Iterator[World]:
    with ApiServer() as server:
        yield World(server)


def a_resize(uid: str, **more: Any) -> Resize:
    return Resize(uid, "n1", "limits", 2000, 1500, "class NL", **more)


def test_a_growth_tells_what_is_shown_and_what_is_remembered(world: World) -> None:
    uid = world.pods.add("train")
    world.a_pass(a_job(uid, limit=2000), withheld=(Withheld(a_resize(uid), "floor", "floor: 1"),))
    world.replica.writer.write()
    status = world.growth("train")
    assert (status["state"], status["cpu"], status["class"]) == ("Training", "2 → 1.5", "NL")
    assert '"job_class":"NL"' in status["pods"][0]["memory"]
    finished = {each["type"]: each["status"] for each in status["conditions"]}["Finished"]
    assert finished == "False"


def test_a_pass_in_which_only_figures_moved_is_progress(world: World) -> None:
    uid = world.pods.add("train")
    world.a_pass(a_job(uid, limit=2000))
    assert world.replica.writer.urgent() == {"uid-of-train", self_key(world)}
    world.replica.writer.write()
    world.a_pass(a_job(uid, limit=2000, level=0.7, at=START + 5), at=START + 5)
    assert world.replica.writer.urgent() == set()
    world.a_pass(a_job(uid, limit=2000, state=JobState.FINISHED, at=START + 9), at=START + 9)
    assert "uid-of-train" in world.replica.writer.urgent()


def self_key(world: World) -> str:
    return world.document.key


def test_every_outcome_is_told_on_its_pod_and_all_together_on_the_policy(world: World) -> None:
    good, bad = world.pods.add("good"), world.pods.add("bad")
    outcomes = (
        Outcome(a_resize(good), "applied"),
        Outcome(a_resize(bad), "infeasible", "the node is too small"),
    )
    world.a_pass(a_job(good), a_job(bad), outcomes=outcomes)
    assert world.told.of("Pod") == [
        ("Resized", "CPU limits 2 to 1500m: class NL"),
        ("ResizeInfeasible", "CPU limits 2 to 1500m: the node is too small"),
    ]
    assert world.told.of("TrainingPolicy") == [
        ("Resized", "1 job: CPU limits 2 to 1500m: class NL"),
        ("ResizeInfeasible", "1 job: CPU limits 2 to 1500m: the node is too small"),
    ]


def test_resizes_that_fail_twice_running_degrade_the_policy_until_they_do_not(world: World) -> None:
    uid = world.pods.add("a")
    refused = (Outcome(a_resize(uid), "failed", "our account may not resize it; grant it patch on pods/resize"),)
    told = []
    for outcomes in (refused, refused, ()):
        world.a_pass(a_job(uid), outcomes=outcomes)
        world.replica.writer.write()
        conditions = world.server.get(policy_path("training"))["status"]["conditions"]
        told.append(next((each["status"], each["message"]) for each in conditions if each["type"] == "Degraded"))
    assert [status for status, _ in told] == ["False", "True", "False"]
    assert told[1][1] == "resizes fail: 1 job: our account may not resize it; grant it patch on pods/resize"


def test_a_pod_that_waits_on_is_told_once_and_again_when_it_waits_anew(world: World) -> None:
    uid = world.pods.add("train")
    results: tuple[OutcomeResult, ...] = ("deferred", "deferred", "applied", "deferred")
    for result in results:
        world.a_pass(a_job(uid), outcomes=(Outcome(a_resize(uid), result, "why"),))
    assert [reason for reason, _ in world.told.of("Pod")] == ["ResizeDeferred", "Resized", "ResizeDeferred"]
    assert len(world.told.of("TrainingPolicy")) == 4


def test_what_is_taken_back_has_a_name_of_its_own(world: World) -> None:
    uid = world.pods.add("train")
    world.a_pass(a_job(uid), outcomes=(Outcome(a_resize(uid, gives_back=True), "applied"),))
    assert world.told.of("Pod")[0][0] == "ResizeTakenBack"


def test_a_withheld_resize_is_told_when_the_guard_changes_and_not_in_every_pass(world: World) -> None:
    uid = world.pods.add("train")
    for guard in ("paused", "hands_off", "hands_off", "cooldown", "hands_off", "accepted_range"):
        world.a_pass(a_job(uid), withheld=(Withheld(a_resize(uid), guard, f"{guard}: 1"),))
    assert [note.rpartition(": ")[0].rpartition(": ")[2] for _, note in world.told.of("Pod")] == [
        "hands_off",
        "accepted_range",
    ]


def test_a_job_that_reports_no_loss_is_an_event_once_with_each_cause(world: World) -> None:
    uid = world.pods.add("train")
    causes = [MissingEvaluation("ScrapeFails", f"port {port} refuses") for port in (1, 1, 2)]
    for cause in causes:
        warned = replace(
            a_job(uid, level=None), missing_evaluation=cause, warnings=(f"reports no loss: {cause.message}",)
        )
        world.a_pass(warned)
    world.a_pass(replace(warned, warnings=()))  # another pod of the workload says it
    assert world.told.of("Pod") == [("NoLoss", "port 1 refuses"), ("NoLoss", "port 2 refuses")]


def test_a_harmed_job_is_told_once_and_not_again_after_a_restart(world: World) -> None:
    uid = world.pods.add("train")
    alone = known(alone_until_seconds=START + 600, alone_because="OOM-killed after its limit went down")
    world.a_pass(a_job(uid))
    world.a_pass(a_job(uid), memory={uid: alone})
    world.a_pass(a_job(uid), memory={uid: alone})
    assert world.told.of("Pod") == [("Harmed", "OOM-killed after its limit went down")]
    again = World(world.server)
    again.pods = world.pods
    again.a_pass(a_job(uid), memory={uid: alone})
    assert again.told.of("Pod") == []


def test_an_outage_is_told_when_it_begins_and_when_it_ends(world: World) -> None:
    held = PassReport(START, "flowcon", {}, START + 60, held="Prometheus cannot be reached")
    world.reporter(held)
    world.reporter(held)
    world.replica.writer.write()
    conditions = world.server.get(policy_path("training"))["status"]["conditions"]
    assert {each["type"]: each["reason"] for each in conditions}["Ready"] == "CannotObserve"
    world.a_pass()
    assert [reason for reason, _ in world.told.of("TrainingPolicy")] == ["MetricsUnavailable", "MetricsAvailable"]


def test_a_policy_that_fails_is_told_when_it_begins_and_when_it_ends(world: World) -> None:
    failed = PassReport(START, "mine", {}, START + 60, held="policy mine failed: KeyError: 'x'", policy_failed=True)
    world.reporter(failed)
    world.reporter(failed)
    world.replica.writer.write()
    conditions = world.server.get(policy_path("training"))["status"]["conditions"]
    assert {each["type"]: each["reason"] for each in conditions}["Ready"] == "PolicyFailed"
    world.a_pass()
    assert world.told.of("TrainingPolicy") == [
        ("PolicyFailed", "policy mine failed: KeyError: 'x'"),
        ("PolicyDecides", "the policy decides again"),
    ]


def test_a_conflict_is_an_event_when_it_changes_and_a_condition_until_it_ends(world: World) -> None:
    conflict = Conflict(1, ("a/x",), "older")
    world.reporter.set_conflict(conflict)
    world.reporter.set_conflict(replace(conflict))
    assert world.told.of("TrainingPolicy") == [("Conflict", "1 pods are managed by older: a/x")]
    world.a_pass()
    assert world.replica.writer.urgent() == {self_key(world)}
    world.replica.writer.write()
    world.reporter.set_conflict(None)
    world.a_pass()
    assert world.replica.writer.urgent() == {self_key(world)}


def test_originals_that_came_back_or_did_not_are_told(world: World) -> None:
    back, stuck = world.pods.add("back"), world.pods.add("stuck")
    world.reporter.tell_restored(GivenBack(restored={back: ""}, failed={stuck: "no right"}))
    assert world.told.of("Pod") == [("Restored", "its original resources are back"), ("RestoreFailed", "no right")]


def test_an_invalid_policy_is_an_event(world: World) -> None:
    tell_invalid(as_recorder(world.told), "training", "u", "TrainingPolicy training: no")
    assert world.told.of("TrainingPolicy") == [("InvalidSpec", "TrainingPolicy training: no")]


def test_a_workload_that_another_policy_has_is_not_written(world: World) -> None:
    uid = world.pods.add("train")
    other = world.replica.memory("other")
    other.load()
    other.save(MemoryState({uid: known(original=CpuAllocation(1000, 500))}))
    document = world.replica.book.find("uid-of-train")
    assert document is not None
    world.replica.writer.waiting.clear()
    state = MemoryState({uid: known()})
    report = PassReport(
        START, "flowcon", {}, START, snapshot=a_snapshot([a_job(uid)]), decisions=Decisions("f", (), {}, state)
    )
    world.reporter(report)
    assert world.replica.writer.waiting.keys() == {self_key(world)}

"""What is told of moves: events on the workload or the arriving pod, once each, and a history that survives."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from support.api_server import ApiServer
from support.growths import GROWTHS, Pods, Replica
from support.worlds import START, a_job, a_snapshot, known

from controller.adapters.kube.events import Event
from controller.adapters.kube.memory import KubeMemory
from controller.adapters.kube.reporting import StatusReporter
from controller.model import (
    Absence,
    Decisions,
    Job,
    MemoryState,
    Migrate,
    Mobility,
    MoveNews,
    MoveOutcome,
    MoveRecord,
    MoveUnderWay,
    Outcome,
    OutcomeResult,
    PassReport,
    Place,
    Resize,
    WithheldMove,
)
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
        recorder: Any = self.told
        self.reporter = StatusReporter(
            "training", TrainingPolicySpec(mode="Auto"), self.replica.book, self.pods, recorder, clock=lambda: START
        )

    def a_pass(
        self,
        *jobs: Job,
        at: float = START,
        moving: tuple[MoveUnderWay, ...] = (),
        absent: tuple[Absence, ...] = (),
        **more: Any,
    ) -> None:
        state = MemoryState({job.uid: known() for job in jobs})
        self.memory.load()
        self.memory.save(state)
        snapshot = replace(a_snapshot(jobs, at=at), moving=moving, absent=absent)
        decisions = Decisions("specon", (), {}, state)
        self.reporter(PassReport(at, "specon", {}, at + 60, snapshot=snapshot, decisions=decisions, **more))

    def status(self, name: str) -> Any:
        self.replica.writer.write()
        return self.server.get(f"{GROWTHS}/{name}")["status"]

    def history(self, name: str) -> list[tuple[str, str, str]]:
        return [(each["action"], each["change"], each["result"]) for each in self.status(name).get("history", ())]


@pytest.fixture
def world() -> Iterator[World]:
    with ApiServer() as server:
        yield World(server)


def migrate(uid: str, result: OutcomeResult = "applied", detail: str = "") -> MoveOutcome:
    return MoveOutcome(Migrate(uid, "n1", "n2", "n2 is emptier; gains 120 s, costs 9 s"), result, detail)


def begun(uid: str) -> MoveNews:
    return MoveNews(uid, "begun", MoveRecord(START, "n1", "n2"), "moves from n1 to n2: n2 is emptier")


def test_a_move_is_told_on_its_workload_from_begin_to_end(world: World) -> None:
    uid = world.pods.add("train")
    world.a_pass(a_job(uid), moves=(migrate(uid),), moves_told=(begun(uid),))
    record = MoveRecord(START, "n1", "n2", resumed_at_seconds=START + 4, resumed_on="n2", steps_lost=0.0)
    told = MoveNews(uid, "resumed", record, "resumed on n2 after 4 s, no step lost")
    world.a_pass(a_job(uid), at=START + 4, moves_told=(told,))
    assert world.told.of("Job") == [
        ("MoveBegun", "moves from n1 to n2: n2 is emptier"),
        ("Moved", "resumed on n2 after 4 s, no step lost"),
    ]
    assert [(event.action, event.warning) for event in world.told.events] == [("Move", False), ("Move", False)]
    assert world.history("train") == [("Move", "n1 to n2", "begun"), ("Move", "n1 to n2", "resumed")]


def test_a_move_that_did_harm_is_a_warning(world: World) -> None:
    uid = world.pods.add("train")
    world.a_pass(a_job(uid))
    record = MoveRecord(START, "n1", "n2", harm="crashed on resume")
    news = MoveNews(uid, "harmed", record, "crashed on resume; it is not moved again", warning=True)
    world.a_pass(a_job(uid), moves_told=(news,))
    assert [(event.reason, event.warning) for event in world.told.events] == [("MoveHarmed", True)]


def test_a_job_that_has_no_pod_while_it_is_moved_is_told_of_all_the_same(world: World) -> None:
    uid = world.pods.add("train")
    world.a_pass(a_job(uid))
    world.pods.by_job.clear()
    world.a_pass(moves_told=(begun(uid),))
    assert world.told.of("Job") == [("MoveBegun", "moves from n1 to n2: n2 is emptier")]


@pytest.mark.parametrize(
    ("result", "reason"),
    [("deferred", "MoveDeferred"), ("infeasible", "MoveInfeasible"), ("failed", "MoveFailed")],
)
def test_a_move_that_could_not_be_begun_is_told_once_while_it_stays_so(
    world: World, result: OutcomeResult, reason: str
) -> None:
    uid = world.pods.add("train")
    for at in (START, START + 60):
        world.a_pass(a_job(uid), at=at, moves=(migrate(uid, result, "budget a says no"),))
    assert world.told.of("Job") == [(reason, "n1 to n2: budget a says no")]
    assert world.history("train") == [("Move", "n1 to n2", result)]
    world.a_pass(a_job(uid))
    world.a_pass(a_job(uid), moves=(migrate(uid, result, "budget a says no"),))
    assert len(world.told.of("Job")) == 2


def test_a_placement_is_told_on_the_pod_and_kept_until_its_job_is_known(world: World) -> None:
    uid = world.pods.add("train")
    world.a_pass(moves=(MoveOutcome(Place(uid, "n2", "emptiest"), "applied"),))
    assert world.told.of("Pod") == [("Placed", "on n2: emptiest")]
    world.a_pass(a_job(uid))
    assert world.history("train") == [("Place", "on n2", "applied")]


def test_a_move_that_somebody_could_make_possible_is_told_when_it_is_withheld(world: World) -> None:
    uid = world.pods.add("train")
    stays = WithheldMove(Migrate(uid, "n1", "n2", "why"), "stays", "a bare pod does not come back")
    for _ in range(2):
        world.a_pass(a_job(uid), moves_withheld=(stays,))
    assert world.told.of("Job") == [("MoveWithheld", "n1 to n2: a bare pod does not come back")]
    assert world.history("train") == [("Move", "n1 to n2", "withheld")]
    assert world.status("train")["reason"] == "not moved to n2: a bare pod does not come back"
    grace = WithheldMove(Migrate(uid, "n1", "n2", "why"), "grace", "30 s of grace, and saving takes 40 s")
    world.a_pass(a_job(uid), moves_withheld=(grace,))
    assert len(world.told.of("Job")) == 2


@pytest.mark.parametrize("guard", ["gain", "minimum_stay", "concurrency", "migration_disabled"])
def test_what_holds_moves_back_in_every_other_pass_is_no_event(world: World, guard: str) -> None:
    uid = world.pods.add("train")
    world.a_pass(a_job(uid), moves_withheld=(WithheldMove(Migrate(uid, "n1", "n2", "why"), guard, "because"),))
    assert world.told.events == []


def test_a_job_that_is_being_moved_says_so_in_its_reason(world: World) -> None:
    uid = world.pods.add("train")
    world.a_pass(a_job(uid), moves=(migrate(uid),), moves_told=(begun(uid),))
    assert world.status("train")["lastAction"] == "move to n2 applied"
    world.a_pass(a_job(uid), moving=(MoveUnderWay(uid, "n1", "n2", START, "saving and ending"),))
    assert world.status("train")["reason"] == "moves to n2: saving and ending"


def test_resizes_are_in_the_history_too_and_it_survives_a_new_leader(world: World) -> None:
    uid = world.pods.add("train")
    resize = Resize(uid, "n1", "limits", 2000, 500, "class CL")
    world.a_pass(a_job(uid, limit=2000), outcomes=(Outcome(resize, "applied"),))
    assert world.history("train") == [("Resize", "limits 2 to 500m", "applied")]
    successor = Replica(world.server.client(), world.pods)
    successor.memory().load()
    document = successor.book.find(uid.rpartition(":")[0])
    assert document is not None
    assert [each["change"] for each in document.render()["history"]] == ["limits 2 to 500m"]


def test_a_history_that_somebody_has_damaged_begins_anew_and_costs_nothing_else(world: World) -> None:
    uid = world.pods.add("train")
    resize = Resize(uid, "n1", "limits", 2000, 500, "class CL")
    world.a_pass(a_job(uid, limit=2000), outcomes=(Outcome(resize, "applied"),))
    world.replica.writer.write()
    growth = world.server.get(f"{GROWTHS}/train")
    growth["status"]["history"] = [{"time": "once upon a time"}]
    world.server.put(GROWTHS, growth)
    successor = Replica(world.server.client(), world.pods)
    assert uid in successor.memory().load().jobs
    document = successor.book.find(uid.rpartition(":")[0])
    assert document is not None
    assert "history" not in document.render()
    assert document.render()["state"] == "Training"


def test_a_move_that_is_refused_alike_after_a_while_is_told_once(world: World) -> None:
    uid = world.pods.add("train")
    no = migrate(uid, "deferred", "budget a says no")
    waits = replace(a_job(uid), mobility=Mobility("suspend", backoff_reason="until 12:05:00 UTC: budget a says no"))
    withheld = WithheldMove(no.move, "move_backoff", "move_backoff: until 12:05:00 UTC: budget a says no")
    world.a_pass(a_job(uid), moves=(no,))
    world.a_pass(waits, moves_withheld=(withheld,))
    world.a_pass(a_job(uid), moves=(no,))
    assert world.told.of("Job") == [("MoveDeferred", "n1 to n2: budget a says no")]
    world.a_pass(a_job(uid))
    world.a_pass(a_job(uid), moves=(no,))
    assert len(world.told.of("Job")) == 2, "what had been granted meanwhile is another refusal"


def test_a_workload_without_a_pod_says_why_and_no_longer_what_its_last_pod_did(world: World) -> None:
    uid = world.pods.add("train")
    world.a_pass(a_job(uid))
    assert world.status("train")["state"] == "Training"

    moving = Absence(uid, "moving", "moves to n2: waiting for its replacement")
    world.a_pass(at=START + 5, absent=(moving,))
    status = world.status("train")
    assert (status["state"], status["reason"]) == ("Moving", moving.reason)

    world.a_pass(at=START + 20, absent=(Absence(uid, "suspended", "its Job is suspended, and not by Slopewise"),))
    status = world.status("train")
    assert (status["state"], status["cpu"], status["eta"]) == ("Suspended", "-", "-")
    assert status.keys().isdisjoint({"node", "cpuMillicores", "cpuWantedMillicores"})
    conditions = {each["type"]: (each["status"], each["reason"]) for each in status["conditions"]}
    assert conditions["Managed"] == ("False", "Suspended")
    assert conditions["Finished"] == ("False", "Suspended")
    assert conditions["MetricsAvailable"] == ("Unknown", "Suspended")

    world.a_pass(a_job(uid), at=START + 40)
    status = world.status("train")
    assert (status["state"], status["node"]) == ("Training", "n1")


def test_a_workload_that_waits_without_a_pod_is_written_once(world: World) -> None:
    uid = world.pods.add("train")
    world.a_pass(a_job(uid))
    suspended = (Absence(uid, "suspended", "its Job is suspended, and not by Slopewise"),)
    world.a_pass(at=START + 20, absent=suspended)
    world.status("train")
    world.a_pass(at=START + 40, absent=suspended)
    assert world.replica.writer.waiting == {}


def test_a_gang_of_which_a_pod_is_there_is_shown_by_that(world: World) -> None:
    here, away = (world.pods.add("gang", slot) for slot in ("0", "1"))
    world.a_pass(a_job(here), a_job(away))
    world.a_pass(a_job(here), absent=(Absence(away, "waiting", "its pod gang-1 waits for a node"),))
    assert world.status("gang")["state"] == "Training"


def test_a_workload_that_ended_while_no_pass_looked_is_finished(world: World) -> None:
    uid = world.pods.add("train")
    world.a_pass(a_job(uid))
    world.a_pass(at=START + 20, absent=(Absence(uid, "failed", "its Job has failed"),))
    status = world.status("train")
    conditions = {each["type"]: (each["status"], each["reason"]) for each in status["conditions"]}
    assert (status["state"], conditions["Finished"]) == ("Failed", ("True", "Failed"))

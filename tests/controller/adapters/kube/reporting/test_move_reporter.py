"""What is reported of moves: events on the workload or the arriving pod, once each, and a history that survives."""

from __future__ import annotations

from typing import Any

import pytest
from support.growths import GROWTHS, Replica
from support.pass_reports import ReportedPasses
from support.worlds import START, a_job

from slopewise.model import (
    Absence,
    Migrate,
    Movability,
    Move,
    MoveEvent,
    MoveRecord,
    MoveUnderWay,
    Outcome,
    OutcomeResult,
    Place,
    Resize,
    Withheld,
)


def migrate(uid: str, result: OutcomeResult = "applied", detail: str = "") -> Outcome[Move]:
    return Outcome(Migrate(uid, "n1", "n2", "n2 is emptier; gains 120 s, costs 9 s"), result, detail)


def begun(uid: str) -> MoveEvent:
    return MoveEvent(uid, "begun", MoveRecord(START, "n1", "n2"), "moves from n1 to n2: n2 is emptier")


def test_a_move_is_reported_on_its_workload_from_begin_to_end(passes: ReportedPasses) -> None:
    uid = passes.pods.add("train")
    passes.a_pass(a_job(uid))
    pods, passes.pods.by_job = passes.pods.by_job, {}
    passes.a_pass(outcomes=(migrate(uid),), events=(begun(uid),))  # it has no pod while it is moved
    passes.pods.by_job = pods
    passes.a_pass(a_job(uid), moving=(MoveUnderWay(uid, "n1", "n2", START, "saving and ending"),))
    assert passes.status("train")["reason"] == "moves to n2: saving and ending"
    record = MoveRecord(START, "n1", "n2", resumed_at_seconds=START + 4, resumed_on="n2", steps_lost=0.0)
    found = MoveEvent(uid, "resumed", record, "resumed on n2 after 4 s, no step lost")
    passes.a_pass(a_job(uid), at=START + 4, events=(found,))
    harm = MoveEvent(uid, "failed", MoveRecord(START, "n1", "n2", failure="x"), "crashed on resume", warning=True)
    passes.a_pass(a_job(uid), at=START + 9, events=(harm,))
    assert passes.recorder.of("Job") == [
        ("MoveBegun", "moves from n1 to n2: n2 is emptier"),
        ("Moved", "resumed on n2 after 4 s, no step lost"),
        ("MoveFailed", "crashed on resume"),
    ]
    assert {event.action for event in passes.recorder.events} == {"Move"}
    assert [event.warning for event in passes.recorder.events] == [False, False, True]
    changes = [("Move", "n1 to n2", result) for result in ("begun", "resumed", "failed")]
    assert passes.history("train") == changes


@pytest.mark.parametrize(
    ("result", "reason"), [("deferred", "MoveDeferred"), ("infeasible", "MoveInfeasible"), ("failed", "MoveFailed")]
)
def test_a_move_that_cannot_begin_is_reported_once(passes: ReportedPasses, result: OutcomeResult, reason: str) -> None:
    uid = passes.pods.add("train")
    for at in (START, START + 60):
        passes.a_pass(a_job(uid), at=at, outcomes=(migrate(uid, result, "budget a says no"),))
    assert passes.recorder.of("Job") == [(reason, "n1 to n2: budget a says no")]
    assert passes.history("train") == [("Move", "n1 to n2", result)]
    passes.a_pass(a_job(uid))
    passes.a_pass(a_job(uid), outcomes=(migrate(uid, result, "budget a says no"),))
    assert len(passes.recorder.of("Job")) == 2


def test_a_placement_is_reported_on_the_pod_and_kept_until_its_job_is_known(passes: ReportedPasses) -> None:
    uid = passes.pods.add("train")
    passes.a_pass(outcomes=(Outcome(Place(uid, "n2", "emptiest"), "applied", "may run on n2 only"),))
    assert passes.recorder.of("Pod") == [("Placed", "on n2: may run on n2 only; emptiest")]
    passes.a_pass(a_job(uid))
    assert passes.history("train") == [("Place", "on n2", "applied")]


def test_a_move_that_somebody_could_make_possible_is_reported_when_it_is_withheld(passes: ReportedPasses) -> None:
    uid = passes.pods.add("train")
    stays = Withheld(Migrate(uid, "n1", "n2", "why"), "move_blocked", "a bare pod does not come back")
    for _ in range(2):
        passes.a_pass(a_job(uid), withheld=(stays,))
    assert passes.recorder.of("Job") == [("MoveWithheld", "n1 to n2: a bare pod does not come back")]
    assert passes.history("train") == [("Move", "n1 to n2", "withheld")]
    assert passes.status("train")["reason"] == "not moved to n2: a bare pod does not come back"
    grace = Withheld(Migrate(uid, "n1", "n2", "why"), "grace", "30 s of grace, and saving takes 40 s")
    passes.a_pass(a_job(uid), withheld=(grace,))
    assert len(passes.recorder.of("Job")) == 2


@pytest.mark.parametrize("guard", ["gain", "minimum_stay", "concurrency", "migration_disabled"])
def test_what_holds_moves_back_in_every_other_pass_is_no_event(passes: ReportedPasses, guard: str) -> None:
    uid = passes.pods.add("train")
    passes.a_pass(a_job(uid), withheld=(Withheld(Migrate(uid, "n1", "n2", "why"), guard, "because"),))
    assert passes.recorder.events == []


def test_resizes_are_in_the_history_which_survives_a_new_leader_and_restarts_if_damaged(passes: ReportedPasses) -> None:
    uid = passes.pods.add("train")
    resize = Resize(uid, "n1", "limits", 2000, 500, "class CL")
    passes.a_pass(a_job(uid, limit=2000), outcomes=(Outcome(resize, "applied"),))
    assert passes.history("train") == [("Resize", "limits 2 to 500m", "applied")]

    def of_a_new_leader() -> Any:
        successor = Replica(passes.server.client(), passes.pods)
        assert uid in successor.memory().load().jobs
        document = successor.job_growths.find(uid.rpartition(":")[0])
        assert document is not None
        return document.render()

    assert [each["change"] for each in of_a_new_leader()["history"]] == ["limits 2 to 500m"]
    growth = passes.server.get(f"{GROWTHS}/train")
    growth["status"]["history"] = [{"time": "once upon a time"}]
    passes.server.put(GROWTHS, growth)
    damaged = of_a_new_leader()
    assert ("history" in damaged, damaged["state"]) == (False, "Training")


def test_a_move_that_is_refused_alike_after_a_while_is_reported_once(passes: ReportedPasses) -> None:
    uid = passes.pods.add("train")
    no = migrate(uid, "deferred", "budget a says no")
    waits = a_job(uid).altered(movability=Movability("suspend", backoff_reason="until 12:05:00 UTC: budget a says no"))
    withheld = Withheld(no.decision, "move_backoff", "move_backoff: until 12:05:00 UTC: budget a says no")
    passes.a_pass(a_job(uid), outcomes=(no,))
    passes.a_pass(waits, withheld=(withheld,))
    passes.a_pass(a_job(uid), outcomes=(no,))
    assert passes.recorder.of("Job") == [("MoveDeferred", "n1 to n2: budget a says no")]
    passes.a_pass(a_job(uid))
    passes.a_pass(a_job(uid), outcomes=(no,))
    assert len(passes.recorder.of("Job")) == 2, "what had been granted meanwhile is another refusal"


def test_a_workload_without_a_pod_says_why_and_no_longer_what_its_last_pod_did(passes: ReportedPasses) -> None:
    uid = passes.pods.add("train")
    passes.a_pass(a_job(uid))
    assert passes.status("train")["state"] == "Training"

    moving = Absence(uid, "moving", "moves to n2: waiting for its replacement")
    passes.a_pass(at=START + 5, absent=(moving,))
    status = passes.status("train")
    assert (status["state"], status["reason"]) == ("Moving", moving.reason)

    passes.a_pass(at=START + 20, absent=(Absence(uid, "suspended", "its Job is suspended, and not by Slopewise"),))
    status = passes.status("train")
    assert (status["state"], status["cpu"], status["eta"]) == ("Suspended", "-", "-")
    assert status.keys().isdisjoint({"node", "cpuMillicores", "cpuWantedMillicores"})
    conditions = {each["type"]: (each["status"], each["reason"]) for each in status["conditions"]}
    assert conditions["Managed"] == ("False", "Suspended")
    assert conditions["Finished"] == ("False", "Suspended")
    assert conditions["MetricsAvailable"] == ("Unknown", "Suspended")
    passes.a_pass(at=START + 30, absent=(Absence(uid, "suspended", status["reason"]),))
    assert passes.replica.writer.waiting.keys() == {passes.document.key}, "it is written once"

    passes.a_pass(a_job(uid), at=START + 40)
    status = passes.status("train")
    assert (status["state"], status["node"]) == ("Training", "n1")

    passes.a_pass(at=START + 60, absent=(Absence(uid, "failed", "its Job has failed"),))
    status = passes.status("train")  # it ended while no pass looked
    conditions = {each["type"]: (each["status"], each["reason"]) for each in status["conditions"]}
    assert (status["state"], conditions["Finished"]) == ("Failed", ("True", "Failed"))


def test_a_gang_of_which_a_pod_is_there_is_shown_by_that(passes: ReportedPasses) -> None:
    here, away = (passes.pods.add("gang", slot) for slot in ("0", "1"))
    passes.a_pass(a_job(here), a_job(away))
    passes.a_pass(a_job(here), absent=(Absence(away, "waiting", "its pod gang-1 waits for a node"),))
    assert passes.status("gang")["state"] == "Training"

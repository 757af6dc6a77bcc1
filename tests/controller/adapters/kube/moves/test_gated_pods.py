"""Pods behind our gate: placed by a policy, let go by the next tick or after 30 s, unpinned where no room is."""

from __future__ import annotations

import pytest
from support.api_server import ApiServer, refusal
from support.gated_pods import JOBS, Stage, is_gated, pinned_nodes, wished_nodes
from support.managed_pods import PODS

from slopewise.adapters.kube.cache.records import MOVE, PLACED
from slopewise.adapters.kube.moves.gated_pods import MAX_WAIT_SECONDS, STRANDED_SECONDS
from slopewise.adapters.kube.moves.node_predicates import pinned
from slopewise.adapters.pauses import POD_SECONDS
from slopewise.guards.framework import ATTEMPTS
from slopewise.model import Arrival, ClusterSnapshot, Move, Outcome, PassReport, Place, Results, Withheld

TRAIN = "uid-of-train:0"
PLACE = Place(TRAIN, "node-b", "why")


@pytest.fixture
def stage(server: ApiServer) -> Stage:
    stage = Stage(server)
    stage.put_job()
    stage.put_pod("train-x", gated=True)
    return stage


def place(stage: Stage, job_uid: str = TRAIN) -> Outcome[Move]:
    return stage.gates.place(Place(job_uid, "node-b", "why"))


def a_report(
    *waiting: str,
    outcomes: tuple[Outcome[Move], ...] = (),
    withheld: tuple[Withheld[Move], ...] = (),
    held: bool = False,
) -> PassReport:
    arrivals = tuple(Arrival(uid, uid, "team-a", 0.0) for uid in waiting)
    snapshot = None if held else ClusterSnapshot(0.0, (), (), waiting=arrivals)
    results = Results(outcomes, withheld)
    return PassReport(
        0.0, "draps", {}, 20.0, held="no Prometheus" if held else None, snapshot=snapshot, results=results
    )


class TestPlacing:
    @pytest.mark.parametrize("why", ["its Job counts an eviction", "no opt-in", "its owner cannot be read", "bare"])
    def test_a_pod_that_may_not_be_evicted_or_not_come_back_is_only_wished_there(self, stage: Stage, why: str) -> None:
        uid = TRAIN
        if why == "its Job counts an eviction":
            stage.put_job(podFailurePolicy={})
        elif why == "no opt-in":
            stage.moves_allowed = False
        elif why == "bare":
            uid = f"{stage.put_pod('train-x', owner=None, gated=True)['metadata']['uid']}:0"
        else:
            stage.server.fault(refusal(403, "Forbidden", "no"), method="GET", path="/jobs/train$")
        outcome = place(stage, uid)
        pod = stage.pod("train-x")
        assert (outcome.result, outcome.detail) == ("applied", "goes to node-b if that takes it")
        assert (is_gated(pod), pinned_nodes(pod), wished_nodes(pod)) == (False, [], ["node-b"])

    def test_an_owner_is_asked_once_for_all_of_its_pods(self, stage: Stage) -> None:
        index = "batch.kubernetes.io/job-completion-index"
        stage.server.remove(f"{PODS}/train-x")
        for number in range(3):
            stage.put_pod(f"train-{number}", gated=True, labels={index: str(number)})
        assert [place(stage, f"uid-of-train:{number}").result for number in range(3)] == ["applied"] * 3
        assert len(stage.server.asked("GET", "/jobs/train$")) == 1

    def test_it_waits_for_its_turn(self, stage: Stage) -> None:
        stage.wait = "30 resizes in 60 s are allowed on node node-b; the next in 2 s"
        assert place(stage).result == "deferred"
        assert is_gated(stage.pod("train-x"))

    def test_a_pod_that_is_gone_is_reported(self, stage: Stage) -> None:
        stage.server.remove(f"{PODS}/train-x")
        assert place(stage).result == "failed"


class TestLettingGo:
    def test_a_replica_that_does_not_lead_touches_nothing(self, stage: Stage) -> None:
        stage.leads = False
        stage.tick()
        stage.tick(10 * MAX_WAIT_SECONDS)
        assert stage.server.asked("PATCH") == []

    def test_after_half_a_minute_the_default_scheduler_has_it(self, stage: Stage) -> None:
        stage.tick()
        stage.clock.seconds += MAX_WAIT_SECONDS - 1
        stage.restart()  # a new leader counts again
        stage.tick()
        stage.tick(MAX_WAIT_SECONDS - 1)
        assert is_gated(stage.pod("train-x"))
        stage.tick(1)
        assert not is_gated(stage.pod("train-x"))
        assert (pinned_nodes(stage.pod("train-x")), wished_nodes(stage.pod("train-x"))) == ([], [])
        assert [(each.reason, each.about.name, each.warning) for each in stage.events] == [
            ("GateReleased", "train-x", False)
        ]

    @pytest.mark.parametrize(
        ("report", "kept"),
        [
            (a_report(TRAIN), False),
            (a_report(TRAIN, outcomes=(Outcome(PLACE, "failed"),)), False),
            (a_report(TRAIN, outcomes=(Outcome(PLACE, "infeasible"),)), False),
            (a_report(TRAIN, outcomes=(Outcome(PLACE, "deferred"),)), True),
            (a_report(TRAIN, withheld=(Withheld(PLACE, "refused_node", "a taint"),)), False),
            (a_report(TRAIN, withheld=(Withheld(PLACE, ATTEMPTS, "its turn comes in the next pass"),)), True),
            (a_report(held=True), True),
        ],
        ids=["not placed", "failed", "infeasible", "its turn comes soon", "withheld", "put off", "a held pass"],
    )
    def test_a_pass_that_did_not_place_it_lets_it_go(self, stage: Stage, report: PassReport, kept: bool) -> None:
        stage.gates.after_pass(report)
        stage.tick()
        assert is_gated(stage.pod("train-x")) is kept

    def test_what_failed_is_tried_again_and_keeps_no_other_waiting(self, stage: Stage) -> None:
        stage.put_pod("other", owner=None, gated=True)
        stage.tick()
        stage.server.fault(refusal(500, "InternalError", "etcd"), method="PATCH", path="/pods/other$")
        stage.tick(MAX_WAIT_SECONDS)
        assert (is_gated(stage.pod("other")), is_gated(stage.pod("train-x"))) == (True, False)
        stage.tick(POD_SECONDS - 1)
        assert is_gated(stage.pod("other"))
        stage.tick(POD_SECONDS)
        assert not is_gated(stage.pod("other"))

    def test_a_pod_of_a_job_that_is_moved_by_suspending_is_let_go_at_once(self, stage: Stage) -> None:
        raw = stage.server.get(f"{JOBS}/train")
        raw["metadata"]["annotations"] = {MOVE: "{}"}
        stage.server.put(JOBS, raw)
        stage.tick()
        assert not is_gated(stage.pod("train-x"))


class TestStrandedPins:
    def strand(self, stage: Stage) -> None:
        place(stage)
        stage.strand("train-x")
        stage.tick()

    @pytest.mark.parametrize("by_a_new_leader", [False, True])
    def test_a_pin_without_room_is_evicted_and_replaced_anywhere(self, stage: Stage, by_a_new_leader: bool) -> None:
        self.strand(stage)
        if by_a_new_leader:
            stage.restart()
            stage.tick()
        stage.tick(STRANDED_SECONDS - 1)
        assert stage.evictions_sent() == []
        stage.tick(1)
        assert stage.evictions_sent() == ["train-x"]
        stage.put_pod("train-y", gated=True, created="2026-01-01T00:05:00Z")
        assert place(stage).result == "failed"
        stage.tick()
        pod = stage.pod("train-y")
        assert (is_gated(pod), pinned_nodes(pod)) == (False, [])

    def test_the_time_behind_the_gate_is_no_time_without_room(self, stage: Stage) -> None:
        stage.tick()
        stage.clock.seconds += MAX_WAIT_SECONDS - 1
        self.strand(stage)
        assert pinned_nodes(stage.pod("train-x")) == ["node-b"]
        stage.tick(STRANDED_SECONDS - 1)
        assert stage.evictions_sent() == []
        stage.tick(1)
        assert stage.evictions_sent() == ["train-x"]

    def test_a_pin_that_found_room_meanwhile_stays(self, stage: Stage) -> None:
        self.strand(stage)
        stage.schedule("train-x", "node-b")
        stage.tick(STRANDED_SECONDS)
        assert stage.evictions_sent() == []

    @pytest.mark.parametrize(
        ("owner", "says", "pinned_to"),
        [
            (None, {}, None),
            ("train", {PLACED: "node-b"}, None),
            (None, {PLACED: "node-b"}, "node-b"),
            ("train", {PLACED: "node-b"}, "node-c"),
        ],
    )
    def test_a_pod_that_we_did_not_pin_is_never_evicted_whatever_it_says(
        self, stage: Stage, owner: str | None, says: dict[str, str], pinned_to: str | None
    ) -> None:
        affinity = None if pinned_to is None else pinned(None, pinned_to)
        stage.put_pod("copied", owner=owner, node=None, annotations=says, affinity=affinity)
        stage.strand("copied")
        stage.tick()
        stage.tick(10 * STRANDED_SECONDS)
        assert stage.evictions_sent() == []

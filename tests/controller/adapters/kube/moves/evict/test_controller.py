"""Moves by eviction over real HTTP: begun whole or not at all, gone on with by each leader, always over some day."""

from __future__ import annotations

import threading

import pytest
from msgspec import structs
from support.api_server import ApiServer, Drop, Reply, refusal
from support.gated_pods import JOBS, NODES, STATEFUL_SETS, Stage, a_raw_job, is_gated, pinned_nodes
from support.managed_pods import PODS

from slopewise.adapters.kube.cache.parsing import parse_pod
from slopewise.adapters.kube.client.fencing import FrozenError, NotLeadingError, unless
from slopewise.adapters.kube.moves.evict.controller import MAX_MOVE_SECONDS, OWNER_CHECK_SECONDS, EvictionController
from slopewise.adapters.kube.moves.evict.replacements import AWAITED, ENDING, EVICT_SECONDS
from slopewise.adapters.kube.moves.gated_pods import MAX_WAIT_SECONDS, STRANDED_SECONDS
from slopewise.adapters.pauses import POD_SECONDS
from slopewise.model import Migrate, Move, MoveUnderWay, Outcome

TRAIN = "uid-of-train:0"
OPT_IN = "Slopewise evicts pods only in namespaces that are labelled so"
SEVERAL_BUDGETS = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
INDEX = "batch.kubernetes.io/job-completion-index"
LATER = "2026-01-01T00:05:00Z"
SET_INDEX = {"apps.kubernetes.io/pod-index": "0"}
NO_BUDGET = refusal(
    429,
    "TooManyRequests",
    "Cannot evict pod as it would violate the pod's disruption budget.",
    ({"reason": "DisruptionBudget", "message": "The disruption budget train needs 1 healthy pods"},),
)


@pytest.fixture
def stage(server: ApiServer) -> Stage:
    stage = Stage(server)
    stage.put_job()
    stage.put_pod("train-x")
    return stage


def begin(stage: Stage, job_uid: str = TRAIN, node: str = "node-b", members: tuple[str, ...] = ()) -> Outcome[Move]:
    managed = stage.find(job_uid)
    assert managed is not None
    return stage.evictions.begin(Migrate(job_uid, "node-a", node, "why"), managed, "draps", members)


def begin_and_replace(stage: Stage) -> None:
    """Begin the move of `train-x`, which ends; its Job makes the gated `train-y`."""
    begin(stage)
    stage.end("train-x")
    stage.put_pod("train-y", gated=True, created=LATER)


def strand_replacement(stage: Stage) -> None:
    """The replacement is pinned to a node that has no room for it."""
    begin_and_replace(stage)
    stage.tick()
    stage.strand("train-y")
    stage.tick()


def steps(stage: Stage) -> list[str]:
    return [each.step for each in stage.evictions.under_way()]


class TestBeginning:
    def test_the_intent_is_stored_before_the_pod_is_evicted(self, stage: Stage) -> None:
        assert begin(stage).result == "applied"
        writes = [
            (request.method, request.path.rpartition("/")[2])
            for request in stage.server.requests
            if request.method in ("POST", "PATCH") and not (request.body.get("deleteOptions") or {}).get("dryRun")
        ]
        assert writes == [("POST", "jobgrowths"), ("PATCH", "status"), ("POST", "eviction")]
        stored = stage.stored_move()
        assert stored is not None
        assert (stored["node"], stored["pods"][0]["name"], stored["pods"][0]["node"]) == ("node-b", "train-x", "node-a")
        assert stage.evictions.under_way() == (
            MoveUnderWay(TRAIN, "node-a", "node-b", int(stage.clock.seconds), ENDING),
        )

    @pytest.mark.parametrize(
        ("reply", "result", "words"),
        [
            (NO_BUDGET, "deferred", "The disruption budget train needs 1 healthy pods"),
            (
                refusal(500, "InternalError", SEVERAL_BUDGETS),
                "infeasible",
                "several PodDisruptionBudgets select its pod",
            ),
            (refusal(403, "Forbidden", "no create on pods/eviction"), "infeasible", "apply manifests/components/moves"),
            (
                refusal(422, "Invalid", f"ValidatingAdmissionPolicy 'slopewise-evictions' denied request: {OPT_IN}"),
                "infeasible",
                OPT_IN,
            ),
            (
                refusal(403, "Forbidden", 'admission webhook "w" denied the request: not here'),
                "infeasible",
                "an admission webhook denies it; allow it there for our account",
            ),
        ],
    )
    def test_a_refused_dry_run_is_reported_alone(self, stage: Stage, reply: Reply, result: str, words: str) -> None:
        stage.server.fault(reply, method="POST", path="/eviction$")
        outcome = begin(stage)
        assert outcome.result == result
        assert words in outcome.detail
        assert "ValidatingAdmissionPolicy" not in outcome.detail, "ours speaks for itself"
        assert (stage.evictions_sent(), stage.evictions.under_way()) == ([], ())
        assert stage.server.asked("PATCH") == []

    def test_a_pod_that_would_not_come_back_is_never_evicted(self, stage: Stage) -> None:
        bare = stage.put_pod("bare", owner=None)["metadata"]["uid"]
        of_a_daemon = stage.put_pod("agent", owner="agents", kind="DaemonSet")["metadata"]["uid"]
        stage.put_job(podFailurePolicy={})
        for job_uid in (TRAIN, f"{bare}:0", f"{of_a_daemon}:0"):
            assert begin(stage, job_uid).result == "infeasible"
        assert stage.server.asked("POST", "/eviction$") == []

    def test_it_waits_for_its_turn(self, stage: Stage) -> None:
        stage.wait = "the next in 2 s"
        assert begin(stage) == Outcome(Migrate(TRAIN, "node-a", "node-b", "why"), "deferred", "the next in 2 s")

    @pytest.mark.parametrize(("method", "path", "status"), [("GET", "/jobs/train$", 500), ("PATCH", "/status$", 403)])
    def test_without_owner_or_intent_none_is_evicted(self, stage: Stage, method: str, path: str, status: int) -> None:
        stage.server.fault(refusal(status, "", "no"), method=method, path=path)
        assert begin(stage).result == "failed"
        assert (stage.evictions_sent(), stage.evictions.under_way()) == ([], ())

    def test_who_loses_the_lease_before_the_intent_is_stored_leaves_none(self, stage: Stage) -> None:
        stage.leads_until = lambda: not stage.evictions_sent(dry_run=True)
        with pytest.raises(NotLeadingError):
            begin(stage)
        assert (stage.evictions.under_way(), stage.evictions_sent()) == ((), [])

    @pytest.mark.parametrize("stored", ["before the dry run", "after the dry run", "after the intent"])
    def test_a_freeze_until_the_intent_is_stored_leaves_none_a_later_one_all(self, stage: Stage, stored: str) -> None:
        def frozen() -> str | None:
            assert stage.evictions.under_way() == ()
            is_stored = {
                "before the dry run": True,
                "after the dry run": bool(stage.evictions_sent(dry_run=True)),
                "after the intent": bool(stage.server.asked("POST", "/jobgrowths$")),
            }
            return "frozen" if is_stored[stored] else None

        with unless(frozen):
            if stored == "after the intent":
                assert begin(stage).result == "applied"
                return
            with pytest.raises(FrozenError):
                begin(stage)
        assert (stage.evictions.under_way(), stage.evictions_sent(), stage.server.asked("PATCH")) == ((), [], [])

    def test_two_moves_of_one_job_are_one(self, stage: Stage) -> None:
        begin(stage)
        assert begin(stage, node="node-c").result == "deferred"
        assert stage.evictions_sent() == ["train-x"]

    def test_an_eviction_that_is_refused_after_all_leaves_no_intent(self, stage: Stage) -> None:
        stage.server.fault(Reply(200, {}), method="POST", path="/eviction$")  # the dry run
        stage.server.fault(NO_BUDGET, method="POST", path="/eviction$")
        assert begin(stage).result == "deferred"
        stage.tick()
        assert (stage.evictions.under_way(), stage.stored_move()) == ((), None)

    def test_a_tick_waits_for_no_pass_that_begins_a_move(self, stage: Stage) -> None:
        ticks_ended: list[bool] = []

        def tick_meanwhile(node: str, namespace: str) -> None:
            keeper = threading.Thread(target=stage.evictions.tick, daemon=True)
            keeper.start()
            keeper.join(10)
            ticks_ended.append(not keeper.is_alive())

        stage.evictions = EvictionController(
            stage.api, stage.pods, stage.nodes, stage.owners, stage.memories.job_growths, stage.gate_releaser,
            tick_meanwhile, stage.clock,
        )  # fmt: skip
        assert (begin(stage).result, ticks_ended) == ("applied", [True])


class TestReplacements:
    def test_the_replacement_is_pinned_to_the_target_and_it_is_over_once_that_has_a_node(self, stage: Stage) -> None:
        begin(stage)
        stage.tick()
        assert steps(stage) == [ENDING]
        stage.end("train-x")
        stage.tick()
        assert steps(stage) == [AWAITED]
        stage.put_pod("train-y", gated=True, created=LATER)
        stage.tick()
        pod = stage.pod("train-y")
        assert (is_gated(pod), pinned_nodes(pod)) == (False, ["node-b"])
        stage.tick()
        assert steps(stage) == ["starting on node-b"]
        stage.schedule("train-y", "node-b")
        managed = stage.find(TRAIN)
        assert managed is not None
        assert (managed.pod.name, managed.pod.node) == ("train-y", "node-b")
        stage.tick()
        assert (steps(stage), stage.stored_move()) == ([], None)

    @pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
    def test_a_stateful_sets_pod_is_replaced_by_one_of_its_name_even_on_exit_0(self, stage: Stage, phase: str) -> None:
        stage.server.put(STATEFUL_SETS, {**a_raw_job("served"), "apiVersion": "apps/v1", "kind": "StatefulSet"})
        stage.put_pod("served-0", owner="served", kind="StatefulSet", labels=SET_INDEX)
        begin(stage, "uid-of-served:0")
        stage.tick()
        stage.end("served-0", phase)
        stage.tick()
        assert steps(stage) == [AWAITED]
        stage.server.remove(f"{PODS}/served-0")
        stage.put_pod("served-0", owner="served", kind="StatefulSet", gated=True, created=LATER, labels=SET_INDEX)
        stage.tick()
        assert pinned_nodes(stage.pod("served-0")) == ["node-b"]

    def test_no_other_user_opens_it(self, stage: Stage) -> None:
        begin_and_replace(stage)
        stage.gates.tick()
        stage.clock.seconds += MAX_WAIT_SECONDS
        stage.gates.tick()
        assert is_gated(stage.pod("train-y"))

    def test_a_trainer_that_exits_0_has_finished(self, stage: Stage) -> None:
        begin(stage)
        stage.end("train-x", "Succeeded")
        stage.tick()
        assert (steps(stage), stage.stored_move()) == ([], None)

    def test_the_pod_of_another_job_is_not_taken_for_it(self, stage: Stage) -> None:
        stage.put_job("other")
        begin(stage)
        stage.end("train-x")
        stage.put_pod("other-x", owner="other", gated=True, created=LATER)
        stage.tick()
        assert (is_gated(stage.pod("other-x")), steps(stage)) == (True, [AWAITED])


class TestGangs:
    @pytest.fixture
    def gang(self, stage: Stage) -> Stage:
        stage.server.remove(f"{PODS}/train-x")
        for number in range(3):
            stage.put_pod(f"train-{number}", labels={INDEX: str(number)})
        return stage

    MEMBERS = tuple(f"uid-of-train:{number}" for number in range(3))

    def test_one_that_may_not_be_evicted_keeps_them_all(self, gang: Stage) -> None:
        gang.server.fault(NO_BUDGET, method="POST", path="/train-2/eviction$")
        assert begin(gang, self.MEMBERS[0], members=self.MEMBERS).result == "deferred"
        assert gang.evictions_sent() == []

    def test_one_whose_eviction_fails_later_follows_its_siblings(self, gang: Stage) -> None:
        gang.server.fault(Reply(200, {}), method="POST", path="/train-2/eviction$")  # the dry run
        gang.server.fault(NO_BUDGET, method="POST", path="/train-2/eviction$")
        assert begin(gang, self.MEMBERS[0], members=self.MEMBERS).result == "applied"
        gang.tick(POD_SECONDS)
        assert gang.evictions_sent() == ["train-0", "train-1", "train-2", "train-2"]

    def test_all_pods_leave_with_the_first_and_each_replacement_is_pinned(self, gang: Stage) -> None:
        outcomes = [begin(gang, uid, members=self.MEMBERS) for uid in self.MEMBERS]
        assert [outcome.result for outcome in outcomes] == ["applied"] * 3
        assert gang.evictions_sent() == ["train-0", "train-1", "train-2"]
        assert {each.job_uid for each in gang.evictions.under_way()} == set(self.MEMBERS)
        for number in range(3):
            gang.end(f"train-{number}")
            gang.put_pod(f"new-{number}", gated=True, created=LATER, labels={INDEX: str(number)})
        gang.tick()
        gang.schedule("new-0", "node-b")
        gang.tick()
        assert {each.job_uid for each in gang.evictions.under_way()} == set(self.MEMBERS[1:])
        assert [pinned_nodes(gang.pod(f"new-{number}")) for number in range(3)] == [["node-b"]] * 3
        for number in range(3):
            gang.schedule(f"new-{number}", "node-b")
        gang.tick()
        assert steps(gang) == []


class TestTrouble:
    def test_a_replica_that_does_not_lead_touches_nothing(self, stage: Stage) -> None:
        begin_and_replace(stage)
        stage.leads = False
        stage.tick(10.0)
        assert is_gated(stage.pod("train-y"))

    def test_a_leader_that_comes_too_late_leaves_the_pod_where_it_is(self, stage: Stage) -> None:
        stage.server.fault(Reply(200, {}), method="POST", path="/eviction$")  # the dry run
        stage.server.fault(Drop(), method="POST", path="/eviction$")
        begin(stage)
        stage.restart()
        stage.tick(EVICT_SECONDS + 1)
        assert "deletionTimestamp" not in stage.pod("train-x")["metadata"]
        assert (steps(stage), stage.stored_move()) == ([], None)

    @pytest.mark.parametrize("is_gone", [False, True])
    def test_a_target_that_takes_no_pod_any_more_is_not_pinned_to(self, stage: Stage, is_gone: bool) -> None:
        begin(stage)
        stage.end("train-x")
        if is_gone:
            stage.server.remove(f"{NODES}/node-b")
        else:
            stage.put_node("node-b", ready=False)
        stage.put_pod("train-y", gated=True, created=LATER)
        stage.tick()
        assert (is_gated(stage.pod("train-y")), pinned_nodes(stage.pod("train-y"))) == (False, [])
        assert [each.reason for each in stage.events] == ["MoveGivenUp"]
        stage.tick()
        assert steps(stage) == []

    def test_a_target_that_has_filled_up_is_given_up(self, stage: Stage) -> None:
        strand_replacement(stage)
        stage.tick(STRANDED_SECONDS)
        assert stage.evictions_sent() == ["train-x", "train-y"]
        assert stage.evictions.under_way()[0].node == ""
        assert [(each.reason, each.about.kind) for each in stage.events] == [
            ("MoveGivenUp", "Job"),
            ("Unpinned", "Pod"),
        ]
        assert stage.history() == [("node-a to node-b", "cancelled"), ("node-b to any node", "released")]
        stage.restart()
        stage.put_pod("train-z", gated=True, created="2026-01-01T00:10:00Z")
        stage.tick()
        pod = stage.pod("train-z")
        assert (is_gated(pod), pinned_nodes(pod)) == (False, [])
        stage.tick()
        assert steps(stage) == []

    def test_a_pod_of_another_namespace_that_names_its_owner_gives_up_no_node(self, stage: Stage) -> None:
        begin(stage)
        [document] = stage.memories.job_growths.moving()
        thief = structs.replace(parse_pod(stage.pod("train-x")), namespace="evil", uid="thief")
        stage.evictions.give_up_node(thief)
        assert document.move is not None
        assert document.move.node == "node-b"

    def test_a_pod_that_was_evicted_for_want_of_room_is_still_under_way_while_it_goes(self, stage: Stage) -> None:
        strand_replacement(stage)
        stage.server.fault(refusal(500, "InternalError", "etcd"), method="POST", path="/train-y/eviction$")
        stage.tick(STRANDED_SECONDS)
        stage.tick()
        assert steps(stage) == [AWAITED]

    @pytest.mark.parametrize("what", ["gone", "ended", "replaced"])
    def test_an_owner_that_makes_no_more_pods_ends_the_move(self, stage: Stage, what: str) -> None:
        begin(stage)
        stage.end("train-x")
        stage.tick()
        assert steps(stage) == [AWAITED]
        if what == "gone":
            stage.server.remove(f"{JOBS}/train")
        elif what == "replaced":
            stage.put_job(uid="another")
        else:
            stage.server.put(JOBS, {**a_raw_job(), "status": {"conditions": [{"type": "Failed", "status": "True"}]}})
        stage.tick(OWNER_CHECK_SECONDS)
        assert steps(stage) == []

    def test_no_move_lasts_for_ever_and_its_late_pod_is_let_go(self, stage: Stage) -> None:
        begin(stage)
        stage.end("train-x")
        stage.tick(6 * 60.0)
        assert steps(stage) == [AWAITED], "an owner that waits with its next pod is waited for"
        stage.tick(MAX_MOVE_SECONDS + 1)
        assert (steps(stage), stage.stored_move()) == ([], None)
        stage.put_pod("train-y", gated=True, created=LATER)
        stage.tick()
        stage.tick(MAX_WAIT_SECONDS)
        assert not is_gated(stage.pod("train-y"))

    def test_a_move_that_was_damaged_in_store_is_reported_and_let_be(self, stage: Stage) -> None:
        begin(stage)
        stage.end("train-x")
        path = "/apis/slopewise.dev/v1alpha1/namespaces/team-a/jobgrowths"
        raw = stage.server.get(f"{path}/train")
        raw["status"]["move"] = {"node": 7}
        stage.server.put(path, raw)
        stage.restart()
        stage.put_pod("train-y", gated=True, created=LATER)
        stage.tick()
        stage.tick(MAX_WAIT_SECONDS)
        assert (steps(stage), is_gated(stage.pod("train-y"))) == ([], False)

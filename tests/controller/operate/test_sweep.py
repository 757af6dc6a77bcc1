"""`slopewise sweep`: what an abandoned cluster gets back, and what a controller that lives is left to see to."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from support.api_objects import Address
from support.api_server import ApiServer, refusal
from support.command_line import slopewise
from support.gated_pods import JOBS, Stage, is_gated, pinned_nodes
from support.managed_pods import NAMESPACE, PODS

from slopewise.adapters.kube.cache.parsing import parse_pod
from slopewise.adapters.kube.cache.records import MOVE
from slopewise.adapters.kube.moves.node_predicates import pinned
from slopewise.adapters.kube.moves.scheduling_gate import Aim
from slopewise.adapters.kube.moves.suspend.annotation import JobMove, Step
from slopewise.adapters.kube.moves.suspend.begin import CONTROLLER_UID
from slopewise.operate.sweep import Sweeper, Swept

CREATED_SECONDS = 1_767_225_600.0
"""Of a pod of the stage: 2026-01-01."""
STOPPED = {"type": "Suspended", "status": "True"}
SSD = {"key": "disk", "operator": "In", "values": ["ssd"]}
OWNERS_AFFINITY = {
    "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [SSD]}]}
}


class Run:
    """One run on a stage; a pause takes no time, and a test may do something in it."""

    def __init__(self, stage: Stage, age_seconds: float = 61.0) -> None:
        self.stage = stage
        self.seconds = 0.0
        self.pauses: list[float] = []
        self.in_pause: Callable[[], object] = lambda: None
        self.stopped = False
        self._now = CREATED_SECONDS + age_seconds
        self._sweeper = Sweeper(
            stage.api, None, 60.0, self._wait, lambda: self._now + self.seconds, lambda: self.seconds
        )

    def sweep(self) -> Swept:
        return self._sweeper.run()

    def _wait(self, seconds: float) -> bool:
        self.pauses.append(seconds)
        self.seconds += seconds
        self.in_pause()
        return self.stopped


@pytest.fixture
def stage(server: ApiServer) -> Stage:
    return Stage(server)


def put_moved_job(stage: Stage, step: Step, *, to_node: str = "node-b", uid: str = "uid-of-train") -> None:
    """A Job in the middle of a move that was begun a minute and a second ago; `uid` is in its annotation."""
    stage.put_job()
    raw = stage.server.get(f"{JOBS}/train")
    move = JobMove(
        workload_uid=uid, namespace=NAMESPACE, name="train", step=step, from_node="node-a", to_node=to_node,
        since_seconds=CREATED_SECONDS, step_since_seconds=CREATED_SECONDS, policy="draps",
        job_uids=(f"{uid}:0",), node_affinity=OWNERS_AFFINITY,
    )  # fmt: skip
    raw["metadata"]["annotations"] = {MOVE: move.written()}
    raw["spec"]["suspend"] = step in ("leaving", "unpinning")
    affinity = {"nodeAffinity": OWNERS_AFFINITY}
    raw["spec"]["template"]["spec"]["affinity"] = affinity if step == "leaving" else pinned(affinity, to_node)
    if raw["spec"]["suspend"]:
        raw["status"] = {"conditions": [STOPPED]}
    stage.server.put(JOBS, raw)


def job(stage: Stage) -> dict[str, Any]:
    return stage.server.get(f"{JOBS}/train")


class TestGates:
    def test_an_old_gate_is_taken_off_without_a_node(self, stage: Stage) -> None:
        stage.put_pod("train-x", gated=True)
        swept = Run(stage).sweep()
        assert list(swept.freed) == ["pod team-a/train-x"]
        assert (is_gated(stage.pod("train-x")), pinned_nodes(stage.pod("train-x"))) == (False, [])

    def test_a_pod_without_any_label_of_ours_is_freed_too(self, stage: Stage) -> None:
        raw = stage.put_pod("stray", owner=None, gated=True)
        raw["metadata"]["labels"] = {}
        stage.server.put(PODS, raw)
        Run(stage).sweep()
        assert not is_gated(stage.pod("stray"))

    def test_a_young_gate_is_left_to_the_controller(self, stage: Stage) -> None:
        stage.put_pod("train-x", gated=True)
        swept = Run(stage, age_seconds=10.0).sweep()
        assert (list(swept.young), is_gated(stage.pod("train-x"))) == (["pod team-a/train-x"], True)

    def test_what_gets_old_during_a_run_is_freed_in_it(self, stage: Stage) -> None:
        stage.put_pod("train-x", gated=True)
        run = Run(stage, age_seconds=40.0)
        swept = run.sweep()
        assert (run.pauses, list(swept.freed), swept.young) == ([5.0, 20.0], ["pod team-a/train-x"], {})

    def test_the_gates_of_others_stay(self, stage: Stage) -> None:
        raw = stage.put_pod("kueued", owner=None, gated=True)
        raw["spec"]["schedulingGates"] = [{"name": "kueue.x-k8s.io/admission"}]
        stage.server.put(PODS, raw)
        swept = Run(stage).sweep()
        assert swept == Swept()
        assert stage.pod("kueued")["spec"]["schedulingGates"] == [{"name": "kueue.x-k8s.io/admission"}]

    def test_one_that_cannot_be_opened_keeps_no_other_waiting(self, stage: Stage) -> None:
        stage.put_pod("a", owner=None, gated=True)
        stage.put_pod("b", owner=None, gated=True)
        stage.server.fault(refusal(403, "Forbidden", "no patch on pods"), method="PATCH", path="/pods/a$")
        swept = Run(stage).sweep()
        assert (list(swept.failed), list(swept.freed)) == (["pod team-a/a"], ["pod team-a/b"])


class TestStrandedPins:
    @pytest.fixture
    def stranded(self, stage: Stage) -> Stage:
        stage.put_job()
        stage.put_pod("train-x", gated=True)
        stage.gate_releaser.release(parse_pod(stage.pod("train-x")), Aim("node-b", pin=True))
        stage.strand("train-x")
        return stage

    def test_a_pin_without_room_is_evicted_in_the_same_run(self, stranded: Stage) -> None:
        swept = Run(stranded).sweep()
        assert (list(swept.freed), stranded.evictions_sent()) == (["pod team-a/train-x"], ["train-x"])

    def test_a_pin_that_finds_room_meanwhile_stays(self, stranded: Stage) -> None:
        run = Run(stranded)
        run.in_pause = lambda: stranded.schedule("train-x", "node-b")
        assert run.sweep() == Swept()
        assert stranded.evictions_sent() == []


class TestSuspendedJobs:
    @pytest.mark.parametrize("step", ["leaving", "unpinning"])
    @pytest.mark.parametrize("uid", ["uid-of-train", "uid-before-a-restore"], ids=["moved", "brought back by a backup"])
    def test_a_job_without_pods_runs_again_with_its_owners_affinity(self, stage: Stage, step: Step, uid: str) -> None:
        put_moved_job(stage, step, uid=uid)
        swept = Run(stage).sweep()
        assert list(swept.freed) == ["Job team-a/train"]
        spec = job(stage)["spec"]
        assert (spec["suspend"], spec["template"]["spec"]["affinity"]["nodeAffinity"]) == (False, OWNERS_AFFINITY)
        assert MOVE not in job(stage)["metadata"]["annotations"]

    def test_a_pod_that_still_saves_is_waited_for_and_that_is_reported(self, stage: Stage) -> None:
        put_moved_job(stage, "leaving")
        stage.put_pod("train-x", labels={CONTROLLER_UID: "uid-of-train"})
        swept = Run(stage, age_seconds=600.0).sweep()
        assert swept == Swept(young={"Job team-a/train": "suspended for a move, until its pods have ended"})
        assert job(stage)["spec"]["suspend"] is True

    def test_a_job_whose_last_pod_ends_during_a_run_is_resumed_in_it(self, stage: Stage) -> None:
        put_moved_job(stage, "leaving")
        stage.put_pod("train-x", labels={CONTROLLER_UID: "uid-of-train"})
        run = Run(stage, age_seconds=600.0)
        run.in_pause = lambda: stage.server.remove(f"{PODS}/train-x") if run.seconds == 5.0 else None
        assert list(run.sweep().freed) == ["Job team-a/train"]
        assert job(stage)["spec"]["suspend"] is False

    def test_a_job_that_a_controller_works_on_is_left_to_it(self, stage: Stage) -> None:
        put_moved_job(stage, "leaving")
        run = Run(stage)
        run.in_pause = lambda: stage.server.put(JOBS, job(stage))  # its resource version changes
        swept = run.sweep()
        assert (swept.freed, list(swept.young)) == ({}, ["Job team-a/train"])
        assert job(stage)["spec"]["suspend"] is True

    def test_a_job_that_somebody_else_writes_to_at_that_moment_is_freed_by_a_later_look(self, stage: Stage) -> None:
        put_moved_job(stage, "leaving")
        stage.server.fault(
            refusal(409, "Conflict", "the object has been modified"), method="PATCH", path="/jobs/train$"
        )
        swept = Run(stage).sweep()
        assert (swept.failed, list(swept.freed)) == ({}, ["Job team-a/train"])

    @pytest.mark.parametrize("method", ["GET", "PATCH"])
    def test_a_job_that_is_deleted_meanwhile_is_nothing_any_more(self, stage: Stage, method: str) -> None:
        put_moved_job(stage, "leaving")
        stage.server.fault(refusal(404, "NotFound", "no such job"), method=method, path="/jobs/train$", times=9)
        assert Run(stage).sweep() == Swept()

    def test_a_young_move_is_left_to_the_controller(self, stage: Stage) -> None:
        put_moved_job(stage, "leaving")
        Run(stage, age_seconds=10.0).sweep()
        assert job(stage)["spec"]["suspend"] is True

    def test_a_strange_job_keeps_no_other_waiting(self, stage: Stage) -> None:
        put_moved_job(stage, "leaving")
        strange = job(stage)
        strange["metadata"] |= {"name": "a-strange-one", "uid": "uid-of-strange"}
        strange["status"] = {"conditions": ["Suspended"]}
        stage.server.put(JOBS, strange)

        swept = Run(stage).sweep()

        assert list(swept.freed) == ["Job team-a/train"]
        assert swept.failed["Job team-a/a-strange-one"].startswith("an error of the sweeper: TypeError(")

    def test_an_annotation_that_we_did_not_write_frees_nothing(self, stage: Stage) -> None:
        stage.put_job(suspend=True)
        raw = job(stage)
        raw["metadata"]["annotations"] = {MOVE: "hello"}
        stage.server.put(JOBS, raw)
        assert Run(stage).sweep() == Swept()
        assert stage.server.asked("PATCH") == []


class TestPinnedJobs:
    def test_a_job_pinned_to_a_node_that_is_gone_runs_anywhere_in_the_same_run(self, stage: Stage) -> None:
        put_moved_job(stage, "pinned", to_node="node-lost")
        run = Run(stage)

        def the_job_controller_reacts() -> None:
            if job(stage)["spec"]["suspend"]:
                stage.server.put(JOBS, {**job(stage), "status": {"conditions": [STOPPED]}})

        run.in_pause = the_job_controller_reacts
        swept = run.sweep()
        assert (list(swept.freed), swept.young) == (["Job team-a/train"], {})
        assert job(stage)["spec"]["suspend"] is False
        assert job(stage)["spec"]["template"]["spec"]["affinity"]["nodeAffinity"] == OWNERS_AFFINITY

    def test_a_pinned_pod_without_room_lets_its_job_go(self, stage: Stage) -> None:
        put_moved_job(stage, "pinning")
        stage.put_pod("train-x", node=None)
        stage.strand("train-x")
        Run(stage).sweep()
        assert json.loads(job(stage)["metadata"]["annotations"][MOVE])["step"] == "unpinning"

    def test_a_pod_of_another_namespace_that_names_its_owner_frees_no_job(self, stage: Stage) -> None:
        put_moved_job(stage, "pinned")
        stage.put_pod("train-x", node=None)
        stage.strand("train-x")
        thief = stage.pod("train-x")
        thief["metadata"]["namespace"] = "evil"
        stage.server.put("/api/v1/namespaces/evil/pods", thief)
        stage.server.objects.delete(Address.of(f"{PODS}/train-x"))
        Run(stage).sweep()
        assert job(stage)["spec"].get("suspend", False) is False

    def test_a_pod_without_room_beside_one_that_hangs_waits_as_it_does_for_the_controller(self, stage: Stage) -> None:
        put_moved_job(stage, "pinned")
        stage.put_pod("train-x", node=None)
        stage.strand("train-x")
        hangs = stage.put_pod("train-y", node="node-b")
        hangs["metadata"] |= {
            "deletionTimestamp": "2026-01-01T00:00:30Z",
            "labels": {**hangs["metadata"]["labels"], CONTROLLER_UID: "uid-of-train"},
        }
        stage.server.put(PODS, hangs)
        Run(stage).sweep()
        assert job(stage)["spec"].get("suspend", False) is False

    def test_a_pin_to_a_node_that_is_there_stays_and_costs_no_further_question(self, stage: Stage) -> None:
        put_moved_job(stage, "pinned")
        assert Run(stage).sweep() == Swept()
        assert stage.server.asked("GET", "/jobs/train$") == []

    def test_where_nodes_may_not_be_read_none_counts_as_gone(self, stage: Stage) -> None:
        put_moved_job(stage, "pinned", to_node="node-lost")
        stage.server.fault(refusal(403, "Forbidden", "no"), method="GET", path="/nodes$", times=9)
        assert Run(stage).sweep() == Swept()


class TestTheCommand:
    def test_an_empty_cluster_is_looked_at_once(self, stage: Stage) -> None:
        run = Run(stage)
        assert (run.sweep(), run.pauses) == (Swept(), [])

    def test_a_signal_ends_the_run(self, stage: Stage) -> None:
        stage.put_pod("train-x", gated=True)
        run = Run(stage, age_seconds=10.0)
        run.stopped = True
        run.sweep()
        assert run.pauses == [5.0]

    def test_it_prints_what_it_freed(self, stage: Stage, reach: tuple[str, str]) -> None:
        stage.put_pod("train-x", gated=True)
        result = slopewise("sweep", *reach, "-o", "json")
        assert result.returncode == 0
        assert list(json.loads(result.stdout)["freed"]) == ["pod team-a/train-x"]

    def test_it_says_so_when_something_could_not_be_freed(self, stage: Stage, reach: tuple[str, str]) -> None:
        stage.put_pod("train-x", gated=True)
        stage.server.fault(refusal(403, "Forbidden", "no patch on pods"), method="PATCH")
        result = slopewise("sweep", *reach)
        assert result.returncode == 1
        assert "NOT freed" in result.stdout

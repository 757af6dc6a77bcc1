"""Jobs that are being moved, from the suspended to the pinned one: every way it can go, and every crash on it.

However it goes, the end is a Job that runs, of which never two pods lived at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from support.api_objects import Address, Json, Selector
from support.api_server import ApiServer, Drop, refusal
from support.managed_pods import PODS
from support.suspended_jobs import JOBS, NAME, NODES, UID, CrashError, Frozen, Killed, Stored, Yard, pins

from slopewise.adapters.kube.cache.parsing import parse_pod
from slopewise.adapters.kube.cache.records import MOVE
from slopewise.adapters.kube.moves.node_predicates import pinned
from slopewise.adapters.kube.moves.suspend.annotation import JobMove, Step, move_on
from slopewise.adapters.kube.moves.suspend.controller import PODS_ENDED_SECONDS, SuspendedJobController
from slopewise.adapters.kube.moves.suspend.state_machine import ARRIVAL_SECONDS, freed

SSD = {"key": "disk", "operator": "In", "values": ["ssd"]}
WISH: Json = {
    "podAntiAffinity": {"x": []},
    "nodeAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": {"matchExpressions": [SSD]}}],
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [SSD]}]},
    },
}
"""What an owner may have written."""

Story = Callable[[Yard], None]
"""What happens meanwhile."""


@pytest.fixture
def yard() -> Iterator[Yard]:
    with ApiServer() as server:
        yard = Yard(server)
        yield yard
        assert yard.violations == []


def steps(yard: Yard) -> list[str]:
    """Of the patches of the Job, each one's step."""
    found: list[str] = []
    for patch in yard.patches():
        annotation = patch["metadata"]["annotations"][MOVE]
        move = annotation and move_on({"metadata": {**yard.job["metadata"], "annotations": {MOVE: annotation}}})
        found.append(move.step if move else "freed")
    return found


def is_free(yard: Yard, affinity: Json | None = None) -> bool:
    """It runs as its owner wrote it."""
    return not yard.suspended and not yard.annotated and yard.affinity == affinity and bool(yard.running_on())


# --- the way it is meant to go ------------------------------------------------------------------------------


@pytest.mark.parametrize("affinity", [None, WISH])
def test_a_job_that_is_moved_runs_on_its_target(yard: Yard, affinity: Json | None) -> None:
    yard.put_job(affinity=affinity)

    yard.begin()
    yard.settle(yard.follower(), 5)

    assert steps(yard) == ["leaving", "pinning", "pinned"]
    assert yard.running_on() == ["node-b"]
    assert not yard.suspended
    assert [warning for _, warning in yard.reported] == [False, False]


def test_it_is_not_resumed_while_a_pod_of_it_is_still_ending(yard: Yard) -> None:
    yard.put_job()
    yard.lingering = True
    yard.begin()
    follower = yard.follower()

    yard.settle(follower, 300)
    assert yard.suspended
    yard.end_pods()
    yard.settle(follower, 5)

    assert yard.running_on() == ["node-b"]


def test_a_pod_that_only_the_api_server_knows_of_yet_is_waited_for(yard: Yard) -> None:
    yard.put_job()
    yard.lingering = True
    yard.begin()
    yard.pods.items = lambda: ()  # type: ignore[method-assign]  # a watch that is behind

    yard.settle(yard.follower(), 5)

    assert yard.suspended


def test_a_job_whose_controller_has_not_seen_the_suspension_waits(yard: Yard) -> None:
    yard.put_job()
    name = yard.managed().pod.name
    yard.begin()
    yard.server.remove(f"/api/v1/namespaces/team-a/pods/{name}")  # gone, and another may come at any moment

    yard.follower().tick()

    assert steps(yard) == ["leaving"]


def test_all_pods_of_a_job_arrive_before_its_move_is_over(yard: Yard) -> None:
    yard.put_job(parallelism=3)

    yard.begin(members=[f"{UID}:{slot}" for slot in range(3)])
    yard.settle(yard.follower(), 5)

    assert yard.running_on() == ["node-b"] * 3
    assert steps(yard) == ["leaving", "pinning", "pinned"]


def test_a_job_can_be_moved_back_and_forth(yard: Yard) -> None:
    yard.put_job(affinity=WISH)
    follower = yard.follower()

    for target in ("node-b", "node-a", "node-b"):
        yard.begin(to=target)
        yard.settle(follower, 5)
        assert yard.running_on() == [target]

    assert pins(yard.affinity) == ["node-b"]


def test_a_move_that_is_over_costs_no_request_not_even_of_a_new_leader(yard: Yard) -> None:
    moved(yard)
    asked = len(yard.server.requests)

    yard.settle(yard.follower(), 100)

    assert len(yard.server.requests) == asked


# --- targets that do not take it ----------------------------------------------------------------------------


def fill(yard: Yard) -> None:
    yard.full.add("node-b")


def remove(yard: Yard) -> None:
    if yard.nodes.get("", "node-b") is not None:
        yard.server.remove(f"{NODES}/node-b")


def taint(yard: Yard) -> None:
    yard.put_node("node-b", taints=[{"key": "k", "value": "v", "effect": "NoSchedule"}])
    yard.full.add("node-b")


def cordon(yard: Yard) -> None:
    yard.put_node("node-b", unschedulable=True)
    yard.full.add("node-b")


TROUBLES: list[Story] = [fill, remove, taint, cordon]


@pytest.mark.parametrize("trouble", TROUBLES)
def test_a_target_that_is_lost_before_the_pods_have_ended_lets_the_job_go_elsewhere(yard: Yard, trouble: Story) -> None:
    yard.put_job(affinity=WISH)
    yard.lingering = True
    yard.begin()
    yard.work()

    trouble(yard)
    yard.end_pods()
    yard.settle(yard.follower(), 60)

    assert is_free(yard, WISH)
    assert yard.running_on() == ["node-a"]


@pytest.mark.parametrize("trouble", [taint, cordon, remove])
def test_a_target_that_is_known_not_to_take_it_is_not_even_tried(yard: Yard, trouble: Story) -> None:
    yard.put_job()
    yard.begin()

    trouble(yard)
    yard.settle(yard.follower(), 5)

    assert steps(yard) == ["leaving", "freed"]
    assert yard.ended == ["cancelled"]
    assert yard.reported[0][0].startswith("not moved to node-b: ")
    assert yard.reported[0][1]


@pytest.mark.parametrize("trouble", TROUBLES)
def test_a_target_that_is_lost_just_after_the_pin_is_given_up_within_a_minute(yard: Yard, trouble: Story) -> None:
    yard.put_job(affinity=WISH)
    yard.begin()
    follower = yard.follower()
    yard.work()
    follower.tick()
    assert steps(yard) == ["leaving", "pinning"]

    trouble(yard)
    yard.settle(follower, 60)

    assert is_free(yard, WISH)
    assert yard.running_on() == ["node-a"]
    assert any("to start wherever the scheduler puts it" in text and warning for text, warning in yard.reported)
    assert yard.ended == ["released"], "its history has it"


def test_a_target_that_has_room_again_soon_is_waited_for(yard: Yard) -> None:
    yard.put_job()
    yard.full.add("node-b")
    yard.begin()
    follower = yard.follower()

    yard.settle(follower, 15)
    yard.full.clear()
    yard.settle(follower, 60)

    assert yard.running_on() == ["node-b"]
    assert steps(yard) == ["leaving", "pinning", "pinned"]


def test_an_image_that_cannot_be_pulled_does_not_keep_the_move_under_way_for_ever(yard: Yard) -> None:
    yard.put_job()
    yard.begin()
    follower = yard.follower()
    yard.work()
    follower.tick()
    yard.work()
    raw = yard.server.get(f"/api/v1/namespaces/team-a/pods/{yard.managed().pod.name}")
    raw["status"]["phase"] = "Pending"
    yard.server.put("/api/v1/namespaces/team-a/pods", raw)

    yard.settle(follower, ARRIVAL_SECONDS + 5)

    assert steps(yard) == ["leaving", "pinning", "pinned"]
    assert yard.reported[-1][1]
    assert yard.mover().under_way() == ()


# --- nodes that are lost later ------------------------------------------------------------------------------


def moved(yard: Yard, affinity: Json | None = WISH) -> None:
    """Moved to node-b, and pinned there."""
    yard.put_job(affinity=affinity)
    yard.begin()
    yard.settle(yard.follower(), 5)
    assert yard.running_on() == ["node-b"]


def test_a_pinned_job_whose_node_is_deleted_runs_elsewhere_within_a_minute(yard: Yard) -> None:
    moved(yard)
    yard.lingering = True  # nothing is there to end its pod

    remove(yard)
    follower = yard.follower()
    yard.settle(follower, PODS_ENDED_SECONDS - 5)
    waits = yard.suspended  # its pod may still write
    yard.settle(follower, 25)

    assert (waits, yard.suspended) == (True, False)
    assert yard.affinity == WISH
    assert not yard.annotated
    assert "node-a" in yard.running_on()


def test_a_pinned_job_whose_pod_was_replaced_and_finds_no_room_is_freed_within_a_minute(yard: Yard) -> None:
    moved(yard)
    yard.full.add("node-b")
    yard.server.remove(f"/api/v1/namespaces/team-a/pods/{yard.managed().pod.name}")

    yard.settle(yard.follower(), 60)

    assert is_free(yard, WISH)
    assert yard.running_on() == ["node-a"]


def test_while_a_pod_ends_on_a_node_that_does_not_answer_none_starts_another(yard: Yard) -> None:
    moved(yard)
    yard.lingering = True
    yard.full.add("node-b")
    name = yard.managed().pod.name
    raw = yard.server.get(f"/api/v1/namespaces/team-a/pods/{name}")
    raw["metadata"]["deletionTimestamp"] = "2026-01-01T01:00:00Z"
    yard.server.put("/api/v1/namespaces/team-a/pods", raw)
    follower = yard.follower()

    yard.settle(follower, 100, step_seconds=1.0)
    assert steps(yard) == ["leaving", "pinning", "pinned"]
    yard.end_pods()
    yard.settle(follower, 60)

    assert is_free(yard, WISH)
    yard.violations.clear()  # the Job controller itself has created the replacement beside it


def test_a_node_that_is_registered_again_moves_no_job(yard: Yard) -> None:
    moved(yard)
    follower = yard.follower()
    node = yard.server.get(f"{NODES}/node-b")

    remove(yard)
    yard.settle(follower, 3)
    yard.server.put(NODES, {**node, "metadata": {"name": "node-b"}})
    yard.settle(follower, 60)

    assert steps(yard) == ["leaving", "pinning", "pinned"]


def test_nodes_that_were_never_reported_are_not_taken_for_gone(yard: Yard) -> None:
    moved(yard)
    yard.nodes.silent = 61.0

    remove(yard)
    yard.settle(yard.follower(), 60)

    assert steps(yard) == ["leaving", "pinning", "pinned"]


# --- what others do meanwhile -------------------------------------------------------------------------------


def test_a_job_that_is_deleted_in_mid_move_is_reported(yard: Yard) -> None:
    yard.put_job()
    yard.lingering = True
    yard.begin()
    follower = yard.follower()
    yard.settle(follower, 3)
    yard.end_pods()
    yard.server.remove(f"{JOBS}/{NAME}")

    yard.settle(follower, 30)

    assert yard.reported == [("it was deleted while it was being moved to node-b", True)]


def test_a_deleted_job_that_the_watch_still_shows_is_reported_once(yard: Yard) -> None:
    yard.put_job()
    yard.begin()
    known = yard.jobs.items()
    yard.server.remove(f"/api/v1/namespaces/team-a/pods/{yard.managed().pod.name}")
    yard.server.remove(f"{JOBS}/{NAME}")
    yard.jobs.items = lambda: known  # type: ignore[method-assign]  # a watch that is behind

    yard.settle(yard.follower(), 30)

    assert yard.reported == [("it was deleted while it was being moved to node-b", True)]


def test_a_job_that_is_being_deleted_is_left_alone(yard: Yard) -> None:
    yard.put_job()
    yard.begin()
    yard.change_job(lambda job: job["metadata"].update(deletionTimestamp="2026-01-01T01:00:00Z", finalizers=["x"]))

    yard.settle(yard.follower(), 30)

    assert steps(yard) == ["leaving"]
    assert yard.reported == [("it was deleted while it was being moved to node-b", True)]


def test_a_job_that_finished_instead_of_moving_is_let_go(yard: Yard) -> None:
    yard.put_job()
    yard.begin()
    yard.work()
    yard.change_job(lambda job: job["status"].update(conditions=[{"type": "Complete", "status": "True"}]))

    yard.settle(yard.follower(), 5)

    assert steps(yard) == ["leaving", "freed"]
    assert not yard.annotated


def test_a_job_that_somebody_else_resumes_is_not_moved(yard: Yard) -> None:
    yard.put_job()
    yard.begin()
    yard.change_job(lambda job: job["spec"].update(suspend=False))

    yard.settle(yard.follower(), 5)

    assert is_free(yard)
    assert yard.running_on() == ["node-a"]


def test_a_pinned_job_that_somebody_else_resumes_in_its_next_move_is_watched_where_it_is_pinned(yard: Yard) -> None:
    moved(yard)
    yard.begin(to="node-a")
    yard.change_job(lambda job: job["spec"].update(suspend=False))
    yard.settle(yard.follower(), 5)
    assert yard.move is not None
    assert (yard.move.step, yard.move.to_node) == ("pinned", "node-b")

    yard.full.add("node-b")
    yard.server.remove(f"/api/v1/namespaces/team-a/pods/{yard.managed().pod.name}")
    yard.settle(yard.follower(), 60)

    assert is_free(yard, WISH)


def test_a_job_that_its_user_suspends_after_the_pin_stays_suspended_and_is_unpinned(yard: Yard) -> None:
    yard.put_job(affinity=WISH)
    yard.begin()
    follower = yard.follower()
    yard.work()
    follower.tick()
    assert steps(yard) == ["leaving", "pinning"]

    yard.change_job(lambda job: job["spec"].update(suspend=True))
    yard.settle(follower, 60)

    assert yard.suspended
    assert not yard.annotated
    assert yard.affinity == WISH


def test_a_job_that_its_user_has_suspended_is_none_of_ours(yard: Yard) -> None:
    yard.put_job(suspend=True)

    yard.settle(yard.follower(), 60)

    assert yard.suspended
    assert yard.patches() == []


def test_an_affinity_between_pods_that_its_user_changes_meanwhile_stays(yard: Yard) -> None:
    yard.put_job(affinity=WISH)
    yard.begin()
    yard.change_job(lambda job: job["spec"]["template"]["spec"]["affinity"].update(podAntiAffinity={"y": []}))
    yard.violations.clear()
    fill(yard)

    yard.settle(yard.follower(), 60)

    assert yard.affinity == {**WISH, "podAntiAffinity": {"y": []}}
    yard.violations.clear()  # it was the user who wrote to a template that may have been frozen


def test_a_forged_annotation_moves_no_job_and_goes(yard: Yard) -> None:
    yard.put_job()
    forged = JobMove(
        workload_uid=UID, namespace="team-a", name=NAME, step="leaving", from_node="node-a", to_node="node-b",
        since_seconds=0.0, step_since_seconds=0.0, policy="p", job_uids=(f"{UID}:0",),
    )  # fmt: skip
    yard.change_job(lambda job: job["metadata"].update(annotations={MOVE: forged.written()}))

    yard.settle(yard.follower(), 5)

    assert is_free(yard)
    assert yard.running_on() == ["node-a"]


def put_restored(yard: Yard, step: Step, affinity: Json | None, **spec: Any) -> None:
    """The Job as a backup has brought it back: the annotation of the one that it was, under another uid."""
    former = JobMove(
        workload_uid="former", namespace="team-a", name=NAME, step=step, from_node="node-a", to_node="node-b",
        since_seconds=0.0, step_since_seconds=0.0, policy="p", job_uids=("former:0",),
        node_affinity=WISH["nodeAffinity"],
    )  # fmt: skip
    yard.put_job(affinity=affinity, meta={"annotations": {MOVE: former.written()}}, **spec)


@pytest.mark.parametrize(("step", "is_pinned"), [("leaving", False), ("leaving", True), ("unpinning", True)])
def test_a_job_that_was_backed_up_suspended_runs_wherever_the_scheduler_puts_it(
    yard: Yard, step: Step, is_pinned: bool
) -> None:
    put_restored(yard, step, pinned(WISH, "node-b") if is_pinned else WISH, suspend=True)
    yard.full.add("node-b")

    yard.settle(yard.follower(), 5)

    assert is_free(yard, WISH)


@pytest.mark.parametrize("step", ["pinning", "pinned"])
def test_a_job_that_was_backed_up_pinned_to_a_node_that_is_not_there_runs_elsewhere_within_a_minute(
    yard: Yard, step: Step
) -> None:
    yard.server.remove(f"{NODES}/node-b")
    put_restored(yard, step, pinned(WISH, "node-b"))

    yard.settle(yard.follower(), 60)

    assert is_free(yard, WISH)


def test_a_copied_job_whose_user_has_chosen_other_nodes_runs_on_when_the_pinned_one_goes(yard: Yard) -> None:
    put_restored(yard, "pinned", None)
    [where] = yard.running_on()
    assert where == "node-a"
    yard.server.remove(f"{NODES}/node-b")

    yard.settle(yard.follower(), 60)

    assert is_free(yard)
    assert [patch.get("spec") for patch in yard.patches()] == [None]


def test_a_restored_job_that_its_user_suspends_stays_suspended(yard: Yard) -> None:
    put_restored(yard, "pinned", pinned(WISH, "node-b"), suspend=True)

    yard.settle(yard.follower(), 60)

    assert yard.suspended
    assert yard.affinity == pinned(WISH, "node-b")  # nothing reads it while its node is there
    assert yard.patches() == []


def test_a_pod_of_another_namespace_that_names_the_job_as_its_owner_keeps_no_job_suspended(yard: Yard) -> None:
    yard.put_job()
    yard.begin()
    [thief] = yard.server.objects.listed(Address.of(PODS), Selector())
    thief["metadata"] |= {"namespace": "evil", "uid": "thief", "deletionTimestamp": "2026-01-01T00:00:00Z"}
    yard.pods = Stored(yard.server, "/api/v1/pods", parse_pod)
    yard.server.put("/api/v1/namespaces/evil/pods", thief)

    yard.settle(yard.follower(), 10)

    assert yard.running_on() == ["node-b"]


class Stale(Stored[Any]):
    """A store that shows what it once saw."""

    def __init__(self, seen: Sequence[Any]) -> None:
        self._records = seen
        self.synced, self.silent = True, 0.0

    def items(self) -> Sequence[Any]:
        return self._records

    def get(self, namespace: str, name: str) -> Any:
        return next((each for each in self._records if each.name == name), None)


def test_a_store_that_missed_the_end_of_a_pod_keeps_no_job_suspended(yard: Yard) -> None:
    yard.put_job()
    yard.begin()
    yard.lingering = True
    yard.work()
    yard.pods = Stale(yard.pods.items())
    yard.lingering = False

    yard.settle(yard.follower(), 15)

    assert yard.running_on() == ["node-b"]


def test_a_node_that_only_the_store_misses_is_not_gone_and_its_pods_may_write(yard: Yard) -> None:
    yard.put_job()
    yard.lingering = True
    yard.begin()
    yard.work()
    yard.nodes = Stale([node for node in yard.nodes.items() if node.name != "node-a"])

    yard.settle(yard.follower(), PODS_ENDED_SECONDS + 30)

    assert yard.suspended
    assert yard.running_on() == ["node-a"]


# --- an API server that does not take it --------------------------------------------------------------------


def test_a_template_that_is_not_taken_is_given_up_and_the_job_runs_on(yard: Yard) -> None:
    yard.put_job(affinity=WISH)
    yard.begin()

    yard.settle(yard.follower(Frozen(yard.api)), 30)

    assert is_free(yard, WISH)
    assert any("its template cannot be changed" in text for text, _ in yard.reported)


def test_a_pinned_template_that_is_not_taken_stays_pinned_and_is_watched(yard: Yard) -> None:
    moved(yard)
    yard.begin(to="node-a")

    yard.settle(yard.follower(Frozen(yard.api)), 30)

    assert yard.running_on() == ["node-b"]
    assert yard.move is not None
    assert (yard.move.step, yard.move.to_node) == ("pinned", "node-b")


@pytest.mark.parametrize("fault", [Drop(), Drop(after=True), refusal(500, "InternalError", "etcd")])
def test_an_answer_that_is_lost_loses_no_job(yard: Yard, fault: Drop) -> None:
    yard.put_job()
    yard.begin()
    yard.server.fault(fault, method="PATCH")
    yard.server.fault(fault, method="GET", path="/pods$")

    yard.settle(yard.follower(), 20)

    assert yard.running_on() == ["node-b"]
    assert yard.move is not None
    assert yard.move.step == "pinned"


def test_trouble_with_one_job_is_reported_once_and_holds_up_no_other(yard: Yard) -> None:
    yard.put_job()
    yard.begin()
    other = yard.job
    other["metadata"] |= {"name": "another", "uid": "uid-of-another"}
    other["metadata"]["annotations"] = {MOVE: other["metadata"]["annotations"][MOVE].replace(UID, "uid-of-another")}
    yard.server.put(JOBS, other)
    yard.server.fault(refusal(403, "Forbidden", "no"), method="GET", path="/jobs/another$", times=1000)

    yard.settle(yard.follower(), 10)

    assert yard.running_on() == ["node-b"]
    assert len([text for text, _ in yard.reported if "its move waits" in text]) == 1


def test_a_replica_that_does_not_lead_changes_nothing(yard: Yard) -> None:
    yard.put_job()
    yard.begin()
    yard.leads = False

    yard.settle(yard.follower(), 10)

    assert yard.suspended
    assert steps(yard) == ["leaving"]


# --- crashes ------------------------------------------------------------------------------------------------


def nothing(yard: Yard) -> None:
    """All goes well."""


def lose_it_later(yard: Yard) -> None:
    """The target fills up, so the pin has to go again."""
    yard.full.add("node-b")


WRITES = {nothing: 3, lose_it_later: 4, taint: 2, remove: 2}
"""Of the Job, in each story."""

at_every_write = pytest.mark.parametrize(
    ("story", "nth", "after"),
    [(story, nth + 1, after) for story, writes in WRITES.items() for nth in range(writes) for after in (False, True)],
)


def run_until_killed(yard: Yard, story: Story, nth: int, *, after: bool) -> None:
    """One controller, killed before or after its nth write of the Job has arrived."""
    killed = Killed(yard.api, nth, after=after)
    yard.begin(yard.mover(killed))
    story(yard)
    run_long(yard, yard.follower(killed))


def run_long(yard: Yard, follower: SuspendedJobController) -> None:
    for _ in range(3):
        yard.settle(follower, 22, step_seconds=1.0)
        yard.end_pods()
    yard.settle(follower, 3)


@at_every_write
@pytest.mark.parametrize("lingering", [False, True], ids=["quick", "slow"])
def test_wherever_a_controller_is_killed_the_next_one_ends_with_a_job_that_runs(
    yard: Yard, story: Story, nth: int, *, after: bool, lingering: bool
) -> None:
    yard.put_job(affinity=WISH)
    yard.lingering = lingering
    with pytest.raises(CrashError):
        run_until_killed(yard, story, nth, after=after)
    story(yard)

    run_long(yard, yard.follower())

    assert not yard.suspended
    assert len(yard.running_on()) == 1
    if yard.annotated:
        assert yard.move is not None
        assert yard.move.step == "pinned"
        assert yard.running_on() == ["node-b"]
    else:
        assert yard.affinity == WISH


@at_every_write
def test_wherever_a_controller_is_killed_the_sweeper_ends_with_a_job_that_runs(
    yard: Yard, story: Story, nth: int, *, after: bool
) -> None:
    yard.put_job(affinity=WISH)
    with pytest.raises(CrashError):
        run_until_killed(yard, story, nth, after=after)
    story(yard)

    for _ in range(3):
        yard.work()
        stuck = not yard.suspended and not yard.running_on()
        live = sum(not pod.ended for pod in yard.pods.items())
        body = freed(yard.job, live_pods=live, lost=stuck, now_seconds=yard.clock.seconds)
        if body is not None:
            yard.api.patch(f"{JOBS}/{NAME}", body, "application/merge-patch+json")
    yard.work()

    assert not yard.suspended
    assert len(yard.running_on()) == 1


def test_the_sweeper_leaves_a_job_alone_whose_pods_are_still_saving(yard: Yard) -> None:
    yard.put_job()
    yard.begin()

    assert freed(yard.job, live_pods=1, lost=False, now_seconds=yard.clock.seconds) is None


def test_the_sweeper_leaves_a_job_alone_that_runs_where_it_is_pinned(yard: Yard) -> None:
    moved(yard)

    assert freed(yard.job, live_pods=1, lost=False, now_seconds=yard.clock.seconds) is None


def test_the_sweeper_leaves_a_job_alone_that_its_user_has_suspended(yard: Yard) -> None:
    yard.put_job(suspend=True)

    assert freed(yard.job, live_pods=0, lost=False, now_seconds=yard.clock.seconds) is None

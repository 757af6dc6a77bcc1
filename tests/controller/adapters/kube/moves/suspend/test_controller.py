"""Jobs that are being moved, from the suspended to the pinned one: every way it can go, and every crash on it.

However it goes, the end is a Job that runs, of which never two pods lived at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from support.api_objects import Address, Json, Selector
from support.api_server import Drop, refusal
from support.managed_pods import PODS
from support.suspended_jobs import JOBS, NAME, NODES, UID, WISH, CrashError, Frozen, Killed, Stored, Yard

from slopewise.adapters.kube.cache.parsing import parse_pod
from slopewise.adapters.kube.cache.records import MOVE
from slopewise.adapters.kube.moves.node_predicates import pinned
from slopewise.adapters.kube.moves.suspend.annotation import JobMove, Step, move_on
from slopewise.adapters.kube.moves.suspend.controller import PODS_ENDED_SECONDS, SuspendedJobController
from slopewise.adapters.kube.moves.suspend.state_machine import ARRIVAL_SECONDS, freed

Story = Callable[[Yard], None]
"""What happens meanwhile."""


def steps(yard: Yard) -> list[str]:
    """Of the patches of the Job, each one's step."""
    found: list[str] = []
    for patch in yard.patches():
        annotation = patch["metadata"]["annotations"][MOVE]
        move = annotation and move_on({"metadata": {**yard.job["metadata"], "annotations": {MOVE: annotation}}})
        found.append(move.step if move else "freed")
    return found


def moved(yard: Yard) -> None:
    """Moved to node-b, and pinned there."""
    yard.put_job(affinity=WISH)
    yard.begin()
    yard.settle(yard.follower(), 5)
    assert yard.running_on() == ["node-b"]


def is_free(yard: Yard, affinity: Json | None = None) -> bool:
    """It runs as its owner wrote it."""
    return not yard.suspended and not yard.annotated and yard.affinity == affinity and bool(yard.running_on())


# --- the way it is meant to go ------------------------------------------------------------------------------


@pytest.mark.parametrize(("affinity", "pods"), [(WISH, 1), (None, 3)])
def test_a_job_that_is_moved_runs_on_its_target(yard: Yard, affinity: Json | None, pods: int) -> None:
    yard.put_job(affinity=affinity, parallelism=pods)

    yard.begin(members=[f"{UID}:{slot}" for slot in range(pods)])
    yard.settle(yard.follower(), 5)

    assert steps(yard) == ["leaving", "pinning", "pinned"]
    assert yard.running_on() == ["node-b"] * pods
    assert not yard.suspended
    assert [warning for _, warning in yard.reported] == [False, False]


def test_a_pod_that_only_the_api_server_knows_of_yet_is_waited_for(yard: Yard) -> None:
    yard.put_job()
    yard.lingering = True
    yard.begin()
    yard.pods.items = lambda: ()  # type: ignore[method-assign]  # a watch that is behind

    yard.settle(yard.follower(), 5)

    assert yard.suspended


def test_a_move_that_is_over_costs_no_request_not_even_of_a_new_leader(yard: Yard) -> None:
    moved(yard)
    asked = len(yard.server.requests)

    yard.settle(yard.follower(), 100, step_seconds=2.0)

    assert len(yard.server.requests) == asked


# --- targets that do not take it ----------------------------------------------------------------------------


def fill(yard: Yard) -> None:
    yard.full.add("node-b")


def remove(yard: Yard) -> None:
    if yard.nodes.get("", "node-b") is not None:
        yard.server.remove(f"{NODES}/node-b")


def taint(yard: Yard) -> None:
    yard.put_node("node-b", taints=[{"key": "k", "value": "v", "effect": "NoSchedule"}])
    fill(yard)


@pytest.mark.parametrize("trouble", [fill, remove])
def test_a_target_that_is_lost_just_after_the_pin_is_given_up_within_a_minute(yard: Yard, trouble: Story) -> None:
    yard.put_job(affinity=WISH)
    yard.begin()
    follower = yard.follower()
    yard.work()
    follower.tick()
    assert steps(yard) == ["leaving", "pinning"]

    trouble(yard)
    yard.settle(follower, 60, step_seconds=2.0)

    assert is_free(yard, WISH)
    assert yard.running_on() == ["node-a"]
    assert any("to start wherever the scheduler puts it" in text and warning for text, warning in yard.reported)
    assert yard.ended == ["released"], "its history has it"


def test_an_image_that_cannot_be_pulled_does_not_keep_the_move_under_way_for_ever(yard: Yard) -> None:
    yard.put_job()
    yard.begin()
    follower = yard.follower()
    yard.work()
    follower.tick()
    yard.work()
    raw = yard.server.get(f"/api/v1/namespaces/team-a/pods/{yard.managed().pod.name}")
    raw["status"]["phase"] = "Pending"
    yard.server.put(PODS, raw)

    yard.settle(follower, ARRIVAL_SECONDS + 5, step_seconds=5.0)

    assert steps(yard) == ["leaving", "pinning", "pinned"]
    assert yard.reported[-1][1]
    assert yard.mover().under_way() == ()


# --- nodes that are lost later ------------------------------------------------------------------------------


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


@pytest.mark.parametrize("nodes_are_silent", [False, True])
def test_a_node_that_is_registered_again_or_of_which_nothing_is_reported_moves_no_job(
    yard: Yard, nodes_are_silent: bool
) -> None:
    moved(yard)
    follower = yard.follower()
    if nodes_are_silent:
        yard.nodes.silent = 61.0

    remove(yard)
    yard.settle(follower, 3)
    if not nodes_are_silent:
        yard.put_node("node-b")
    yard.settle(follower, 60, step_seconds=2.0)

    assert steps(yard) == ["leaving", "pinning", "pinned"]


# --- what others do meanwhile -------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["gone", "gone and still shown by the watch", "being deleted"])
def test_a_job_that_is_deleted_in_mid_move_is_reported_once_and_left_alone(yard: Yard, state: str) -> None:
    yard.put_job()
    yard.begin()
    follower = yard.follower()
    follower.tick()
    known = yard.jobs.items()
    if state == "being deleted":
        yard.change_job(lambda job: job["metadata"].update(deletionTimestamp="2026-01-01T01:00:00Z", finalizers=["x"]))
    else:
        yard.server.remove(f"{PODS}/{yard.managed().pod.name}")
        yard.server.remove(f"{JOBS}/{NAME}")
    if state == "gone and still shown by the watch":
        yard.jobs.items = lambda: known  # type: ignore[method-assign]

    yard.settle(follower, 30)

    assert len(yard.patches()) == 1
    assert yard.reported == [("it was deleted while it was being moved to node-b", True)]


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

    yard.settle(yard.follower(), 60, step_seconds=2.0)

    assert is_free(yard, WISH)


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

    yard.settle(yard.follower(), PODS_ENDED_SECONDS + 30, step_seconds=2.0)

    assert yard.suspended
    assert yard.running_on() == ["node-a"]


# --- an API server that does not take it --------------------------------------------------------------------


def test_a_template_that_is_not_taken_is_given_up_and_the_job_runs_on(yard: Yard) -> None:
    yard.put_job(affinity=WISH)
    yard.begin()

    yard.settle(yard.follower(Frozen(yard.api)), 30)

    assert is_free(yard, WISH)
    assert any("its template cannot be changed" in text for text, _ in yard.reported)


@pytest.mark.parametrize("fault", [Drop(), Drop(after=True)])
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


WRITES = {nothing: 3, fill: 4, taint: 2, remove: 2}
"""Of the Job, in each story."""

at_every_write = pytest.mark.parametrize(
    ("story", "nth"), [(story, nth + 1) for story, writes in WRITES.items() for nth in range(writes)]
)


def run_until_killed(yard: Yard, story: Story, nth: int) -> None:
    """One controller, killed when its nth write of the Job has arrived, and so before it sends the next one."""
    killed = Killed(yard.api, nth)
    yard.begin(yard.mover(killed))
    story(yard)
    run_long(yard, yard.follower(killed))


def run_long(yard: Yard, follower: SuspendedJobController) -> None:
    for _ in range(3):
        yard.settle(follower, 22, step_seconds=2.0)
        yard.end_pods()
    yard.settle(follower, 3)


@at_every_write
@pytest.mark.parametrize("lingering", [False, True], ids=["quick", "slow"])
def test_wherever_a_controller_is_killed_the_next_one_ends_with_a_job_that_runs(
    yard: Yard, story: Story, nth: int, *, lingering: bool
) -> None:
    yard.put_job(affinity=WISH)
    yard.lingering = lingering
    with pytest.raises(CrashError):
        run_until_killed(yard, story, nth)
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
    yard: Yard, story: Story, nth: int
) -> None:
    yard.put_job(affinity=WISH)
    with pytest.raises(CrashError):
        run_until_killed(yard, story, nth)
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

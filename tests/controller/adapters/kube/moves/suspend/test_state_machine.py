"""The move of a Job by suspension: for each step and each state of the Job the next patch, or none."""

from __future__ import annotations

from typing import Any

import pytest
from support.api_objects import Json, merged
from support.cluster_records import a_pod
from support.suspended_jobs import WISH, pins

from slopewise.adapters.kube.cache.records import MOVE, STOPPED
from slopewise.adapters.kube.moves.node_predicates import pinned
from slopewise.adapters.kube.moves.stop_note import StopNote
from slopewise.adapters.kube.moves.suspend.annotation import JobMove, Step, move_on
from slopewise.adapters.kube.moves.suspend.state_machine import (
    ARRIVAL_SECONDS,
    UNSCHEDULABLE_SECONDS,
    Change,
    Facts,
    affinity_of,
    freed,
    is_held,
    is_suspended,
    next_change,
    resume_unchanged,
)

NOW = 10_000.0
THERE, ELSEWHERE = a_pod("p", node="node-b"), a_pod("p", node="node-a")
WAITING = a_pod("p", node=None, phase="Pending")
ENDING = a_pod("p", node="node-a", deleting=True)

SEEN = {"conditions": [{"type": "Suspended", "status": "True"}]}
RUNS: Json = {}
RUNS_PINNED: Json = {"pin": "node-b"}
SUSPENDED: Json = {"suspend": True, "status": SEEN}
SUSPENDED_PINNED: Json = {**SUSPENDED, "pin": "node-b"}
NOT_SEEN_YET: Json = {"suspend": True}
FINISHED = {"conditions": [{"type": "Complete", "status": "True"}]}

TO_TARGET = ("pinning", False, ["node-b"], False, None)
ARRIVED = ("pinned", False, ["node-b"], False, None)
LET_GO = ("unpinning", True, ["node-b"], True, "released")
RESUMED: tuple[object, ...] = ("freed", False, [], False, None)
NOT_MOVED: tuple[object, ...] = ("freed", False, [], True, "cancelled")


def a_move(step: Step, since: float = NOW) -> JobMove:
    """Of two pods, from node-a to node-b."""
    return JobMove(
        workload_uid="u", namespace="team", name="train", step=step, from_node="node-a", to_node="node-b",
        since_seconds=NOW, step_since_seconds=since, policy="p", job_uids=("u:0", "u:1"),
        node_affinity=WISH["nodeAffinity"],
    )  # fmt: skip


def a_job(
    step: Step, *, suspend: bool = False, pin: str | None = None, status: Json | None = None, **meta: Any
) -> Json:
    """Whose owner wrote `WISH`; `pin` is the node that its template names beside it."""
    affinity = WISH if pin is None else pinned(WISH, pin)
    annotations = {MOVE: a_move(step).written(), **meta.pop("annotations", {})}
    return {
        "metadata": {
            "name": "train", "namespace": "team", "uid": "u", "resourceVersion": "7", "annotations": annotations, **meta
        },
        "spec": {"suspend": suspend, "template": {"spec": {"affinity": affinity}}},
        "status": status or {},
    }  # fmt: skip


def patched(job: Json, body: Json) -> tuple[str, bool, list[str]]:
    """The step of the Job that takes this patch, whether it is suspended, and where it is pinned."""
    after = merged(job, body, strategic=False)
    move, affinity = move_on(after), affinity_of(after)
    assert (body["metadata"]["uid"], body["metadata"]["resourceVersion"]) == ("u", "7")
    assert affinity in (WISH, pinned(WISH, "node-a"), pinned(WISH, "node-b")), "what its owner wrote stays"
    return ("freed" if move is None else move.step), is_suspended(after), pins(affinity)


def carried_out(job: Json, change: Change | None) -> tuple[object, ...] | None:
    if change is None:
        return None
    step, suspended, pinned_to = patched(job, change.body)
    assert step == ("freed" if change.after is None else change.after.step)
    return step, suspended, pinned_to, change.warning, change.ended


@pytest.mark.parametrize(
    ("step", "job", "facts", "expected"),
    [
        ("leaving", SUSPENDED, {}, TO_TARGET),
        ("leaving", {**SUSPENDED, "pin": "node-a"}, {}, TO_TARGET),
        ("leaving", SUSPENDED, {"live": (ENDING,)}, None),
        ("leaving", NOT_SEEN_YET, {}, None),
        ("leaving", {**SUSPENDED, "status": {**SEEN, "active": 1}}, {}, None),
        ("leaving", SUSPENDED, {"target_trouble": "it is not ready"}, NOT_MOVED),
        ("leaving", {**SUSPENDED, "pin": "node-a"}, {"target_trouble": "it is not ready"}, NOT_MOVED),
        ("leaving", RUNS, {"live": (ELSEWHERE,)}, NOT_MOVED),
        ("leaving", {"pin": "node-a"}, {}, ("pinned", False, ["node-a"], True, "cancelled")),
        ("pinning", RUNS_PINNED, {"live": (THERE, THERE)}, ARRIVED),
        ("pinning", RUNS_PINNED, {"live": (THERE,)}, None),
        ("pinning", RUNS_PINNED, {"live": (THERE, WAITING)}, None),
        ("pinning", RUNS_PINNED, {"live": (THERE, THERE, ENDING)}, None),
        ("pinning", RUNS_PINNED, {"live": (WAITING,), "unschedulable_seconds": UNSCHEDULABLE_SECONDS - 1}, None),
        ("pinning", RUNS_PINNED, {"live": (WAITING,), "unschedulable_seconds": UNSCHEDULABLE_SECONDS}, LET_GO),
        ("pinning", RUNS_PINNED, {"live": (ENDING,), "unschedulable_seconds": UNSCHEDULABLE_SECONDS}, None),
        ("pinning", RUNS_PINNED, {"target_gone": True}, LET_GO),
        ("pinning", SUSPENDED_PINNED, {}, ("freed", True, [], False, "cancelled")),
        ("pinned", RUNS_PINNED, {"live": (THERE, THERE)}, None),
        ("pinned", RUNS_PINNED, {"live": (WAITING,)}, None),
        ("pinned", RUNS_PINNED, {"live": (WAITING,), "unschedulable_seconds": UNSCHEDULABLE_SECONDS}, LET_GO),
        ("pinned", RUNS_PINNED, {"target_gone": True}, LET_GO),
        ("pinned", SUSPENDED_PINNED, {}, ("freed", True, [], False, "released")),
        ("pinned", SUSPENDED_PINNED, {"live": (ENDING,)}, None),
        ("pinned", {**NOT_SEEN_YET, "pin": "node-b"}, {}, None),
        ("pinned", RUNS, {"target_gone": True}, RESUMED),
        ("unpinning", SUSPENDED_PINNED, {}, RESUMED),
        ("unpinning", SUSPENDED, {}, RESUMED),
        ("unpinning", SUSPENDED_PINNED, {"live": (ENDING,)}, None),
        ("unpinning", RUNS_PINNED, {}, ("pinned", False, ["node-b"], True, "cancelled")),
    ],
)
def test_each_step_and_state_has_its_next_patch(step: Step, job: Json, facts: Json, expected: object) -> None:
    made = a_job(step, **job)
    assert carried_out(made, next_change(a_move(step), Facts(made, **{"live": (), **facts}), NOW)) == expected


@pytest.mark.parametrize("step", ["leaving", "pinning", "pinned", "unpinning"])
def test_a_job_that_has_ended_loses_the_annotation_and_one_that_is_being_deleted_is_left_alone(step: Step) -> None:
    ended = a_job(step, suspend=True, status=FINISHED)
    assert carried_out(ended, next_change(a_move(step), Facts(ended, ()), NOW)) == ("freed", True, [], False, None)
    going = a_job(step, **SUSPENDED, deletionTimestamp="2026-01-01T01:00:00Z")
    assert next_change(a_move(step), Facts(going, ()), NOW) is None


def test_a_move_whose_pods_do_not_arrive_is_over_after_ten_minutes_with_a_warning() -> None:
    job = a_job("pinning", **RUNS_PINNED)
    for seconds, expected in (
        (ARRIVAL_SECONDS - 1, None),
        (ARRIVAL_SECONDS, ("pinned", False, ["node-b"], True, None)),
    ):
        late = a_move("pinning", NOW - seconds)
        assert carried_out(job, next_change(late, Facts(job, (WAITING,)), NOW)) == expected


def test_a_job_that_was_stopped_at_its_target_says_so_when_it_is_unpinned() -> None:
    job = a_job("pinned", **SUSPENDED_PINNED, annotations={STOPPED: StopNote(0.0, "loss 0.1", "p").written()})
    change = next_change(a_move("pinned"), Facts(job, ()), NOW)
    assert change is not None
    assert change.message == "it was stopped at its target; it is no longer tied to node-b"


def test_what_the_owner_changes_of_the_affinity_between_pods_during_a_move_stays() -> None:
    job, theirs = a_job("unpinning", **SUSPENDED_PINNED), {"podAntiAffinity": {"y": list[str]()}}
    job["spec"]["template"]["spec"]["affinity"].update(theirs)
    change = next_change(a_move("unpinning"), Facts(job, ()), NOW)
    assert change is not None
    assert affinity_of(merged(job, change.body, strategic=False)) == {**WISH, **theirs}


def test_a_job_that_had_no_affinity_has_none_when_its_pin_goes() -> None:
    job, move = a_job("unpinning", **SUSPENDED), a_move("unpinning").model_copy(update={"node_affinity": None})
    job["spec"]["template"]["spec"]["affinity"] = pinned(None, "node-b")
    change = next_change(move, Facts(job, ()), NOW)
    assert change is not None
    assert affinity_of(merged(job, change.body, strategic=False)) == {}


@pytest.mark.parametrize(
    ("step", "job", "expected"),
    [
        ("leaving", SUSPENDED, NOT_MOVED),
        ("leaving", {**SUSPENDED, "pin": "node-a"}, ("pinned", False, ["node-a"], True, "cancelled")),
        ("unpinning", SUSPENDED_PINNED, ("pinned", False, ["node-b"], True, "cancelled")),
        ("pinned", RUNS_PINNED, None),
    ],
)
def test_a_job_whose_template_cannot_be_written_is_resumed_as_it_is(step: Step, job: Json, expected: object) -> None:
    made = a_job(step, **job)
    assert carried_out(made, resume_unchanged(a_move(step), made, NOW)) == expected


@pytest.mark.parametrize(
    ("step", "job", "live_pods", "lost", "expected"),
    [
        ("leaving", SUSPENDED, 0, False, ("freed", False, [])),
        ("leaving", SUSPENDED, 1, False, None),
        ("leaving", NOT_SEEN_YET, 0, False, None),
        ("leaving", RUNS, 0, False, None),
        ("unpinning", SUSPENDED_PINNED, 0, False, ("freed", False, [])),
        ("pinning", RUNS_PINNED, 1, True, ("unpinning", True, ["node-b"])),
        ("pinned", RUNS_PINNED, 1, True, ("unpinning", True, ["node-b"])),
        ("pinned", RUNS_PINNED, 1, False, None),
        ("pinned", SUSPENDED_PINNED, 0, True, None),
        ("pinned", RUNS, 1, True, None),
        ("leaving", {**SUSPENDED, "status": FINISHED}, 0, False, None),
        ("leaving", {**SUSPENDED, "deletionTimestamp": "2026-01-01T01:00:00Z"}, 0, False, None),
    ],
)
def test_the_sweeper_frees_a_job_that_nothing_else_resumes_and_leaves_every_other_alone(
    step: Step, job: Json, live_pods: int, lost: bool, expected: object
) -> None:
    made = a_job(step, **job)
    body = freed(made, live_pods=live_pods, lost=lost, now_seconds=NOW)
    assert (None if body is None else patched(made, body)) == expected


def test_a_job_that_its_owner_has_suspended_is_not_freed() -> None:
    job = a_job("leaving", **SUSPENDED)
    del job["metadata"]["annotations"][MOVE]
    assert freed(job, live_pods=0, lost=True, now_seconds=NOW) is None
    assert not is_held(job)


@pytest.mark.parametrize(
    ("step", "job", "held"),
    [
        ("leaving", SUSPENDED, True),
        ("unpinning", SUSPENDED_PINNED, True),
        ("leaving", RUNS, False),
        ("pinned", SUSPENDED_PINNED, False),
        ("leaving", {**SUSPENDED, "status": FINISHED}, False),
        ("leaving", {**SUSPENDED, "deletionTimestamp": "2026-01-01T01:00:00Z"}, False),
    ],
)
def test_a_job_is_held_while_only_we_resume_it(step: Step, job: Json, held: bool) -> None:
    assert is_held(a_job(step, **job)) is held

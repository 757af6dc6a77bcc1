"""Guards of one migration: each lets through what it should, and its veto names the figure and the bound."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs
from support.moving import AUTO, MOBILE, SAVES, bounded, crowded, remembered, to
from support.reviewing import reviewed
from support.worlds import START

from slopewise.model import (
    Backoff,
    Bounds,
    Checkpoint,
    ClusterSnapshot,
    MemoryState,
    Migrate,
    Movability,
    Move,
    MoveRecord,
    MoveUnderWay,
    Responses,
)

REPORTS = "training_checkpoint_on_sigterm 1, or training_checkpoint_timestamp_seconds"
SERVED = Responses(200.0, 10.0)
"""A model that serves and trains (`steps_total`) has steps to lose."""
RETURNED = MoveRecord(START - 700.0, "n2", "n1", resumed_at_seconds=START - 650.0, resumed_on="n1", steps_lost=0.0)


def reason(
    snapshot: ClusterSnapshot, memory: MemoryState | None = None, bounds: Bounds = AUTO, move: Move | None = None
) -> str:
    """Why the move is withheld; empty when it is let through."""
    known = memory or remembered("a", "b")
    allowed, withheld = reviewed([move or to("n2")], snapshot, known, bounds)
    assert len(allowed) + len(withheld) == 1
    return withheld[0].reason if withheld else ""


def with_movability(**more: object) -> Movability:
    return replace(MOBILE, **more)  # type: ignore[arg-type]


def test_a_job_that_may_go_to_an_idle_node_is_let_through_and_its_reason_says_what_it_gains_and_costs() -> None:
    allowed, withheld = reviewed([to("n2")], crowded("a", "b"), remembered("a", "b"), AUTO)
    assert withheld == ()
    assert allowed[0].reason == ("why; gains 600 s over 600 s, costs 4 s (saving 2 s, starting 2 s, repeating 0 s)")


def test_without_bounds_none_of_them_is_asked_and_the_reason_stays_as_it_was() -> None:
    bare = crowded(
        "a", "b", checkpoint=None, movability=with_movability(blocked_reason="it is bare"), started_at_seconds=START
    )
    unbounded = replace(AUTO, moving=None)
    assert reviewed([to("n2")], bare, remembered("a", "b"), unbounded) == ((to("n2"),), ())


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"movability": with_movability(way=None, blocked_reason="a bare pod: nothing makes it again")},
         "move_blocked: a bare pod: nothing makes it again"),
        ({"movability": with_movability(refused_nodes={"n2": "taint gpu=yes:NoSchedule"})},
         "refused_node: n2 would not take it: taint gpu=yes:NoSchedule"),
        ({"movability": with_movability(refused_nodes={"n3": "taint gpu=yes:NoSchedule"})}, ""),
        ({"started_at_seconds": START - 30.0}, "minimum_stay: on n1 for 30 s, bound 600 s"),
        ({"started_at_seconds": START - 600.0}, ""),
        ({"checkpoint": None},
         f"checkpoint: it reports no checkpoint: {REPORTS}"),
        ({"checkpoint": None, "steps_total": None, "responses": SERVED}, ""),
        ({"checkpoint": None, "responses": SERVED},
         f"checkpoint: it reports no checkpoint: {REPORTS}"),
        ({"checkpoint": Checkpoint(START - 301.0, 2.0), "steps_total": None, "responses": SERVED},
         "checkpoint: the last one is 301 s old, bound 300 s"),
        ({"checkpoint": Checkpoint(START - 301.0, 2.0)}, "checkpoint: the last one is 301 s old, bound 300 s"),
        ({"checkpoint": Checkpoint(START - 299.0, 2.0)}, ""),
        ({"checkpoint": Checkpoint(START + 59.0, 2.0)}, ""),
        ({"checkpoint": Checkpoint(START + 61.0, 2.0)}, "checkpoint: the last one is 61 s in the future, bound 60 s"),
        ({"checkpoint": Checkpoint(START + 61.0, 2.0, on_sigterm=True)}, ""),
        ({"checkpoint": Checkpoint(None, None, on_sigterm=True)}, ""),
        ({"checkpoint": replace(SAVES, duration_seconds=20.0)},
         "grace: it is given 30 s to end, bound 32 s for a checkpoint of 20 s"),
        ({"checkpoint": replace(SAVES, duration_seconds=18.0)}, ""),
        ({"movability": with_movability(grace_seconds=9.5), "checkpoint": replace(SAVES, duration_seconds=None)},
         "grace: it is given 9.5 s to end, bound 9.5 s for a checkpoint of 5 s"),
        ({"movability": with_movability(grace_seconds=None), "checkpoint": replace(SAVES, duration_seconds=60.0)}, ""),
    ],
)  # fmt: skip
def test_what_a_job_and_its_platform_say_is_weighed(more: dict[str, Any], expected: str) -> None:
    assert reason(crowded("a", "b", **more)) == expected


def returned(**more: Any) -> dict[str, Any]:
    """A job that has come back from a move away from n2."""
    return {"moves": (structs.replace(RETURNED, **more),)}


@pytest.mark.parametrize(
    ("known", "bounds", "move", "expected"),
    [
        ({}, bounded(enabled=False), to("n2"), "migration_disabled: spec.migration.enabled is false"),
        ({}, AUTO, Migrate("gone", "n1", "n2", "why"), "may_migrate: job has ended"),
        (returned(failure="crashed on resume"), AUTO, to("n2"), "move_blocked: not moved again: crashed on resume"),
        (
            {"backoff": Backoff(START + 40.0, "OOM-killed")},
            AUTO,
            to("n2"),
            "resize_backoff: for another 40 s: OOM-killed",
        ),
        (
            {"moves": (MoveRecord(START - 5.0, "n1", "n2"),)},
            AUTO,
            to("n2"),
            "under_way: it is being moved to n2 already",
        ),
        # a stay begins with the return from a move
        (returned(resumed_at_seconds=START - 20.0), AUTO, to("n2"), "minimum_stay: on n1 for 20 s, bound 600 s"),
        (returned(), AUTO, to("n2"), "no_return: left n2 700 s ago, bound 1200 s"),
        (returned(at_seconds=START - 1200.0), AUTO, to("n2"), ""),
        # its horizon counts also where a stay is short
        (
            returned(at_seconds=START - 590.0),
            bounded(min_stay_seconds=0.0),
            to("n2"),
            "no_return: left n2 590 s ago, bound 600 s",
        ),
    ],
)
def test_what_is_remembered_of_a_job_and_what_its_policy_says_is_weighed(
    known: dict[str, Any], bounds: Bounds, move: Move, expected: str
) -> None:
    assert reason(crowded("a", "b"), remembered("a", "b", **known), bounds, move) == expected


def test_a_job_that_is_being_moved_is_not_moved_once_more() -> None:
    moving = replace(crowded("a", "b"), moving=(MoveUnderWay("a", "n1", "n3", START - 5.0, "saving"),))
    assert reason(moving) == "under_way: it is being moved to n3 already"
    given_up = replace(moving, moving=(replace(moving.moving[0], node=""),))
    assert reason(given_up) == "under_way: it is being moved to where it fits already"


# --- the pods of one workload ---------------------------------------------------------------------------------

GANG = ("w:0", "w:1")


def gang(*alone: str, **more: Any) -> ClusterSnapshot:
    return crowded(*GANG, *alone, movability=replace(MOBILE, members=GANG), **more)


def test_the_pods_of_a_workload_move_whole_or_not_at_all() -> None:
    one = reason(gang(), remembered(*GANG), move=to("n2", "w:0"))
    assert one == "all_or_nothing: moves whole or not at all: 1 of 2 pods"


def test_a_veto_of_one_pod_is_a_veto_of_all() -> None:
    snapshot = gang()
    late = snapshot.jobs[1].altered(started_at_seconds=START - 1.0)
    snapshot = replace(snapshot, jobs=(snapshot.jobs[0], late))
    _, withheld = reviewed([to("n2", uid) for uid in GANG], snapshot, remembered(*GANG), AUTO)
    assert [each.reason for each in withheld] == [
        "all_or_nothing: moves whole or not at all, and w:1 may not: on n1 for 1 s, bound 600 s",
        "minimum_stay: on n1 for 1 s, bound 600 s",
    ]


def test_a_workload_whose_pods_are_all_wished_to_one_node_is_one_move() -> None:
    # Alone on its node it would gain nothing: w:2 is a job of somebody else's that gets the core for itself.
    wide = gang("x:0", memory_request_bytes=3.0 * 2**30)
    big = replace(wide.nodes[1], cpu_cores=4.0)
    snapshot = replace(wide, nodes=(wide.nodes[0], big), jobs=(*wide.jobs[:2], wide.jobs[2].altered(movability=MOBILE)))
    moves = [to("n2", uid) for uid in GANG]
    allowed, withheld = reviewed(moves, snapshot, remembered(*GANG, "x:0"), AUTO)
    assert withheld == ()
    assert [move.job_uid for move in allowed] == list(GANG)
    then, also = reviewed([*moves, to("n2", "x:0")], snapshot, remembered(*GANG, "x:0"), bounded(max_concurrent=2))
    assert len(then) == 2
    assert also[0].guard == "gain"  # who is alone on n1 has a core already


def test_the_memory_of_all_pods_together_must_fit() -> None:
    snapshot = gang(memory_request_bytes=5.0 * 2**30)
    _, withheld = reviewed(
        [to("n2", uid) for uid in GANG], replace(snapshot, nodes=_bigger(snapshot)), remembered(*GANG), AUTO
    )
    assert {each.reason for each in withheld} == {"memory_capacity: needs 10 GiB, n2 has 8 GiB left"}


def _bigger(snapshot: ClusterSnapshot) -> tuple:  # type: ignore[type-arg]
    """n2 has four cores, so that a move there pays."""
    return (snapshot.nodes[0], replace(snapshot.nodes[1], cpu_cores=4.0))


def test_a_pod_that_is_on_the_target_already_need_not_be_wished_there() -> None:
    snapshot = gang()
    there = snapshot.jobs[1].altered(node="n2")
    snapshot = replace(snapshot, jobs=(snapshot.jobs[0], there))
    given = reason(replace(snapshot, nodes=_bigger(snapshot)), remembered(*GANG), move=to("n2", "w:0"))
    assert not given.startswith("all_or_nothing")

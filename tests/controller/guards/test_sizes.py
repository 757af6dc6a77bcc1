"""The CPU that arrivals get by their class stays within floor, ceiling and their namespace's share."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.worlds import START, a_job, a_node, a_snapshot

from slopewise.guards.sizes import within_bounds
from slopewise.model import Arrival, Bounds, ClusterSnapshot, Objectives, Place

BOUNDS = Bounds("Auto", 100, 2000, 0.0, 100.0, 0.0)


def world(*waiting: str, running_millicores: int = 0) -> ClusterSnapshot:
    """Two nodes of two cores, and a job with a promise that requests so much."""
    job = replace(a_job("running", request=running_millicores), objectives=Objectives(qoe_seconds=1.0))
    arrivals = tuple(Arrival(uid, uid, "team", START) for uid in waiting)
    nodes = [a_node("n1", 2.0), a_node("n2", 2.0)]
    return replace(a_snapshot([job] if running_millicores else [], nodes), waiting=arrivals)


def place(uid: str, size: int | None) -> Place:
    return Place(uid, "n1", "it needs that", size)


def sizes(snapshot: ClusterSnapshot, *moves: Place, ratio: float | None = None) -> list[int | None]:
    bounded = within_bounds(moves, snapshot, replace(BOUNDS, max_guaranteed_cpu_ratio=ratio))
    return [move.request_millicores for move in bounded if isinstance(move, Place)]


@pytest.mark.parametrize(("wanted", "given"), [(500, 500), (50, 100), (9000, 2000), (None, None)])
def test_floor_and_ceiling(wanted: int | None, given: int | None) -> None:
    assert sizes(world("a"), place("a", wanted)) == [given]


def test_a_tenant_that_promises_himself_everything_meets_the_cap_and_is_reported() -> None:
    """Half of four cores: 1500m and 500m of 1500m, and the third starts with what it came with."""
    moves = [place(uid, 1500) for uid in "abc"]
    snapshot = world("a", "b", "c")
    assert sizes(snapshot, *moves, ratio=0.5) == [1500, 500, None]
    reasons = [move.reason for move in within_bounds(moves, snapshot, replace(BOUNDS, max_guaranteed_cpu_ratio=0.5))]
    assert reasons[0] == "it needs that"
    assert reasons[1] == "it needs that (wanted 1500m, its namespace's share leaves 500m)"
    assert "namespace team has been promised its share" in reasons[2]


def test_running_jobs_with_a_promise_count() -> None:
    assert sizes(world("a", running_millicores=1800), place("a", 1500), ratio=0.5) == [200]


def test_what_other_pods_take_is_not_shared_out() -> None:
    snapshot = world("a")
    filled = replace(snapshot, nodes=(a_node("n1", 2.0, available_cores=0.4), a_node("n2", 2.0, available_cores=0.4)))
    assert sizes(filled, place("a", 1500), ratio=0.5) == [400]

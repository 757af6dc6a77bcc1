"""Arrivals by need: the fullest node that keeps all promises, else the one with most free CPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from support.worlds import START, a_node, a_snapshot

from slopewise.model import Arrival, MemoryState, Node, Place
from slopewise.policies.shared.need_placement import Need, NodeRoom, place_by_need, wanted_cores

ARRIVED = START - 100.0

TIMED: Mapping[str, float] = {"small": 0.4, "middle": 0.5, "large": 0.9}
"""Needs in cores; a job that is not named is not timed yet, and wants one core."""


def room(cores: float, *needs: float) -> NodeRoom:
    made = NodeRoom(cores)
    for each in needs:
        made.add(each)
    return made


def need_of(arrival: Arrival, node: Node) -> Need | None:
    if arrival.uid.startswith("free"):
        return None
    needs = TIMED.get(arrival.uid)
    return Need(wanted_cores(arrival, node), timed=False) if needs is None else Need(needs, timed=True)


def placed(*uids: str, rooms: Mapping[str, NodeRoom] | None = None) -> tuple[Place, ...]:
    """Of arrivals in this order; n1 has a need of 0.3 cores, and n2 one of 0.6, a core each."""
    there = rooms or {"n1": room(1.0, 0.3), "n2": room(1.0, 0.6)}
    waiting = tuple(Arrival(uid, uid, "team", ARRIVED + number) for number, uid in enumerate(uids))
    snapshot = replace(a_snapshot([], [a_node(name, each.node_cores) for name, each in there.items()]), waiting=waiting)
    return place_by_need(
        snapshot, MemoryState(), there, need_of, lambda each: each.arrived_at_seconds, objective="objective"
    )


def nodes(result: tuple[Place, ...]) -> dict[str, str]:
    return {place.job_uid: place.node for place in result}


@pytest.mark.parametrize(("uid", "node"), [("small", "n2"), ("middle", "n1")])
def test_the_fullest_node_that_fits_is_chosen(uid: str, node: str) -> None:
    assert nodes(placed(uid)) == {uid: node}


def test_each_sees_those_before_it() -> None:
    rooms = {"n1": room(1.0), "n2": room(1.0, 0.55)}
    assert nodes(placed("small", "middle", "middle-2", rooms=rooms)) == {
        "small": "n2",
        "middle": "n1",
        "middle-2": "n1",
    }


def test_one_that_fits_nowhere_goes_where_most_is_free() -> None:
    (place,) = placed("large")
    assert place.node == "n1"
    assert "fits nowhere, and most is free here (0.7 cores)" in place.reason


def test_a_job_without_a_promise_goes_where_it_shares_most() -> None:
    full = {"n1": room(1.0, 1.0), "n2": room(1.0, 0.9)}
    assert nodes(placed("free", rooms=full)) == {"free": "n2"}


@pytest.mark.parametrize(
    ("parallelism", "request_millicores", "wants"), [(2.0, 500, 2.0), (None, 500, 0.5), (None, 0, 1.0), (9.0, 0, 4.0)]
)
def test_a_newcomer_wants_what_it_can_use_else_its_request_else_one_core(
    parallelism: float | None, request_millicores: int, wants: float
) -> None:
    arrival = Arrival("new", "new", "team", START, request_millicores, useful_parallelism_cores=parallelism)
    assert wanted_cores(arrival, a_node(cpu_cores=4.0)) == wants

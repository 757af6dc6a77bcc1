"""Arrivals by need: the fullest node that keeps all promises, and who waits where none does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from support.worlds import START, a_node, a_snapshot

from slopewise.model import Arrival, JobMemory, MemoryState, Node
from slopewise.policies.shared.need_placement import Need, NodeRoom, Placed, need_on, place_by_need, wanted_cores

ARRIVED = START - 100.0

TIMED: Mapping[str, float] = {"small": 0.4, "middle": 0.5, "large": 0.9, "huge": 7.0, "of-a-class": 0.9}
"""Needs in cores; a job that is not named is not timed yet, and wants one core."""


def room(cores: float, *needs: float, untimed: int = 0) -> NodeRoom:
    made = NodeRoom(cores)
    for each in needs:
        made.add(each)
    for _ in range(untimed):
        made.add(1.0, timed=False)
    return made


def need_of(arrival: Arrival, node: Node) -> Need | None:
    if arrival.uid.startswith("free"):
        return None
    needs = TIMED.get(arrival.uid)
    return (
        Need(wanted_cores(arrival, node), timed=False)
        if needs is None
        else Need(needs, timed=True, by_class=arrival.uid == "of-a-class")
    )


def placed(*uids: str, rooms: Mapping[str, NodeRoom] | None = None, bound: float = 600.0) -> Placed:
    """Of arrivals in this order; n1 has a need of 0.3 cores, and n2 one of 0.6, a core each."""
    there = rooms or {"n1": room(1.0, 0.3), "n2": room(1.0, 0.6)}
    waiting = tuple(Arrival(uid, uid, "team", ARRIVED + number) for number, uid in enumerate(uids))
    snapshot = replace(a_snapshot([], [a_node(name, each.node_cores) for name, each in there.items()]), waiting=waiting)
    return place_by_need(
        snapshot,
        MemoryState(),
        there,
        need_of,
        lambda each: each.arrived_at_seconds,
        promise="objective",
        max_hold_seconds=bound,
    )


def nodes(result: Placed) -> dict[str, str]:
    return {place.job_uid: place.node for place in result.places}


@pytest.mark.parametrize(("uid", "node"), [("small", "n2"), ("middle", "n1")])
def test_the_fullest_node_that_fits_is_chosen(uid: str, node: str) -> None:
    assert nodes(placed(uid)) == {uid: node}


def test_one_that_fits_nowhere_beside_the_kept_promises_waits_and_says_what_it_lacks() -> None:
    result = placed("large")
    assert result.places == ()
    assert result.held == {"large": "needs 0.9 cores; most free is 0.7 on n1"}


def test_one_whose_class_says_what_it_needs_takes_an_even_share_in_its_stead_and_is_sized() -> None:
    (place,) = placed("of-a-class").places
    assert (place.node, place.request_millicores) == ("n1", 900)
    assert place.reason.startswith("by jobs of its class it needs 0.9 cores: fits nowhere")


def test_a_job_that_waits_takes_no_room_and_a_smaller_one_passes_it() -> None:
    result = placed("large", "middle")
    assert (nodes(result), list(result.held)) == ({"middle": "n1"}, ["large"])


def test_each_sees_those_before_it() -> None:
    result = placed("small", "middle", "small-2", rooms={"n1": room(1.0), "n2": room(1.0, 0.95)})
    assert nodes(result) == {"small": "n1", "middle": "n1"}
    assert list(result.held) == ["small-2"]


@pytest.mark.parametrize("bound", [0.0, 100.0])
def test_where_it_may_not_wait_any_longer_it_goes_where_most_is_free(bound: float) -> None:
    result = placed("large", bound=bound)
    assert (nodes(result), result.held) == ({"large": "n1"}, {})
    assert "fits nowhere, and most is free here (0.7 cores)" in result.places[0].reason


def test_a_need_that_is_above_every_node_is_not_waited_for() -> None:
    result = placed("huge")
    assert (nodes(result), result.held) == ({"huge": "n1"}, {})


def test_a_job_without_a_promise_is_never_held_back() -> None:
    full = {"n1": room(1.0, 1.0), "n2": room(1.0, 0.9)}
    result = placed("free", rooms=full)
    assert (nodes(result), result.held) == ({"free": "n2"}, {})


def test_a_job_that_is_not_timed_takes_an_even_share_until_it_is() -> None:
    assert nodes(placed("new")) == {"new": "n1"}  # 0.5 of a core beside a need of 0.3
    kept = {"n1": room(1.0, 0.3, 0.3, 0.3)}
    assert placed("new", rooms=kept).held == {
        "new": "not timed yet, wants 1 cores, takes 0.25 until it is timed; most free is 0.1 on n1"
    }


def test_jobs_that_are_not_timed_do_not_keep_one_another_out() -> None:
    assert nodes(placed("new", rooms={"n1": room(1.0, untimed=3)})) == {"new": "n1"}


def test_a_node_that_does_not_accept_the_job_is_no_room() -> None:
    rooms = {"n1": room(1.0), "n2": room(1.0, 0.6)}
    arrival = Arrival("large", "large", "team", ARRIVED, refused_nodes={"n1": "a taint"})
    snapshot = replace(a_snapshot([], [a_node("n1"), a_node("n2")]), waiting=(arrival,))
    result = place_by_need(
        snapshot, MemoryState(), rooms, need_of, lambda _: 0.0, promise="objective", max_hold_seconds=600.0
    )
    assert result.held == {"large": "needs 0.9 cores; most free is 0.4 on n2"}


@pytest.mark.parametrize(
    ("parallelism", "request_millicores", "wants"), [(2.0, 500, 2.0), (None, 500, 0.5), (None, 0, 1.0), (9.0, 0, 4.0)]
)
def test_a_newcomer_wants_what_it_can_use_else_its_request_else_one_core(
    parallelism: float | None, request_millicores: int, wants: float
) -> None:
    arrival = Arrival("new", "new", "team", START, request_millicores, useful_parallelism_cores=parallelism)
    assert wanted_cores(arrival, a_node(cpu_cores=4.0)) == wants


@pytest.mark.parametrize(
    ("ran_before", "measured", "of_class", "need"),
    [
        (True, 0.3, 0.4, Need(0.3, timed=True)),
        (True, None, 0.4, Need(0.4, timed=True, by_class=True)),
        (False, 0.3, 0.4, Need(0.4, timed=True, by_class=True)),
        (True, None, None, Need(2.0, timed=False)),
        (False, 0.3, None, Need(2.0, timed=False)),
    ],
)
def test_a_need_is_its_own_else_that_of_its_class_else_what_it_wants(
    ran_before: bool, measured: float | None, of_class: float | None, need: Need
) -> None:
    arrival = Arrival("new", "new", "team", START, useful_parallelism_cores=2.0)
    memory = MemoryState(arriving={"new": JobMemory()} if ran_before else {})
    wants: list[float] = []

    def measured_cores(_: JobMemory, wanted: float) -> float | None:
        wants.append(wanted)
        return measured

    assert need_on(a_node(cpu_cores=4.0), arrival, memory, measured_cores, lambda: of_class) == need
    assert wants == ([2.0] if ran_before else [])

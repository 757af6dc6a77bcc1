"""Placing arriving jobs one after another: order, memory, ties, and what is counted on each node."""

from __future__ import annotations

import math
from dataclasses import replace

from support.worlds import a_job, a_node, a_snapshot, known, remembering

from slopewise.model import Arrival, ClusterSnapshot, JobState, MemoryState, Node, Place
from slopewise.policies.shared.placement import by_cpu_fraction, cpu_use_cores, place_each

GIB = 2.0**30


def an_arrival(uid: str, at: float = 0.0, memory_gib: float | None = None) -> Arrival:
    return Arrival(uid, uid, "team", at, memory_request_bytes=None if memory_gib is None else memory_gib * GIB)


def a_world(*waiting: Arrival, nodes: tuple[Node, ...] = (a_node("n1"), a_node("n2"))) -> ClusterSnapshot:
    return replace(a_snapshot([], nodes), waiting=waiting)


class FewestPlaced:
    """A cost that counts what was placed, as every real one does in its own way."""

    def __init__(self) -> None:
        self.placed: list[str] = []

    def cost(self, arrival: Arrival, node: Node) -> float:
        return float(self.placed.count(node.name))

    def count(self, arrival: Arrival, node: Node) -> str:
        self.placed.append(node.name)
        return f"placement {len(self.placed)}"


def places(snapshot: ClusterSnapshot, memory: MemoryState | None = None) -> dict[str, str]:
    fewest = FewestPlaced()
    found = place_each(snapshot, memory or MemoryState(), fewest.cost, fewest.count)
    return {place.job_uid: place.node for place in found}


def test_jobs_are_placed_in_order_of_arrival_whatever_the_order_of_the_snapshot() -> None:
    early, late, twin = an_arrival("z", at=1.0), an_arrival("a", at=2.0), an_arrival("b", at=2.0)
    fewest = FewestPlaced()
    found = place_each(a_world(twin, late, early), MemoryState(), fewest.cost, fewest.count)
    assert found == (Place("z", "n1", "placement 1"), Place("a", "n2", "placement 2"), Place("b", "n1", "placement 3"))


def test_ties_go_to_the_lowest_measured_fraction_of_the_nodes_cpu_then_to_the_first_name() -> None:
    jobs = [a_job("on-small", node="small"), a_job("on-large", node="large")]
    one_core_each = remembering({job.uid: known(efficiency=0.1) for job in jobs})
    nodes = [a_node("small", 2.0), a_node("large", 8.0), a_node("b-idle"), a_node("a-idle")]
    order = [node.name for node in by_cpu_fraction(a_snapshot(jobs, nodes), one_core_each)]
    assert order == ["a-idle", "b-idle", "large", "small"]
    busy_first = replace(a_snapshot(jobs, nodes[:2]), waiting=(an_arrival("new"),))
    assert places(busy_first, one_core_each) == {"new": "large"}


def test_memory_must_fit_beside_what_running_jobs_and_earlier_arrivals_request() -> None:
    tight = (replace(a_node("n1"), memory_bytes=int(4 * GIB)), replace(a_node("n2"), memory_bytes=int(16 * GIB)))
    running = a_job("running").altered(memory_request_bytes=1 * GIB)
    world = replace(
        a_world(an_arrival("a", 1, 3), an_arrival("b", 2, 10), an_arrival("c", 3, 3), nodes=tight), jobs=(running,)
    )
    assert places(world, remembering({"running": known()})) == {"a": "n1", "b": "n2", "c": "n2"}


def test_a_job_that_fits_nowhere_or_whose_cost_is_infinite_everywhere_gets_no_place() -> None:
    assert places(a_world(an_arrival("huge", memory_gib=9), an_arrival("small"))) == {"small": "n1"}
    assert place_each(a_world(an_arrival("a")), MemoryState(), lambda *_: math.inf, lambda *_: "never") == ()
    assert places(replace(a_world(an_arrival("a")), nodes=())) == {}


def test_a_job_that_has_ended_uses_no_cpu() -> None:
    snapshot = a_snapshot([a_job("ended", state=JobState.FINISHED), a_job("running")])
    memory = remembering({"ended": known(efficiency=0.1), "running": known()})
    assert cpu_use_cores(snapshot, memory) == {"n1": 0.0}


def test_a_node_that_would_not_take_the_job_is_ruled_out() -> None:
    tainted = replace(an_arrival("a"), refused_nodes={"n1": "a taint"})
    assert places(a_world(tainted)) == {"a": "n2"}
    nowhere = replace(tainted, refused_nodes={"n1": "a taint", "n2": "a selector"})
    assert places(a_world(nowhere)) == {}

"""DRAPS: placement by the resource a job needs most, and moves away from full nodes that gain something."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from msgspec import structs
from support.worlds import START, a_job, a_snapshot, known, remembering

from slopewise.model import (
    Arrival,
    ClusterSnapshot,
    Decisions,
    Growth,
    Job,
    JobMemory,
    JobState,
    MemoryState,
    Migrate,
    Movability,
    Node,
    NodeMemory,
    Usage,
)
from slopewise.policies import Setting
from slopewise.policies.draps import Parameters, Policy

GIB = 2**30


def node(name: str, cpu_cores: float = 1.0, gib: int = 32) -> Node:
    return Node(name, cpu_cores, gib * GIB)


def job(uid: str, on: str, *, gib: float = 0.0, migratable: bool = True, **more: object) -> Job:
    made = a_job(uid, node=on, **more)  # type: ignore[arg-type]
    return made.altered(usage=Usage(START, 0.0, gib * GIB), memory_request_bytes=gib * GIB, migratable=migratable)


def using(cores: float | None, at: float = START) -> JobMemory:
    return known() if cores is None else structs.replace(known(), growth=Growth(at, 20.0, 0.01, cores))


def arrival(cores: float | None = None, gib: float | None = None, millicores: int = 0) -> Arrival:
    memory_bytes = None if gib is None else gib * GIB
    return Arrival("new", "new", "team", START, millicores, memory_bytes, cores)


def world(nodes: Sequence[Node], jobs: Sequence[Job], waiting: Sequence[Arrival] = ()) -> ClusterSnapshot:
    return replace(a_snapshot(jobs, nodes), waiting=tuple(waiting))


def decide(snapshot: ClusterSnapshot, memory: dict[str, JobMemory] | MemoryState, **parameters: float) -> Decisions:
    remembered = memory if isinstance(memory, MemoryState) else MemoryState(memory)
    return Policy(Parameters(**parameters), Setting(20.0, "limits")).decide(snapshot, remembered)


def placed(snapshot: ClusterSnapshot, memory: dict[str, JobMemory]) -> list[str]:
    return [move.node for move in decide(snapshot, memory).moves]


THREE = [node("n1", 2.0), node("n2", 2.0), node("n3", 2.0)]
BUSY = [job("a", "n1", gib=1), job("b", "n2", gib=20), job("c", "n3", gib=1)]
USED = {"a": using(1.2), "b": using(0.8), "c": using(1.0)}  # 0.4, 0.6 and 0.5 of the CPU are free


def test_the_vector_a_job_that_needs_most_cpu_goes_where_most_cpu_is_free_whatever_the_memory() -> None:
    decisions = decide(world(THREE, BUSY, [arrival(cores=1.5, gib=4)]), USED)
    assert [(move.job_uid, move.node) for move in decisions.moves] == [("new", "n2")]
    assert decisions.moves[0].reason == "needs most cpu, of which n2 has most free (40% used)"


@pytest.mark.parametrize(
    ("arriving", "node"),
    [
        (arrival(cores=2.0, gib=13), "n3"),  # the memory of n2 does not fit it
        (arrival(cores=0.1, gib=8), "n3"),  # needs most memory, of which n2 has least
        (arrival(millicores=1500, gib=4), "n2"),  # its request stands for the parallelism that is not stated
        (arrival(), "n2"),  # nothing is known of it
    ],
)
def test_the_resource_that_an_arrival_needs_most_decides_where_it_fits(arriving: Arrival, node: str) -> None:
    assert placed(world(THREE, BUSY, [arriving]), USED) == [node]


def test_among_nodes_whose_cpu_is_used_up_the_one_with_the_fewest_jobs_is_chosen() -> None:
    jobs = [job("a", "n1"), job("b", "n1"), job("c", "n2")]
    full = {"a": using(0.49), "b": using(0.49), "c": using(1.0)}
    assert placed(world([node("n1"), node("n2")], jobs, [arrival(cores=1.0)]), full) == ["n2"]


def test_a_full_nodes_largest_user_moves_to_the_node_with_most_of_it_free() -> None:
    jobs = [job("big", "n1"), job("small", "n1"), job("c", "n2")]
    cores = {"big": using(1.1), "small": using(0.7), "c": using(0.2)}
    decisions = decide(world([node("n1", 2.0), node("n2", 2.0), node("n3", 2.0)], jobs), cores)
    reason = "largest user of cpu on n1, of which 90% is used; n3 has most free (100%)"
    assert decisions.moves == (Migrate("big", "n1", "n3", reason),)
    assert decisions.reasons["big"] == reason
    assert decisions.reasons["small"] == "not moved: needs most cpu; cpu of n1 is 90% used"
    assert decisions.memory.jobs["big"].decided.job_class == "cpu"


def test_a_node_at_its_bound_is_left_alone_and_the_bound_is_a_parameter() -> None:
    snapshot = world([node("n1"), node("n2")], [job("a", "n1"), job("b", "n1")])
    cores = {"a": using(0.4), "b": using(0.4)}
    assert decide(snapshot, cores).moves == ()
    assert [move.job_uid for move in decide(snapshot, cores, full_ratio=0.7).moves] == ["b"]


def test_memory_is_relieved_as_well_as_cpu() -> None:
    jobs = [job("a", "n1", gib=20), job("b", "n1", gib=8), job("c", "n2", gib=2)]
    moves = decide(world([node("n1", 4.0), node("n2", 4.0)], jobs), {uid: using(0.1) for uid in "abc"}).moves
    assert [(move.job_uid, move.node) for move in moves] == [("a", "n2")]
    assert isinstance(moves[0], Migrate)
    assert moves[0].relieves == "memory"
    assert moves[0].reason.startswith("largest user of memory on n1, of which 88% is used")


def test_a_move_without_gain_is_not_made() -> None:
    alone = world([node("n1"), node("n2")], [job("a", "n1")])
    assert decide(alone, {"a": using(1.0)}).moves == ()
    both_full = world([node("n1"), node("n2")], [job("a", "n1"), job("b", "n1"), job("c", "n2")])
    assert decide(both_full, {"a": using(0.5), "b": using(0.5), "c": using(0.9)}).moves == ()


@pytest.mark.parametrize(
    "passed_over",
    [
        job("big", "n1", migratable=False),
        job("big", "n1", state=JobState.CHECKPOINTING),
        job("big", "n1", state=JobState.STARTING),
        job("big", "n1").altered(movability=Movability(blocked_reason="a bare pod")),
    ],
)
def test_a_job_that_may_not_move_is_passed_over_for_the_next_largest(passed_over: Job) -> None:
    snapshot = world([node("n1"), node("n2")], [passed_over, job("small", "n1")])
    moves = decide(snapshot, {"big": using(0.5), "small": using(0.45)}).moves
    assert [move.job_uid for move in moves] == ["small"]


def test_a_job_goes_to_the_next_best_node_where_the_best_would_not_take_it() -> None:
    tainted = Movability("suspend", refused_nodes={"n2": "a taint"})
    jobs = [job("big", "n1").altered(movability=tainted), job("small", "n1"), job("c", "n3")]
    snapshot = world([node("n1"), node("n2"), node("n3")], jobs)
    moves = decide(snapshot, {"big": using(0.5), "small": using(0.45), "c": using(0.2)}).moves
    assert [(move.job_uid, move.node) for move in moves] == [("big", "n3")]


def test_a_job_moves_only_on_a_measurement_made_since_the_last_look() -> None:
    jobs = [job("a", "n1"), job("b", "n1"), job("new", "n1")]
    snapshot = world([node("n1"), node("n2")], jobs)
    cores = {"a": using(0.5, START - 10), "b": using(0.5, START - 10), "new": using(None)}
    event = MemoryState(cores, {"n1": NodeMemory(frozenset(["a", "b"]), START - 5, 20.0)})
    assert decide(snapshot, event).moves == ()
    tick = MemoryState(cores, {"n1": NodeMemory(frozenset(["a", "b", "new"]), START - 20, 20.0)})
    assert len(decide(snapshot, tick).moves) == 1


def test_between_two_looks_no_job_is_moved() -> None:
    cores = {"a": using(0.5), "b": using(0.5)}
    looked = remembering(cores, evaluated_at=START - 5)
    assert decide(world([node("n1"), node("n2")], [job("a", "n1"), job("b", "n1")]), looked).moves == ()


def test_one_move_a_node_the_fullest_first_and_counts_updated_in_between() -> None:
    jobs = [job(uid, name) for uid, name in (("a", "n1"), ("b", "n1"), ("c", "n2"), ("d", "n2"))]
    cores = {"a": using(0.5), "b": using(0.45), "c": using(0.46), "d": using(0.42)}
    moves = decide(world([node("n1"), node("n2"), node("n3")], jobs), cores).moves
    # The third node takes the first one's 50 %. Then the first has most free, but 45 % and 46 % are no gain on 88 %.
    assert [(move.job_uid, move.node) for move in moves] == [("a", "n3")]


def test_before_it_is_measured_a_job_counts_for_what_it_is_allotted_up_to_what_it_can_use() -> None:
    wide, narrow = job("wide", "n1", limit=2000), job("narrow", "n2", limit=2000, useful_cores=0.5)
    unknown = {"wide": using(None), "narrow": using(None)}
    assert placed(world([node("n1", 2.0), node("n2", 2.0)], [wide, narrow], [arrival(cores=1.0)]), unknown) == ["n2"]


def test_a_node_that_only_a_new_placement_will_fill_is_not_relieved_in_the_same_breath() -> None:
    jobs = [job("a", "n1"), job("b", "n2")]
    decisions = decide(world([node("n1"), node("n2")], jobs, [arrival(cores=1.0)]), {"a": using(0.3), "b": using(0.2)})
    assert [move.job_uid for move in decisions.moves] == ["new"]

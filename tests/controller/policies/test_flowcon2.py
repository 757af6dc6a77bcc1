"""FlowCon 2.0: FlowCon's decisions on each node, and arriving jobs where the fewest claims per core are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from support.worlds import START, a_job, a_node, a_snapshot, known, remembering

from slopewise.model import Arrival, ClusterSnapshot, Decisions, Job, JobMemory, MemoryState, Node, Place
from slopewise.policies import Setting, flowcon
from slopewise.policies.flowcon import COMPLETING, NEW, WATCHING
from slopewise.policies.flowcon2 import Parameters, Policy

SETTING = Setting(20.0, "requests")
TWO_NODES = (a_node("a", 2.0), a_node("b", 1.0))


def an_arrival(uid: str, at: float = START, **more: float) -> Arrival:
    return Arrival(uid, uid, "team", at, **more)  # type: ignore[arg-type]


def a_world(
    jobs: dict[str, tuple[str, str | None]], *waiting: Arrival, nodes: Sequence[Node] = TWO_NODES
) -> tuple[ClusterSnapshot, MemoryState]:
    """Jobs by uid with their node and their list, none of them measured again."""
    running: list[Job] = [a_job(uid, node=node) for uid, (node, _) in jobs.items()]
    remembered: dict[str, JobMemory] = {uid: known(job_class=listed) for uid, (_, listed) in jobs.items()}
    return replace(a_snapshot(running, nodes), waiting=waiting), MemoryState(remembered)


def decide(snapshot: ClusterSnapshot, memory: MemoryState, **parameters: float) -> Decisions:
    return Policy(Parameters(**parameters), SETTING).decide(snapshot, memory)


def places(decisions: Decisions) -> dict[str, str]:
    assert all(isinstance(move, Place) for move in decisions.moves)
    return {move.job_uid: move.node for move in decisions.moves}


def test_vector_one_completing_job_on_one_core_claims_less_than_two_new_ones_on_two_cores() -> None:
    world = a_world({"x": ("a", NEW), "y": ("a", NEW), "z": ("b", COMPLETING)}, an_arrival("new"))
    (place,) = decide(*world, beta=2).moves
    assert place == Place("new", "b", "fewest claims per core: 0.5 by 1 jobs on 1 cores")


def test_watching_and_unlisted_jobs_claim_as_much_as_new_ones() -> None:
    world = a_world({"x": ("a", NEW), "y": ("a", WATCHING), "z": ("a", None)}, an_arrival("new"))
    nodes = (a_node("a", 4.0), a_node("b", 4.0))
    beside_two = a_world({"x": ("a", WATCHING), "y": ("a", None), "z": ("b", NEW)}, an_arrival("new"), nodes=nodes)
    assert places(decide(*world)) == {"new": "b"}
    assert places(decide(*beside_two)) == {"new": "b"}


def test_each_placement_counts_for_the_next_one() -> None:
    world = a_world({}, *(an_arrival(uid, START + index) for index, uid in enumerate("pqrs")))
    # Both nodes are empty: the first name; then b (0 of 1); then a again (1/2 against 1/1); then a tie at 1: a.
    assert places(decide(*world)) == {"p": "a", "q": "b", "r": "a", "s": "a"}


def test_a_placed_job_makes_the_completing_ones_beside_it_claim_less() -> None:
    nodes = (a_node("a"), a_node("b"))
    world = a_world({"x": ("a", COMPLETING), "y": ("b", NEW)}, an_arrival("p"), an_arrival("q", START + 1), nodes=nodes)
    # p: a has 1/(2·1) = 0.5, b has 1. q: a has 1 + 1/(2·2) = 1.25, b still 1.
    assert places(decide(*world, beta=2)) == {"p": "a", "q": "b"}


def test_the_lists_that_count_are_those_of_this_look() -> None:
    nodes = (a_node("a"), a_node("b"))
    jobs = [a_job("slow", node="a"), a_job("grows", node="b")]
    memory = remembering(
        {"slow": known(efficiency=0.0001, job_class=WATCHING), "grows": known(efficiency=0.9, job_class=COMPLETING)}
    )
    snapshot = replace(a_snapshot(jobs, nodes), waiting=(an_arrival("new"),))
    decisions = decide(snapshot, memory)
    assert decisions.memory.jobs["slow"].decided.job_class == COMPLETING
    assert decisions.memory.jobs["grows"].decided.job_class == NEW
    assert places(decisions) == {"new": "a"}


def test_everything_else_is_flowcons_own_decision() -> None:
    snapshot, memory = a_world({"x": ("a", NEW), "y": ("a", COMPLETING), "z": ("b", WATCHING)}, an_arrival("new"))
    plain = flowcon.Policy(flowcon.Parameters(), SETTING).decide(snapshot, memory)
    two = decide(snapshot, memory)
    assert replace(two, policy="flowcon", moves=()) == plain
    assert two.policy == "flowcon2"

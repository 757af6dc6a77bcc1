"""SpeCon's readings and test vectors: categories (Algorithm 3), slow moves (4) and rebalancing (5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs
from support.worlds import START, a_job, a_node, a_snapshot, known

from slopewise.estimators.growth import Measuring, measure
from slopewise.model import (
    ClusterSnapshot,
    Decisions,
    Ends,
    Growth,
    Job,
    JobMemory,
    JobState,
    MemoryState,
    Migrate,
    Movability,
    MoveUnderWay,
    Node,
    NodeMemory,
)
from slopewise.policies import Setting
from slopewise.policies.specon import Parameters, Policy

INTERVAL = 30.0
FOUR_NODES = tuple(a_node(name) for name in ("n1", "n2", "n3", "n4"))


def decide(snapshot: ClusterSnapshot, memory: MemoryState, **parameters: object) -> Decisions:
    policy = Policy(Parameters(**parameters), Setting(INTERVAL, "requests"))
    return policy.decide(snapshot, memory)


def growth(per_interval: float, at: float = START, cores: float | None = 1.0) -> Growth:
    return Growth(at, INTERVAL, per_interval / INTERVAL, cores)


def grown(now: float | None, before: float | None, category: str | None, **more: object) -> JobMemory:
    """A job's memory with two measurements, as growth per interval."""
    return structs.replace(
        known(job_class=category, **more),  # type: ignore[arg-type]
        growth=None if now is None else growth(now),
        previous_growth=None if before is None else growth(before, START - INTERVAL),
    )


def a_movable_job(uid: str, node: str = "n1", **more: Any) -> Job:
    return a_job(uid, node=node, **more).altered(migratable=True)


def evaluated_at(nodes: Sequence[Node], at: float = START - INTERVAL) -> dict[str, NodeMemory]:
    return {node.name: NodeMemory(frozenset(), at, INTERVAL) for node in nodes}


def a_cluster(
    categories_on: Mapping[str, Sequence[str]], nodes: Sequence[Node] = FOUR_NODES
) -> tuple[list[Job], dict[str, JobMemory]]:
    """Jobs named after node and number in the given categories, none of them measured since the last look."""
    jobs, remembered = [], {}
    for node in nodes:
        for number, category in enumerate(categories_on.get(node.name, ())):
            uid = f"{node.name}-{number}"
            jobs.append(a_movable_job(uid, node.name))
            remembered[uid] = structs.replace(known(job_class=category), growth=growth(0.5, START - INTERVAL))
    return jobs, remembered


def moves(decisions: Decisions) -> dict[str, tuple[str, str]]:
    assert all(isinstance(move, Migrate) for move in decisions.moves)
    return {move.job_uid: (move.from_node, move.node) for move in decisions.moves if isinstance(move, Migrate)}


# --- Algorithm 3 ---------------------------------------------------------------------------------------------


def classified(growths: Sequence[float], others: int = 2) -> tuple[list[str], list[bool]]:
    """The categories a job goes through when its growth is measured at look after look, and when it requests."""
    nodes = [a_node("n1"), a_node("n2")]
    job, before, state = a_movable_job("job"), None, MemoryState()
    beside = [a_movable_job(f"beside-{number}") for number in range(others)]
    categories, requests = [], []
    for look, value in enumerate(growths):
        at = START + look * INTERVAL
        mine = structs.replace(
            state.jobs.get("job", known()),
            growth=growth(value, at),
            previous_growth=None if before is None else growth(before, at - INTERVAL),
        )
        remembered = {"job": mine} | {other.uid: known(job_class="PC") for other in beside}
        jobs = [job.altered(evaluation=a_job("job", at=at).evaluation), *beside]
        decisions = decide(a_snapshot(jobs, nodes, at=at), MemoryState(remembered, state.nodes))
        state, before = decisions.memory, value
        categories.append(str(state.jobs["job"].decided.job_class))
        requests.append("migrated" in state.jobs["job"].decided.marks)
    return categories, requests


FALLS = ([0.20, 0.008, 0.006, 0.004], "PC WC CC CC")
"""Growth at look after look, and the categories that a job goes through."""


@pytest.mark.parametrize(
    ("growths", "categories", "others", "asks"),
    [
        (*FALLS, 2, True),
        (*FALLS, 0, False),  # no growing ones beside it
        (*FALLS, 1, False),  # |PC| + |WC| must be above 1
        ([0.20, 0.008, 0.009, 0.006], "PC WC WC CC", 2, False),  # growth that does not fall keeps the category
        ([0.20, 0.008, 0.05], "PC WC PC", 2, False),  # growth of α or more brings any job back
        ([0.20, 0.008, 0.006, 0.01], "PC WC CC PC", 2, False),
        ([0.20, 0.008, -0.05, -0.3], "PC WC CC CC", 2, True),  # one that gets worse does not go back
        # Flat, ±0.002 an interval: growth that is cut off at 0 would be 0 and 0, and 0 is not below 0.
        ([0.0, -0.001, -0.002, 0.002, -0.002], "PC WC CC CC CC", 2, True),
        ([0.0, 0.0, 0.0, 0.0], "PC WC CC CC", 2, True),  # its loss is exactly constant
        ([0.20, 0.008, 0.008, 0.008], "PC WC WC WC", 2, False),  # slow growth that stays the same is no plateau
    ],
)
def test_vectors_of_the_categories_and_whether_the_job_asks_to_be_moved_at_the_last_look(
    growths: list[float], categories: str, others: int, asks: bool
) -> None:
    found, requests = classified(growths, others)
    assert found == categories.split()
    assert requests == [False] * (len(growths) - 1) + [asks]


def test_a_plateau_is_moved_off_a_node_where_others_grow() -> None:
    """The whole way: levels that are measured, growth, categories and the move, look after look."""
    nodes, memory = [a_node("n1"), a_node("n2")], MemoryState()
    asked: list[Migrate] = []
    for look in range(7):
        at = START + look * INTERVAL
        flat = a_movable_job("flat", level=0.5, at=at, cpu_seconds=10.0 * look)
        falling = [a_job(f"falls-{n}", level=0.9**look, at=at, cpu_seconds=10.0 * look) for n in (1, 2)]
        snapshot = a_snapshot([flat, *falling], nodes, at=at)
        decisions = decide(snapshot, measure(snapshot, memory, Measuring(INTERVAL)))
        memory = decisions.memory
        asked += [move for move in decisions.moves if isinstance(move, Migrate)]
    assert [(move.job_uid, move.from_node, move.node) for move in asked[:1]] == [("flat", "n1", "n2")]


def test_a_first_measurement_has_none_before_it_and_changes_nothing() -> None:
    decisions = decide(a_snapshot([a_job("a")]), MemoryState({"a": grown(0.001, None, None)}))
    assert decisions.memory.jobs["a"].decided.job_class == "PC"
    assert "no figure before it" in decisions.reasons["a"]


def test_what_another_policy_expected_of_a_job_is_not_kept() -> None:
    before = JobMemory().with_decision("second", 1.0, START, ends=Ends(1.0, 2.0, 3.0), chance=0.7)
    decided = decide(a_snapshot([a_job("a")]), MemoryState({"a": before})).memory.jobs["a"].decided
    assert (decided.job_class, decided.wanted_cores, decided.ends, decided.chance) == ("PC", 1.0, None, None)


@pytest.mark.parametrize("broken", [{"finite": False}, {"restarted": True}, {"age": 60.0}, {"level": None}])
def test_a_job_whose_growth_is_unknown_stays_in_its_category(broken: dict[str, Any]) -> None:
    decisions = decide(a_snapshot([a_job("a", **broken)]), MemoryState({"a": grown(0.004, 0.006, "WC")}))
    assert decisions.memory.jobs["a"].decided.job_class == "WC"
    assert "how fast it improves is not known" in decisions.reasons["a"]


def test_growth_is_per_interval_of_the_setting_however_long_the_measured_one_was() -> None:
    late = structs.replace(grown(None, 0.02, "PC"), growth=Growth(START, 2 * INTERVAL, 0.009 / INTERVAL, 1.0))
    decisions = decide(a_snapshot([a_job("a")]), MemoryState({"a": late}))
    assert decisions.memory.jobs["a"].decided.job_class == "WC"


def test_an_event_between_looks_categorises_no_job_and_lets_newcomers_into_progressing() -> None:
    nodes = [a_node("n1"), a_node("joined")]
    memory = MemoryState({"a": grown(0.004, 0.006, "WC"), "new": JobMemory()}, evaluated_at([nodes[0]], at=START - 10))
    decisions = decide(a_snapshot([a_job("a"), a_job("new", node="joined")], nodes), memory)
    assert {uid: job.decided.job_class for uid, job in decisions.memory.jobs.items()} == {"a": "WC", "new": "PC"}
    assert decisions.reasons == {
        "a": "slowing down: whether it moves is decided again in 20s",
        "new": "still learning: whether it moves is decided again in 20s",
    }
    assert {node.requeue_at_seconds for node in decisions.memory.nodes.values()} == {START + 20}
    assert decisions.moves == ()


def test_a_job_without_a_loss_is_no_growing_job_and_keeps_none_from_being_rebalanced() -> None:
    silent = a_movable_job("silent", level=None)
    snapshot, memory = a_request({"n1": ["PC"], "n4": ["CC"]})
    memory = MemoryState({**memory.jobs, "silent": JobMemory()}, memory.nodes)
    beside_slow = replace(snapshot, jobs=(*snapshot.jobs, silent.altered(node="n4")))
    decisions = decide(beside_slow, memory)
    assert moves(decisions) == {}, "no job grows beside it"
    assert decisions.reasons["silent"] == "still learning: reports no loss, unchanged"
    settled = {
        uid: known.with_decided(job_class="CC", marks=frozenset({"migrated"})) for uid, known in memory.jobs.items()
    }
    waits = MemoryState({**settled, "silent": JobMemory()}, memory.nodes)
    assert ("n4", "n2") in moves(decide(beside_slow, waits)).values(), "all that report have converged"


# --- Algorithm 4 ---------------------------------------------------------------------------------------------


def a_request(
    categories_on: Mapping[str, Sequence[str]], nodes: Sequence[Node] = FOUR_NODES
) -> tuple[ClusterSnapshot, MemoryState]:
    """A cluster in which the job `slow` on n4 is in CC and slows down further."""
    jobs, remembered = a_cluster(categories_on, nodes)
    jobs.append(a_movable_job("slow", "n4"))
    remembered["slow"] = grown(0.004, 0.006, "CC", class_since_seconds=START - INTERVAL)
    return a_snapshot(jobs, nodes), MemoryState(remembered, evaluated_at(nodes))


def test_vector_the_request_goes_to_the_node_of_least_score() -> None:
    world = a_request({"n1": ["PC"] * 3, "n2": ["PC", "WC"], "n3": ["PC"] * 2, "n4": ["PC"] * 5})
    decisions = decide(*world)
    (move,) = decisions.moves
    assert move == Migrate("slow", "n4", "n2", decisions.reasons["slow"])
    assert move.reason.startswith("slow move: score 3.5 on n2, 11 on n4")
    assert "migrated" in decisions.memory.jobs["slow"].decided.marks
    assert decisions.resizes == ()


def test_a_host_that_has_the_least_score_keeps_the_job_for_good() -> None:
    world = a_request({"n1": ["PC"] * 3, "n2": ["PC"] * 3, "n3": ["PC"] * 3, "n4": ["PC"] * 2})
    decisions = decide(*world)
    assert decisions.moves == ()
    assert "migrated" in decisions.memory.jobs["slow"].decided.marks
    assert "stays for good" in decisions.reasons["slow"]


def test_a_job_that_was_reallocated_is_not_watched_any_more_and_keeps_its_category() -> None:
    snapshot, memory = a_request({"n1": ["PC"], "n4": ["PC"] * 5})
    settled = grown(0.5, 0.6, "CC").with_decided(marks=frozenset({"migrated"}))
    decisions = decide(snapshot, MemoryState({**memory.jobs, "slow": settled}, memory.nodes))
    assert decisions.moves == ()
    assert decisions.memory.jobs["slow"] == settled


def after_the_answer(first: Decisions, snapshot: ClusterSnapshot, node: str, **answer: object) -> Decisions:
    """The look after `first`, the job `slow` being on that node, with what is remembered of the answer to its move."""
    later = START + INTERVAL
    slow = first.memory.jobs["slow"]
    slow = structs.replace(slow, growth=growth(0.003, later), previous_growth=slow.growth, **answer)
    jobs = [job.altered(node=node if job.uid == "slow" else job.node) for job in snapshot.jobs]
    fresh = [job.altered(evaluation=a_job(job.uid, at=later).evaluation) for job in jobs]
    return decide(
        a_snapshot(fresh, FOUR_NODES, at=later), MemoryState({**first.memory.jobs, "slow": slow}, first.memory.nodes)
    )


def test_a_move_that_was_withheld_or_failed_is_asked_for_again_at_the_next_look() -> None:
    snapshot, memory = a_request({"n1": ["PC"], "n2": ["PC"] * 2, "n3": ["PC"] * 2, "n4": ["PC"] * 5})
    first = decide(snapshot, memory)
    again = after_the_answer(first, snapshot, "n4")
    assert moves(first) == moves(again) == {"slow": ("n4", "n1")}


def test_a_move_is_known_to_be_made_also_by_a_job_that_was_between_two_nodes_at_the_next_look() -> None:
    snapshot, memory = a_request({"n1": ["PC"] * 2, "n2": ["PC"] * 3, "n3": ["PC"] * 3, "n4": ["PC"] * 5})
    asked = decide(snapshot, memory)
    slow = structs.replace(asked.memory.jobs["slow"], moves_total=1)
    missing = replace(snapshot, taken_at_seconds=START + INTERVAL, jobs=snapshot.jobs[:-1])
    others = {job.uid: asked.memory.jobs[job.uid] for job in missing.jobs}
    between = decide(missing, MemoryState(others, asked.memory.nodes))
    later = START + 2 * INTERVAL
    back = [job.altered(node="n1" if job.uid == "slow" else job.node) for job in snapshot.jobs]
    again = decide(a_snapshot(back, FOUR_NODES, at=later), MemoryState({**others, "slow": slow}, between.memory.nodes))
    assert again.memory.jobs["slow"].decided.marks == frozenset({"migrated"})
    assert again.moves == ()


def test_a_job_that_is_on_its_way_counts_on_its_target_already() -> None:
    snapshot, memory = a_request({"n1": ["PC"], "n2": ["PC"] * 2, "n3": ["PC"] * 2, "n4": ["PC"] * 5})
    on_the_way = [MoveUnderWay(f"away-{n}", "n4", "n1", START - 2.0, "starting") for n in range(3)]
    leaving = MoveUnderWay("n2-0", "n2", "n9", START - 2.0, "saving")
    busy = replace(snapshot, moving=(*on_the_way, leaving))
    # Scores: 2 + 3 x 1 on n1, 4 on n2 and n3.
    assert moves(decide(busy, memory)) == {"slow": ("n4", "n2")}


@pytest.mark.parametrize(
    ("cores", "used", "to"),
    [
        ((1.0, 1.0, 1.0), {"n1-0": 0.9, "n2-0": 0.7, "n3-0": 0.2}, "n3"),
        ((1.0, 1.0, 1.0), {}, "n1"),  # nothing is known of their use
        ((2.0, 16.0, 4.0), {"n1-0": 0.9, "n2-0": 2.0, "n3-0": 1.0}, "n2"),  # 45 %, 13 % and 25 % of the node
    ],
)
def test_of_equal_scores_the_least_used_node_wins(cores: tuple[float, ...], used: dict[str, float], to: str) -> None:
    nodes = (*(a_node(f"n{number}", each) for number, each in enumerate(cores, start=1)), a_node("n4"))
    snapshot, memory = a_request({"n1": ["PC"], "n2": ["PC"], "n3": ["PC"], "n4": ["PC"] * 5}, nodes)
    grown_before = {uid: growth(0.5, START - INTERVAL, each) for uid, each in used.items()}
    known_use = {
        uid: structs.replace(memory.jobs[uid], growth=grown_before.get(uid)) for uid in ("n1-0", "n2-0", "n3-0")
    }
    assert moves(decide(snapshot, MemoryState({**memory.jobs, **known_use}, memory.nodes))) == {"slow": ("n4", to)}


@pytest.mark.parametrize(
    ("changed", "to"),
    [
        ({"movability": Movability("suspend", refused_nodes={"n1": "a taint", "gone": "a taint"})}, "n2"),
        ({"movability": Movability(blocked_reason="a bare pod")}, None),
        ({"memory_request_bytes": 9.0 * 2**30}, None),
    ],
    ids=["refused by a node", "could not come back", "too large"],
)
def test_a_job_goes_only_where_it_is_taken_and_is_marked_if_it_goes(changed: dict[str, Any], to: str | None) -> None:
    snapshot, memory = a_request({"n1": ["PC"], "n2": ["PC"] * 2, "n3": ["PC"] * 2, "n4": ["PC"] * 5})
    jobs = tuple(job.altered(**changed) if job.uid == "slow" else job for job in snapshot.jobs)
    decisions = decide(replace(snapshot, jobs=jobs), memory)
    assert moves(decisions) == ({} if to is None else {"slow": ("n4", to)})
    if "movability" in changed:
        assert bool(decisions.memory.jobs["slow"].decided.marks) == (to is not None)


def test_each_move_counts_for_the_next_request_longest_converged_first() -> None:
    snapshot, memory = a_request({"n1": ["PC"], "n2": ["PC", "WC"], "n3": ["PC"] * 4, "n4": ["PC"] * 5})
    jobs, remembered = [*snapshot.jobs], {**memory.jobs}
    for number in range(2):
        uid = f"slow-{number}"
        jobs.append(a_movable_job(uid, "n4"))
        remembered[uid] = grown(0.004, 0.006, "CC", class_since_seconds=START - 90 - number)
    decisions = decide(a_snapshot(jobs, FOUR_NODES), MemoryState(remembered, memory.nodes))
    # Scores 2, 3.5, 8, 13: the first two make n1 3 and 4; then n2 with 3.5 is the least.
    assert moves(decisions) == {"slow-1": ("n4", "n1"), "slow-0": ("n4", "n1"), "slow": ("n4", "n2")}
    assert [move.job_uid for move in decisions.moves] == ["slow-1", "slow-0", "slow"]


def test_the_weights_decide_what_the_least_score_is() -> None:
    world = a_request({"n1": ["CC"] * 3, "n2": ["PC"], "n3": ["PC"] * 5, "n4": ["PC"] * 5})
    assert moves(decide(*world)) == {"slow": ("n4", "n2")}
    assert moves(decide(*world, weight_progressing=4.0)) == {"slow": ("n4", "n1")}


@pytest.mark.parametrize("held", [{"migratable": False}, {"state": JobState.CHECKPOINTING}])
def test_a_job_that_may_not_be_moved_now_is_not_asked_for_and_its_reason_says_so(held: dict[str, Any]) -> None:
    snapshot, memory = a_request({"n1": ["PC"], "n4": ["PC"] * 5})
    jobs = [job.altered(**held) if job.uid == "slow" else job for job in snapshot.jobs]
    decisions = decide(replace(snapshot, jobs=tuple(jobs)), memory)
    assert decisions.moves == ()
    assert "does not say that it may be moved now" in decisions.reasons["slow"]
    assert decisions.memory.jobs["slow"].decided.marks == frozenset()


# --- Algorithm 5 ---------------------------------------------------------------------------------------------


def settled(converged_at: float, *marks: str, **more: object) -> JobMemory:
    memory = grown(0.001, 0.002, "CC")
    return memory.with_decided(class_since_seconds=converged_at, marks=frozenset({"migrated", *marks})).altered(**more)


def without_marks(memory: JobMemory) -> JobMemory:
    """A job that Algorithm 4 never dealt with: in CC, and no growing job was ever beside it."""
    return memory.with_decided(marks=frozenset())


def a_converged_cluster(*loads: int) -> tuple[ClusterSnapshot, MemoryState]:
    """Nodes n1, n2, … with so many jobs, all settled in CC; the later its name, the later a job converged."""
    nodes = [a_node(f"n{number}") for number in range(1, len(loads) + 1)]
    jobs, remembered = a_cluster({node.name: ["CC"] * load for node, load in zip(nodes, loads, strict=True)}, nodes)
    remembered = {job.uid: settled(START - 1000 + number) for number, job in enumerate(jobs)}
    return a_snapshot(jobs, nodes), MemoryState(remembered, evaluated_at(nodes))


def test_vector_of_5_2_3_two_of_four_jobs_end_and_the_idle_node_takes_one_though_none_was_marked() -> None:
    """Two jobs a node, all converged; c1 and c2 on w1 end, and w1 has nothing to do."""
    workers = [a_node("w1"), a_node("w2")]
    jobs = [a_movable_job(f"c{number}", "w1" if number < 3 else "w2") for number in (1, 2, 3, 4)]
    memory = MemoryState(
        {job.uid: without_marks(settled(START - 100 + number)) for number, job in enumerate(jobs)},
        evaluated_at(workers),
    )
    even = decide(a_snapshot(jobs, workers), memory)
    assert even.moves == ()
    assert all(not known.decided.marks for known in even.memory.jobs.values())
    later = START + INTERVAL
    (move,) = decide(a_snapshot(jobs[2:], workers, at=later), even.memory).moves
    assert (move.job_uid, move.node) == ("c4", "w1")


LATER = MoveUnderWay("away", "n4", "n2", START - 2.0, "starting")


@pytest.mark.parametrize(
    ("loads", "odd", "moving", "expected"),
    [
        ((3, 0, 0, 0), None, (), {"n1-2": ("n1", "n2"), "n1-1": ("n1", "n3")}),  # one move to each of two idle nodes
        ((2, 1, 0, 0), None, (), {"n1-1": ("n1", "n3")}),  # only a node with two jobs gives
        ((3, 3, 3, 2), None, (), {}),  # balanced
        ((1, 1, 1, 0), None, (), {}),
        ((3, 0), Movability("suspend", refused_nodes={"n2": "a taint"}), (), {"n1-1": ("n1", "n2")}),
        ((3, 0), Movability("suspend", backoff_reason="a disruption budget says no"), (), {"n1-1": ("n1", "n2")}),
        ((3, 0, 0, 0), None, (LATER,), {"n1-2": ("n1", "n3"), "n1-1": ("n1", "n4")}),  # n2 is not idle
    ],
)
def test_vectors_of_rebalancing(
    loads: tuple[int, ...],
    odd: Movability | None,
    moving: tuple[MoveUnderWay, ...],
    expected: dict[str, tuple[str, str]],
) -> None:
    """`odd`: how the job that converged last may be moved."""
    snapshot, memory = a_converged_cluster(*loads)
    jobs = tuple(job.altered(movability=odd) if job.uid == "n1-2" else job for job in snapshot.jobs)
    decisions = decide(replace(snapshot, jobs=jobs, moving=moving), memory)
    assert moves(decisions) == expected
    assert all(move.reason.startswith("rebalance: ") for move in decisions.moves)
    assert {uid for uid, job in decisions.memory.jobs.items() if "rebalanced" in job.decided.marks} == set(expected)


def test_vector_with_no_idle_node_the_one_short_of_jobs_takes_the_latest_to_converge() -> None:
    snapshot, memory = a_converged_cluster(3, 3, 3, 1)
    latest = {**memory.jobs, "n2-1": settled(START - 1)}
    decisions = decide(snapshot, MemoryState(latest, memory.nodes))
    assert moves(decisions) == {"n2-1": ("n2", "n4")}
    assert decisions.reasons["n2-1"] == "rebalance: 1 jobs on n4, 3 on n2; converged 1 s ago, the latest there"


def test_a_job_is_rebalanced_at_most_once_whether_it_was_reallocated_or_not() -> None:
    snapshot, memory = a_converged_cluster(4, 0)
    odd = {
        "n1-3": settled(START, "rebalanced"),
        "n1-2": without_marks(settled(START - 1)),
        "n1-1": settled(START - 2),
        "n1-0": settled(START - 3),
    }
    assert moves(decide(snapshot, MemoryState(odd, memory.nodes))) == {"n1-2": ("n1", "n2")}


def test_a_rebalancing_that_failed_is_asked_for_again_and_one_that_was_made_is_not() -> None:
    snapshot, memory = a_converged_cluster(3, 0)
    first = decide(snapshot, memory)
    later = a_snapshot(snapshot.jobs, snapshot.nodes, at=START + INTERVAL)
    assert moves(first) == {"n1-2": ("n1", "n2")}
    assert moves(decide(later, first.memory)) == {"n1-2": ("n1", "n2")}
    moved = structs.replace(first.memory.jobs["n1-2"], moves_total=1)
    made = MemoryState({**first.memory.jobs, "n1-2": moved}, first.memory.nodes)
    there = [job.altered(node="n2") if job.uid == "n1-2" else job for job in snapshot.jobs]
    after = decide(replace(later, jobs=tuple(there)), made)
    assert after.moves == ()
    assert after.memory.jobs["n1-2"].decided.marks == frozenset({"migrated", "rebalanced"})


def test_a_job_that_is_not_movable_or_does_not_fit_is_passed_over() -> None:
    snapshot, memory = a_converged_cluster(4, 0)
    held = {
        "n1-3": {"migratable": False},
        "n1-2": {"state": JobState.CHECKPOINTING},
        "n1-1": {"memory_request_bytes": 9.0 * 2**30},
        "n1-0": {},
    }
    jobs = tuple(job.altered(**held[job.uid]) for job in snapshot.jobs)  # type: ignore[arg-type]
    assert moves(decide(replace(snapshot, jobs=jobs), memory)) == {"n1-0": ("n1", "n2")}


def test_while_a_job_still_grows_nothing_is_rebalanced_unless_that_is_switched_off() -> None:
    snapshot, memory = a_converged_cluster(3, 0)
    growing = {**memory.jobs, "n1-0": grown(0.5, 0.6, "PC")}
    memory = MemoryState(growing, memory.nodes)
    assert decide(snapshot, memory).moves == ()
    assert moves(decide(snapshot, memory, require_all_converged=False)) == {"n1-2": ("n1", "n2")}


def test_nodes_that_another_policy_looked_at_at_other_times_wait_together() -> None:
    """Found by the contract: the look of a node that was overdue was asked for at once, and so for a whole interval."""
    nodes = {"n1": NodeMemory(frozenset(), START - 5.0, 320.0), "n2": NodeMemory(frozenset(), START - 20.0, 20.0)}
    snapshot = a_snapshot([], [a_node("n1"), a_node("n2")])
    waits = decide(snapshot, MemoryState({}, nodes)).memory.nodes
    assert {look.requeue_at_seconds for look in waits.values()} == {START - 5.0 + INTERVAL}

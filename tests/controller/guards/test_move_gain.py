"""What a migration gains and costs: worked examples, and what holds for any nodes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.moving import LONG_AGO, MOBILE, SAVES, a_mobile_job, crowded, measured, remembered, to
from support.searching import examples
from support.worlds import START, a_node, a_snapshot

from slopewise.estimators.move_cost import cost_of
from slopewise.guards.move_gain import Balance, Speeds
from slopewise.model import (
    Checkpoint,
    ClusterSnapshot,
    CpuAllocation,
    Growth,
    Job,
    JobMemory,
    MemoryState,
    Migrate,
    MoveRecord,
    Pace,
    Responses,
)


def balance(snapshot: ClusterSnapshot, memory: MemoryState, *moves: Migrate, horizon: float = 600.0) -> Balance:
    return Speeds(snapshot, memory).balance(moves or (to("n2"),), horizon)


def gain(snapshot: ClusterSnapshot, memory: MemoryState | None = None, *moves: Migrate) -> float:
    known = remembered(*(job.uid for job in snapshot.jobs)) if memory is None else memory
    return balance(snapshot, known, *moves).gain_seconds


def of_growth(**growths: Growth) -> MemoryState:
    return MemoryState({uid: JobMemory(growth=growths.get(uid)) for uid in ("a", "b")})


WIDE = crowded("a", "b", useful_parallelism_cores=None)


@pytest.mark.parametrize(
    ("snapshot", "memory", "cores"),
    [
        (crowded("a", "b"), None, 1.0),  # half a core each, and then a whole one each
        # a has a quarter of a core there, and b a whole one here: a quarter more than the one core that they share
        (replace(crowded("a", "b"), nodes=(a_node("n1"), a_node("n2", available_cores=0.25))), None, 0.25),
        (crowded("a", "b"), of_growth(a=measured(0.0), b=measured(0.02)), 1.5),  # b learns fast, and counts twice
        (crowded("a", "b"), of_growth(a=measured(0.0, cores=0.2)), 0.2),  # a needs no more anywhere; b goes from 0.8
        (crowded("a", "b"), of_growth(a=measured(0.0, cores=0.45)), 1.0),  # it uses up its share, and may need more
        # b: from 1/2 to 1. a: from 1/2 to 4, in cores of its own node, at which full speed is 1.
        (replace(WIDE, nodes=(WIDE.nodes[0], a_node("n2", cpu_cores=4.0))), None, 4.0),
    ],
    ids=["idle node", "other pods", "fast learner", "needs little", "uses its share", "larger node"],
)
def test_what_two_jobs_of_a_core_gain(snapshot: ClusterSnapshot, memory: MemoryState | None, cores: float) -> None:
    assert gain(snapshot, memory) == pytest.approx(cores * 600.0)


def test_a_converged_job_that_makes_room_for_a_learner_gains_even_where_it_must_share_itself() -> None:
    snapshot = crowded("a", "b")
    busy = replace(snapshot, jobs=(*snapshot.jobs, a_mobile_job("c", "n2")))
    growths = {"a": measured(0.0), "b": measured(0.02), "c": measured(0.0)}
    memory = MemoryState({uid: JobMemory(growth=growth) for uid, growth in growths.items()})
    # b: from 1/2 to 1, twice; c: from 1 to 1/2; a: 1/2 before and after. 0.5 x 600 s.
    assert gain(busy, memory) == pytest.approx(300.0)


def test_a_squeezed_job_that_gets_less_than_its_weight_is_not_taken_for_one_that_needs_no_more() -> None:
    """On a host that other work fills, a weight of 10 beside 1,000 gets less than its part."""
    snapshot = crowded("a", "b")
    squeezed = snapshot.jobs[0].altered(allocation=CpuAllocation(None, 10))
    snapshot = replace(snapshot, jobs=(squeezed, *snapshot.jobs[1:]))
    before = JobMemory(growth=measured(0.0, cores=0.005), original=CpuAllocation(None, 1000))
    # a goes from 10/1,010 of a core to a whole one, b from the rest to a whole one.
    assert gain(snapshot, MemoryState({"a": before, "b": JobMemory()})) == pytest.approx(600.0)


def test_a_limit_goes_with_the_job_unless_its_owner_gave_it_more() -> None:
    squeezed = crowded("a", "b", allocation=CpuAllocation(250, 1000))
    assert gain(squeezed) == pytest.approx(0.0)
    original = MemoryState({"a": JobMemory(original=CpuAllocation(None, 1000)), "b": JobMemory()})
    assert gain(squeezed, original) == pytest.approx(0.75 * 600.0)


def test_a_job_of_little_weight_has_the_weight_that_it_came_with_where_it_goes() -> None:
    a, b = crowded("a", "b").jobs
    squeezed, learner = a.altered(allocation=CpuAllocation(None, 100)), a_mobile_job("c", "n2")
    heavy = b.altered(allocation=CpuAllocation(None, 1900))
    snapshot = replace(crowded("a", "b"), jobs=(squeezed, heavy, learner))
    weight = learner.allocation.request_millicores
    memory = MemoryState(
        {
            "a": JobMemory(growth=measured(0.0), original=CpuAllocation(None, weight)),
            "b": JobMemory(growth=measured(0.0)),
            "c": JobMemory(growth=measured(0.02)),
        }
    )
    # a: from 0.05 to 0.5; b: from 0.95 to 1; c, which counts twice: from 1 to 0.5.
    assert gain(snapshot, memory) == pytest.approx((0.45 + 0.05 - 1.0) * 600.0)


def test_the_horizon_ends_with_the_job() -> None:
    pace = Pace(START, 2.0, 0.5)
    nearly_done = crowded("a", "b", steps_total=9_900.0)
    found = balance(nearly_done, remembered("a", "b", paces=(pace,)))
    assert (found.horizon_seconds, found.gain_seconds) == pytest.approx((200.0, 200.0))
    assert str(found) == "gains 200 s over 200 s, costs 4 s (saving 2 s, starting 2 s, repeating 0 s)"
    assert str(replace(found, gain_seconds=-2.66e-13)).startswith("gains 0 s over 200 s"), "rounding errors"
    learning = MemoryState({uid: JobMemory(growth=measured(rate)) for uid, rate in (("a", 0.01), ("b", 0.02))})
    assert str(balance(crowded("a", "b"), learning)).endswith(
        "costs 6 s (saving 2 s, starting 2 s, repeating 0 s; weight 1.5)"
    )


def test_the_pods_of_a_workload_gain_and_cost_together() -> None:
    snapshot = crowded("a", "b")
    wide = replace(snapshot, nodes=(snapshot.nodes[0], a_node("n2", cpu_cores=2.0)))
    found = balance(wide, remembered("a", "b"), to("n2", "a"), to("n2", "b"))
    assert found.gain_seconds == pytest.approx(600.0)
    assert str(found.cost.total_seconds) == "8.0"


# --- cost -----------------------------------------------------------------------------------------------------


def cost(known: JobMemory | None = None, weight: float = 1.0, **more: Any) -> tuple[float, float, float, float]:
    found = cost_of(a_mobile_job("a", **more), known or JobMemory(), weight, START)
    return found.saving_seconds, found.starting_seconds, found.repeating_seconds, found.total_seconds


def moved(pause: float, on: str = "n1") -> JobMemory:
    at = START - 1000.0
    return JobMemory(moves=(MoveRecord(at, "n2", "n1", resumed_at_seconds=at + pause, resumed_on=on),))


SERVES: dict[str, Any] = {"checkpoint": None, "responses": Responses(200.0, 10.0)}


@pytest.mark.parametrize(
    ("known", "job", "expected"),
    [
        (None, {}, (2.0, 2.0, 0.0, 4.0)),  # its checkpoint and the way
        (None, {"weight": 2.0}, (2.0, 2.0, 0.0, 8.0)),
        (None, {"checkpoint": replace(SAVES, duration_seconds=None)}, (5.0, 2.0, 0.0, 7.0)),  # never measured
        (None, {"checkpoint": None, "movability": None}, (5.0, 0.0, 0.0, 5.0)),
        (None, {**SERVES, "steps_total": None}, (0.0, 2.0, 0.0, 2.0)),  # a served model saves nothing
        (None, SERVES, (5.0, 2.0, 0.0, 7.0)),  # it trains as well
        (moved(9.0), {}, (2.0, 7.0, 0.0, 9.0)),  # what the last move took
        (moved(3.0), {}, (2.0, 2.0, 0.0, 4.0)),  # the way alone takes 2 s
        (moved(60.0, on="n2"), {}, (2.0, 2.0, 0.0, 4.0)),  # it was given up
        (None, {"checkpoint": Checkpoint(START - 120.0, 2.0)}, (2.0, 2.0, 120.0, 124.0)),  # not saved on SIGTERM
    ],
)
def test_a_move_costs_what_it_takes(known: JobMemory | None, job: dict[str, Any], expected: tuple[float, ...]) -> None:
    assert cost(known, **job) == expected


# --- for any nodes --------------------------------------------------------------------------------------------

CORES = st.floats(0.5, 16.0, allow_subnormal=False)
USEFUL = st.none() | st.floats(0.1, 20.0, allow_subnormal=False)
REQUEST = st.integers(10, 4000)


def _job(uid: str, node: str, useful: float | None, request: int) -> Job:
    job = a_mobile_job(uid, node).altered(useful_parallelism_cores=useful)
    return job.altered(allocation=CpuAllocation(None, request), started_at_seconds=LONG_AGO, movability=MOBILE)


@examples(50)
@given(cores=CORES, useful=USEFUL, request_millicores=REQUEST, here=st.integers(1, 12), more=st.integers(0, 5))
def test_moving_to_an_equal_node_with_the_same_load_never_gains(
    cores: float, useful: float | None, request_millicores: int, here: int, more: int
) -> None:
    jobs = [_job(f"a{n}", "n1", useful, request_millicores) for n in range(here)]
    jobs += [_job(f"b{n}", "n2", useful, request_millicores) for n in range(here + more)]
    snapshot = a_snapshot(jobs, [a_node("n1", cores), a_node("n2", cores)])
    assert gain(snapshot, None, to("n2", "a0")) <= 1e-6


@examples(50)
@given(
    cores=st.tuples(CORES, CORES),
    jobs=st.lists(st.tuples(st.sampled_from(["n1", "n2"]), USEFUL, REQUEST), min_size=1, max_size=8),
    progress=st.lists(st.floats(0.0, 0.1, allow_subnormal=False), min_size=9, max_size=9),
)
def test_going_there_and_back_gains_nothing(
    cores: tuple[float, float], jobs: list[tuple[str, float | None, int]], progress: list[float]
) -> None:
    found = [_job("a", "n1", 1.0, 1000)]
    found += [_job(f"b{n}", node, useful, request) for n, (node, useful, request) in enumerate(jobs)]
    snapshot = a_snapshot(found, [a_node("n1", cores[0]), a_node("n2", cores[1])])
    memory = MemoryState(
        {job.uid: JobMemory(growth=measured(rate)) for job, rate in zip(found, progress, strict=False)}
    )
    speeds = Speeds(snapshot, memory)
    there = speeds.balance([to("n2")], 600.0).gain_seconds
    speeds.count([to("n2")])
    back = speeds.balance([Migrate("a", "n2", "n1", "back")], 600.0).gain_seconds
    assert there + back == pytest.approx(0.0, abs=1e-6)

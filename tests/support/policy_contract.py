"""What every policy must keep to, whatever it computes: the checks, and a strategy for worlds to hold it to them.

`test_contract` runs them over every policy that is shipped, `test_policies_page` over the one in the documentation.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Literal

from hypothesis import strategies as st
from support.worlds import START

from controller import growth, move_guards, pace
from controller.bounds import Bounds
from controller.model import (
    NO_PROMISES,
    Arrival,
    ClusterSnapshot,
    CpuAllocation,
    CpuControl,
    Decisions,
    Evaluation,
    Growth,
    Job,
    JobMemory,
    JobState,
    MemoryState,
    Migrate,
    Mobility,
    MoveUnderWay,
    Node,
    NodeMemory,
    Pace,
    Place,
    Promises,
    Responses,
    Usage,
)
from controller.policies import PolicyProtocol

INTERVAL = 20.0
AUTO = Bounds("Auto", 1, 64_000, 0.0, 1000.0, 0.0)

Make = Callable[[], PolicyProtocol]
"""Builds the policy anew: what it keeps of one decision may not reach the next."""

DecidesOn = Literal["loss", "reports"]
"""What a job must have reported before a policy may change it: a loss, or anything (steps, responses, a loss)."""


def decide(policy: PolicyProtocol, snapshot: ClusterSnapshot, memory: MemoryState) -> Decisions:
    """Measure and decide, as a pass does."""
    grown = growth.measure(snapshot, memory, growth.Measuring(INTERVAL))
    return policy.decide(snapshot, pace.measure(snapshot, grown, INTERVAL))


def check_everything(
    make: Make,
    control: CpuControl,
    snapshot: ClusterSnapshot,
    memory: MemoryState,
    decides_on: DecidesOn = "loss",
) -> Decisions:
    """All that holds for any world; returns the decisions for further checks."""
    decisions = check_pure_and_deterministic(make, snapshot, memory)
    check_order_makes_no_difference(make, snapshot, memory, decisions)
    check_explained_and_remembered(snapshot, decisions)
    check_resizes_within_bounds(control, snapshot, decisions)
    check_silent_jobs_keep_what_they_came_with(snapshot, decisions, decides_on)
    check_weights_add_up_to_what_the_jobs_came_with(snapshot, decisions)
    check_moves_are_possible(snapshot, decisions)
    return decisions


def check_pure_and_deterministic(make: Make, snapshot: ClusterSnapshot, memory: MemoryState) -> Decisions:
    before = copy.deepcopy((snapshot, memory))
    policy = make()
    first, again, another = (decide(each, snapshot, memory) for each in (policy, policy, make()))
    assert first == again == another
    assert (snapshot, memory) == before
    return first


def check_order_makes_no_difference(
    make: Make, snapshot: ClusterSnapshot, memory: MemoryState, decisions: Decisions
) -> None:
    turned = replace(snapshot, jobs=snapshot.jobs[::-1], nodes=snapshot.nodes[::-1], waiting=snapshot.waiting[::-1])
    other = decide(make(), turned, memory)
    assert set(other.resizes) == set(decisions.resizes)
    assert other.reasons == decisions.reasons
    assert other.memory == decisions.memory
    assert other.moves == decisions.moves


def check_explained_and_remembered(snapshot: ClusterSnapshot, decisions: Decisions) -> None:
    assert set(decisions.reasons) == {job.uid for job in snapshot.jobs if not job.state.ended}
    assert all(decisions.reasons.values())
    assert all(change.reason for change in (*decisions.resizes, *decisions.moves))
    assert set(decisions.memory.jobs) == {job.uid for job in snapshot.jobs}
    assert set(decisions.memory.nodes) == {node.name for node in snapshot.nodes}
    assert all(node.interval_seconds > 0 for node in decisions.memory.nodes.values())


def check_resizes_within_bounds(control: CpuControl, snapshot: ClusterSnapshot, decisions: Decisions) -> None:
    jobs, nodes = {job.uid: job for job in snapshot.jobs}, {node.name: node for node in snapshot.nodes}
    assert _each_once(resize.job_uid for resize in decisions.resizes)
    for resize in decisions.resizes:
        job = jobs[resize.job_uid]
        assert (resize.control, resize.node, job.state.ended) == (control, job.node, False)
        assert resize.to_millicores >= 1
        if control == "limits":
            assert resize.to_millicores <= math.ceil(1000 * nodes[job.node].cpu_cores)


def has_reported(job: Job, known: JobMemory, decides_on: DecidesOn) -> bool:
    """Whether the policy has, or once had, what it decides on."""
    if decides_on == "loss" or known.first_level is not None:
        return known.first_level is not None
    counts = (job.evaluation, job.steps_total, job.responses, known.pace_anchor)
    return any(each is not None for each in counts) or bool(known.paces)


def check_silent_jobs_keep_what_they_came_with(
    snapshot: ClusterSnapshot, decisions: Decisions, decides_on: DecidesOn
) -> None:
    """No metrics, no action: of a job that has never reported, nothing is changed but what was changed before."""
    resizes = {resize.job_uid: resize for resize in decisions.resizes}
    for job in snapshot.jobs:
        known = decisions.memory.jobs[job.uid]
        if job.uid in resizes and not has_reported(job, known, decides_on):
            resize, original = resizes[job.uid], known.original
            assert resize.gives_back
            assert original is not None
            assert resize.to_millicores in (original.request_millicores, original.limit_millicores)


def check_weights_add_up_to_what_the_jobs_came_with(snapshot: ClusterSnapshot, decisions: Decisions) -> None:
    """So the share of a job that keeps its weight is what it was, whatever the others are given."""
    changed = {resize.job_uid: resize for resize in decisions.resizes if resize.control == "requests"}
    for jobs in snapshot.jobs_by_node().values():
        if not any(job.uid in changed for job in jobs):
            continue
        came_with = [decisions.memory.jobs[job.uid].original or job.allocation for job in jobs]
        now = [
            changed[job.uid].to_millicores if job.uid in changed else job.allocation.request_millicores for job in jobs
        ]
        assert abs(sum(now) - sum(each.request_millicores for each in came_with)) <= 1.5 * len(jobs)


def check_moves_are_possible(snapshot: ClusterSnapshot, decisions: Decisions) -> None:
    running = {job.uid: job for job in snapshot.jobs if not job.state.ended}
    waiting, names = {arrival.uid: arrival for arrival in snapshot.waiting}, {node.name for node in snapshot.nodes}
    assert _each_once(move.job_uid for move in decisions.moves)
    for move in decisions.moves:
        assert move.node in names
        if isinstance(move, Migrate):
            job = running[move.job_uid]
            assert job.migratable
            assert move.from_node == job.node != move.node
            if job.mobility is not None:
                assert job.mobility.stays_because is None
                assert move.node not in job.mobility.refused_nodes
        else:
            assert move.job_uid in waiting
            assert move.node not in waiting[move.job_uid].refused_nodes
    _, withheld = move_guards.review_moves(decisions.moves, snapshot, decisions.memory, AUTO)
    too_large = [
        each for each in withheld if isinstance(each.move, Place) and each.guard == move_guards.MEMORY_CAPACITY
    ]
    assert not too_large


def check_limits_add_up(make: Make, snapshot: ClusterSnapshot, memory: MemoryState) -> None:
    """What a policy wants for the jobs of a node, all of them looked at for the first time, is there to be had."""
    fresh = {uid: replace(known, wanted_cores=None) for uid, known in memory.jobs.items()}
    decisions = decide(make(), snapshot, MemoryState(fresh))
    jobs_on = snapshot.jobs_by_node()
    for node in snapshot.nodes:
        wanted = [decisions.memory.jobs[job.uid].wanted_cores for job in jobs_on[node.name]]
        assert sum(cores for cores in wanted if cores is not None) <= node.cpu_cores * (1 + 1e-9)


def _each_once(uids: Iterable[str]) -> bool:
    listed = list(uids)
    return len(listed) == len(set(listed))


# --- worlds: every optional field missing or present ---------------------------------------------------------

NODES = ("n1", "n2", "n3")
CLASSES = ("NL", "WL", "CL", "PC", "WC", "CC", "G", "S", "B", "urgent", "deliverable", "released", "cpu", "gone")
"""Of the policies that are shipped, and of one that is not: the policy may have been changed since."""


def _maybe(strategy: st.SearchStrategy) -> st.SearchStrategy:  # type: ignore[type-arg]
    return st.none() | strategy


def _between(low: float, high: float) -> st.SearchStrategy[float]:
    return st.floats(low, high, allow_subnormal=False)


PROMISES = st.just(NO_PROMISES) | st.builds(
    Promises,
    qoe_seconds=_maybe(_between(0.01, 100)),
    deadline_at_seconds=_maybe(_between(START - 100, START + 10_000)),
    target_level=_maybe(_between(0.05, 2)),
    deliverable_level=_maybe(_between(0.05, 2)),
    weight=_between(0.1, 10),
)
MEMORY_BYTES = _maybe(_between(1e6, 12e9))
EVALUATION = st.builds(
    Evaluation,
    level=_between(-2, 5) | st.just(math.nan),
    sample_count=st.integers(0, 5),
    sampled_at_seconds=_between(START - 60, START),
    series=st.sampled_from(["eval", "train"]),
    objective=st.sampled_from(["min", "max"]),
    finite=st.booleans(),
)
USAGE = st.builds(
    Usage,
    sampled_at_seconds=_between(START - 5, START),
    cpu_seconds_total=_maybe(_between(0, 1e5)),
    memory_bytes=MEMORY_BYTES,
)
RESPONSES = st.builds(Responses, count_total=_between(0, 1000), seconds_total=_between(0, 1000))
STEPS = _between(0, 2000)
PARALLELISM = _maybe(_between(0.1, 8))
REFUSED = st.dictionaries(st.sampled_from(NODES), st.just("a taint"), max_size=2)
MOBILITY = st.builds(
    Mobility,
    way=st.just("suspend"),
    stays_because=st.none() | st.none() | st.just("a bare pod"),
    refused_nodes=REFUSED,
)


def _jobs(nodes: tuple[str, ...], uid: str) -> st.SearchStrategy[Job]:
    return st.builds(
        Job,
        uid=st.just(uid),
        name=st.just(uid),
        namespace=st.just("team"),
        node=st.sampled_from(nodes),
        state=st.sampled_from(list(JobState)),
        started_at_seconds=_between(START - 1000, START),
        allocation=st.builds(
            CpuAllocation,
            limit_millicores=_maybe(st.integers(1, 8000)),
            request_millicores=st.integers(1, 4000),
        ),
        evaluation=_maybe(EVALUATION),
        usage=_maybe(USAGE),
        steps_total=_maybe(STEPS),
        steps_planned=_maybe(STEPS),
        useful_parallelism_cores=PARALLELISM,
        restarted=st.booleans(),
        life_started_at_seconds=_maybe(st.just(START - 500)),
        responses=_maybe(RESPONSES),
        promises=PROMISES,
        memory_request_bytes=MEMORY_BYTES,
        migratable=st.booleans(),
        mobility=_maybe(MOBILITY),
    )


def _arrivals(uid: str) -> st.SearchStrategy[Arrival]:
    return st.builds(
        Arrival,
        uid=st.just(uid),
        name=st.just(uid),
        namespace=st.just("team"),
        arrived_at_seconds=st.sampled_from([START - 10, START]),
        request_millicores=st.integers(0, 10_000),
        memory_request_bytes=MEMORY_BYTES,
        useful_parallelism_cores=PARALLELISM,
        steps_planned=_maybe(STEPS),
        promises=PROMISES,
        refused_nodes=REFUSED,
    )


def _moving(uid: str) -> st.SearchStrategy[MoveUnderWay]:
    return st.builds(
        MoveUnderWay,
        job_uid=st.just(uid),
        from_node=st.sampled_from(NODES),
        node=st.sampled_from([*NODES, "gone", ""]),
        since_seconds=st.just(START - 5.0),
        step=st.just("starting"),
    )


def _growth(at_seconds: float) -> st.SearchStrategy[Growth]:
    return st.builds(
        Growth,
        at_seconds=st.just(at_seconds),
        interval_seconds=st.just(INTERVAL),
        change_per_second=_between(-0.1, 0.1),
        cpu_cores=_maybe(_between(0, 8)),
        efficiency=st.just({}) | st.fixed_dictionaries({"cpu": _between(0, 0.1)}),
    )


KNOWN = st.builds(
    JobMemory,
    series=_maybe(st.just("eval")),
    first_level=_maybe(_between(-2, 5)),
    best_level=_maybe(_between(-2, 5)),
    growth=_maybe(_growth(START)),
    previous_growth=_maybe(_growth(START - INTERVAL)),
    job_class=_maybe(st.sampled_from(CLASSES)),
    class_since_seconds=_maybe(_between(START - 100, START)),
    wanted_cores=_maybe(_between(0.01, 2)),
    paces=st.lists(
        st.builds(Pace, at_seconds=st.just(START - 20), seconds=_between(0.01, 20), cores=_maybe(_between(0, 4))),
        max_size=4,
    ).map(tuple),
    streak=st.integers(-3, 4),
    marks=st.frozensets(st.sampled_from(["migrated", "rebalanced", "asked:1"])),
    moves_total=st.integers(0, 3),
    moved_at_seconds=_maybe(_between(START - 100, START)),
)


@st.composite
def worlds(draw: st.DrawFn) -> tuple[ClusterSnapshot, MemoryState]:
    """Up to three nodes, six jobs and three arrivals, with a memory that may be of another policy."""
    names = NODES[: draw(st.integers(0, 3))]
    nodes = tuple(
        Node(name, draw(st.sampled_from([1.0, 2.0, 7.5])), 8 * 2**30, draw(st.sampled_from([None, 4000])))
        for name in names
    )
    uids = [f"job-{index}" for index in range(draw(st.integers(0, 6)))] if names else []
    jobs = tuple(draw(_jobs(names, uid)) for uid in uids)
    waiting = tuple(draw(_arrivals(f"new-{index}")) for index in range(draw(st.integers(0, 3))))
    known = {uid: draw(KNOWN) for uid in uids if draw(st.booleans())}
    looks = {
        name: NodeMemory(
            frozenset(job.uid for job in jobs if job.node == name and not job.state.ended),
            START - draw(st.sampled_from([5.0, 20.0])),
            INTERVAL,
        )
        for name in names
        if draw(st.booleans())
    }
    remaining = {uid: draw(_between(0, 1e4) | st.just(math.inf)) for uid in uids if draw(st.booleans())}
    moving = tuple(draw(_moving(uid)) for uid in (*uids, "away") if draw(st.booleans()))
    return ClusterSnapshot(START, nodes, jobs, 5.0, waiting, remaining, moving), MemoryState(known, looks)

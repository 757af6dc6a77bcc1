"""What every policy must keep to, whatever it computes: the checks, and a strategy for worlds to hold it to them.

`slopewise policies check` runs them over a policy of the user's, `tests/controller/policies/test_contract.py` over
every policy that is shipped. Each raises a ContractError, whose message is a sentence.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from controller import growth, move_guards, pace
from controller.bounds import Bounds
from controller.joint_move_guards import memory_capacity
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
from controller.own_policies.answers import first_mistake
from controller.policies import DecidesOn, PolicyProtocol

START = 1_000_000.0
"""When the worlds below are looked at, Unix seconds."""

INTERVAL = 20.0
AUTO = Bounds("Auto", 1, 64_000, 0.0, 1000.0, 0.0)

Make = Callable[[], PolicyProtocol]
"""Builds the policy anew: what it keeps of one decision may not reach the next."""


class ContractError(AssertionError):
    """A policy does not keep to the contract; the message says what it did."""


def _require(holds: bool, broken: str) -> None:
    if not holds:
        raise ContractError(broken)


def decide(policy: PolicyProtocol, snapshot: ClusterSnapshot, memory: MemoryState) -> Decisions:
    """Measure and decide, as a pass does."""
    return policy.decide(snapshot, measured(snapshot, memory))


def measured(snapshot: ClusterSnapshot, memory: MemoryState) -> MemoryState:
    """The memory that a pass hands to the policy."""
    grown = growth.measure(snapshot, memory, growth.Measuring(INTERVAL))
    return pace.measure(snapshot, grown, INTERVAL)


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
    check_explained_and_remembered(control, snapshot, memory, decisions)
    check_resizes_within_bounds(control, snapshot, decisions)
    check_silent_jobs_keep_what_they_came_with(snapshot, decisions, decides_on)
    check_weights_add_up_to_what_the_jobs_came_with(snapshot, decisions)
    check_moves_are_possible(snapshot, decisions)
    return decisions


def check_pure_and_deterministic(make: Make, snapshot: ClusterSnapshot, memory: MemoryState) -> Decisions:
    before = copy.deepcopy((snapshot, memory))
    policy = make()
    first, again, another = (decide(each, snapshot, memory) for each in (policy, policy, make()))
    _require(first == again, "asked twice, the same policy gives two answers for one world; keep nothing in `self`")
    _require(first == another, "two policies with the same parameters give two answers for one world; decide purely")
    _require((snapshot, memory) == before, "decide changes what it was given; make new objects (`replace`, `altered`)")
    return first


def check_order_makes_no_difference(
    make: Make, snapshot: ClusterSnapshot, memory: MemoryState, decisions: Decisions
) -> None:
    turned = replace(snapshot, jobs=snapshot.jobs[::-1], nodes=snapshot.nodes[::-1], waiting=snapshot.waiting[::-1])
    other = decide(make(), turned, memory)
    same = {
        "resizes": set(other.resizes) == set(decisions.resizes),
        "reasons": other.reasons == decisions.reasons,
        "memory": other.memory == decisions.memory,
        "moves": other.moves == decisions.moves,
    }
    for part, is_same in same.items():
        _require(is_same, f"{part} depend on the order in which jobs and nodes come; sort them, and end ties by uid")


def check_explained_and_remembered(
    control: CpuControl, snapshot: ClusterSnapshot, memory: MemoryState, decisions: Decisions
) -> None:
    """What is looked at in every pass as well, of policies of the user's: see there."""
    mistake = first_mistake(decisions, snapshot, measured(snapshot, memory), control)
    _require(mistake is None, mistake or "")


def check_resizes_within_bounds(control: CpuControl, snapshot: ClusterSnapshot, decisions: Decisions) -> None:
    jobs, nodes = {job.uid: job for job in snapshot.jobs}, {node.name: node for node in snapshot.nodes}
    for resize in decisions.resizes:
        most = math.ceil(1000 * nodes[jobs[resize.job_uid].node].cpu_cores)
        said = f"a limit of {resize.to_millicores} millicores on a node that has {most}"
        _require(control != "limits" or resize.to_millicores <= most, said)


_REPORTED: Mapping[DecidesOn, str] = {"loss": "a loss", "reports": "a loss, steps or responses"}


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
            _require(
                resizes[job.uid].gives_back,
                f"changes {job.uid}, which has never reported {_REPORTED[decides_on]}; leave it as it came",
            )


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
        total, before = sum(now), sum(each.request_millicores for each in came_with)
        said = f"weights of a node add up to {total} millicores, and its jobs came with {before}; see `resizes`"
        _require(abs(total - before) <= 1.5 * len(jobs), said)


def check_moves_are_possible(snapshot: ClusterSnapshot, decisions: Decisions) -> None:
    running = {job.uid: job for job in snapshot.jobs if not job.state.ended}
    waiting = {arrival.uid: arrival for arrival in snapshot.waiting}
    for move in decisions.moves:
        if isinstance(move, Migrate):
            job = running[move.job_uid]
            _require(job.migratable, f"moves {move.job_uid}, which may not be moved; ask can_move(job)")
            _require(move.node != job.node, f"moves {move.job_uid} to where it is")
            if job.mobility is not None:
                stays, refused = job.mobility.stays_because, job.mobility.refused_nodes
                backoff = job.mobility.backoff_reason
                _require(stays is None, f"moves {move.job_uid}, which stays because it is {stays}; ask can_move(job)")
                _require(backoff is None, f"moves {move.job_uid}, which is not moved {backoff}; ask can_move(job)")
                _require(move.node not in refused, f"moves {move.job_uid} to a node that refuses it; see refused_nodes")
        else:
            refused = waiting[move.job_uid].refused_nodes
            _require(move.node not in refused, f"places {move.job_uid} on a node that refuses it; see refused_nodes")
    _, withheld = move_guards.review_moves(decisions.moves, snapshot, decisions.memory, AUTO)
    too_large = [each for each in withheld if isinstance(each.move, Place) and each.guard == memory_capacity.__name__]
    _require(not too_large, "places a job where its memory does not fit; see snapshot.memory_room_bytes, or place_each")


def check_limits_add_up(make: Make, snapshot: ClusterSnapshot, memory: MemoryState) -> None:
    """What a policy wants for the jobs of a node, all of them looked at for the first time, is there to be had."""
    fresh = {uid: replace(known, wanted_cores=None) for uid, known in memory.jobs.items()}
    decisions = decide(make(), snapshot, MemoryState(fresh))
    jobs_on = snapshot.jobs_by_node()
    for node in snapshot.nodes:
        wanted = [decisions.memory.jobs[job.uid].wanted_cores for job in jobs_on[node.name]]
        total = sum(cores for cores in wanted if cores is not None)
        said = f"wants {total:.4g} cores together for the jobs of a node that has {node.cpu_cores:.4g}"
        _require(total <= node.cpu_cores * (1 + 1e-9), said)


# --- worlds: every optional field missing or present ---------------------------------------------------------

NODES = ("n1", "n2", "n3")
CLASSES = ("NL", "WL", "CL", "PC", "WC", "CC", "G", "S", "B", "urgent", "deliverable", "released", "cpu", "gone")
"""Of the policies that are shipped, and of one that is not: the policy may have been changed since."""


def _maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
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
    backoff_reason=st.none() | st.none() | st.just("until 12:05:00 UTC: a disruption budget says no"),
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

"""Worlds that Hypothesis draws, for the contract of policies: every optional field is missing or present."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import strategies as st

from slopewise.model import (
    NO_OBJECTIVES,
    Arrival,
    ClusterSnapshot,
    CpuAllocation,
    Evaluation,
    Growth,
    Job,
    JobMemory,
    JobState,
    Levels,
    MemoryState,
    Movability,
    MoveRecord,
    MoveUnderWay,
    Node,
    NodeMemory,
    ObjectiveMemory,
    Objectives,
    Pace,
    PolicyMemory,
    Responses,
    TargetHits,
    Usage,
)

START = 1_000_000.0
"""The time of the worlds, Unix seconds."""

INTERVAL = 20.0

NODES = ("n1", "n2", "n3")
CLASSES = ("NL", "WL", "CL", "PC", "WC", "CC", "G", "S", "B", "urgent", "deliverable", "released", "cpu", "gone")
"""Of the policies that are shipped, and of one that is not: the policy may have been changed since."""


def _maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


def _between(low: float, high: float) -> st.SearchStrategy[float]:
    return st.floats(low, high, allow_subnormal=False)


OBJECTIVES = st.just(NO_OBJECTIVES) | st.builds(
    Objectives,
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
RESPONSES = st.builds(
    Responses,
    count_total=_between(0, 1000),
    seconds_total=_between(0, 1000),
    failed_total=_between(0, 1000),
    failed_seconds_total=_between(0, 1000),
    in_flight=_maybe(_between(0, 100)),
)
STEPS = _between(0, 2000)
PARALLELISM = _maybe(_between(0.1, 8))
REFUSED = st.dictionaries(st.sampled_from(NODES), st.just("a taint"), max_size=2)
MOVABILITY = st.builds(
    Movability,
    way=st.just("suspend"),
    blocked_reason=st.none() | st.none() | st.just("a bare pod"),
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
            CpuAllocation, limit_millicores=_maybe(st.integers(1, 8000)), request_millicores=st.integers(1, 4000)
        ),
        evaluation=_maybe(EVALUATION),
        usage=_maybe(USAGE),
        steps_total=_maybe(STEPS),
        steps_planned=_maybe(STEPS),
        useful_parallelism_cores=PARALLELISM,
        restarted=st.booleans(),
        process_started_at_seconds=_maybe(st.just(START - 500)),
        responses=_maybe(RESPONSES),
        objectives=OBJECTIVES,
        memory_request_bytes=MEMORY_BYTES,
        migratable=st.booleans(),
        movability=_maybe(MOVABILITY),
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
        objectives=OBJECTIVES,
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
    levels=st.builds(
        Levels, series=_maybe(st.just("eval")), first=_maybe(_between(-2, 5)), best=_maybe(_between(-2, 5))
    ),
    growth=_maybe(_growth(START)),
    previous_growth=_maybe(_growth(START - INTERVAL)),
    decided=st.builds(
        PolicyMemory,
        job_class=_maybe(st.sampled_from(CLASSES)),
        class_since_seconds=_maybe(_between(START - 100, START)),
        wanted_cores=_maybe(_between(0.01, 2)),
        marks=st.frozensets(st.sampled_from(["migrated", "rebalanced", "asked:1"])),
    ),
    paces=st.lists(
        st.builds(Pace, at_seconds=st.just(START - 20), seconds=_between(0.01, 20), cores=_maybe(_between(0, 4))),
        max_size=4,
    ).map(tuple),
    moves_total=st.integers(0, 3),
    moves=_maybe(_between(START - 100, START)).map(lambda at: () if at is None else (MoveRecord(at, "n1", "n2"),)),
    objectives=st.builds(
        ObjectiveMemory, targets=_maybe(st.builds(TargetHits, streak=st.integers(-2, 2), reached=st.integers(0, 2)))
    ),
)


@st.composite
def worlds(draw: st.DrawFn) -> tuple[ClusterSnapshot, MemoryState]:
    """Up to three nodes, six jobs and three arrivals, with a memory that may be of another policy."""
    names = NODES[: draw(st.integers(0, 3))]
    nodes = tuple(
        Node(
            name,
            draw(st.sampled_from([1.0, 2.0, 7.5])),
            8 * 2**30,
            draw(st.sampled_from([None, 4000])),
            draw(st.sampled_from([None, 0.0, 0.5, 9.0])),
        )
        for name in names
    )
    uids = [f"job-{index}" for index in range(draw(st.integers(0, 6)))] if names else []
    jobs = tuple(draw(_jobs(names, uid)) for uid in uids)
    waiting = tuple(draw(_arrivals(f"new-{index}")) for index in range(draw(st.integers(0, 3))))
    known = {uid: draw(KNOWN) for uid in uids if draw(st.booleans())}
    evaluated = {
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
    return ClusterSnapshot(START, nodes, jobs, 5.0, waiting, remaining, moving), MemoryState(known, evaluated)

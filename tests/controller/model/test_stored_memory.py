"""Memory is read as it was stored."""

from __future__ import annotations

from typing import Any

import numpy as np

from slopewise.model import (
    MEMORY_JSON,
    Anchor,
    Backoff,
    Change,
    Confirmed,
    ContainerHealth,
    CpuAllocation,
    Doubts,
    Growth,
    JobMemory,
    Levels,
    MemoryState,
    MoveRecord,
    NodeMemory,
    ObjectiveMemory,
    Outlier,
    Pace,
    PaceAnchor,
    PolicyMemory,
    TargetHits,
    Timing,
    Usage,
    read_job_memory,
    read_memory_state,
)

BEFORE = Growth(1000.0, 20.0, 0.25, None)
PACE = Pace(1010.0, 0.25, 0.5)
JOB = JobMemory(
    levels=Levels(
        series='training_loss{stage="eval"}',
        first=2.5,
        best=0.3,
        anchor=Anchor(1020.0, 0.3, Usage(1000.5, 12.25, 2e9, None, 7.0), 990.0),
        silent_since_seconds=1015.0,
        doubts=Doubts((2.5, 2.4), Outlier(1019.0, 99.0), (3.0, 0.2)),
    ),
    decided=PolicyMemory(job_class="WL", class_since_seconds=1000.0, wanted_cores=0.5, marks=frozenset({"migrated"})),
    timing=Timing(anchor=PaceAnchor(1020.0, 50.0, None, 12.25, 990.0, 1019.0)),
    backoff=Backoff(until_seconds=1300.0, reason="it regressed after a change"),
    growth=Growth(1020.0, 20.0, -0.001, 0.5, {"cpu": 0.02, "memory": 0.5}),
    last_resized_at_seconds=1010.0,
    previous_growth=BEFORE,
    paces=(PACE, Pace(1020.0, 1e-07, None)),
    moves_total=2,
    moves=(
        MoveRecord(500.0, "n1", "n2", 40.0, 400.0, 501.0, 510.0, "n2", 0.0),
        MoveRecord(905.0, "n2", "n3", failure="lost 5 steps"),
    ),
    change=Change(
        at_seconds=1010.0,
        control="limits",
        from_millicores=1000,
        to_millicores=500,
        container_health=ContainerHealth(1, 900.0, 100.0, 5.0),
        growth=BEFORE,
        pace=PACE,
        is_rollback=True,
        reported="deferred",
        regression="OOM killed",
    ),
)


def test_what_is_stored_is_read_again_but_for_fields_that_are_gone() -> None:
    assert read_job_memory(MEMORY_JSON.encode(JOB)) == JOB
    assert read_job_memory('{"job_class":"WL","growth":null,"moves_total":2}') == JobMemory(moves_total=2)
    counted = JobMemory(
        objectives=ObjectiveMemory(targets=TargetHits(-2, 1), missed=Confirmed(True, 1000.5), hopeless=Confirmed())
    )
    nodes = {"n1": NodeMemory(frozenset({"a"}), 1000.0, 20.0)}
    state = MemoryState({"a": JOB, "c": counted, "d": JOB.altered(original=CpuAllocation(None, 1000))}, nodes)
    assert read_memory_state(MEMORY_JSON.encode(state)) == state


def test_a_level_that_is_infinite_is_stored_as_unknown_and_numbers_of_numpy_as_numbers() -> None:
    counted: Any = np.int64(2)
    stored = MEMORY_JSON.encode(
        JobMemory(
            levels=Levels(best=float("inf")), decided=PolicyMemory(wanted_cores=np.float64(0.5)), moves_total=counted
        )
    )
    assert stored == b'{"levels":{"best":null},"decided":{"wanted_cores":0.5},"moves_total":2}'
    assert read_job_memory(stored) == JobMemory(decided=PolicyMemory(wanted_cores=0.5), moves_total=2)

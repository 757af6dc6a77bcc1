"""Memory that earlier versions stored: fields that `JobMemory` had itself then are read into the records of today."""

from __future__ import annotations

from typing import Any

import numpy as np

from slopewise.model import (
    MEMORY_JSON,
    Anchor,
    Answering,
    Backoff,
    Change,
    Confirmed,
    ContainerHealth,
    CpuAllocation,
    Doubts,
    Ends,
    GpuMemory,
    Growth,
    JobMemory,
    LearnedCores,
    Levels,
    MemoryResizes,
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
    Unmet,
    Usage,
    read_job_memory,
    read_memory_state,
)

IN_A_JOBGROWTH = (
    '{"series":"training_loss{stage=\\"eval\\"}","first_level":2.5,"best_level":0.3,"anchor":{"at_seconds":10'
    '20.0,"level":0.3,"usage":{"sampled_at_seconds":1000.5,"cpu_seconds_total":12.25,"memory_bytes":200000000'
    '0.0,"network_io_bytes_total":7.0},"process_started_at_seconds":990.0},"growth":{"at_seconds":1020.0,"int'
    'erval_seconds":20.0,"change_per_second":-0.001,"cpu_cores":0.5,"efficiency":{"cpu":0.02,"memory":0.5}},"'
    'job_class":"WL","class_since_seconds":1000.0,"wanted_cores":0.5,"last_resized_at_seconds":1010.0,"previo'
    'us_growth":{"at_seconds":1000.0,"interval_seconds":20.0,"change_per_second":0.25,"cpu_cores":null},"pace'
    '_anchor":{"at_seconds":1020.0,"done_total":50.0,"busy_seconds_total":null,"cpu_seconds_total":12.25,"pro'
    'cess_started_at_seconds":990.0,"cpu_sampled_at_seconds":1019.0},"paces":[{"at_seconds":1010.0,"seconds":'
    '0.25,"cores":0.5},{"at_seconds":1020.0,"seconds":1e-7,"cores":null}],"streak":2,"marks":["migrated"],"mo'
    'ves_total":2,"moved_at_seconds":905.0,"moves":[{"at_seconds":500.0,"from_node":"n1","node":"n2","steps_b'
    'efore":40.0,"process_started_at_seconds":400.0,"begun_at_seconds":501.0,"resumed_at_seconds":510.0,"resu'
    'med_on":"n2","steps_lost":0.0},{"at_seconds":905.0,"from_node":"n2","node":"n3","failure":"lost 5 steps"'
    '}],"change":{"at_seconds":1010.0,"control":"limits","from_millicores":1000,"to_millicores":500,"containe'
    'r_health":{"restarts_total":1,"oom_killed_at_seconds":900.0,"cpu_periods_total":100.0,"cpu_throttled_per'
    'iods_total":5.0},"growth":{"at_seconds":1000.0,"interval_seconds":20.0,"change_per_second":0.25,"cpu_cor'
    'es":null},"pace":{"at_seconds":1010.0,"seconds":0.25,"cores":0.5},"is_rollback":true,"reported":"deferre'
    'd","regression":"OOM killed"},"backoff_until_seconds":1300.0,"backoff_reason":"it regressed after a chan'
    'ge","silent_since_seconds":1015.0,"doubts":{"early":[2.5,2.4],"outlier":{"at_seconds":1019.0,"level":99.'
    '0},"former":[3.0,0.2]}}'
)
"""Without `original`, which is stored beside it, and without defaults."""

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


def test_what_a_jobgrowth_held_is_read_but_for_fields_that_are_gone_and_is_read_again_as_it_is_written() -> None:
    assert read_job_memory(IN_A_JOBGROWTH) == JOB
    assert read_job_memory(MEMORY_JSON.encode(JOB)) == JOB


OF_POLICIES = (
    '{"ends":[1000.0,1050.0,1090.0,null],"state":"[1]","unmet":{"node":"n1","evaluations":2,"at_seconds":900.0},'
    '"placement":{"job_class":"CC","marks":["migrated"]},"answering":{"failed_ratio":0.5},"least_step_cpu_seconds":0.2,'
    '"targets":{"streak":1,"reached":1},"objective_missed":{"holds":true},"hopeless":{},"learned_cores":{"at_seconds":'
    '990.0,"most":2.0},"gpu_seconds_won":36.0,"written_limit_bytes":1024,"memory_resized_at_seconds":980.0,'
    '"memory_refused_at_seconds":970.0}'
)


def test_nothing_of_what_the_version_before_the_records_held_is_lost() -> None:
    decided = PolicyMemory(state="[1]", unmet=Unmet("n1", 2, 900.0), ends=Ends(1000.0, 1050.0, 1090.0))
    assert read_job_memory(OF_POLICIES) == JobMemory(
        decided=decided,
        placement=PolicyMemory("CC", marks=frozenset({"migrated"})),
        timing=Timing(answering=Answering(0.5), least_step_cpu_seconds=0.2),
        objectives=ObjectiveMemory(TargetHits(1, 1), Confirmed(True), Confirmed()),
        gpu=GpuMemory(LearnedCores(990.0, most=2.0), 36.0),
        memory_resizes=MemoryResizes(980.0, 970.0, 1024),
    )


def test_what_a_memory_file_held_is_read_with_what_is_null_and_is_read_again_as_it_is_written() -> None:
    file = (
        f'{{"jobs":{{"a":{IN_A_JOBGROWTH},"b":{{"series":"loss","growth":null,"paces":[],"moves":[]}}}},"nodes":{{"n1":'
    )
    file += '{"job_uids":["a"],"evaluated_at_seconds":1000.0,"interval_seconds":20.0}}}'
    stored = read_memory_state(file.encode())
    nodes = {"n1": NodeMemory(frozenset({"a"}), 1000.0, 20.0)}
    assert stored == MemoryState({"a": JOB, "b": JobMemory(levels=Levels(series="loss"))}, nodes)
    counted = JobMemory(
        objectives=ObjectiveMemory(targets=TargetHits(-2, 1), missed=Confirmed(True, 1000.5), hopeless=Confirmed())
    )
    state = MemoryState({**stored.jobs, "c": counted, "d": JOB.altered(original=CpuAllocation(None, 1000))}, nodes)
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

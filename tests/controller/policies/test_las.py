"""Least attained service: who has had least goes first, equals share, and no job is starved."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from support.worlds import START, a_job, a_node, a_snapshot, known, limits

from slopewise.model import Decisions, Job, JobMemory, MemoryState
from slopewise.policies import Setting
from slopewise.policies.las import Parameters, Policy


def decide(jobs: Sequence[Job], cpu_cores: float = 1.0, **parameters: float) -> Decisions:
    policy = Policy(Parameters(**parameters), Setting(20.0, "limits"))
    return policy.decide(a_snapshot(jobs, [a_node(cpu_cores=cpu_cores)]), MemoryState({j.uid: known() for j in jobs}))


def test_the_job_that_had_least_gets_the_node_and_the_other_a_floor() -> None:
    decisions = decide([a_job("old", cpu_seconds=100), a_job("new", cpu_seconds=2)])
    assert limits(decisions) == pytest.approx({"old": 0.025, "new": 0.975})
    assert decisions.reasons["old"] == "queue 4: has had 100 core-s, limit 0.025 of 1 cores"


def test_jobs_of_one_queue_share_evenly_so_that_a_second_more_or_less_moves_no_job() -> None:
    assert limits(decide([a_job("a", cpu_seconds=41), a_job("b", cpu_seconds=79)])) == {"a": 0.5, "b": 0.5}


@pytest.mark.parametrize(("cpu_seconds", "queue"), [(0, 0), (9.9, 0), (10, 1), (19, 1), (20, 2), (40, 3), (1e5, 14)])
def test_queues_end_at_doubling_thresholds(cpu_seconds: float, queue: int) -> None:
    assert decide([a_job("a", cpu_seconds=cpu_seconds)]).memory.jobs["a"].decided.job_class == f"queue {queue}"


def test_no_job_gets_more_than_it_can_use_and_the_next_queue_has_the_rest() -> None:
    jobs = [a_job("a", cpu_seconds=0, useful_cores=1.0), a_job("b", cpu_seconds=50, useful_cores=4.0)]
    assert limits(decide(jobs, cpu_cores=4.0)) == pytest.approx({"a": 1.0, "b": 3.0})


def test_jobs_that_report_nothing_count_where_the_user_says_so() -> None:
    silent = [a_job(uid, level=None, cpu_seconds=seconds) for uid, seconds in (("old", 100.0), ("new", 2.0))]
    policy = Policy(Parameters(silent_jobs="count"), Setting(20.0, "limits"))
    counted = policy.decide(a_snapshot(silent), MemoryState({job.uid: JobMemory() for job in silent}))
    assert limits(counted) == pytest.approx({"old": 0.025, "new": 0.975})


def test_a_newcomer_without_a_sample_goes_first_and_an_old_job_that_is_not_counted_does_not() -> None:
    newcomer = a_job("newcomer", cpu_seconds=None, started_at=START - 5)
    unseen = a_job("unseen", cpu_seconds=None, started_at=START - 500)
    broken = a_job("broken", cpu_seconds=float("nan"), started_at=START - 500)
    classes = {uid: each.decided.job_class for uid, each in decide([newcomer, unseen, broken]).memory.jobs.items()}
    assert classes == {"newcomer": "queue 0", "unseen": "queue 6", "broken": "queue 6"}

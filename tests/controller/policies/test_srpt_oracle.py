"""The oracle: least remaining work first, unknown ends last, a floor for jobs that wait."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from support.worlds import a_job, a_node, a_snapshot, known, limits

from slopewise.model import Decisions, Job, MemoryState
from slopewise.policies import Setting
from slopewise.policies.srpt_oracle import Parameters, Policy


def decide(jobs: Sequence[Job], remaining: Mapping[str, float], cpu_cores: float = 1.0) -> Decisions:
    policy = Policy(Parameters(), Setting(20.0, "limits"))
    snapshot = replace(a_snapshot(jobs, [a_node(cpu_cores=cpu_cores)]), remaining_work_cpu_seconds=remaining)
    return policy.decide(snapshot, MemoryState({job.uid: known() for job in jobs}))


def test_cpu_goes_down_the_order_of_remaining_work_to_each_up_to_what_it_can_use() -> None:
    jobs = [a_job(uid, useful_cores=1.0) for uid in ("long", "short", "middle")]
    decisions = decide(jobs, {"long": 300, "short": 10, "middle": 80}, cpu_cores=2.0)
    floor = 0.05 * 2 / 3
    assert limits(decisions) == pytest.approx({"short": 1.0, "middle": 1 - floor, "long": floor})
    classes = {uid: each.decided.job_class for uid, each in decisions.memory.jobs.items()}
    assert classes == {"short": "runs", "middle": "runs", "long": "waits"}
    assert decisions.reasons["long"] == "waits: 300 core-s left, 3 in order, limit 0.0333 of 2 cores"


def test_jobs_without_a_known_end_come_last_and_share_evenly() -> None:
    jobs = [a_job(uid) for uid in ("served", "unknown", "nan", "known")]
    decisions = decide(jobs, {"served": math.inf, "nan": math.nan, "known": 1000.0})
    assert limits(decisions) == pytest.approx({"known": 0.9625, "served": 0.0125, "unknown": 0.0125, "nan": 0.0125})
    assert decisions.memory.jobs["served"].decided.job_class == "no end known"

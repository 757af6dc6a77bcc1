"""Threads in a scenario: every job's, one job's own, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from support.scenarios import a_scenario

from slopewise.errors import UsageError
from slopewise.simulator.scenario.parts import libraries, threads_of
from slopewise.simulator.scenario.scenario import Scenario
from slopewise.simulator.workload import draw
from slopewise.simulator.world.model import SimJob

GENERATE = {"count": 2, "arriveSeconds": {"every": 5}, "models": {"gru": 1}}


def with_threads(job: dict[str, object] | None = None, **spec: Any) -> Scenario:
    jobs = [{"name": "own", "model": "gru", **(job or {})}]
    return a_scenario(nodes=[{"name": "n", "cpu": 2}], jobs=jobs, generate=GENERATE, historyJobs=1, **spec)


def by_name(scenario: Scenario) -> dict[str, SimJob]:
    instance = draw(scenario, 1)
    return {job.name: job for job in (*instance.jobs, *instance.history)}


def test_one_thread_is_what_a_scenario_without_threads_has() -> None:
    assert draw(with_threads(), 1) == draw(with_threads(threads=1, threadBehaviour="follow"), 1)


def test_every_training_has_the_scenarios_threads_and_can_use_as_many_cores() -> None:
    jobs = by_name(with_threads(threads=2, threadBehaviour="wait", threadLibrary="openblas"))
    assert len(jobs) == 4
    assert {job.threads for job in jobs.values()} == {threads_of(2, "wait", "openblas")}
    assert {job.parallelism_cores for job in jobs.values()} == {2.0}


def test_a_jobs_own_go_before_them() -> None:
    jobs = by_name(with_threads({"threads": 4, "threadBehaviour": "follow"}, threads=2))
    assert jobs["own"].threads == threads_of(4, "follow", "hist-gradient-boosting")
    assert jobs["job-1"].threads == threads_of(2, "spin", "hist-gradient-boosting")
    assert by_name(with_threads({"threads": 1}, threads=2))["own"].threads is None


@pytest.mark.parametrize(
    ("job", "spec", "message"),
    [
        ({}, {"threadLibrary": "openblass"}, "there is no measured library 'openblass'; did you mean 'openblas'"),
        ({}, {"threadBehaviour": "sleep"}, "threadBehaviour"),
        ({"threads": 0}, {}, "threads"),
        (
            {"threads": 2, "model": "served"},
            {"durationSeconds": 9},
            "job 'own' is served, and threads are of trainings",
        ),
    ],
)
def test_nonsense_is_refused(job: dict[str, object], spec: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        with_threads(job, **spec)


@pytest.mark.parametrize("library", libraries())
def test_every_table_is_of_more_and_more_threads_a_core(library: str) -> None:
    for behaviour in ("spin", "wait"):
        penalties = threads_of(2, behaviour, library).penalties
        assert len(penalties) >= 2
        assert all(penalty.cpu_ratio > 0.5 and 0 < penalty.speed_ratio < 2 for penalty in penalties)

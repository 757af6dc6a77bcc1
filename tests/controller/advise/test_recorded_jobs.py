"""Recorded jobs as a scenario: their works, curves and groups."""

from __future__ import annotations

import math
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.past_jobs import START, constant, fast, past, points, straight
from support.searching import examples

from slopewise.adapters.prometheus.history import LARGEST, JobHistory, Points, Resources, Steps
from slopewise.advise.findings import finding
from slopewise.advise.flatness import MIN_POINTS
from slopewise.advise.scenarios.groups import MAX_GROUP_JOBS, groups_of
from slopewise.advise.scenarios.recorded_jobs import CURVE_POINTS, WORK_RATIO, RecordedJob, recorded_job, write_scenario
from slopewise.simulator import curves
from slopewise.simulator.scenario.scenario import load_scenario
from slopewise.simulator.workload import draw

HOUR = 3600.0


def made(job: JobHistory, number: int = 1) -> RecordedJob:
    found = recorded_job(job, number)
    assert found is not None
    return found


def at(start_hours: float, hours: float, number: int, **more: object) -> RecordedJob:
    start = START + start_hours * HOUR
    return made(past(f"job-{number}", hours=hours, start=start, **more), number)  # type: ignore[arg-type]


def test_a_loss_is_placed_by_the_cpu_that_was_used_by_then() -> None:
    """It idled for its first half, and its loss fell in the second: by CPU, it fell from the start."""
    idle = points(10 * HOUR, 60, lambda part: 0.0 if part < 0.5 else 2.0)
    job = made(replace(past(loss=lambda part: 2.0 if part < 0.5 else 2.0 - 3 * (part - 0.5)), cpu_cores=idle))
    assert job.curve is not None
    halfway = next(level for x, level in job.curve.points if x >= 0.5)
    assert halfway == pytest.approx(0.5, abs=0.05)


def test_a_curve_has_its_range_and_its_noise_and_few_points() -> None:
    job = made(past(loss=fast, cores=1.5))
    assert job.work_cpu_seconds == pytest.approx(1.5 * 10 * HOUR, rel=0.01)
    assert job.cores == pytest.approx(1.5)
    assert job.curve is not None
    assert job.curve.ends_at == pytest.approx(0.3 / 2.3, abs=0.01)
    assert job.curve.noise < 0.01
    assert len(job.curve.points) <= 2 * CURVE_POINTS


@pytest.mark.parametrize("job", [past(loss=constant), past(loss=None), past(gpus=1.0)])
def test_a_job_that_no_policy_would_change_reports_nothing(job: JobHistory) -> None:
    assert made(job).curve is None


def test_a_job_without_known_cpu_is_not_replayed() -> None:
    assert recorded_job(replace(past(), cpu_cores=past().cpu_cores[:1]), 1) is None
    assert recorded_job(past(cores=0.0), 1) is None


def test_jobs_that_shared_a_node_at_the_same_time_are_a_group() -> None:
    jobs = [at(0, 2, 1), at(1, 2, 2), at(5, 1, 3), at(0, 8, 4, node="node-b"), at(7, 2, 5, node="node-b")]
    found = groups_of(jobs, {"node-a": 4.0})
    assert [(group.node, [job.pod for job in group.jobs]) for group in found] == [
        ("node-a", ["job-1", "job-2"]),
        ("node-b", ["job-4", "job-5"]),
    ]
    assert found[0].cores == 4
    assert found[1].cores == pytest.approx(2, rel=0.02)  # nothing says it: the most that was used at once


def test_jobs_whose_nodes_are_not_known_shared_none() -> None:
    assert groups_of([at(0, 2, 1, node=""), at(1, 2, 2, node="")], {}) == []


def test_cpu_was_short_where_the_jobs_could_have_used_more_than_the_node_has() -> None:
    jobs = [at(0, 2, 1), at(1, 2, 2)]
    assert groups_of(jobs, {"node-a": 1.9})[0].contended
    assert not groups_of(jobs, {"node-a": 2.1})[0].contended


@pytest.mark.parametrize(("others", "left"), [(10.0, 14.0), (22.0, 6.0), (None, 24.0)])
def test_by_need_a_node_is_as_large_as_other_pods_leave_it_and_holds_what_its_jobs_came_with(
    others: float | None, left: float
) -> None:
    """Two jobs of 3 cores, from the second hour to the fourth; before that others have requested all of it."""
    jobs = [at(1.5, 2, number, limits=Resources(3.0), request=3.0, gpus=1.0, wait_ratio=0.5) for number in (1, 2)]
    requested: dict[str, Points] = {}
    if others is not None:
        totals = enumerate((24.0, 24.0, 6 + others, 6 + others))
        requested["node-a"] = np.array([(START + hour * HOUR, total) for hour, total in totals])
    (found,) = groups_of(jobs, {"node-a": 24.0}, requested)
    assert found.cores == pytest.approx(left)


def test_a_chain_that_never_ends_is_cut() -> None:
    jobs = [at(number, 1.5, number) for number in range(70)]
    assert [len(group.jobs) for group in groups_of(jobs, {})] == [MAX_GROUP_JOBS, MAX_GROUP_JOBS, 10]


def test_the_scenario_can_be_loaded_and_drawn(tmp_path: Path) -> None:
    hostile = made(replace(past("</script> ../Über", loss=straight), steps=Steps(planned=500.0)), 7)
    jobs = [at(0, 2, 1), at(1, 2, 2, request=64.0), hostile, at(0, 1, 4, loss=None)]
    path = write_scenario("group-1", jobs, {"node-a": 1.5}, tmp_path, policies=["flowcon"], seeds=2)
    instance = draw(load_scenario(str(path)), 1)
    assert {job.name for job in instance.jobs} == {"job-1-1", "job-2-2", "script-ber-7", "job-4-4"}
    for job in instance.jobs:
        recorded = next(each for each in jobs if each.name == job.name)
        assert abs(job.work_cpu_seconds / recorded.work_cpu_seconds - 1) <= WORK_RATIO + 1e-6
        assert job.arrive_seconds == pytest.approx(recorded.from_seconds - START, abs=0.1)
        assert job.allocation.request_millicores <= 1500
        assert job.reports == (recorded.curve is not None)
    assert next(job for job in instance.jobs if job.name == "script-ber-7").steps_planned == 500


@examples(50)
@given(
    losses=st.lists(st.floats(-LARGEST, LARGEST) | st.floats(-10, 10), min_size=MIN_POINTS, max_size=60),
    cores=st.lists(st.floats(0, 64), min_size=2, max_size=60),
)
def test_whatever_was_recorded_is_found_and_can_be_replayed(losses: list[float], cores: list[float]) -> None:
    job = replace(past(loss=None), loss=at_a_minute(losses), cpu_cores=at_a_minute(cores))
    found = finding(job)
    assert 0 <= found.hours_in_vain <= found.hours
    assert all(math.isfinite(value) for value in asdict(found).values() if isinstance(value, float))
    recorded = recorded_job(job, 1)
    if recorded is not None and recorded.curve is not None:
        curve = curves.points(list(recorded.curve.points))  # ValueError for one that is none
        assert 0 <= curve.at(0.5) <= 1
        assert 0 <= recorded.curve.ends_at <= 0.99
        assert 0 <= recorded.curve.noise <= 1


def at_a_minute(values: list[float]) -> Points:
    return np.column_stack((START + 60 * np.arange(len(values)), values))

"""What fair sharing would have taken: of the docstring, beside simulated fair sharing, and as jobs end."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from support.instances import AT_ONCE, a_policy_run, a_sim_job, a_sim_node, an_instance
from support.worlds import START

from slopewise.adapters.local.job_queue import Queued, again
from slopewise.adapters.local.job_record import JobRecord
from slopewise.config.jobs_file import JobSpec, Queueing
from slopewise.local.fair_replay import Work, compare, fair_seconds
from slopewise.local.tally import RunTally
from slopewise.simulator.engine import run


def works(*core_seconds: float, due: Sequence[float] = (), **queueing: Any) -> list[Work]:
    dues = due or [0.0] * len(core_seconds)
    return [
        Work(Queued(f"j{place}", "waiting", due=False, queueing=Queueing(**queueing)), at, work, 1.0)
        for place, (work, at) in enumerate(zip(core_seconds, dues, strict=True))
    ]


@pytest.mark.parametrize(
    ("jobs", "most", "took"),
    [
        (works(10.0, 30.0), None, [20.0, 40.0]),
        (works(10.0, 30.0), 1, [10.0, 30.0]),
        (works(10.0, 30.0, study="s", max_running=1), None, [10.0, 30.0]),
        (works(10.0, 30.0, due=[0.0, 100.0]), None, [10.0, 30.0]),
        (works(10.0, 30.0, due=[0.0, 5.0]), None, [15.0, 35.0]),
    ],
)
def test_jobs_that_have_a_place_share_evenly(jobs: list[Work], most: int | None, took: list[float]) -> None:
    found = fair_seconds(jobs, ["j0", "j1"], most, 1.0)
    assert [found["j0"], found["j1"]] == pytest.approx(took)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_they_take_what_they_take_under_simulated_fair_sharing(seed: int) -> None:
    luck = random.Random(seed)
    jobs = [a_sim_job(f"j{at}", luck.uniform(60, 400), luck.uniform(0, 200)) for at in range(8)]
    fair = run(an_instance(jobs, [a_sim_node(cpu=2.0)]), a_policy_run("fair", behaviour=AT_ONCE)).jobs
    due = [job.arrive_seconds for job in jobs]
    found = fair_seconds(works(*(job.work_cpu_seconds for job in jobs), due=due), [job.name for job in jobs], None, 2.0)
    assert found == {job.name: pytest.approx(job.jct_seconds, rel=0.02) for job in fair}


class TestASession:
    """On one core `a` used 10 core-seconds and has ended; `b` has used 5, a third of its plan."""

    @pytest.fixture
    def tally(self) -> RunTally:
        tally = RunTally()
        tally.capacity_cores = 1.0
        of_b = tally.of("b")
        of_b.cpu_seconds, of_b.steps_total, of_b.steps_planned, of_b.resizes = 5.0, 10.0, 30.0, 1
        return tally

    @pytest.fixture
    def supervisor(self) -> Any:
        records = {name: JobRecord(JobSpec(name, ["x"], 0.0), 20_001, arrived_at_seconds=START) for name in "ab"}
        end(records["a"], START + 10, 10.0)
        return SimpleNamespace(records=records, started_at_seconds=START, max_running=None)

    def test_what_the_others_have_left_bounds_it_and_their_end_makes_it_exact(
        self, supervisor: Any, tally: RunTally
    ) -> None:
        compare("a", supervisor, tally)
        assert tally.of("a").fair_seconds == pytest.approx((START + 20, START + 15, START + 20))
        end(supervisor.records["b"], START + 18, 8.0)
        compare("b", supervisor, tally)
        assert tally.of("a").fair_seconds == pytest.approx((START + 18,) * 3)
        assert tally.of("b").fair_seconds == pytest.approx((START + 16,) * 3)

    def test_one_that_ended_before_anything_was_changed_is_not_compared(self, supervisor: Any, tally: RunTally) -> None:
        end(supervisor.records["b"], START + 18, 8.0)
        compare("b", supervisor, tally)
        assert (tally.of("a").fair_seconds, tally.of("b").fair_seconds is None) == (None, False)

    def test_work_that_is_not_known_is_that_of_the_others(self, supervisor: Any, tally: RunTally) -> None:
        tally.jobs.clear()
        compare("a", supervisor, tally)
        assert tally.of("a").fair_seconds == pytest.approx((START + 20, START + 10, START + 20))

    def test_one_that_was_started_again_is_not_compared_by_the_cpu_of_all_its_attempts(
        self, supervisor: Any, tally: RunTally
    ) -> None:
        failed = supervisor.records["a"]
        failed.exit_status, failed.spec = 1, replace(failed.spec, queueing=Queueing(restarts=1))
        supervisor.records = {"a": (record := again(failed, 10.0))}
        assert record is not None
        record.arrived_at_seconds = START + 20
        end(record, START + 30, record.earlier_cpu_seconds + 10.0)
        compare("a", supervisor, tally)
        assert tally.of("a").fair_seconds is None

    @pytest.mark.parametrize("most", [0.0, 0.5])
    def test_a_job_can_use_what_it_has_used_on_average_though_no_interval_had_as_much(
        self, supervisor: Any, tally: RunTally, most: float
    ) -> None:
        del supervisor.records["b"]
        tally.of("a").most_cores = most  # 0.5 after its start, which took more; 0: there was no interval
        tally.capacity_cores = 2.0
        compare("a", supervisor, tally)
        assert tally.of("a").fair_seconds == pytest.approx((START + 10,) * 3)

    def test_nothing_is_said_without_a_pass_or_the_jobs_own_cpu(self, supervisor: Any, tally: RunTally) -> None:
        supervisor.records["a"].cpu_seconds = None
        compare("a", supervisor, tally)
        compare("a", supervisor, RunTally())
        assert tally.of("a").fair_seconds is None


def end(record: JobRecord, at_seconds: float, cpu_seconds: float) -> None:
    record.started_at_seconds, record.finished_at_seconds = START, at_seconds
    record.exit_status, record.cpu_seconds = 0, cpu_seconds

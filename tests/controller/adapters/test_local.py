"""The ports of this machine: what an observation joins, what a resize writes, and how large this node is."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from support.worlds import START, FakeClock

from controller.adapters.limiters.base import UNLIMITED, unknown_job
from controller.adapters.limiters.mounts import own_quota_cores
from controller.adapters.local import DryRunActuator, LocalActuator, LocalJob, LocalObserver, this_node
from controller.adapters.prometheus import JobSeries, PrometheusReading
from controller.adapters.prometheus_series import JobKey
from controller.errors import ActuationError
from controller.model import CpuAllocation, CpuControl, Evaluation, JobState, Node, Resize, Usage

NODE = Node("local", 2.0, 2**30)
EVALUATION = Evaluation(0.5, 4, START, 'training_loss{stage="eval"}')


@dataclass
class FakeLimiter:
    """Allocations in a dictionary; jobs that are not in it have ended."""

    allocations: dict[str, CpuAllocation] = field(default_factory=dict)
    description: str = "fake"
    controls: frozenset[CpuControl] = frozenset({"limits", "requests"})

    def read(self, job_uid: str) -> CpuAllocation:
        if job_uid not in self.allocations:
            raise unknown_job(job_uid)
        return self.allocations[job_uid]

    def set_limit(self, job_uid: str, millicores: int) -> None:
        self.allocations[job_uid] = replace(self.read(job_uid), limit_millicores=millicores)

    def set_request(self, job_uid: str, millicores: int) -> None:
        self.allocations[job_uid] = replace(self.read(job_uid), request_millicores=millicores)

    def restore(self, job_uid: str, original: CpuAllocation) -> None:
        if job_uid in self.allocations:
            self.allocations[job_uid] = original

    def usage(self, job_uid: str) -> Usage:
        return Usage(START, cpu_seconds_total=3.0)

    def admit(self, job_uid: str, pid: int) -> None:
        self.allocations[job_uid] = UNLIMITED

    def release(self, job_uid: str) -> None:
        self.allocations.pop(job_uid, None)

    def members(self, job_uid: str) -> list[int]:
        return []

    def close(self) -> None:
        self.allocations.clear()


@dataclass
class FakeReader:
    """One reading, and a scrape interval."""

    jobs: dict[JobKey, JobSeries]
    scrape_interval_seconds: float = 1.0

    def read(self, at_seconds: float) -> PrometheusReading:
        return PrometheusReading(at_seconds, self.jobs, queries=3)


def observe(series: dict[str, JobSeries], *names: str, limiter: FakeLimiter | None = None):
    limiter = limiter or FakeLimiter(dict.fromkeys(names, UNLIMITED))
    reader = FakeReader({JobKey("run", name): each for name, each in series.items()})
    jobs = [LocalJob(name, "run", START - 10, useful_parallelism_cores=1.0) for name in names]
    observer = LocalObserver(reader, limiter, lambda: jobs, FakeClock(), NODE)  # type: ignore[arg-type]
    return observer.observe()


def test_an_observation_joins_series_allocation_and_use_of_each_job() -> None:
    series = JobSeries(EVALUATION, steps_total=10, steps_planned=100, state=JobState.TRAINING, warnings=("odd",))
    snapshot = observe({"a": series}, "a", limiter=FakeLimiter({"a": CpuAllocation(500, 700)}))
    (job,) = snapshot.jobs
    assert (job.uid, job.namespace, job.node, job.state) == ("a", "run", "local", JobState.TRAINING)
    assert (job.allocation, job.evaluation, job.warnings) == (CpuAllocation(500, 700), EVALUATION, ("odd",))
    assert job.usage is not None
    assert (job.usage.cpu_seconds_total, job.steps_total, job.useful_parallelism_cores) == (3.0, 10, 1.0)
    assert (snapshot.taken_at_seconds, snapshot.scrape_interval_seconds) == (START, 1.0)


def test_a_job_without_series_is_starting_and_has_no_evaluation() -> None:
    (job,) = observe({}, "a").jobs
    assert (job.state, job.evaluation) == (JobState.STARTING, None)


def test_series_of_another_namespace_or_of_no_process_of_ours_are_not_jobs() -> None:
    snapshot = observe({"ghost": JobSeries(EVALUATION)}, "a")
    assert [job.name for job in snapshot.jobs] == ["a"]


def test_a_job_that_says_it_has_finished_is_still_seen_and_competes_with_nobody() -> None:
    snapshot = observe({"a": JobSeries(EVALUATION, state=JobState.FINISHED)}, "a")
    assert [job.state for job in snapshot.jobs] == [JobState.FINISHED]
    assert snapshot.jobs_by_node() == {"local": []}


def test_a_job_whose_process_ended_while_we_looked_is_left_out() -> None:
    snapshot = observe({}, "a", "b", limiter=FakeLimiter({"b": UNLIMITED}))
    assert [job.name for job in snapshot.jobs] == ["b"]


@pytest.mark.parametrize(
    ("control", "expected"), [("limits", CpuAllocation(250, 1000)), ("requests", CpuAllocation(None, 250))]
)
def test_a_resize_writes_the_side_that_is_controlled(control: CpuControl, expected: CpuAllocation) -> None:
    limiter = FakeLimiter({"a": UNLIMITED})
    outcome = LocalActuator(limiter).resize(Resize("a", "local", control, 1000, 250, "why"))
    assert outcome.result == "applied"
    assert limiter.allocations["a"] == expected


def test_a_resize_of_a_job_that_is_gone_fails_in_one_sentence() -> None:
    with pytest.raises(ActuationError, match="no such job runs on this machine"):
        LocalActuator(FakeLimiter()).resize(Resize("a", "local", "limits", 1000, 250, "why"))


def test_originals_come_back_and_a_job_that_is_gone_needs_none() -> None:
    limiter = FakeLimiter({"a": CpuAllocation(250, 20)})
    actuator = LocalActuator(limiter)
    actuator.restore("a", UNLIMITED)
    actuator.restore("gone", UNLIMITED)
    assert limiter.allocations == {"a": UNLIMITED}


def test_a_dry_run_says_that_nothing_was_changed() -> None:
    outcome = DryRunActuator().resize(Resize("a", "local", "limits", 1000, 250, "why"))
    assert (outcome.result, outcome.detail) == ("deferred", "dry run: nothing was changed")


def test_this_node_has_at_least_a_core_and_some_memory() -> None:
    assert this_node().cpu_cores > 0
    assert this_node().memory_bytes > 2**20


@pytest.mark.parametrize(
    ("kind", "line", "mount", "files", "cores"),
    [
        ("cgroup2", "0::/", "cgroup2 cgroup2 rw", {"cpu.max": "150000 100000\n"}, 1.5),
        ("cgroup2", "0::/", "cgroup2 cgroup2 rw", {"cpu.max": "max 100000\n"}, float("inf")),
        ("cgroup2", "0::/", "cgroup2 cgroup2 rw", {}, float("inf")),
        ("v1", "1:cpu:/", "cgroup cgroup rw,cpu", {"cpu.cfs_quota_us": "50000", "cpu.cfs_period_us": "100000"}, 0.5),
        (
            "v1",
            "1:cpu:/",
            "cgroup cgroup rw,cpu",
            {"cpu.cfs_quota_us": "-1", "cpu.cfs_period_us": "100000"},
            float("inf"),
        ),
    ],
)
def test_a_container_of_half_a_core_on_a_large_machine_is_a_node_of_half_a_core(
    tmp_path: Path, kind: str, line: str, mount: str, files: dict[str, str], cores: float
) -> None:
    proc, mounted = tmp_path / "proc", tmp_path / kind
    proc.mkdir()
    mounted.mkdir()
    (proc / "cgroup").write_text(f"{line}\n")
    (proc / "mountinfo").write_text(f"30 20 0:26 / {mounted} rw - {mount}\n")
    for name, text in files.items():
        (mounted / name).write_text(text)
    assert own_quota_cores(proc) == cores

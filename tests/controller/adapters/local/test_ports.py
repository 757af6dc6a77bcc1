"""The ports of this machine: what an observation joins, what a resize writes, and how large this node is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from support.limiting import FakeLimiter
from support.worlds import START, FakeClock

from slopewise.adapters.local.limiters.base import UNLIMITED
from slopewise.adapters.local.limiters.choose import own_quota_cores
from slopewise.adapters.local.ports import DryRunActuator, LocalActuator, LocalObserver
from slopewise.adapters.prometheus.evaluations import JobKey
from slopewise.adapters.prometheus.missing_evaluations import Unreachable
from slopewise.adapters.prometheus.reader import JobSeries, PrometheusReading
from slopewise.errors import ActuationError
from slopewise.model import (
    Arrival,
    Checkpoint,
    ClusterSnapshot,
    CpuAllocation,
    CpuControl,
    Evaluation,
    Job,
    JobState,
    Migrate,
    MissingEvaluation,
    Movability,
    MoveUnderWay,
    Node,
    Objectives,
    Outcome,
    Place,
    Resize,
    Responses,
    Stop,
)

NODE = Node("local", 2.0, 2**30)
EVALUATION = Evaluation(0.5, 4, START, 'training_loss{stage="eval"}')


@dataclass
class FakeReader:
    """One reading, and a scrape interval."""

    jobs: dict[JobKey, JobSeries]
    scrape_interval_seconds: float = 1.0

    def read(self, at_seconds: float) -> PrometheusReading:
        return PrometheusReading(self.jobs, queries=3)


def a_running_job(name: str, **more: Any) -> Job:
    return Job(name, name, "run", "local", JobState.STARTING, START - 10, UNLIMITED).altered(**more)


def observe(series: dict[str, JobSeries], *names: str, limiter: FakeLimiter | None = None) -> ClusterSnapshot:
    limiter = limiter or FakeLimiter(dict.fromkeys(names, UNLIMITED))
    reader = FakeReader({JobKey("run", name): each for name, each in series.items()})
    jobs = [a_running_job(name, useful_parallelism_cores=1.0) for name in names]
    observer = LocalObserver(reader, limiter, lambda: jobs, FakeClock(), lambda: [NODE])  # type: ignore[arg-type]
    return observer.observe().snapshot


def test_its_threads_bound_the_cpu_that_a_job_can_use() -> None:
    jobs = observe({"a": JobSeries(useful_threads=0.5), "b": JobSeries(useful_threads=8.0)}, "a", "b").jobs
    assert [job.useful_parallelism_cores for job in jobs] == [0.5, 1.0]


def test_a_job_has_not_reported_what_the_one_before_of_its_name_has() -> None:
    """Prometheus has it for some seconds more, also beside what the new process reports."""
    loss = EVALUATION.altered(sampled_at_seconds=START + 9)
    former = JobSeries(loss, steps_total=90.0, study="s", process_started_at_seconds=START, up=True)
    beside = JobSeries(loss, steps_total=1.0, process_started_at_seconds=START + 11)
    own = structs.replace(beside, evaluation=loss.altered(sampled_at_seconds=START + 12))
    reader = FakeReader({JobKey("run", name): each for name, each in (("f", former), ("b", beside), ("o", own))})
    jobs = [a_running_job(name) for name in "fbo"]
    limiter = FakeLimiter(dict.fromkeys("fbo", UNLIMITED))
    observer = LocalObserver(reader, limiter, lambda: jobs, FakeClock(), lambda: [NODE])  # type: ignore[arg-type]
    observer.former_ends = lambda: dict.fromkeys("fbo", START + 10)
    observation = observer.observe()
    seen = [(job.evaluation, job.steps_total, job.objectives.study) for job in observation.snapshot.jobs]
    assert seen == [(None, None, ""), (None, 1.0, ""), (own.evaluation, 1.0, "")]
    assert isinstance(observation.notes, PrometheusReading)
    assert observation.notes.jobs[JobKey("run", "f")] == JobSeries(up=True)


@dataclass
class FakeMissing:
    """Knows the cause at once."""

    cause: MissingEvaluation
    asked: list[Unreachable] = field(default_factory=list)

    def of(self, jobs: Iterable[Unreachable], now_seconds: float) -> dict[JobKey, MissingEvaluation]:
        self.asked = list(jobs)
        return dict.fromkeys((job.key for job in self.asked), self.cause)


def test_a_job_without_a_loss_has_the_cause_and_a_warning() -> None:
    missing = FakeMissing(MissingEvaluation("ScrapeFails", "port 1 refuses"))
    reader = FakeReader({JobKey("run", "a"): JobSeries(EVALUATION)})
    limiter = FakeLimiter({"a": UNLIMITED, "b": UNLIMITED})
    jobs = [a_running_job(name) for name in "ab"]
    observer = LocalObserver(reader, limiter, lambda: jobs, FakeClock(), lambda: [NODE], missing=missing)  # type: ignore[arg-type]
    a, b = observer.observe().snapshot.jobs
    assert [(each.key.pod, each.running_seconds) for each in missing.asked] == [("b", 10.0)]
    assert (a.missing_evaluation, a.warnings) == (None, ())
    assert b.missing_evaluation == MissingEvaluation("ScrapeFails", "port 1 refuses")
    assert b.warnings == ("reports no loss: port 1 refuses",)


@pytest.mark.parametrize(
    ("study", "policy", "why"), [("", "marginal", "the job is in no study; name one"), ("s", "marginal", None)]
)
def test_a_study_that_a_job_names_counts_and_favour_is_warned(study: str, policy: str, why: str | None) -> None:
    reader = FakeReader({JobKey("run", "a"): JobSeries(EVALUATION, study=study)})
    job = a_running_job("a", objectives=Objectives(favours_best=True))
    observer = LocalObserver(reader, FakeLimiter({"a": UNLIMITED}), lambda: [job], FakeClock(), lambda: [NODE])  # type: ignore[arg-type]
    observer.policy = policy
    (seen,) = observer.observe().snapshot.jobs
    assert seen.objectives.study == study
    assert seen.warnings == (() if why is None else (f"favour: best has no effect: {why}",))


def test_a_best_that_cannot_be_favoured_is_warned_about_before_the_first_loss_where_the_study_is_known() -> None:
    jobs = [
        a_running_job(study or "none", objectives=Objectives(study=study, favours_best=True)) for study in ("", "s")
    ]
    limiter = FakeLimiter({job.name: UNLIMITED for job in jobs})
    observer = LocalObserver(FakeReader({}), limiter, lambda: jobs, FakeClock(), lambda: [NODE])  # type: ignore[arg-type]
    observer.policy = "fair"
    early, told = observer.observe().snapshot.jobs
    assert early.warnings == (), "it may still name a study itself"
    assert told.warnings == ("favour: best has no effect: policy fair favours no trial of a study; use marginal",)


def test_a_job_whose_scrapes_come_late_is_not_starting_again_and_another_process_is() -> None:
    reader, jobs = FakeReader({}), [a_running_job("a")]
    observer = LocalObserver(reader, FakeLimiter({"a": UNLIMITED}), lambda: jobs, FakeClock(), lambda: [NODE])  # type: ignore[arg-type]
    states = []
    for reported in (None, JobState.TRAINING, None, JobState.CHECKPOINTING, None, JobState.FINISHED, None):
        reader.jobs = {} if reported is None else {JobKey("run", "a"): JobSeries(state=reported)}
        states += [job.state for job in observer.observe().snapshot.jobs]
    training, saving = [JobState.TRAINING] * 2, [JobState.CHECKPOINTING] * 2
    assert states == [JobState.STARTING, *training, *saving, JobState.FINISHED, JobState.STARTING]
    reader.jobs = {JobKey("run", "a"): JobSeries(state=JobState.TRAINING)}
    observer.observe()
    reader.jobs, jobs[:] = {}, [a_running_job("a", started_at_seconds=START)]
    assert [job.state for job in observer.observe().snapshot.jobs] == [JobState.STARTING]


@pytest.mark.parametrize(
    ("cause", "state"),
    [
        (MissingEvaluation("ScrapeFails", "port 1 refuses"), JobState.TRAINING),
        (MissingEvaluation("NoTarget", "no target"), JobState.TRAINING),
        (MissingEvaluation("ScrapeTimesOut", "port 1 does not answer in time"), JobState.CHECKPOINTING),
    ],
)
def test_no_guard_waits_for_the_checkpoint_of_a_job_that_fell_silent(cause: MissingEvaluation, state: JobState) -> None:
    reader = FakeReader({JobKey("run", "a"): JobSeries(EVALUATION, state=JobState.CHECKPOINTING)})
    job = a_running_job("a")
    observer = LocalObserver(reader, FakeLimiter({"a": UNLIMITED}), lambda: [job], FakeClock(), lambda: [NODE])  # type: ignore[arg-type]
    observer.missing = FakeMissing(cause)  # type: ignore[assignment]
    assert [job.state for job in observer.observe().snapshot.jobs] == [JobState.CHECKPOINTING]
    reader.jobs = {}
    assert [job.state for job in observer.observe().snapshot.jobs] == [state]


def test_an_observation_joins_series_allocation_and_use_of_each_job() -> None:
    series = JobSeries(EVALUATION, steps_total=10, steps_planned=100, state=JobState.TRAINING, warnings=("odd",))
    snapshot = observe({"a": series}, "a", limiter=FakeLimiter({"a": CpuAllocation(500, 700)}))
    (job,) = snapshot.jobs
    assert (job.uid, job.namespace, job.node, job.state) == ("a", "run", "local", JobState.TRAINING)
    assert (job.allocation, job.evaluation, job.warnings) == (CpuAllocation(500, 700), EVALUATION, ("odd",))
    assert job.usage is not None
    assert (job.usage.cpu_seconds_total, job.steps_total, job.useful_parallelism_cores) == (3.0, 10, 1.0)
    assert (snapshot.taken_at_seconds, snapshot.scrape_interval_seconds) == (START, 1.0)


@pytest.mark.parametrize(
    ("series", "state"),
    [
        ({}, JobState.STARTING),
        ({"a": JobSeries(responses=Responses(40, 8.0), process_started_at_seconds=START)}, JobState.TRAINING),
        ({"a": JobSeries(state=JobState.STARTING, responses=Responses(0, 0.0))}, JobState.STARTING),
        ({"a": JobSeries(EVALUATION, state=JobState.FINISHED)}, JobState.FINISHED),
    ],
    ids=["no series", "served, and has answered", "served, and says so itself", "has finished"],
)
def test_the_state_of_a_job_and_whether_it_competes(series: dict[str, JobSeries], state: JobState) -> None:
    snapshot = observe(series, "a")
    (job,) = snapshot.jobs
    assert job.state is state
    reported = series.get("a", JobSeries())
    assert (job.evaluation, job.responses) == (reported.evaluation, reported.responses)
    assert snapshot.jobs_by_node() == {"local": [] if state is JobState.FINISHED else [job]}


def test_series_of_another_namespace_or_of_no_process_of_ours_are_not_jobs() -> None:
    snapshot = observe({"ghost": JobSeries(EVALUATION)}, "a", "ended", limiter=FakeLimiter({"a": UNLIMITED}))
    assert [job.name for job in snapshot.jobs] == ["a"], "the process of the other has ended meanwhile"


def an_actuator(limiter: FakeLimiter, placed: list[tuple[str, str]] | None = None) -> LocalActuator:
    started = [] if placed is None else placed
    return LocalActuator(
        limiter,
        lambda uid, node: started.append((uid, node)),
        lambda move: Outcome(move, "deferred", f"{move.job_uid} is on its way"),
        lambda stop: Outcome(stop, "applied", f"{stop.job_uid} is signalled to end"),
    )


def test_a_snapshot_has_every_node_who_waits_and_what_each_job_was_promised() -> None:
    nodes = [Node("node-1", 1.0, 2**30), Node("node-2", 1.0, 2**30)]
    objectives = Objectives(qoe_seconds=0.5, deadline_at_seconds=START + 60)
    waits = Arrival("late", "late", "run", START)
    runs = a_running_job("a", node="node-2", objectives=objectives)
    goes = MoveUnderWay("b", "node-1", "node-2", START - 1, "saving and ending")
    observer = LocalObserver(
        FakeReader({}),  # type: ignore[arg-type]
        FakeLimiter({"a": UNLIMITED}),
        lambda: [runs],
        FakeClock(),
        lambda: nodes,
        lambda: [waits],
        lambda: [goes],
    )
    snapshot = observer.observe().snapshot
    assert (snapshot.nodes, snapshot.waiting, snapshot.moving) == (tuple(nodes), (waits,), (goes,))
    assert [(job.node, job.objectives, job.migratable) for job in snapshot.jobs] == [("node-2", objectives, False)]


def test_a_job_that_a_move_has_ended_is_seen_with_its_end_although_nothing_of_it_is_left() -> None:
    gone = a_running_job("a", state=JobState.FINISHED)
    reader = FakeReader({JobKey("run", "a"): JobSeries(EVALUATION, steps_total=120, state=JobState.TRAINING)})
    observer = LocalObserver(reader, FakeLimiter(), lambda: [gone], FakeClock(), lambda: [NODE])  # type: ignore[arg-type]
    (job,) = observer.observe().snapshot.jobs
    assert (job.state, job.steps_total, job.allocation, job.usage) == (JobState.FINISHED, 120, UNLIMITED, None)


def test_what_is_known_of_a_job_for_a_move_is_whether_how_and_what_it_has_saved() -> None:
    movability = Movability("restart", grace_seconds=30.0, members=("a",))
    saved = Checkpoint(START - 5, 0.2, on_sigterm=True)
    runs = a_running_job("a", migratable=True, movability=movability)
    reader = FakeReader({JobKey("run", "a"): JobSeries(EVALUATION, checkpoint=saved)})
    observer = LocalObserver(reader, FakeLimiter({"a": UNLIMITED}), lambda: [runs], FakeClock(), lambda: [NODE])  # type: ignore[arg-type]
    (job,) = observer.observe().snapshot.jobs
    assert (job.migratable, job.movability, job.checkpoint) == (True, movability, saved)


@pytest.mark.parametrize(
    ("control", "expected"), [("limits", CpuAllocation(250, 1000)), ("requests", CpuAllocation(None, 250))]
)
def test_a_resize_writes_what_is_controlled_and_is_undone(control: CpuControl, expected: CpuAllocation) -> None:
    limiter = FakeLimiter({"a": UNLIMITED})
    actuator = an_actuator(limiter)
    outcome = actuator.carry_out(Resize("a", "local", control, 1000, 250, "why"))
    assert outcome.result == "applied"
    assert limiter.allocations["a"] == expected
    actuator.restore("a", UNLIMITED)
    actuator.restore("gone", UNLIMITED)
    assert limiter.allocations == {"a": UNLIMITED}
    with pytest.raises(ActuationError, match="no such job runs on this machine"):
        actuator.carry_out(Resize("gone", "local", control, 1000, 250, "why"))


def test_placements_moves_and_stops_go_to_the_supervisor_whose_answer_counts() -> None:
    placed: list[tuple[str, str]] = []
    actuator = an_actuator(FakeLimiter(), placed)
    outcome = actuator.carry_out(Place("a", "node-2", "why"))
    assert (outcome.result, placed) == ("applied", [("a", "node-2")])
    found = [actuator.carry_out(each) for each in (Migrate("a", "node-1", "node-2", "why"), Stop("b", "node-1", "why"))]
    assert [(each.result, each.detail) for each in found] == [
        ("deferred", "a is on its way"),
        ("applied", "b is signalled to end"),
    ]


def test_a_dry_run_says_that_nothing_was_changed() -> None:
    outcome = DryRunActuator().carry_out(Resize("a", "local", "limits", 1000, 250, "why"))
    assert (outcome.result, outcome.detail) == ("deferred", "dry run: nothing was changed")


@pytest.mark.parametrize(
    ("kind", "line", "mount", "files", "cores"),
    [
        ("cgroup2", "0::/", "cgroup2 cgroup2 rw", {"cpu.max": "150000 100000\n"}, 1.5),
        ("cgroup2", "0::/", "cgroup2 cgroup2 rw", {"cpu.max": "max 100000\n"}, float("inf")),
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

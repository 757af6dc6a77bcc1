"""What is remembered of a run however long it is: a bounded number of evaluations, and every count."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.worlds import START, a_job, a_node, a_snapshot, known

from slopewise.adapters.local.job_record import JobRecord
from slopewise.adapters.prometheus.evaluations import JobKey
from slopewise.adapters.prometheus.reader import JobSeries, PrometheusReading
from slopewise.config.jobs_file import JobSpec
from slopewise.local.result import trial_of
from slopewise.local.tally import RunTally
from slopewise.model import (
    Decisions,
    Evaluation,
    JobMemory,
    JobState,
    MemoryState,
    Objectives,
    Outcome,
    Pace,
    PassReport,
    Points,
    Resize,
    Results,
    Withheld,
)
from slopewise.model.memory import Levels

RESIZE = Resize("a", "n1", "limits", 1000, 500, "why")


def a_report(**more: object) -> PassReport:
    trial = a_job("a").altered(objectives=Objectives(study="s"))
    return PassReport(START, "flowcon", {}, START, snapshot=a_snapshot([trial]), **more)  # type: ignore[arg-type]


def a_reading(level: float | None = None, **more: object) -> PrometheusReading:
    evaluation = None if level is None else Evaluation(level, 4, START, "training_loss")
    return PrometheusReading({JobKey("local", "a"): JobSeries(evaluation, **more)}, 3)  # type: ignore[arg-type]


def test_counts_and_the_first_and_last_evaluation_outlive_the_passes() -> None:
    tally = RunTally()
    paced = MemoryState({"a": known().altered(paces=(Pace(START, 0.2, 1.0),))})
    tally.count(a_report(results=Results((Outcome(RESIZE, "applied"), Outcome(RESIZE, "failed")))))
    tally.count(
        a_report(results=Results((), (Withheld(RESIZE, "cooldown", "why"),)), decisions=Decisions("x", (), {}, paced))
    )
    tally.count(PassReport(START, "flowcon", {}, START, held="Prometheus is gone"))
    for level in (2.0, 1.0, float("nan"), None):
        tally.see(a_reading(level))
    job = tally.of("a")
    assert (tally.resizes_applied, tally.withheld, job.resizes, job.pace_seconds) == (1, 1, 1, 0.2)
    assert (job.first_level, job.last_level) == (2.0, 1.0)
    assert (tally.capacity_cores, job.most_cores) == (a_node().cpu_cores, 1.0)


def test_capacity_is_the_mean_of_the_passes_that_know_what_others_use() -> None:
    tally, seen = RunTally(), []
    for left in (None, None, 0.5, None, 0.9):
        snapshot = a_snapshot([a_job("a")], [a_node(cpu_cores=2.0, available_cores=left)])
        tally.count(PassReport(START, "flowcon", {}, START, snapshot=snapshot))
        seen.append(round(tally.capacity_cores, 3))
    assert seen == [2.0, 2.0, 0.5, 0.5, 0.7]


def test_a_trial_that_has_diverged_has_no_loss_by_which_it_could_be_the_best() -> None:
    tally, record = RunTally(), JobRecord(JobSpec("a", ["x"], 0.0), 0)
    shown = []
    for finite in (True, False, True):
        evaluation = Evaluation(0.5, 4, START, "training_loss", finite=finite)
        tally.see(PrometheusReading({JobKey("local", "a"): JobSeries(evaluation)}, 3))
        trial = trial_of(record, tally.of("a"), "training", None, "")
        shown.append((trial.loss, trial.reason))
    assert shown == [(0.5, ""), (None, "its loss is not finite"), (0.5, "")]


def test_the_last_loss_is_the_one_that_a_job_hands_over_at_its_end() -> None:
    """A reading after that has the median of the last scrapes; one of a next attempt counts again."""
    tally = RunTally()
    eval_loss = Evaluation(0.5, 4, START, 'training_loss{stage="eval"}')
    tally.see(PrometheusReading({JobKey("local", "a"): JobSeries(eval_loss)}, 3))
    for at, level in ((START + 3, 0.4), (START + 9, 0.8)):
        tally.of("a").end({"train": 9.0, "eval": 0.2}, START + 4)
        assert tally.of("a").last_level == 0.2
        late = eval_loss.altered(level=level, sampled_at_seconds=at)
        tally.see(PrometheusReading({JobKey("local", "a"): JobSeries(late)}, 3))
    assert tally.of("a").last_level == 0.8


def test_a_reading_after_the_end_says_the_direction_and_whether_it_diverged_and_of_another_metric_all() -> None:
    tally = RunTally()
    tally.of("a").end({"eval": 0.9}, START + 4)
    late = Evaluation(0.7, 4, START + 3, 'training_loss{stage="train"}', objective="max", finite=False)
    tally.see(PrometheusReading({JobKey("local", "a"): JobSeries(late)}, 3))
    job = tally.of("a")
    assert (job.last_level, job.objective, job.finite) == (0.9, "max", False)
    assert job.metric == 'training_loss{stage="eval"} (max)'
    tally.see(PrometheusReading({JobKey("local", "a"): JobSeries(late.altered(series="val_accuracy"))}, 3))
    assert (job.last_level, job.metric) == (0.7, "val_accuracy (max)")


@pytest.mark.parametrize("handed_over", [{}, {"eval": 0.5}])
def test_a_trial_that_ended_diverged_stays_so_while_its_last_scrapes_leave_the_window(
    handed_over: dict[str, float],
) -> None:
    tally, seen = RunTally(), Evaluation(0.5, 4, START, 'training_loss{stage="eval"}', finite=False)
    tally.see(PrometheusReading({JobKey("local", "a"): JobSeries(seen)}, 3))
    tally.of("a").end(handed_over, START + 4)
    shown = []
    for at in (START + 3, START + 9):  # one of the process that has ended, and one of a next attempt
        late = seen.altered(finite=True, sampled_at_seconds=at)
        tally.see(PrometheusReading({JobKey("local", "a"): JobSeries(late)}, 3))
        shown.append(tally.of("a").finite)
    assert shown == [False, True]


def test_of_a_job_that_was_never_scraped_the_best_stage_counts_and_no_other_metric_is_replaced() -> None:
    tally = RunTally()
    tally.of("short").end({"train": 9.0, "train_ema": 0.3}, START)
    assert (tally.of("short").first_level, tally.of("short").last_level) == (0.3, 0.3)
    assert tally.of("short").metric == 'training_loss{stage="train_ema"} (min)'
    tally.see(a_reading(0.5))
    tally.of("a").end({"train": 9.0}, START)
    assert tally.of("a").last_level == 0.5


def test_the_rungs_are_those_of_the_plan_that_the_jobs_file_states_where_the_job_reports_none() -> None:
    tally = RunTally()
    points = Points("steps", "training_loss", np.array([[9.0, 0.9], [11.0, 0.7]], "<f4").tobytes())
    memory = MemoryState({"a": known().altered(points=points)})
    trial = a_job("a").altered(steps_planned=90.0, objectives=Objectives(study="s"))
    for job, rungs in ((trial.altered(objectives=Objectives()), {}), (trial, {1: pytest.approx(0.8)})):
        tally.count(replace(a_report(decisions=Decisions("x", (), {}, memory)), snapshot=a_snapshot([job])))
        assert tally.of("a").rungs == rungs, "only trials are compared"


def test_the_losses_at_the_rungs_of_asha_are_kept_when_the_points_are_gone() -> None:
    tally = RunTally()
    tally.see(a_reading(0.5, steps_total=50.0, steps_planned=90.0))
    points = Points("steps", "training_loss", np.array([[9.0, 0.9], [11.0, 0.7]], "<f4").tobytes())
    for each in (points, None):
        tally.count(a_report(decisions=Decisions("x", (), {}, MemoryState({"a": known().altered(points=each)}))))
    assert tally.of("a").rungs == {1: pytest.approx(0.8)}


def test_what_is_not_in_a_reading_is_what_was_read_last() -> None:
    tally = RunTally()
    tally.see(a_reading(steps_total=7.0, steps_planned=9.0, state=JobState.FINISHED))
    tally.see(a_reading())
    job = tally.of("a")
    assert (job.steps_total, job.steps_planned, job.reported_state) == (7.0, 9.0, JobState.FINISHED)
    assert tally.of("never seen").last_level is None


def test_first_losses_of_an_earlier_session_are_known_and_the_last_of_jobs_that_ended_unseen(tmp_path: Path) -> None:
    records = {name: JobRecord(JobSpec(name, [], 0.0), 0) for name in ("unseen", "runs", "another")}
    records["unseen"].end_earlier(None, 5.0)
    records["unseen"].started_at_seconds = records["runs"].started_at_seconds = 1.0
    earlier: Any = {}
    for name in (*records, "not of this session"):
        (tmp_path / f"{name}.end").write_text("eval 0.25")
        command = SimpleNamespace(log_path=tmp_path / f"{name}.log")
        earlier[name] = SimpleNamespace(started=SimpleNamespace(command=command))
    (tally := RunTally()).recall(earlier, records, dict.fromkeys(records, JobMemory(levels=Levels(first=2.5))), START)
    losses = {name: (each.first_level, each.last_level) for name, each in tally.jobs.items()}
    assert losses == {"runs": (2.5, None), "unseen": (2.5, 0.25)}

"""A real Prometheus scrapes a controllable exporter; the reader says what became of each job.

Targets are set once, because Prometheus takes about five seconds to see new ones; each test has jobs of its own
and changes what they export.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence

import pytest
from support.exporters import SCRAPE_SECONDS, Scraped
from support.waiting import wait_for

from slopewise.adapters.prometheus.client import Target
from slopewise.adapters.prometheus.evaluations import JobKey
from slopewise.adapters.prometheus.reader import JobSeries, PrometheusReader, PrometheusReading
from slopewise.config.training_policy import EvaluationSettings
from slopewise.model import Checkpoint, JobState, Objective, Responses

pytestmark = pytest.mark.processes

Curves = dict[str, list[tuple[float, float]]]

FIRST_STEP_AT_SECONDS = float(round(time.time()) - 30)
HOSTILE = 'a"b\\c\nd{pod=~".*"}, größe 損失'


def page(*losses: str, steps: float = 10, started: float = 1000, nonfinite: float = 0, objective: str = "min") -> str:
    """What a reporter exports; `losses` are samples of `training_loss`, e.g. `{stage="eval"} 0.5`."""
    lines = [f"training_loss{loss}" for loss in losses or ('{stage="eval"} 0.5',)]
    lines += [
        f"training_steps_total {steps}",
        "training_steps_planned 100",
        f"training_nonfinite_loss_total {nonfinite}",
        f'training_info{{framework="torch",objective="{objective}"}} 1',
        'training_state{state="training"} 1',
        'training_state{state="finished"} 0',
        f"process_start_time_seconds {started}",
    ]
    return "\n".join(lines) + "\n"


def checkpoints(*, saved_at: float, duration: float, on_sigterm: float) -> str:
    """What a reporter exports beside `page` once its job saves checkpoints."""
    return (
        f"training_checkpoint_timestamp_seconds {saved_at}\n"
        f"training_checkpoint_duration_seconds {duration}\n"
        f"training_checkpoint_on_sigterm {on_sigterm}\n"
    )


def waiting(waited: float, steps: float) -> str:
    """What a reporter exports beside `page` where its steps' waits are timed; in seconds."""
    return f"training_wait_seconds_total {waited}\ntraining_step_duration_seconds_sum {steps}\n"


def served(*series: tuple[str, float, float], started: float = 1000, in_flight: float | None = None) -> str:
    """What a model server exports; each series is its labels, its count and its sum in seconds."""
    name = "inference_response_duration_seconds"
    lines = [f"# TYPE {name} histogram"]
    for labels, count, seconds in series:
        extra = f"{labels}," if labels else ""
        braces = f"{{{labels}}}" if labels else ""
        lines += [
            f'{name}_bucket{{{extra}le="0.5"}} {count}',
            f'{name}_bucket{{{extra}le="+Inf"}} {count}',
            f"{name}_sum{braces} {seconds}",
            f"{name}_count{braces} {count}",
        ]
    if in_flight is not None:
        lines.append(f"inference_requests_in_flight {in_flight}")
    return "\n".join([*lines, f"process_start_time_seconds {started}"]) + "\n"


class World:
    """Processes of jobs, and what is read of them."""

    def __init__(self, scraped: Scraped) -> None:
        self.scraped = scraped
        self.add = self.set = scraped.put

    def reader(self, *evaluations: EvaluationSettings, **matchers: str) -> PrometheusReader:
        return self.scraped.reader({"namespace": "flowcon", **matchers}, *evaluations)

    def read(self, *evaluations: EvaluationSettings, **matchers: str) -> PrometheusReading:
        with self.reader(*evaluations, **matchers) as reader:
            return reader.read(time.time())

    def job(self, pod: str, *evaluations: EvaluationSettings) -> JobSeries:
        return self.read(*evaluations).jobs.get(JobKey("flowcon", pod), JobSeries())

    def wait_for(self, pod: str, condition: Callable[[JobSeries], bool]) -> JobSeries:
        """The job once it is as it must become."""
        return wait_for(pod, lambda: self.job(pod), condition)


@pytest.fixture(scope="module")
def world(pages: Scraped) -> World:
    world = World(pages)
    for pod in ("steady", "nan", "counted", "restarts", "gone", "refuses"):
        world.add(pod, page())
    world.add("stages", page('{stage="train"} 3', '{stage="eval"} 1', '{stage="train_ema"} 2'))
    world.add("steps", page('{stage="eval",step="7"} 1', '{epoch="1"} 2', '{stage="train"} 4'))
    world.add("only-steps", page('{step="7"} 1'))
    world.add("maximises", page(objective="max"))
    world.add("foreign", 'trainer_loss{run="x"} 7\n')
    world.add("marked", page('{stage="eval",slopewise_value="level"} 9', '{stage="train"} 4'))
    world.add("impostor", page('{stage="eval",namespace="flowcon",pod="steady"} 9'), namespace="other")
    world.add(HOSTILE, page(f'{{stage="eval",run="{HOSTILE_IN_EXPOSITION}"}} 0.25'))
    world.add("serves", served(("", 40, 8.0)))
    world.add("serves-many", served(('model="a",code="200"', 40, 8.0), ('model="b",code="2xx"', 2, 0.5)))
    world.add("serves-failing", served(('outcome="ok"', 40, 8.0), ('outcome="failed"', 60, 0.1), in_flight=3))
    both = 'outcome="failed",code="503"'
    world.add("serves-all-failing", served((both, 60, 0.1), ('code="5xx"', 5, 0.5), ('code="404"', 2, 0.25)))
    hostile = f'model="{HOSTILE_IN_EXPOSITION}",namespace="other",pod="steady"'
    world.add("serves-hostile", served((hostile, 3, 0.75), ('slopewise_value="up"', 99, 99)))
    world.add("checkpoints", page() + checkpoints(saved_at=1_600_000_000.25, duration=1.5, on_sigterm=1))
    world.add("threads", page() + "training_threads 8\ntraining_threads_useful 16\n")
    world.add("waits", page() + waiting(0, 0))
    world.add("never-waits", page() + waiting(0, 0))
    first_step = "training_first_step_timestamp_seconds {}\n"
    world.add("begins", page(started=FIRST_STEP_AT_SECONDS - 2.0) + first_step.format(FIRST_STEP_AT_SECONDS))
    world.add("has-long-begun", page(started=1000) + first_step.format(1002.5))
    world.add("moves", page(started=1000), instance="a:1")
    world.add("moves", None, instance="b:2")
    pages.publish()
    world.wait_for("steady", lambda job: job.evaluation is not None and job.evaluation.sample_count >= 4)
    return world


HOSTILE_IN_EXPOSITION = HOSTILE.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def test_a_steady_job_is_reported_in_full(world: World) -> None:
    before = time.time()
    job = world.job("steady")
    assert job.evaluation is not None
    assert job.evaluation.level == 0.5
    assert job.evaluation.series == 'training_loss{stage="eval"}'
    assert job.evaluation.sample_count in range(1, 6)
    assert before - 2 * SCRAPE_SECONDS < job.evaluation.sampled_at_seconds <= time.time()
    assert (job.evaluation.objective, job.evaluation.finite) == ("min", True)
    assert (job.steps_total, job.steps_planned) == (10, 100)
    assert (job.state, job.restarted, job.up, job.warnings) == (JobState.TRAINING, False, True, ())


def test_the_part_of_its_steps_in_which_a_job_waited_for_batches(world: World) -> None:
    assert world.job("waits").wait_ratio is None  # no step has ended
    world.set("waits", page() + waiting(3, 10))
    world.set("never-waits", page() + waiting(0, 10))
    # All at once: a scrape that is stored while a query runs can be in one of its series and not yet in another.
    world.wait_for(
        "waits",
        lambda job: job.wait_ratio == pytest.approx(0.3) and (job.steps_total, job.waited_seconds_total) == (10, 3),
    )
    never = world.job("never-waits")
    assert (never.wait_ratio, never.waited_seconds_total) == (None, None)
    world.set("never-waits", page() + waiting(1e-5, 11))
    world.wait_for("never-waits", lambda job: job.waited_seconds_total == 1e-5)  # as a loader whose queue is full
    # More waits than steps, as while an evaluation is under way: its time is no part of a step's.
    world.set("waits", page() + waiting(300, 11))
    world.wait_for("waits", lambda job: job.wait_ratio == 1.0)


def test_series_with_a_step_or_epoch_label_are_named_and_not_used(world: World) -> None:
    job = world.wait_for("steps", lambda job: job.evaluation is not None and bool(job.warnings))
    assert job.evaluation is not None
    assert job.evaluation.series == 'training_loss{stage="train"}'
    assert [warning.partition(":")[0] for warning in job.warnings] == [
        "training_loss carries the label `epoch`",
        "training_loss carries the label `step`",
    ]
    only = world.job("only-steps")
    assert only.evaluation is None
    assert "every step makes a new series" in only.warnings[0]


@pytest.mark.parametrize(("pod", "text"), [("steady", "min"), ("maximises", "max")])
@pytest.mark.parametrize("mapped", [("min", "max"), ("max", "min")], ids=",".join)
def test_its_own_word_counts_first(world: World, pod: str, text: str, mapped: Sequence[Objective]) -> None:
    evaluation = world.read(*(EvaluationSettings(objective=each) for each in mapped)).jobs[JobKey("flowcon", pod)]
    assert evaluation.evaluation is not None
    assert evaluation.evaluation.objective == text


def test_a_further_mapping_brings_in_other_peoples_names_for_one_more_query(world: World) -> None:
    reading = world.read(EvaluationSettings(), EvaluationSettings(metric="trainer_loss", objective="max"))
    assert reading.queries == 4
    job = reading.jobs[JobKey("flowcon", "foreign")]
    assert job.evaluation is not None
    assert (job.evaluation.level, job.evaluation.objective) == (7, "max")
    assert job.evaluation.series == 'trainer_loss{run="x"}'
    assert job.state is None


def test_a_gauge_that_is_not_finite_shows_as_diverged_with_its_last_finite_level(world: World) -> None:
    levels: list[float] = []
    # More than once: a busy machine may take longer than a window from one scrape to the next.
    while 0.5 not in levels and len(levels) < 10:
        world.set("nan", page())
        world.wait_for("nan", lambda job: job.evaluation is not None and job.evaluation.sample_count >= 3)
        world.set("nan", page('{stage="eval"} NaN'))
        job = world.wait_for("nan", lambda job: job.evaluation is not None and not job.evaluation.finite)
        assert job.evaluation is not None
        levels.append(job.evaluation.level)
    assert levels[-1] == 0.5


def test_a_counted_nan_shows_as_diverged_until_the_window_is_clean_again(world: World) -> None:
    count = itertools.count(1)

    def counted_again() -> JobSeries:
        world.set("counted", page(nonfinite=next(count)))
        return world.job("counted")

    job = wait_for("counted", counted_again, lambda job: job.evaluation is not None and not job.evaluation.finite)
    assert job.evaluation is not None
    assert job.evaluation.level == 0.5
    world.wait_for("counted", lambda job: job.evaluation is not None and job.evaluation.finite)


def test_what_else_processes_say_of_themselves_costs_no_further_query(world: World) -> None:
    # On a busy machine a scrape may fail because it takes too long.
    reading = wait_for("its scrape", world.read, lambda seen: seen.jobs[JobKey("flowcon", "serves")].up)
    assert reading.queries == 3
    jobs = {key.pod: job for key, job in reading.jobs.items()}
    serves, steady = jobs["serves"], jobs["steady"]
    assert (serves.responses, serves.process_started_at_seconds) == (Responses(40, 8.0), 1000)
    assert (serves.evaluation, serves.state, serves.restarted, serves.up) == (None, None, False, True)
    assert (jobs["threads"].threads, jobs["threads"].useful_threads) == (8, 16)
    assert (jobs["begins"].first_step_at_seconds, jobs["begins"].steps_total) == (FIRST_STEP_AT_SECONDS, 10)
    assert jobs["has-long-begun"].first_step_at_seconds is None
    assert jobs["checkpoints"].checkpoint == Checkpoint(1_600_000_000.25, 1.5, True)
    assert (steady.responses, steady.threads, steady.useful_threads, steady.checkpoint) == (None, None, None, None)


def test_the_series_of_a_served_model_are_read_as_one_by_whether_they_succeeded(world: World) -> None:
    assert world.job("serves-many").responses == Responses(42, 8.5)
    assert world.job("serves-failing").responses == Responses(40, 8.0, 60, 0.1, in_flight=3)
    failing = world.job("serves-all-failing")
    assert (failing.responses, failing.reported_state) == (Responses(0, 0, 67, 0.85), JobState.TRAINING)
    assert world.job("serves-hostile").responses == Responses(3, 0.75)


def test_a_restart_on_the_same_port_is_seen_for_one_window(world: World) -> None:
    world.set("restarts", page(steps=1, started=2000))
    world.wait_for("restarts", lambda job: job.restarted and job.steps_total == 1)
    world.wait_for("restarts", lambda job: not job.restarted)


def test_a_restart_on_another_port_is_seen_and_the_new_life_speaks(world: World) -> None:
    world.set("moves", None, instance="a:1")
    world.set("moves", page('{stage="eval"} 0.9', steps=1, started=time.time()), instance="b:2")
    job = world.wait_for(
        "moves", lambda job: job.evaluation is not None and job.evaluation.level == 0.9 and job.restarted
    )
    assert (job.steps_total, job.warnings) == (1, ())


def test_a_job_that_stops_answering_is_reported_with_the_age_of_its_last_sample(world: World) -> None:
    world.set("gone", None)
    stopped_at = time.time()
    job = world.wait_for("gone", lambda job: job.up is False)
    assert job.evaluation is not None
    assert job.evaluation.sampled_at_seconds <= stopped_at + SCRAPE_SECONDS
    assert job.steps_total == 10
    job = world.wait_for("gone", lambda job: job.evaluation is None)
    assert (job.up, job.steps_total) == (False, None)


def test_label_values_with_quotes_backslashes_and_newlines_come_back_as_they_are(world: World) -> None:
    reading = world.read(EvaluationSettings(labels={"run": HOSTILE}), pod=HOSTILE)
    assert list(reading.jobs) == [JobKey("flowcon", HOSTILE)]
    job = reading.jobs[JobKey("flowcon", HOSTILE)]
    assert job.evaluation is not None
    assert job.evaluation.level == 0.25
    assert job.evaluation.series == f'training_loss{{run="{HOSTILE_IN_EXPOSITION}",stage="eval"}}'


def test_a_process_neither_speaks_for_another_namespace_or_pod_nor_breaks_a_query_with_our_marker(world: World) -> None:
    reading = world.read()
    assert JobKey("other", "impostor") not in reading.jobs
    steady = reading.jobs[JobKey("flowcon", "steady")]
    assert steady.evaluation is not None
    assert (steady.evaluation.level, steady.warnings) == (0.5, ())
    marked = reading.jobs[JobKey("flowcon", "marked")]
    assert marked.evaluation is not None
    assert marked.evaluation.series == 'training_loss{stage="train"}'


def test_a_curve_holds_the_raw_values_of_the_best_series(world: World) -> None:
    with world.reader() as reader:

        def newest() -> Curves:
            end = time.time()
            curves = reader.range_curve(end - 2, end, SCRAPE_SECONDS)
            return {pod: [(round(at - end, 3), value) for at, value in curve] for pod, curve in curves.items()}

        # On a busy machine a scrape may be late.
        curves = wait_for(
            "two seconds of scrapes", newest, lambda curves: len(curves["stages"]) == len(curves["steps"]) == 5
        )
    assert curves["stages"] == [(-2, 1), (-1.5, 1), (-1, 1), (-0.5, 1), (0, 1)]
    assert [value for _, value in curves["steps"]] == [4] * 5
    assert "impostor" not in curves
    assert "only-steps" not in curves


def test_what_a_job_exports_instead_of_a_loss_and_why_its_scrape_fails_can_be_asked(world: World) -> None:
    world.set("refuses", None)
    gone = world.wait_for("refuses", lambda job: job.up is False)
    with world.reader() as reader:
        foreign, steady = JobKey("flowcon", "foreign"), JobKey("flowcon", "steady")
        pods = {foreign: {"a:1"}, steady: {"a:1"}}
        names = wait_for("its names", lambda: reader.metric_names(pods, time.time()), lambda seen: seen[foreign])
        elsewhere = reader.metric_names({steady: {"b:2"}}, time.time())
        # A Prometheus that was started a few seconds ago, as in another test here, has series and no targets yet.
        # On a busy machine a scrape may also fail because it takes too long.
        reported = wait_for("its targets", reader.targets, lambda targets: any(map(_is_refused, targets)))
        errors = {target.labels["pod"]: target.last_error for target in reported}
        assert all(target.last_scrape_seconds > 0 for target in reported)
    assert names[foreign] == {"trainer_loss"}
    assert elsewhere == {}
    assert {"training_loss", "training_steps_total"} <= names[steady]
    assert not {name for name in names[steady] if name.startswith(("process_", "scrape_", "up"))}
    assert gone.instances == {"a:1"}
    assert errors["steady"] == ""


def _is_refused(target: Target) -> bool:
    return target.labels["pod"] == "refuses" and "HTTP status 503" in target.last_error

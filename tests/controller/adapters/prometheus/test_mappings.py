"""Series of other people's names, scraped by a real Prometheus and read through mappings and presets."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import astuple
from functools import partial
from typing import Any, get_args

import pytest
from support.exporters import SCRAPE_SECONDS, Scraped
from support.expositions import SERVERS, TRAINERS
from support.waiting import wait_for

from slopewise.adapters.prometheus.evaluations import JobKey
from slopewise.adapters.prometheus.reader import JobSeries, PrometheusReader
from slopewise.config.metric_mappings import (
    EvaluationMapping,
    EvaluationPreset,
    OwnMappings,
    ResponseMapping,
    ResponsePreset,
)
from slopewise.model import Responses

pytestmark = pytest.mark.processes

HOSTILE = 'x"} or vector(1) # \\ {pod=~".*"}'

FAILED = {"triton": (4.0, 0.0), "ray-serve-proxy": (5.0, 0.05)}
"""Count and seconds of the failures on the pages of `SERVERS`; the other servers have none that can be told apart."""

IN_FLIGHT = {"vllm": 3.0, "ray-serve": 3.0, "ray-serve-proxy": 3.0}

EXPORTER_OF_ALL = """\
run_loss{k8s_namespace_name="flowcon",k8s_pod_name="mapped-a",split="val"} 0.5
run_loss{k8s_namespace_name="flowcon",k8s_pod_name="mapped-a",split="train"} 0.25
run_loss{k8s_namespace_name="flowcon",k8s_pod_name="mapped-b",split="val"} 0.75
run_loss{k8s_namespace_name="other",k8s_pod_name="steady",split="val"} 9
run_step{k8s_namespace_name="flowcon",k8s_pod_name="mapped-a"} 7
run_step{k8s_namespace_name="flowcon",k8s_pod_name="mapped-b"} 8
"""

CONTRACT, SERVED = EvaluationMapping(), ResponseMapping()
NONE_OF_ITS_OWN: Mapping[str, OwnMappings] = {}
MAPPED = EvaluationMapping.model_validate(
    {
        "metric": "run_loss",
        "labels": {"split": "val"},
        "stepsTotal": {"metric": "run_step"},
        "podLabels": {"namespace": "k8s_namespace_name", "pod": "k8s_pod_name"},
    }
)

TRAINER = EvaluationMapping.model_validate(
    {
        "metric": "trainer_score",
        "labels": {"split": "val"},
        "objective": "max",
        "stepsTotal": {"metric": "global_step", "labels": {"phase": "fit"}},
        "stepsPlanned": {"metric": "max_steps"},
    }
)


def trainer(*, score: float = 0.5, step: float = 7) -> str:
    return (
        f'trainer_score{{split="val"}} {score}\ntrainer_score{{split="train"}} 9\n'
        f'global_step{{phase="fit"}} {step}\nglobal_step{{phase="sanity"}} 1000\nmax_steps 400\n'
        "process_start_time_seconds 1000\n"
    )


class World:
    """Pages of jobs, and readers with mappings."""

    def __init__(self, pages: Scraped) -> None:
        self._pages = pages
        self.add = self.set = pages.put

    def reader(
        self,
        evaluation: EvaluationMapping = CONTRACT,
        responses: ResponseMapping = SERVED,
        own: Mapping[str, OwnMappings] = NONE_OF_ITS_OWN,
        **more: float,
    ) -> PrometheusReader:
        return self._pages.reader({"namespace": "flowcon"}, evaluation, responses=[responses], own=own, **more)

    def jobs(self, **mappings: Any) -> Mapping[JobKey, JobSeries]:
        with self.reader(**mappings) as reader:
            return reader.read(time.time()).jobs

    def job(self, pod: str, **mappings: Any) -> JobSeries:
        return self.jobs(**mappings).get(JobKey("flowcon", pod), JobSeries())

    def wait_for(self, pod: str, condition: Callable[[JobSeries], bool], **mappings: Any) -> JobSeries:
        return wait_for(pod, lambda: self.job(pod, **mappings), condition)


@pytest.fixture(scope="module")
def world(pages: Scraped) -> World:
    world = World(pages)
    for name, page in (SERVERS | TRAINERS).items():
        world.add(name, page + "process_start_time_seconds 1000\n")
    for pod in ("trainer", "restarts"):
        world.add(pod, trainer())
    world.add("contract", "training_loss 3\ntraining_steps_total 30\n" + SERVERS["kserve"])
    world.add("counts-both", 'training_loss 3\ntraining_steps_total 30\nglobal_step{phase="fit"} 99\n')
    world.add("exporter", EXPORTER_OF_ALL)
    for pod in ("iterates", "iterates-too"):
        world.add(pod, 'training_loss{it="1"} 3\n')
    world.add("splits", 'latency_count{result="x"} 1\nlatency_count{result="error-5"} 2\nlatency_sum 3\n')
    pages.publish()
    world.wait_for("contract", lambda job: job.evaluation is not None and job.evaluation.sample_count >= 4)
    return world


def test_every_preset_has_a_page_of_its_project() -> None:
    assert (set(SERVERS), set(TRAINERS)) == (set(get_args(ResponsePreset)), set(get_args(EvaluationPreset)))


@pytest.mark.parametrize("preset", get_args(ResponsePreset))
def test_a_preset_reads_the_response_times_that_its_server_exports(world: World, preset: ResponsePreset) -> None:
    job = world.job(preset, responses=ResponseMapping(preset=preset))
    assert job.responses is not None
    count, seconds = FAILED.get(preset, (0.0, 0.0))
    expected = Responses(40, 8.0, count, seconds, IN_FLIGHT.get(preset))
    assert astuple(job.responses) == pytest.approx(astuple(expected))
    assert world.job(preset).responses is None


@pytest.mark.parametrize("preset", get_args(EvaluationPreset))
def test_a_preset_reads_the_loss_and_the_steps_that_its_trainer_exports(world: World, preset: EvaluationPreset) -> None:
    job = world.job(preset, evaluation=EvaluationMapping(preset=preset))
    assert job.evaluation is not None
    assert (job.evaluation.level, job.evaluation.objective, job.warnings) == (1.5, "min", ())
    assert job.steps_total == (None if preset == "megatron" else 120)
    assert world.job(preset).evaluation is None


def test_a_mapping_names_the_score_its_direction_its_labels_its_steps_and_its_plan(world: World) -> None:
    job = world.job("trainer", evaluation=TRAINER)
    assert job.evaluation is not None
    assert (job.evaluation.level, job.evaluation.objective) == (0.5, "max")
    assert job.evaluation.series == 'trainer_score{split="val"}'
    assert (job.steps_total, job.steps_planned, job.restarted) == (7, 400, False)


def test_steps_of_a_gauge_that_fall_are_a_restart(world: World) -> None:
    world.set("restarts", trainer(step=2))
    job = world.wait_for("restarts", lambda job: job.steps_total == 2, evaluation=TRAINER)
    assert job.restarted
    assert not world.job("trainer", evaluation=TRAINER).restarted


def test_raw_points_have_the_steps_that_a_mapping_names(world: World) -> None:
    with world.reader(TRAINER, ResponseMapping(preset="triton"), points_seconds=60.0) as reader:
        reading = reader.read(time.time())
        job = reading.jobs[JobKey("flowcon", "trainer")]
    assert reading.queries == 4, "mappings cost no query, and raw points one"
    assert {(point.level, point.steps) for point in job.points} == {(0.5, 7)}
    with world.reader(MAPPED, points_seconds=60.0) as reader:
        jobs = reader.read(time.time()).jobs
    assert {(point.level, point.steps) for point in jobs[JobKey("flowcon", "mapped-b")].points} == {(0.75, 8)}
    assert world.job("trainer", evaluation=TRAINER).points == (), "they are read where they are asked for"


def test_raw_points_have_the_steps_of_anothers_mapping_as_little_as_the_job_has(world: World) -> None:
    with world.reader(own={"trainer": OwnMappings(TRAINER)}, points_seconds=60.0) as reader:
        job = reader.read(time.time()).jobs[JobKey("flowcon", "counts-both")]
    assert {point.steps for point in job.points} == {job.steps_total} == {30}


def test_labels_of_the_series_name_the_pods_of_an_exporter_of_many_jobs(world: World) -> None:
    jobs = world.jobs(evaluation=MAPPED)
    for pod, level, steps in (("mapped-a", 0.5, 7), ("mapped-b", 0.75, 8)):
        job = jobs[JobKey("flowcon", pod)]
        assert job.evaluation is not None
        assert (job.evaluation.level, job.steps_total, job.warnings) == (level, steps, ())
        assert job.evaluation.series == 'run_loss{split="val"}'
    assert jobs[JobKey("flowcon", "exporter")].evaluation is None
    assert not [key for key in jobs if key.namespace != "flowcon" or key.pod == "steady"], "outside of what is forced"
    with world.reader(MAPPED) as reader:
        end = time.time()
        curves = reader.range_curve(end - 1, end, SCRAPE_SECONDS)
    values = {pod: {value for _, value in curve} for pod, curve in curves.items()}
    assert values == {"mapped-a": {0.5}, "mapped-b": {0.75}}


def test_a_job_with_mappings_of_its_own_is_read_by_those_and_every_other_by_the_policys(world: World) -> None:
    own = {
        "trainer": OwnMappings(TRAINER),
        "prime-rl": OwnMappings(EvaluationMapping(preset="prime-rl")),
        "restarts": OwnMappings(TRAINER),
        "kserve": OwnMappings(responses=ResponseMapping(preset="kserve")),
        "contract": OwnMappings(EvaluationMapping(preset="megatron")),
    }
    jobs = world.jobs(own=own)
    levels = {key.pod: job.evaluation.level for key, job in jobs.items() if job.evaluation is not None}
    assert (levels["trainer"], levels["prime-rl"]) == (0.5, 1.5)
    assert "contract" not in levels, "its own mapping finds nothing, and the policy's does not count"
    assert world.job("contract").evaluation is not None
    assert jobs[JobKey("flowcon", "trainer")].steps_planned == 400
    assert {key.pod for key, job in jobs.items() if job.responses is not None} == {"kserve"}
    assert "axolotl" not in levels


def test_failed_values_are_texts_in_which_only_stars_and_question_marks_stand_for_others(world: World) -> None:
    def failed(*values: str) -> float:
        mapping = ResponseMapping.model_validate({"metric": "latency", "failed": {"result": values}, "inFlight": []})
        responses = world.job("splits", responses=mapping).responses
        return -1 if responses is None else responses.failed_total

    assert failed("error-?") == failed("err*") == failed("error-5", "y") == 2
    assert failed("error-.") == failed("error") == failed("?") - 1 == 0
    assert failed(HOSTILE) == 0


@pytest.mark.parametrize("part", ["labels", "stepsTotal", "stepsPlanned"])
def test_a_hostile_value_of_a_matcher_selects_nothing_and_breaks_nothing(world: World, part: str) -> None:
    labels = {"split": HOSTILE}
    written = {"labels": labels} if part == "labels" else {part: {"metric": "global_step", "labels": labels}}
    jobs = world.jobs(evaluation=EvaluationMapping.model_validate({"metric": "trainer_score", **written}))
    job = jobs[JobKey("flowcon", "trainer")]
    assert (job.evaluation is None) == (part == "labels")
    assert (job.steps_total, job.steps_planned) == (None, None)


def _shows(step: int, job: JobSeries) -> bool:
    return any(f"{step} series match" in each or "`it`" in each for each in job.warnings)


@pytest.mark.parametrize(
    ("pod", "mappings"),
    [
        ("iterates", {}),
        (
            "iterates-too",
            {
                "evaluation": TRAINER,
                "own": {
                    "iterates-too": OwnMappings(CONTRACT),
                    "trainer": OwnMappings(EvaluationMapping(labels={"split": "val"})),
                },
            },
        ),
    ],
    ids=["the policy's mapping", "another job has a mapping of the same metric"],
)
def test_a_label_that_grows_with_the_training_is_recognised_and_named(
    world: World, pod: str, mappings: dict[str, Any]
) -> None:
    with world.reader(**mappings) as reader:

        def read() -> JobSeries:
            return reader.read(time.time()).jobs.get(JobKey("flowcon", pod), JobSeries())

        assert read().warnings == ()
        for step in (2, 3):
            world.set(pod, "".join(f'training_loss{{it="{it}"}} {4 - it}\n' for it in range(1, step + 1)))
            wait_for("its series", read, partial(_shows, step))
        job = read()
        assert job.evaluation is None
        (warning,) = job.warnings
        assert "training_loss carries the label `it`" in warning
        assert "report the it as a value of its own, or drop the label with metricRelabelings" in warning

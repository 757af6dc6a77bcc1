"""Metrics that a training pushes by OTLP into a Prometheus are read by the controller's queries as scraped ones are."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import requests
from support.otlp_prometheus import OtlpPrometheus
from support.waiting import wait_for

from slopewise.adapters.prometheus.evaluations import JobKey
from slopewise.adapters.prometheus.reader import JobSeries, PrometheusReader
from slopewise.config.training_policy import EvaluationSettings
from slopewise.model import JobState
from slopewise_exporter import Reporter

JOB = JobKey("team", "digits-0")
PUSH_SECONDS = 1.0

MakeReporter = Callable[[OtlpPrometheus], Reporter]


@pytest.fixture
def prometheus(tmp_path: Path) -> Iterator[OtlpPrometheus]:
    with OtlpPrometheus(tmp_path / "data") as server:
        yield server


@pytest.fixture
def pushing(monkeypatch: pytest.MonkeyPatch) -> Iterator[MakeReporter]:
    """Makes a reporter that pushes every second and is scraped by nothing."""
    made: list[Reporter] = []

    def make(server: OtlpPrometheus) -> Reporter:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.endpoint)
        monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", f"{1000 * PUSH_SECONDS:.0f}")
        monkeypatch.setenv("POD_NAMESPACE", JOB.namespace)
        monkeypatch.setenv("POD_NAME", JOB.pod)
        made.append(Reporter(port=0, address="127.0.0.1", planned_steps=1000, objective="max", framework="numpy"))
        return made[-1]

    yield make
    for reporter in made:
        reporter.end(failed=False, linger=False)


def read(server: OtlpPrometheus) -> JobSeries:
    evaluations = [EvaluationSettings()]
    with PrometheusReader(server.url, {"namespace": JOB.namespace}, PUSH_SECONDS, evaluations, 4.0) as reader:
        return reader.read(time.time()).jobs.get(JOB, JobSeries())


def names(server: OtlpPrometheus) -> set[str]:
    answer = requests.get(f"{server.url}/api/v1/label/__name__/values", timeout=10).json()
    return set(answer["data"])


def test_a_pushed_training_is_read_like_a_scraped_one(prometheus: OtlpPrometheus, pushing: MakeReporter) -> None:
    reporter = pushing(prometheus)
    reporter.step(loss=2.0)
    reporter.evaluate(0.75)
    with reporter.checkpoint():
        pass
    reporter.step(loss=1.0)

    def full_window() -> JobSeries:
        reporter.step(loss=1.0)
        return read(prometheus)

    job = wait_for("a full window", full_window, lambda one: one.evaluation and one.evaluation.sample_count >= 3)
    assert job.evaluation is not None
    assert (job.evaluation.level, job.evaluation.series) == (0.75, 'training_loss{stage="eval"}')
    assert (job.evaluation.objective, job.evaluation.finite) == ("max", True)
    assert job.evaluation.sampled_at_seconds == pytest.approx(time.time(), abs=5.0)
    assert job.steps_planned == 1000
    assert (job.state, job.restarted, job.warnings) == (JobState.TRAINING, False, ())
    assert job.checkpoint is not None
    assert job.process_started_at_seconds is not None
    assert job.first_step_at_seconds is not None
    before = job.steps_total or 0
    reporter.step(loss=1.0)
    wait_for("the next step", lambda: read(prometheus).steps_total or 0, lambda steps: steps > before)


def test_the_last_values_of_a_short_training_arrive(prometheus: OtlpPrometheus, pushing: MakeReporter) -> None:
    with pushing(prometheus) as reporter:
        for loss in (3.0, 2.0, 1.0):
            reporter.step(loss=loss)
    job = wait_for("the job", lambda: read(prometheus), lambda one: one.state)
    assert (job.state, job.steps_total) == (JobState.FINISHED, 3)


@pytest.mark.parametrize(
    "strategy", ["UnderscoreEscapingWithSuffixes", "UnderscoreEscapingWithoutSuffixes", "NoTranslation"]
)
def test_names_and_labels_are_those_of_a_scrape_under_each_translation(
    tmp_path: Path, pushing: MakeReporter, strategy: str
) -> None:
    settings = {
        "translation_strategy": strategy,
        "promote_resource_attributes": ["k8s.namespace.name", "k8s.pod.name"],
    }
    with OtlpPrometheus(tmp_path / "data", settings) as server:
        with pushing(server) as reporter:
            reporter.step(loss=1.0)
            reporter.step(loss=1.0)
        found = names(server)
        assert read(server).steps_total == 2
        scraped = {
            "training_loss", "training_steps_total", "training_wait_seconds_total", "training_steps_planned",
            "training_step_duration_seconds_bucket", "training_step_duration_seconds_count", "training_state",
            "training_info", "process_start_time_seconds", "process_cpu_seconds_total", "process_resident_memory_bytes",
        }  # fmt: skip
        assert scraped <= found
        doubled = ("_total_total", "_seconds_seconds", "_bytes_bytes", "_ratio")
        assert not [name for name in found if name.endswith(doubled)]
        query = 'training_steps_total{namespace="team",pod="digits-0",job="training",instance="digits-0"}'
        answer = requests.get(f"{server.url}/api/v1/query", {"query": query}, timeout=10).json()
        assert [row["value"][1] for row in answer["data"]["result"]] == ["2"]

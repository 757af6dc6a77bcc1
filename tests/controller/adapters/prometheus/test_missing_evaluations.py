"""Why a job reports no loss: said once the cause is known, asked for once a change, and never at a pass's expense."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import pytest
from msgspec import structs
from support.worlds import START

from slopewise.adapters.pauses import GRANT_SECONDS
from slopewise.adapters.prometheus.client import Target
from slopewise.adapters.prometheus.evaluations import JobKey
from slopewise.adapters.prometheus.missing_evaluations import (
    MAX_QUERIED_PER_PASS,
    RECHECK_SECONDS,
    MissingEvaluations,
    OutputRead,
    Remedies,
    Unreachable,
    unreachable,
    with_missing,
)
from slopewise.adapters.prometheus.reader import JobSeries
from slopewise.config.metric_mappings import EvaluationMapping, OwnMappings, PodLabels
from slopewise.config.training_policy import EvaluationSettings
from slopewise.errors import ObservationError
from slopewise.model import Evaluation, JobState, MissingEvaluation, Responses

SCRAPE = 5.0
HERE = "127.0.0.1:41523"
REMEDIES = Remedies("select it", "start it", "add two lines", failing_seconds=30.0, missing_seconds=60.0)
FAILING = JobSeries(up=False, instances=frozenset({HERE}))
ANSWERING = JobSeries(up=True, instances=frozenset({HERE}))


@dataclass
class FakePrometheus:
    """Scrapes one target; counts what it is asked."""

    error: str = 'Get "http://127.0.0.1:41523/metrics": dial tcp 127.0.0.1:41523: connect: connection refused'
    names: tuple[str, ...] = ()
    works: bool = True
    asked: list[str] = field(default_factory=list)

    def targets(self) -> list[Target]:
        self._note("targets")
        return [Target({"instance": HERE}, "down", self.error)]

    def metric_names(
        self, instances: Mapping[JobKey, Collection[str]], at_seconds: float
    ) -> Mapping[JobKey, Collection[str]]:
        self._note(f"names of {len(instances)}")
        assert all(of_job == {HERE} for of_job in instances.values())
        return {key: set(self.names) for key in instances}

    def _note(self, what: str) -> None:
        self.asked.append(what)
        if not self.works:
            raise ObservationError("Prometheus answered HTTP Status Code 404.")


def job(series: JobSeries, name: str = "a", running: float = 100.0) -> Unreachable:
    return Unreachable(JobKey("team", name), series, running)


def finder(prometheus: FakePrometheus, **evaluation: object) -> MissingEvaluations:
    return MissingEvaluations(prometheus, [EvaluationSettings(**evaluation)], SCRAPE, REMEDIES)


def found(
    series: JobSeries, prometheus: FakePrometheus | None = None, **evaluation: object
) -> MissingEvaluation | None:
    """What is known of a job after three scrapes in which it did not change."""
    missing = finder(prometheus or FakePrometheus(), **evaluation)
    assert missing.of([job(series)], START) == {}
    return missing.of([job(series)], START + 3 * SCRAPE).get(JobKey("team", "a"))


@pytest.mark.parametrize(
    ("error", "reason", "text"),
    [
        (
            'Get "http://127.0.0.1:41523/metrics": context deadline exceeded',
            "ScrapeTimesOut",
            "does not answer in time; its CPU is too little for a scrape: raise spec.resources.cpu.min",
        ),
        (FakePrometheus().error, "ScrapeFails", "refuses; start it"),
        ("dial tcp: lookup trainer: no such host", "ScrapeFails", "cannot be reached; start it"),
        ("read: connection reset by peer", "ScrapeFails", "breaks the connection off; start it"),
        ("server returned HTTP status 404 Not Found", "ScrapeFails", "answers with HTTP status 404; start it"),
        ('expected a valid start token, got "<"', "ScrapeFails", "answers with something that is no metrics; start it"),
        ("something new", "ScrapeFails", "cannot be scraped (something new); start it"),
    ],
)
def test_a_scrape_that_fails_is_reported_with_its_port_and_what_is_wrong(error: str, reason: str, text: str) -> None:
    known = found(FAILING, FakePrometheus(error))
    assert known is not None
    assert (known.reason, known.message) == (reason, f"port 41523 {text}")


@pytest.mark.parametrize(
    ("names", "reported"),
    [
        (
            ("my_val_loss", "loss", "lr", "images_total"),
            (
                "has no training_loss; it has loss, my_val_loss, images_total, lr; "
                "if one of them is the loss, write spec.evaluation.metric: loss"
            ),
        ),
        (
            tuple(f"lr_{number}" for number in range(7)),
            "has no training_loss; it has lr_0, lr_1, lr_2, lr_3, lr_4 and 2 more; add two lines",
        ),
        ((), "has no training_loss, and no metric of its own; add two lines"),
        (
            ("trainer_step", "trainer_loss"),
            "has no training_loss; it has trainer_loss: write spec.evaluation.preset: prime-rl",
        ),
        (
            ("vllm:e2e_request_latency_seconds_count", "vllm:num_requests_running"),
            "has no training_loss; it has vllm:e2e_request_latency_seconds: write spec.responses.preset: vllm",
        ),
        (
            ("training_steps_total", "training_nonfinite_loss_total", "training_state"),
            "has no training_loss, though it counts its steps; report it with each step, step(loss=…)",
        ),
    ],
)
def test_an_endpoint_without_the_metric_is_reported_with_its_own(names: tuple[str, ...], reported: str) -> None:
    known = found(ANSWERING, FakePrometheus(names=names))
    assert known == MissingEvaluation("NoMetric", f"port 41523 answers, but {reported}")


def test_a_metric_without_the_labels_that_are_asked_for_is_reported_as_that() -> None:
    known = found(ANSWERING, FakePrometheus(names=("my_loss",)), metric="my_loss", labels={"stage": "val"})
    assert known is not None
    assert known.message == (
        'port 41523 answers, but its my_loss lacks the labels stage="val"; correct spec.evaluation.labels'
    )


@pytest.mark.parametrize(
    ("series", "reported"),
    [(FAILING, "refuses"), (ANSWERING, "answers, but has no training_loss, and no metric of its own")],
)
def test_what_was_read_of_a_jobs_output_is_the_remedy(series: JobSeries, reported: str) -> None:
    missing = MissingEvaluations(
        FakePrometheus(), [EvaluationMapping()], SCRAPE, REMEDIES, output=lambda key: read.pop(0)
    )
    read = [OutputRead("it wrote no line yet", is_empty=True), OutputRead("read 40 lines"), OutputRead("read 80 lines")]
    missing.of([job(series)], START)
    said = []
    for seconds in (3 * SCRAPE, GRANT_SECONDS, 3 * SCRAPE + GRANT_SECONDS, RECHECK_SECONDS, 2 * RECHECK_SECONDS):
        (known,) = missing.of([job(series)], START + seconds).values()
        said.append(known.message.removeprefix(f"port 41523 {reported}; "))
    unread = ["it wrote no line yet"] * 2
    assert said == [*unread, "read 40 lines", "read 40 lines", "read 80 lines"], "the first is asked about again soon"


def test_a_job_with_a_mapping_of_its_own_is_reported_by_that() -> None:
    own = {"a": OwnMappings(EvaluationMapping(metric="score", labels={"split": "val"}))}
    missing = MissingEvaluations(
        FakePrometheus(names=("score", "training_x")), [EvaluationMapping()], SCRAPE, REMEDIES, own
    )
    both = [job(ANSWERING), job(ANSWERING, "b")]
    missing.of(both, START)
    found_of = missing.of(both, START + 3 * SCRAPE)
    assert 'its score lacks the labels split="val"' in found_of[JobKey("team", "a")].message
    assert "has no training_loss" in found_of[JobKey("team", "b")].message


def test_a_job_that_no_series_names_by_the_mapped_labels_is_not_reported_as_one_without_a_target() -> None:
    known = found(JobSeries(), metric="run_loss", pod_labels=PodLabels(namespace="k8s_ns", pod="k8s_pod"))
    assert known == MissingEvaluation(
        "NoMetric",
        'no run_loss has k8s_ns="team" and k8s_pod="a"; correct spec.evaluation.podLabels, or what exports it',
    )


def test_a_job_that_prometheus_does_not_know_and_one_whose_series_cannot_be_used() -> None:
    assert found(JobSeries()) == MissingEvaluation("NoTarget", "Prometheus has no target for it; select it")
    odd = found(structs.replace(ANSWERING, warnings=("training_loss carries the label `step`",)))
    assert odd == MissingEvaluation("NotUsable", "training_loss carries the label `step`")


@pytest.mark.parametrize(
    ("series", "delay"), [(FAILING, REMEDIES.failing_seconds), (JobSeries(), REMEDIES.missing_seconds)]
)
def test_a_job_that_has_just_started_may_be_without_an_endpoint(series: JobSeries, delay: float) -> None:
    prometheus = FakePrometheus()
    missing = finder(prometheus)
    for running in (0.0, 3 * SCRAPE, delay - 1):
        assert missing.of([job(series, running=running)], START + running) == {}
    assert prometheus.asked == []
    assert len(missing.of([job(series, running=delay)], START + delay)) == 1


def test_an_endpoint_has_three_scrapes_from_the_first_answer_on() -> None:
    missing = finder(FakePrometheus())
    missing.of([job(FAILING)], START)
    assert missing.of([job(ANSWERING)], START + 3 * SCRAPE) == {}
    assert len(missing.of([job(ANSWERING)], START + 6 * SCRAPE)) == 1


def test_the_cause_is_asked_for_once_a_change_and_again_after_a_while() -> None:
    prometheus = FakePrometheus()
    missing = finder(prometheus)
    for seconds in range(0, int(RECHECK_SECONDS), 10):
        missing.of([job(FAILING)], START + seconds)
    assert prometheus.asked == ["targets"]
    moved = structs.replace(FAILING, instances=frozenset({"127.0.0.1:9"}))
    for seconds in (0, 20, 40):
        missing.of([job(moved)], START + RECHECK_SECONDS + seconds)
    assert prometheus.asked == ["targets"] * 2
    missing.of([job(moved)], START + 3 * RECHECK_SECONDS)
    assert prometheus.asked == ["targets"] * 3


@pytest.mark.parametrize(("series", "what"), [(FAILING, "targets"), (ANSWERING, f"names of {MAX_QUERIED_PER_PASS}")])
def test_many_silent_jobs_cost_one_request_of_each_kind_a_pass(series: JobSeries, what: str) -> None:
    prometheus = FakePrometheus()
    missing = finder(prometheus)
    many = [job(series, f"job-{number}") for number in range(3 * MAX_QUERIED_PER_PASS)]
    known = [len(missing.of(many, START + seconds)) for seconds in (0, 20, 40, 60, 80)]
    assert known == [
        0,
        MAX_QUERIED_PER_PASS,
        2 * MAX_QUERIED_PER_PASS,
        3 * MAX_QUERIED_PER_PASS,
        3 * MAX_QUERIED_PER_PASS,
    ]
    assert prometheus.asked == [what] * 3


@pytest.mark.parametrize(
    ("series", "reported"),
    [(FAILING, "port 41523 cannot be scraped; start it"), (ANSWERING, "port 41523 answers, but has no training_loss")],
)
def test_a_prometheus_that_cannot_be_asked_costs_the_cause_and_not_the_pass(series: JobSeries, reported: str) -> None:
    prometheus = FakePrometheus(works=False)
    missing = finder(prometheus)
    missing.of([job(series)], START)
    (known,) = missing.of([job(series)], START + 20).values()
    assert known.message == reported
    missing.of([job(series)], START + 20 + GRANT_SECONDS - 1)
    assert len(prometheus.asked) == 1
    missing.of([job(series)], START + 20 + GRANT_SECONDS)
    assert len(prometheus.asked) == 2


@pytest.mark.parametrize(
    ("series", "silent"),
    [
        (JobSeries(), True),
        (JobSeries(state=JobState.TRAINING, steps_total=3.0), True),
        (JobSeries(state=JobState.STARTING), False),
        (JobSeries(state=JobState.FINISHED), False),
        (JobSeries(responses=Responses(1, 1.0)), False),
        (JobSeries(Evaluation(1.0, 4, START, "training_loss")), False),
    ],
)
def test_who_should_report_a_loss(series: JobSeries, silent: bool) -> None:
    assert (unreachable(JobKey("team", "a"), series, 1.0) is not None) is silent


def test_the_cause_is_a_warning_of_the_job_and_not_one_twice() -> None:
    cause = MissingEvaluation("ScrapeFails", "port 1 refuses")
    assert with_missing(("odd",), cause) == ("odd", "reports no loss: port 1 refuses")
    assert with_missing(("odd",), None) == ("odd",)
    assert with_missing(("odd",), MissingEvaluation("NotUsable", "odd")) == ("odd",)

"""TrainJobs that Prometheus has no evaluation of are read from their own status, and no others are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from support.api_server import ApiServer, Drop, refusal
from support.cluster_records import FakeStore, a_node_record, a_pod, owned_by
from support.worlds import START, FakeClock, a_job

from slopewise.adapters.kube.cache.records import ObjectRecord, OwnerRef, PodRecord
from slopewise.adapters.kube.client.errors import ApiError
from slopewise.adapters.kube.observer import KubeObserver, Stores
from slopewise.adapters.kube.trainer_status import (
    READ_SECONDS_A_PASS,
    READS_A_PASS,
    RETRY_SECONDS,
    Reported,
    TrainerStatuses,
    reported,
    with_status,
)
from slopewise.adapters.kube.workloads.job_facts import trainer_under
from slopewise.adapters.kube.workloads.job_index import WatchedJobIndex
from slopewise.adapters.kube.workloads.owners import Owners
from slopewise.adapters.prometheus.evaluations import JobKey
from slopewise.adapters.prometheus.reader import JobSeries, PrometheusReading, Scope
from slopewise.config.training_policy import EvaluationSettings, TrainingPolicySpec
from slopewise.model import Evaluation, Job, JobState, Objectives

TRAINJOBS = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/team/trainjobs"
OWNER = owned_by("TrainJob", "digits", "tj-1", "trainer.kubeflow.org/v1alpha1")
SCRAPE_SECONDS = 15.0
SETTINGS = EvaluationSettings()
STATUS: Mapping[str, Any] = {
    "progressPercentage": 25,
    "estimatedRemainingSeconds": 300,
    "lastUpdatedTime": datetime.fromtimestamp(START - 10, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    "metrics": [
        {"name": "loss", "value": "0.75"},
        {"name": "steps", "value": "250"},
        {"name": "steps_planned", "value": "1000"},
    ],
}


def of(metrics: Mapping[str, str] = {}, **changed: Any) -> Reported:
    """What a status says that has these metrics."""
    listed = [{"name": name, "value": value} for name, value in metrics.items()]
    return reported({**STATUS, "metrics": listed, **changed}, SETTINGS, START)


def level(found: Reported) -> float | None:
    return None if found.evaluation is None else found.evaluation.level


class FakeReader:
    """A Prometheus that knows what a test lets it know."""

    scrape_interval_seconds = SCRAPE_SECONDS

    def __init__(self) -> None:
        self.jobs: dict[str, JobSeries] = {}

    def read(self, at_seconds: float, scope: Scope) -> PrometheusReading:
        return PrometheusReading({JobKey("team", pod): series for pod, series in self.jobs.items()}, 4)

    def targets(self) -> list[Any]:
        return []

    def metric_names(self, instances: Mapping[JobKey, Any], at_seconds: float) -> dict[JobKey, set[str]]:
        return {}

    def use_of_others(self, *_: Any) -> dict[str, float]:
        return {}

    def machines(self, at_seconds: float) -> dict[str, Any]:
        return {}


class Cluster:
    """An API server with TrainJobs, and an observer of their pods."""

    def __init__(self, server: ApiServer, *pods: PodRecord) -> None:
        self.server, self.reader, self.clock = server, FakeReader(), FakeClock()
        api, store = server.client(), FakeStore(pods)
        jobs: FakeStore[ObjectRecord] = FakeStore()
        owners, spec = Owners(jobs, api), TrainingPolicySpec.model_validate({"resources": {"control": "limits"}})
        self._observer = KubeObserver(
            Stores(store, FakeStore((a_node_record(),)), None),
            owners,
            WatchedJobIndex(store, owners, trainer_under(spec)),
            self.reader,
            lambda _: True,
            spec,
            self.clock,
            trainer_statuses=TrainerStatuses(api, SETTINGS, SCRAPE_SECONDS),
        )

    def put(self, status: object, *, name: str = "digits", uid: str = "tj-1") -> None:
        self.server.put(TRAINJOBS, {"metadata": {"name": name, "uid": uid}, "status": {"trainerStatus": status}})

    def jobs(self) -> list[Job]:
        return list(self._observer.observe().jobs)

    def status_reads(self) -> int:
        """Reads of the TrainJob beyond the one that finds its owner."""
        return len(self.server.asked("GET", "/trainjobs/")) - 1


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer() as server:
        yield server


@pytest.fixture
def cluster(server: ApiServer) -> Cluster:
    made = Cluster(server, a_pod("digits-node-0-0", owner=OWNER))
    made.put(STATUS)
    return made


def test_loss_and_progress_of_a_trainjob_without_series_come_from_its_status(cluster: Cluster) -> None:
    (job,) = cluster.jobs()
    assert job.evaluation == Evaluation(0.75, 4, START - 10, 'trainerStatus{name="loss"}')
    assert (job.steps_total, job.steps_planned, job.state) == (250, 1000, JobState.TRAINING)
    assert job.missing_evaluation is None


def test_all_pods_of_a_trainjob_have_it_after_one_read(server: ApiServer) -> None:
    index = "batch.kubernetes.io/job-completion-index"
    pods = [
        a_pod(f"digits-{n}", owner=OWNER, labels={"slopewise.dev/managed": "true", index: str(n)}) for n in range(3)
    ]
    cluster = Cluster(server, *pods)
    cluster.put(STATUS)
    assert [job.evaluation is not None for job in cluster.jobs()] == [True, True, True]
    assert cluster.status_reads() == 1


def test_a_trainjob_that_prometheus_knows_is_not_read(cluster: Cluster) -> None:
    series = Evaluation(0.5, 4, START - 1, 'training_loss{stage="eval"}')
    cluster.reader.jobs["digits-node-0-0"] = JobSeries(evaluation=series, state=JobState.TRAINING, up=True)
    (job,) = cluster.jobs()
    assert job.evaluation == series
    assert cluster.status_reads() == 0


def test_it_is_read_again_after_a_scrape_interval_and_not_before(cluster: Cluster) -> None:
    cluster.jobs()
    cluster.put({**STATUS, "metrics": [{"name": "loss", "value": "0.5"}]})
    cluster.clock.seconds += SCRAPE_SECONDS / 2
    assert [level_of(job) for job in cluster.jobs()] == [0.75]
    cluster.clock.seconds += SCRAPE_SECONDS
    assert [level_of(job) for job in cluster.jobs()] == [0.5]
    assert cluster.status_reads() == 2


def level_of(job: Job) -> float | None:
    return None if job.evaluation is None else job.evaluation.level


def test_a_trainjob_of_the_same_name_is_another_one(cluster: Cluster) -> None:
    cluster.jobs()
    cluster.put(STATUS, uid="tj-2")
    cluster.clock.seconds += 2 * SCRAPE_SECONDS
    assert [job.evaluation for job in cluster.jobs()] == [None]


def test_a_refused_read_is_repeated_after_a_minute(cluster: Cluster) -> None:
    cluster.jobs()
    cluster.server.fault(refusal(403, "Forbidden", "no right"), path="/trainjobs/digits")
    cluster.clock.seconds += SCRAPE_SECONDS
    assert [job.evaluation for job in cluster.jobs()] == [None]
    cluster.clock.seconds += RETRY_SECONDS / 2
    assert [job.evaluation for job in cluster.jobs()] == [None]
    cluster.clock.seconds += RETRY_SECONDS / 2
    assert [level_of(job) for job in cluster.jobs()] == [0.75]


def test_an_api_server_that_does_not_answer_leaves_what_was_read(cluster: Cluster) -> None:
    cluster.jobs()
    cluster.server.fault(Drop(), path="/trainjobs/digits", times=5)
    cluster.clock.seconds += SCRAPE_SECONDS
    assert [level_of(job) for job in cluster.jobs()] == [0.75]


class SlowApi:
    """Serves each TrainJob after some seconds of `now`, or fails with an HTTP status."""

    def __init__(self, seconds: float = 0.0, fails: Mapping[str, int] = {}) -> None:
        self.seconds, self.fails, self.now = seconds, fails, 0.0
        self.read: list[str] = []

    def get(self, path: str, *_: Any, **__: Any) -> dict[str, Any]:
        name = path.rsplit("/", 1)[1]
        self.read.append(name)
        self.now += self.seconds
        if name in self.fails:
            raise ApiError(self.fails[name], "", "try again later")
        return {"metadata": {"uid": name}, "status": {"trainerStatus": STATUS}}

    def statuses(self) -> TrainerStatuses:
        return TrainerStatuses(self, SETTINGS, SCRAPE_SECONDS, lambda: self.now)  # type: ignore[arg-type]


def owners(count: int) -> list[tuple[str, OwnerRef]]:
    names = [f"tj-{n:03}" for n in range(count)]
    return [("team", OwnerRef("trainer.kubeflow.org/v1alpha1", "TrainJob", name, name)) for name in names]


def test_slow_reads_end_in_time_and_the_others_have_their_turn_in_the_next_passes() -> None:
    api, found = SlowApi(seconds=0.05), owners(READS_A_PASS)
    statuses, began_at = api.statuses(), 0.0
    for turn in range(3):
        found_now = statuses._read(found, START + turn)
        assert api.now - began_at <= READ_SECONDS_A_PASS + api.seconds
        began_at = api.now
    assert sorted(api.read) == [owner.name for _, owner in found], "each one once"
    assert all(each.evaluation is not None for each in found_now.values())


@pytest.mark.parametrize("status", [0, 429, 500, 503])
def test_a_server_that_fails_is_asked_once_a_pass_and_one_trainjob_that_always_fails_holds_no_other_up(
    status: int,
) -> None:
    api = SlowApi(fails={"tj-000": status})
    statuses, found = api.statuses(), owners(3)
    statuses._read(found, START)
    assert api.read == ["tj-000"]
    statuses._read(found, START + 1)
    assert api.read == ["tj-000", "tj-001", "tj-002"]


@pytest.mark.parametrize("status", [429, 500])
def test_what_was_read_stays_while_the_server_fails(status: int) -> None:
    api = SlowApi()
    statuses, found = api.statuses(), owners(1)
    before = statuses._read(found, START)
    api.fails = {"tj-000": status}
    assert statuses._read(found, START + SCRAPE_SECONDS) == before
    assert len(api.read) == 2


def test_a_status_that_says_nothing_is_read_once_a_minute(cluster: Cluster) -> None:
    cluster.put(None)
    for _ in range(5):
        assert [job.evaluation for job in cluster.jobs()] == [None]
        cluster.clock.seconds += RETRY_SECONDS / 5.5
    assert cluster.status_reads() == 1
    cluster.clock.seconds += RETRY_SECONDS / 5
    cluster.put(STATUS)
    assert [level_of(job) for job in cluster.jobs()] == [0.75]


def test_losses_on_held_out_data_come_first_and_a_score_counts_upwards() -> None:
    assert level(of({"loss": "2", "eval_loss": "1"})) == 1
    assert level(of({"train_loss": "3", "loss": "2"})) == 2
    found = of({"loss": "2", "eval_score": "0.9"}).evaluation
    assert found is not None
    assert (found.level, found.objective) == (0.9, "max")
    assert of({"learning_rate": "0.1"}).evaluation is None


def test_the_metric_that_the_policy_names_wins() -> None:
    listed = [{"name": "loss", "value": "2"}, {"name": "accuracy", "value": "0.8"}]
    found = reported({**STATUS, "metrics": listed}, EvaluationSettings(metric="accuracy", objective="max"), START)
    assert found.evaluation is not None
    assert (found.evaluation.level, found.evaluation.objective) == (0.8, "max")


@pytest.mark.parametrize(
    "status",
    [
        None,
        "text",
        [],
        {},
        {**STATUS, "lastUpdatedTime": None},
        {**STATUS, "lastUpdatedTime": "yesterday"},
        {**STATUS, "metrics": {"loss": "1"}},
        {**STATUS, "metrics": [{"name": "loss"}]},
        {**STATUS, "progressPercentage": "many"},
    ],
)
def test_what_is_not_as_kubeflow_writes_it_counts_as_nothing(status: object) -> None:
    assert reported(status, SETTINGS, START) == Reported()


@pytest.mark.parametrize(("text", "finite"), [("nan", False), ("inf", False), ("1e29", True), ("1e308", False)])
def test_a_loss_that_is_not_finite_has_diverged(text: str, finite: bool) -> None:
    found = of({"loss": text, "steps": "nan"})
    assert found.evaluation is not None
    assert found.evaluation.finite is finite
    assert found.steps_total is None


def test_texts_that_are_no_numbers_are_left_out() -> None:
    assert of({"loss": "low", "steps": "-3"}) == Reported(percent=25)


def test_a_time_in_the_future_is_now() -> None:
    found = of({"loss": "1"}, lastUpdatedTime="2199-01-01T00:00:00Z").evaluation
    assert found is not None
    assert found.sampled_at_seconds == START


def test_percent_stand_in_for_steps_unless_the_objective_is_in_seconds_a_step() -> None:
    job = a_job("a", level=None, state=JobState.STARTING)
    found = with_status(job, of({"loss": "1"}))
    assert (found.steps_total, found.steps_planned, found.state) == (25, 100, JobState.TRAINING)
    asked = with_status(replace(job, objectives=Objectives(qoe_seconds=1.0)), of({"loss": "1"}))
    assert (asked.steps_total, asked.steps_planned) == (None, None)


def test_steps_that_prometheus_has_are_kept() -> None:
    job = with_status(a_job("a", level=None), Reported(steps_total=5, steps_planned=10))
    assert (job.steps_total, job.steps_planned) == (5, 10)


def test_a_job_that_says_nothing_goes_on_starting() -> None:
    job = a_job("a", level=None, state=JobState.STARTING)
    assert with_status(job, Reported()) == job

"""Reads loss and progress of TrainJobs from `status.trainerStatus`, for jobs that Prometheus has no evaluation of.

Kubeflow Trainer writes there what its pods post (`slopewise_exporter/trainjob_status.py`, the callback of Transformers,
the SDK of Kubeflow). A TrainJob is read with one request, at most once in a scrape interval; TrainJobs whose evaluation
Prometheus has are never read. The texts are a tenant's, so what cannot be understood counts as not reported.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import msgspec

from slopewise.adapters.kube.cache.records import OwnerRef
from slopewise.adapters.kube.client.errors import ApiError
from slopewise.adapters.kube.client.protocol import Api
from slopewise.adapters.kube.workloads.job_facts import JobFacts
from slopewise.adapters.kube.workloads.owners import owner_path
from slopewise.config.training_policy import EvaluationSettings
from slopewise.estimators.growth import SCRAPES_PER_WINDOW
from slopewise.model import Evaluation, Job, JobState, Objective
from slopewise.model.reported import is_figure, is_level

KIND = "TrainJob"
READS_A_PASS = 100
"""Some 3 ms each, as in `moves/owner_cache.py`; what is left has its turn in the next pass."""

READ_SECONDS_A_PASS = 2.0
"""A pass waits for these reads before it decides: 100 of 50 ms each would hold it for 5 s, with intervals from 20 s on.
A request that has begun may last its own timeout longer."""

RETRY_SECONDS = 60.0
"""After a refusal, or a status that says nothing."""

LOSSES: Mapping[str, Objective] = {
    "eval_loss": "min",
    "eval_score": "max",
    "val_loss": "min",
    "validation_loss": "min",
    "loss": "min",
    "train_loss": "min",
}
"""Names of metrics that count as the evaluation, those on held-out data first."""

SERVER_ERRORS = 500
"""HTTP statuses from here on."""

STEPS = ("steps", "step", "global_step")
STEPS_PLANNED = ("steps_planned", "max_steps", "total_steps")
PERCENT = 100.0


@dataclass(frozen=True, slots=True)
class Reported:
    """What one TrainJob says of itself."""

    evaluation: Evaluation | None = None
    steps_total: float | None = None
    steps_planned: float | None = None
    percent: float | None = None


class TrainerStatuses:
    """One for each policy, used by the thread of its passes."""

    def __init__(
        self,
        api: Api,
        settings: EvaluationSettings,
        kept_seconds: float,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`kept_seconds`: how long an answer counts."""
        self._api = api
        self._settings = settings
        self._kept_seconds = kept_seconds
        self._monotonic = monotonic
        self._kept: dict[str, tuple[float, Reported]] = {}

    def filled(self, found: Sequence[Job], job_facts: Iterable[JobFacts], now_seconds: float) -> list[Job]:
        """The jobs of a pass; those of a TrainJob without an evaluation have what its status says."""
        owners = {
            each.managed.job_uid: (each.managed.pod.namespace, each.managed.workload)
            for each in job_facts
            if each.managed.workload.kind == KIND
        }
        silent = {job.uid: owners[job.uid] for job in found if job.uid in owners and _lacks(job)}
        reported = self._read(silent.values(), now_seconds)
        return [
            with_status(job, reported[owner[1].uid]) if (owner := silent.get(job.uid)) is not None else job
            for job in found
        ]

    def _read(self, owners: Iterable[tuple[str, OwnerRef]], now_seconds: float) -> Mapping[str, Reported]:
        by_uid = {owner.uid: (namespace, owner) for namespace, owner in owners}
        kept = {uid: self._kept[uid] for uid in by_uid if uid in self._kept}
        # Those that wait longest first: with more than can be read in a pass, none is left out for good.
        due = sorted((until, uid) for uid in by_uid if (until := kept.get(uid, (0.0, Reported()))[0]) <= now_seconds)
        ends_at = self._monotonic() + READ_SECONDS_A_PASS
        for _, uid in due[:READS_A_PASS]:
            if self._monotonic() >= ends_at:
                break
            try:
                found = self._one(*by_uid[uid], now_seconds)
            except ApiError as error:
                if _is_of_the_server(error):  # the others would fare the same, and wait for the next pass
                    # What was read stays. Behind the others, a TrainJob that always fails does not hold them up.
                    kept[uid] = (now_seconds + self._kept_seconds, kept.get(uid, (0.0, Reported()))[1])
                    break
                found = Reported()
            seconds = self._kept_seconds if found != Reported() else RETRY_SECONDS
            kept[uid] = (now_seconds + seconds, found)
        self._kept = kept
        return {uid: kept.get(uid, (0.0, Reported()))[1] for uid in by_uid}

    def _one(self, namespace: str, owner: OwnerRef, now_seconds: float) -> Reported:
        path = owner_path(namespace, owner)
        if path is None:
            return Reported()
        found = self._api.get(path)
        if found.get("metadata", {}).get("uid") != owner.uid:
            return Reported()
        return reported(found.get("status", {}).get("trainerStatus"), self._settings, now_seconds)


class _Metric(msgspec.Struct):
    name: str
    value: str


class _TrainerStatus(msgspec.Struct, rename="camel"):
    """As Kubeflow Trainer 2.2 writes it."""

    last_updated_time: datetime | None = None
    progress_percentage: float | None = None
    metrics: list[_Metric] = []


def reported(status: object, settings: EvaluationSettings, now_seconds: float) -> Reported:
    """What a `trainerStatus` says; nothing for one that is missing or not as Kubeflow writes it."""
    try:
        found = msgspec.convert(status, _TrainerStatus)
    except msgspec.ValidationError:
        return Reported()
    if found.last_updated_time is None:
        return Reported()
    # A pod's clock may be ahead; a time in the future would never be stale.
    at_seconds = min(found.last_updated_time.timestamp(), now_seconds)
    numbers = dict(_numbers(found.metrics))
    return Reported(
        evaluation=_evaluation(numbers, settings, at_seconds),
        steps_total=_first(numbers, STEPS),
        steps_planned=_first(numbers, STEPS_PLANNED),
        percent=found.progress_percentage,
    )


def with_status(job: Job, status: Reported) -> Job:
    """The job with what its TrainJob says. Progress in percent stands in for steps that are not known.

    Not for a job with an objective: that is in seconds a step, and a hundredth of the training is none.
    """
    steps, planned = status.steps_total, status.steps_planned
    if status.percent is not None and (steps is None or planned is None) and job.objectives.qoe_seconds is None:
        steps, planned = status.percent, PERCENT
    works = status.evaluation is not None or steps is not None
    return replace(
        job,
        evaluation=status.evaluation,
        steps_total=steps if job.steps_total is None else job.steps_total,
        steps_planned=planned if job.steps_total is None else job.steps_planned,
        state=JobState.TRAINING if works and job.state is JobState.STARTING else job.state,
    )


def _is_of_the_server(error: ApiError) -> bool:
    """No answer, too many requests, or a failure inside it: nothing about the TrainJob."""
    return error.status == 0 or error.is_throttled or error.status >= SERVER_ERRORS


def _lacks(job: Job) -> bool:
    return job.evaluation is None and job.responses is None and not job.state.ended


def _numbers(metrics: Iterable[_Metric]) -> Iterator[tuple[str, float]]:
    for metric in metrics:
        try:
            yield metric.name, float(metric.value)
        except ValueError:
            continue


def _first(numbers: Mapping[str, float], names: Iterable[str]) -> float | None:
    found = (numbers[name] for name in names if name in numbers)
    return next((number for number in found if is_figure(number) and number >= 0), None)


def _evaluation(numbers: Mapping[str, float], settings: EvaluationSettings, at_seconds: float) -> Evaluation | None:
    """The metric that the policy names, else the first of `LOSSES`."""
    wanted = {settings.metric: settings.objective, **LOSSES}
    name = next((name for name in wanted if name in numbers), None)
    if name is None:
        return None
    return Evaluation(
        level=numbers[name],
        # What is posted is an average of many steps already, so it counts as a full window.
        sample_count=SCRAPES_PER_WINDOW,
        sampled_at_seconds=at_seconds,
        series=f'trainerStatus{{name="{name}"}}',
        objective=wanted[name],
        finite=is_level(numbers[name]),
    )

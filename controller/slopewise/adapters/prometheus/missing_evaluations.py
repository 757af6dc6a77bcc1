"""Finds out why a running job reports no evaluation: no target, a failing scrape, or an endpoint without the metric.

Both observers pass such jobs in with each pass; the result is `Job.missing_evaluation`. A check costs up to two
requests to Prometheus. It runs once for each change of a job's target, after three scrapes, for a few jobs a pass:
5,000 jobs that report cost nothing, and 5,000 that do not cost two requests a pass.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from slopewise.adapters.pauses import GRANT_SECONDS
from slopewise.adapters.prometheus.client import Target
from slopewise.adapters.prometheus.evaluations import JobKey
from slopewise.adapters.prometheus.reader import JobSeries
from slopewise.config.metric_mappings import (
    EVALUATION_PRESETS,
    RESPONSE_PRESETS,
    EvaluationMapping,
    OwnMappings,
    PodLabels,
)
from slopewise.errors import ObservationError
from slopewise.model import JobState, MissingEvaluation
from slopewise.text import bounded

SCRAPES_BEFORE_CHECK = 3

MAX_QUERIED_PER_PASS = 20
"""Jobs; the next passes check the others."""

RECHECK_SECONDS = 600.0
"""A job may begin to export another metric while its target stays the same."""

MAX_NAMES = 5
"""Metrics that a message lists."""

_MAX_ERROR = 100
_LOSS_LIKE = ("loss", "val", "eval", "acc", "err", "metric", "score", "perplexity", "reward")

_OF_EXPORTER = re.compile(
    "training_(steps|samples|epochs|step_duration_seconds|last_step|checkpoint|nonfinite_loss|info|state)(_.*)?"
)
"""What `slopewise-exporter` exports beside a loss (docs/metrics.md)."""

_TIMES_OUT = "does not answer in time"

_FAILURES: Sequence[tuple[re.Pattern[str], str]] = (
    (re.compile("connection refused"), "refuses"),
    (re.compile("context deadline exceeded|i/o timeout|Client.Timeout"), _TIMES_OUT),
    (re.compile("no such host|no route to host|network is unreachable"), "cannot be reached"),
    (re.compile(r"HTTP status (\d+)"), r"answers with HTTP status \1"),
    (re.compile("connection reset|EOF"), "breaks the connection off"),
    (re.compile("expected|unexpected|invalid|unsupported|parse"), "answers with something that is no metrics"),
)
"""Prometheus' text for a failed scrape, and the message about the port."""


class PrometheusApi(Protocol):
    """The queries that are used here (`reader.PrometheusReader`)."""

    def targets(self) -> Sequence[Target]:
        """What Prometheus scrapes."""
        ...

    def metric_names(
        self, instances: Mapping[JobKey, Collection[str]], at_seconds: float
    ) -> Mapping[JobKey, Collection[str]]:
        """The names of the metrics that these instances export."""
        ...


@dataclass(frozen=True, slots=True)
class Remedies:
    """Remedies, which differ between a machine and a cluster."""

    no_target: str
    scrape_fails: str
    no_metrics: str
    """The endpoint answers, and has nothing that could be an evaluation."""
    failing_seconds: float
    """How long after its start a job may lack an endpoint, because it loads libraries and data."""
    missing_seconds: float
    """How long it may be without a target."""


class OutputRead(NamedTuple):
    """What was read of a job's output in search of a loss."""

    advice: str = ""
    """That, and what to do; empty: it is not read, and `Remedies` say what to do."""
    is_empty: bool = False
    """It wrote no line yet, which may change soon."""


@dataclass(frozen=True, slots=True)
class Unreachable:
    """A running job without an evaluation in Prometheus."""

    key: JobKey
    series: JobSeries
    running_seconds: float


@dataclass(slots=True)
class _Finding:
    """The finding about one of them, until its target changes."""

    target: tuple[object, ...]
    since_seconds: float
    due_at_seconds: float = 0.0
    found: MissingEvaluation | None = None


def unreachable(key: JobKey, series: JobSeries, running_seconds: float) -> Unreachable | None:
    """The job, if it lacks an evaluation that it should have by now; a job that reports `starting` need not."""
    if series.evaluation is not None or series.responses is not None:
        return None
    if series.state is not None and (series.state is JobState.STARTING or series.state.ended):
        return None
    return Unreachable(key, series, running_seconds)


def with_missing(warnings: tuple[str, ...], missing: MissingEvaluation | None) -> tuple[str, ...]:
    """A job's warnings, with the cause that has been found, unless it is one of them."""
    if missing is None or missing.message in warnings:
        return warnings
    is_late = missing.reason == "ScrapeTimesOut"
    return (*warnings, missing.message if is_late else f"reports no loss: {missing.message}")


@dataclass(slots=True)
class MissingEvaluations:
    """The checks of one observer. Forgets jobs that are no longer passed in."""

    prometheus: PrometheusApi
    evaluations: Sequence[EvaluationMapping]
    scrape_interval_seconds: float
    remedies: Remedies
    own: Mapping[str, OwnMappings] = field(default_factory=dict)
    """By pod: what takes the place of `evaluations`."""
    output: Callable[[JobKey], OutputRead] = lambda _: OutputRead()
    _known: dict[JobKey, _Finding] = field(init=False, default_factory=dict)

    def of(self, jobs: Iterable[Unreachable], now_seconds: float) -> Mapping[JobKey, MissingEvaluation]:
        """The findings about these jobs; none for those that have not run for long enough.

        Never raises: a cause that cannot be found out holds up no pass.
        """
        here = {job.key: job for job in jobs}
        if not here and not self._known:
            return {}
        self._known = {key: self._follow(job, now_seconds) for key, job in here.items()}
        due = [job for key, job in here.items() if self._is_due(job, self._known[key], now_seconds)]
        self._find_out(due[:MAX_QUERIED_PER_PASS], now_seconds)
        return {key: known.found for key, known in self._known.items() if known.found is not None}

    def _follow(self, job: Unreachable, now_seconds: float) -> _Finding:
        target = (job.series.up, job.series.instances)
        known = self._known.get(job.key)
        return known if known is not None and known.target == target else _Finding(target, now_seconds)

    def _is_due(self, job: Unreachable, known: _Finding, now_seconds: float) -> bool:
        if now_seconds - known.since_seconds < SCRAPES_BEFORE_CHECK * self.scrape_interval_seconds:
            return False
        delays = {True: 0.0, False: self.remedies.failing_seconds, None: self.remedies.missing_seconds}
        return job.running_seconds >= delays[job.series.up] and now_seconds >= known.due_at_seconds

    def _find_out(self, jobs: Sequence[Unreachable], now_seconds: float) -> None:
        errors = self._errors([job for job in jobs if job.series.up is False])
        names = self._names([job for job in jobs if job.series.up], now_seconds)
        for job in jobs:
            known = self._known[job.key]
            known.found, is_certain = self._cause(job, errors, names)
            known.due_at_seconds = now_seconds + (RECHECK_SECONDS if is_certain else GRANT_SECONDS)

    def _errors(self, jobs: Sequence[Unreachable]) -> Mapping[str, str] | None:
        """The last error of each target, by its address; None where Prometheus does not answer."""
        if not jobs:
            return {}
        try:
            return {each.labels.get("instance", ""): each.last_error for each in self.prometheus.targets()}
        except ObservationError:
            return None

    def _names(self, jobs: Sequence[Unreachable], now_seconds: float) -> Mapping[JobKey, Collection[str]] | None:
        """The metrics of each job; None where Prometheus does not answer."""
        if not jobs:
            return {}
        try:
            return self.prometheus.metric_names({job.key: job.series.instances for job in jobs}, now_seconds)
        except ObservationError:
            return None

    def _cause(
        self, job: Unreachable, errors: Mapping[str, str] | None, names: Mapping[JobKey, Collection[str]] | None
    ) -> tuple[MissingEvaluation, bool]:
        """Why, and whether that is all that can be known."""
        where = _ports(job.series.instances)
        if job.series.warnings:
            return MissingEvaluation("NotUsable", job.series.warnings[0]), True
        wanted = " or ".join(one.metric for one in self._of(job.key))
        if job.series.up is None and (one := next(self._named_by_others(job.key), None)) is not None:
            named = f'{one.pod_labels.namespace}="{job.key.namespace}" and {one.pod_labels.pod}="{job.key.pod}"'
            message = f"no {one.metric} has {named}; correct spec.evaluation.podLabels, or what exports it"
            return MissingEvaluation("NoMetric", message), True
        if job.series.up is None:
            return MissingEvaluation("NoTarget", f"Prometheus has no target for it; {self.remedies.no_target}"), True
        if job.series.up is False:
            error = next((errors[at] for at in sorted(job.series.instances) if errors and errors.get(at)), "")
            failure = _failure(error) if error else "cannot be scraped"
            if failure == _TIMES_OUT:
                message = f"{where} {failure}; its CPU is too little for a scrape: raise spec.resources.cpu.min"
                return MissingEvaluation("ScrapeTimesOut", message), True
            advice, is_empty = self.output(job.key)
            message = f"{where} {failure}; {advice or self.remedies.scrape_fails}"
            return MissingEvaluation("ScrapeFails", message), bool(error) and not is_empty
        if names is None:
            return MissingEvaluation("NoMetric", f"{where} answers, but has no {wanted}"), False
        advice, is_empty = self.output(job.key)
        lack = self._lack(names.get(job.key, ()), self._of(job.key), wanted, advice or self.remedies.no_metrics)
        return MissingEvaluation("NoMetric", f"{where} answers, but {lack}"), not is_empty

    def _lack(
        self, names: Collection[str], evaluations: Sequence[EvaluationMapping], wanted: str, no_metrics: str
    ) -> str:
        """What an endpoint has instead of the evaluation, and what to do about it."""
        for one in evaluations:
            if one.metric in names and one.labels:
                labels = ", ".join(f'{name}="{value}"' for name, value in one.labels.items())
                return f"its {one.metric} lacks the labels {labels}; correct spec.evaluation.labels"
        listed = sorted((name for name in names if not _OF_EXPORTER.fullmatch(name)), key=_likeness)
        if not listed and names:
            return f"has no {wanted}, though it counts its steps; report it with each step, step(loss=…)"
        if not listed:
            return f"has no {wanted}, and no metric of its own; {no_metrics}"
        if preset := _preset(names):
            return f"has no {wanted}; it has {preset[0]}: write {preset[1]}"
        more = f" and {len(listed) - MAX_NAMES} more" if len(listed) > MAX_NAMES else ""
        has = f"has no {wanted}; it has {', '.join(listed[:MAX_NAMES])}{more}"
        if _likeness(listed[0])[0] == len(_LOSS_LIKE):
            return f"{has}; {no_metrics}"
        return f"{has}; if one of them is the loss, write spec.evaluation.metric: {listed[0]}"

    def _of(self, key: JobKey) -> Sequence[EvaluationMapping]:
        own = self.own.get(key.pod)
        return self.evaluations if own is None or own.evaluation is None else [own.evaluation]

    def _named_by_others(self, key: JobKey) -> Iterator[EvaluationMapping]:
        """Mappings whose series name their pod by labels that the scrape does not write."""
        return (one for one in self._of(key) if one.pod_labels != PodLabels())


def _preset(names: Collection[str]) -> tuple[str, str] | None:
    """A metric that a preset names, and the setting to write; None: no preset has one of these."""
    for kind, presets in (("evaluation", EVALUATION_PRESETS), ("responses", RESPONSE_PRESETS)):
        for name, preset in presets.items():
            metric: str = preset["metric"]
            if found := {metric, f"{metric}_count"} & set(names):
                return found.pop().removesuffix("_count"), f"spec.{kind}.preset: {name}"
    return None


def _likeness(name: str) -> tuple[int, str]:
    """Sort key by which a metric's name resembles an evaluation: 0 for a loss."""
    lowered = name.lower()
    return next((rank for rank, part in enumerate(_LOSS_LIKE) if part in lowered), len(_LOSS_LIKE)), name


def _failure(error: str) -> str:
    for pattern, message in _FAILURES:
        if (found := pattern.search(error)) is not None:
            return found.expand(message)
    return f"cannot be scraped ({bounded(error, _MAX_ERROR)})"


def _ports(instances: Collection[str]) -> str:
    """`port 41523`; the whole address where it has no port."""
    ports = sorted({address.rpartition(":")[2] for address in instances})
    if not ports or not all(port.isdigit() for port in ports):
        return f"its endpoint {', '.join(sorted(instances))}".strip()
    return f"port {ports[0]}" if len(ports) == 1 else f"each of the ports {', '.join(ports)}"

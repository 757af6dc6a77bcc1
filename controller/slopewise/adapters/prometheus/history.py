"""Reads the past of training jobs from Prometheus, a few jobs and one stretch of time after the other.

First it finds which jobs there were and in which windows of the period (`find`); then it reads them in groups of jobs
that ran at about the same time for about as long (`read`), each with a step that gives a job some hundreds of points.
What a caller drops is freed: memory is bounded by one group.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from slopewise.adapters.http.config import Endpoint
from slopewise.adapters.prometheus import history_queries, node_queries
from slopewise.adapters.prometheus.client import PrometheusHttp, RangeRow, Row
from slopewise.adapters.prometheus.container_usage import machines_by_node
from slopewise.adapters.prometheus.evaluations import STAGE_PREFERENCE, JobKey, job_key, series_text, stage_rank
from slopewise.adapters.prometheus.queries import VALUE_LABEL, AnyOf, Matchers
from slopewise.adapters.prometheus.reader import spans
from slopewise.errors import UsageError
from slopewise.model import Objective

Points = NDArray[np.float64]
"""Shape (points, 2): Unix seconds and a value, in time order; all finite."""

MAX_SERIES = 200_000
"""More loss series at one moment come from a label that grows with the training, or from a shared Prometheus of many
clusters: an answer about them would be larger than what is read (`client.MAX_ANSWER_BYTES`)."""

WINDOWS = 168
"""The period is searched in so many windows: of 7 days, hours."""

WINDOWS_PER_QUERY = 24
"""So that an answer about 10,000 jobs that run all the time is 5 MB."""

MOMENTS = 10
"""Of the period, at which the series are counted."""

MIN_WINDOW_SECONDS, MAX_WINDOW_SECONDS = 60.0, 3600.0

POINTS_PER_JOB = 500
"""Enough to see where a loss has converged to within 0.2 % of the job's time."""

STEPS_SECONDS = (5.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 1800.0, 3600.0, 7200.0, 14_400.0, 43_200.0)

JOBS_PER_GROUP = 20
PATTERN_CHARACTERS = 500
"""Of the names of a group: the query for facts repeats them 15 times in a URL, which proxies refuse above 16 KiB."""

LARGEST = 1e300
"""A loss beyond it has diverged, and a sum of such losses would be infinite."""

STILL_RUNNING_SECONDS = 300.0
"""How far from the end of the period a last sample may be: Prometheus shows a sample for so long."""

_EMPTY: Points = np.empty((0, 2))


def _no_points() -> Points:
    return _EMPTY


@dataclass(frozen=True, slots=True)
class Lifetime:
    """A job and when it was seen, to within a window."""

    key: JobKey
    from_seconds: float
    until_seconds: float
    reports_loss: bool

    @property
    def seconds(self) -> float:
        """How long, at most."""
        return self.until_seconds - self.from_seconds

    @property
    def step_seconds(self) -> float:
        """The step that gives it `POINTS_PER_JOB` points at most."""
        return next((step for step in STEPS_SECONDS if self.seconds <= step * POINTS_PER_JOB), STEPS_SECONDS[-1])


@dataclass(frozen=True, slots=True)
class Resources:
    """Requests or limits of all containers of a pod together. None: not stated, or not reported."""

    cpu_cores: float | None = None
    memory_bytes: float | None = None


@dataclass(frozen=True, slots=True)
class Steps:
    """Of a training. None: not reported."""

    total: float | None = None
    planned: float | None = None

    @property
    def done_ratio(self) -> float | None:
        """The part of the planned steps that is done; None: not known."""
        return self.total / self.planned if self.total is not None and self.planned else None


@dataclass(frozen=True, slots=True)
class JobHistory:
    """What Prometheus has of one job. Empty points, None: not reported."""

    namespace: str
    pod: str
    node: str
    """Empty: not known."""
    from_seconds: float
    until_seconds: float
    still_running: bool
    """It was there at the end of the period."""
    step_seconds: float
    objective: Objective = "min"
    loss: Points = field(default_factory=_no_points)
    training_loss: Points = field(default_factory=_no_points)
    """Beside a `loss` on held-out data."""
    cpu_cores: Points = field(default_factory=_no_points)
    throttled_ratio: Points = field(default_factory=_no_points)
    threads: Points = field(default_factory=_no_points)
    """Of all its processes, those that wait too."""
    memory_bytes: Points = field(default_factory=_no_points)
    gpu_use_ratio: Points = field(default_factory=_no_points)
    steps: Steps = Steps()
    wait_ratio: float | None = None
    """The part of its steps' time in which they waited for their batches, up to 1, whatever a tenant reports.

    None: none reported, or 0, as a loop that times no waits does.
    """
    requests: Resources = Resources()
    limits: Resources = Resources()
    gpus: float = 0.0

    @property
    def seconds(self) -> float:
        """How long it ran within the period."""
        return self.until_seconds - self.from_seconds


@dataclass(frozen=True, slots=True)
class Period:
    """The time that is asked about, in Unix seconds."""

    from_seconds: float
    until_seconds: float

    @property
    def seconds(self) -> float:
        """Its length."""
        return self.until_seconds - self.from_seconds


class PrometheusHistory:
    """Reads one Prometheus; every query has `timeout_seconds`."""

    def __init__(
        self,
        endpoint: Endpoint,
        period: Period,
        *,
        metric: str,
        objective: Objective = "min",
        namespaces: Sequence[str] = (),
        max_jobs: int,
        timeout_seconds: float,
    ) -> None:
        """UsageError for an endpoint or a name that cannot be used, before anything is sent."""
        self._matchers: Matchers = (("namespace", AnyOf(tuple(namespaces))), ("pod", AnyOf()))
        self._namespaces = frozenset(namespaces)
        self._metric, self._objective = metric, objective
        self.period, self._max_jobs = _in_whole_seconds(period), max_jobs
        history_queries.counts(metric, self._matchers)
        self._http = PrometheusHttp(endpoint, timeout_seconds)
        longest = math.ceil(self.period.seconds / WINDOWS)
        self._window_seconds = float(min(MAX_WINDOW_SECONDS, max(MIN_WINDOW_SECONDS, longest)))

    @property
    def shown_url(self) -> str:
        """Where it is; it holds no secret."""
        return self._http.shown_url

    def find(self) -> list[Lifetime]:
        """Every job that reported the loss or held GPUs in the period; UsageError for more than are read.

        ObservationError when Prometheus cannot be reached or gives half an answer.
        """
        self._refuse_too_many_now()
        loss: dict[JobKey, list[float]] = {}
        gpus: dict[JobKey, list[float]] = {}
        of_loss = history_queries.loss_present(self._metric, self._matchers, self._window_seconds)
        of_gpus = history_queries.gpu_present(self._window_seconds)
        for start, end in self._parts():
            self._note(loss, self._range(of_loss, start, end, self._window_seconds))
            self._note(gpus, self._range(of_gpus, start, end, self._window_seconds))
            if len(loss.keys() | gpus.keys()) > self._max_jobs:
                raise UsageError(self._too_many(f"more than {self._max_jobs} jobs"))
        seen = {key: (*loss.get(key, ()), *gpus.get(key, ())) for key in loss.keys() | gpus.keys()}
        return [
            Lifetime(key, max(self.period.from_seconds, min(ends) - self._window_seconds), max(ends), key in loss)
            for key, ends in sorted(seen.items())
        ]

    def read(self, lifetimes: Sequence[Lifetime]) -> Iterator[JobHistory]:
        """The histories of these jobs, group by group; a job of which nothing is left is skipped."""
        for group in groups(lifetimes):
            yield from self._read_group(group)

    def node_cores(self) -> dict[str, float]:
        """The CPU of each node that is known by kube-state-metrics, else by its kubelet, by the node's name."""
        at = self.period.until_seconds
        machines = machines_by_node(self._ask(node_queries.machines(()), at))
        offered = self._ask(history_queries.allocatable(self.period.seconds), at)
        found = {name: machine.cpu_cores for name, machine in machines.items()}
        return found | {row.labels.get("node", ""): row.value for row in offered if row.value > 0}

    def requested_cores(self) -> dict[str, Points]:
        """The CPU that the running pods of each node requested together, at the ends of windows, by the node's name."""
        found: dict[str, list[tuple[float, float]]] = defaultdict(list)
        for start, end in self._parts():
            for row in self._range(history_queries.requested(), start, end, self._window_seconds):
                found[row.labels.get("node", "")] += row.points
        return {node: _points(pairs) for node, pairs in found.items()}

    def loss_names(self) -> list[str]:
        """Names of metrics, reported within the last hour, that look like an evaluation."""
        rows = self._ask(history_queries.loss_names(self._matchers), self.period.until_seconds)
        return sorted({row.labels.get("__name__", "") for row in rows} - {"", self._metric})

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def _ask(self, query: str, at_seconds: float) -> list[Row]:
        self._http.begin()
        return self._http.ask(query, at_seconds)

    def _range(self, query: str, start_seconds: float, end_seconds: float, step_seconds: float) -> list[RangeRow]:
        self._http.begin()
        return self._http.ask_range(query, start_seconds, end_seconds, step_seconds)

    def _parts(self) -> Iterator[tuple[float, float]]:
        """The ends of the first and of the last window of each query, the newest first."""
        end = self.period.until_seconds
        while end > self.period.from_seconds:
            windows = min(WINDOWS_PER_QUERY, math.ceil((end - self.period.from_seconds) / self._window_seconds))
            yield end - (windows - 1) * self._window_seconds, end
            end -= windows * self._window_seconds

    def _refuse_too_many_now(self) -> None:
        """UsageError for a metric with more series or jobs than are read, found by some moments of the period."""
        query = history_queries.counts(self._metric, self._matchers)
        step = max(1.0, self.period.seconds // MOMENTS)
        most = {"series": 0.0, "jobs": 0.0}
        for row in self._range(query, self.period.from_seconds, self.period.until_seconds, step):
            kind = row.labels.get(VALUE_LABEL, "")
            most[kind] = max(value for _, value in row.points)
        if most["series"] > MAX_SERIES:
            raise UsageError(self._too_many(f"{most['series']:,.0f} series"))
        if most["jobs"] > self._max_jobs:
            raise UsageError(self._too_many(f"{most['jobs']:,.0f} jobs"))

    def _too_many(self, what: str) -> str:
        return (
            f"Prometheus at {self.shown_url} has {what} of {self._metric}, and at most {MAX_SERIES:,} series of "
            f"{self._max_jobs:,} jobs are read; name namespaces with --namespace, a shorter --since, or raise "
            "--max-jobs."
        )

    def _note(self, found: dict[JobKey, list[float]], rows: Sequence[RangeRow]) -> None:
        for row in rows:
            key = job_key(row.labels)
            if key is not None and (not self._namespaces or key.namespace in self._namespaces):
                found.setdefault(key, []).extend((row.points[0][0], row.points[-1][0]))

    def _read_group(self, group: Sequence[Lifetime]) -> Iterator[JobHistory]:
        step = group[0].step_seconds
        pods = {each.key.pod for each in group}
        end = min(self.period.until_seconds, max(each.until_seconds for each in group))
        # Whole steps back from the end: a last point before it would leave the last samples out.
        start = end - step * math.ceil((end - min(each.from_seconds for each in group)) / step)
        losses = _Losses(self._metric)
        uses: dict[tuple[JobKey, str], list[tuple[float, float]]] = defaultdict(list)
        loss_query = history_queries.losses(self._metric, self._matchers, pods, step)
        use_query = history_queries.usage(pods, step)
        for first, last in spans(start, end, step):
            for row in self._range(loss_query, first, last, step):
                losses.add(row)
            for row in self._range(use_query, first, last, step):
                if (key := job_key(row.labels)) is not None:
                    uses[key, row.labels.get(VALUE_LABEL, "")] += row.points
        facts = _facts(self._ask(history_queries.facts(pods, end - start), end))
        for each in group:
            curves = {kind: _points(uses.pop((each.key, kind), ())) for kind in history_queries.USES}
            history = self._history(each, losses, curves, facts.get(each.key, _Facts({}, {})))
            if history is not None:
                yield history

    def _history(
        self, job: Lifetime, losses: _Losses, curves: Mapping[str, Points], facts: _Facts
    ) -> JobHistory | None:
        loss, training_loss, node = losses.best(job.key)
        seen = [points for points in (loss, *curves.values()) if len(points)]
        if not seen and not facts.numbers.get(history_queries.GPUS):
            return None
        step = job.step_seconds
        start = min((points[0, 0] for points in seen), default=job.from_seconds)
        end = max((points[-1, 0] for points in seen), default=job.until_seconds)
        recent = self.period.until_seconds - max(2 * step, STILL_RUNNING_SECONDS)
        numbers = facts.numbers
        return JobHistory(
            namespace=job.key.namespace,
            pod=job.key.pod,
            node=facts.texts.get(history_queries.NODE) or node,
            from_seconds=float(max(start - step, self.period.from_seconds)),
            until_seconds=float(end),
            still_running=bool(end >= recent),
            step_seconds=step,
            objective=_objective(facts.texts.get(history_queries.OBJECTIVE), self._objective),
            loss=loss,
            training_loss=training_loss,
            cpu_cores=curves[history_queries.CPU],
            throttled_ratio=curves[history_queries.THROTTLED],
            threads=curves[history_queries.THREADS],
            memory_bytes=curves[history_queries.MEMORY],
            gpu_use_ratio=curves[history_queries.GPU_USE],
            steps=Steps(numbers.get(history_queries.STEPS), numbers.get(history_queries.PLANNED)),
            wait_ratio=min(1.0, waited) if (waited := numbers.get(history_queries.WAITED, 0.0)) > 0 else None,
            requests=Resources(numbers.get(history_queries.CPU_REQUEST), numbers.get(history_queries.MEMORY_REQUEST)),
            limits=Resources(numbers.get(history_queries.CPU_LIMIT), numbers.get(history_queries.MEMORY_LIMIT)),
            gpus=numbers.get(history_queries.GPUS, 0.0),
        )


@dataclass(frozen=True, slots=True)
class _Facts:
    numbers: dict[str, float]
    texts: dict[str, str]


class _Losses:
    """The loss series of a group of jobs; of each job the best stage counts, and its processes are joined."""

    def __init__(self, metric: str) -> None:
        self._metric = metric
        self._series: dict[JobKey, dict[tuple[int, str], list[tuple[float, float]]]] = defaultdict(dict)
        self._nodes: dict[JobKey, str] = {}

    def add(self, row: RangeRow) -> None:
        if (key := job_key(row.labels)) is None:
            return
        name = stage_rank(row.labels), series_text(self._metric, row.labels)
        self._series[key].setdefault(name, []).extend(row.points)
        self._nodes.setdefault(key, row.labels.get("node", ""))

    def best(self, key: JobKey) -> tuple[Points, Points, str]:
        """The points of the best series, of the training loss beside it, and the node that its target is labelled with.

        The training loss has no points where it is the best series itself, or is not reported.
        """
        series = self._series.pop(key, {})
        held_out, *training = STAGE_PREFERENCE.values()
        best = min(series, default=None)
        of_training = min((name for name in series if name[0] in training), default=None)
        beside = of_training if best is not None and best[0] == held_out else None
        loss, training_loss = (_points(series[name]) if name else _EMPTY for name in (best, beside))
        return loss, training_loss, self._nodes.get(key, "")


def _in_whole_seconds(period: Period) -> Period:
    """Prometheus is asked in milliseconds: of rounded fractions the last point would lie beyond the end, unanswered."""
    return Period(math.floor(period.from_seconds), math.floor(period.until_seconds))


def groups(lifetimes: Sequence[Lifetime]) -> Iterator[list[Lifetime]]:
    """Jobs of one step that ran at about the same time: a query's points are mostly those of its jobs."""
    by_step = sorted(lifetimes, key=lambda each: (each.step_seconds, each.from_seconds, each.key))
    for step, of_step in groupby(by_step, key=lambda each: each.step_seconds):
        group: list[Lifetime] = []
        characters = 0
        for each in of_step:
            span = each.until_seconds - group[0].from_seconds if group else 0.0
            full = len(group) >= JOBS_PER_GROUP or characters + len(each.key.pod) > PATTERN_CHARACTERS
            if group and (full or span > 4 * POINTS_PER_JOB * step):
                yield group
                group, characters = [], 0
            group.append(each)
            characters += len(each.key.pod) + 1
        if group:
            yield group


def _points(pairs: Sequence[tuple[float, float]]) -> Points:
    """Those below `LARGEST`, in time order, one for each moment: the processes of a restarted job overlap."""
    if not pairs:
        return _EMPTY
    points = np.asarray(pairs, dtype=np.float64)
    points = points[np.abs(points[:, 1]) < LARGEST]  # NaN is not below it either
    _, first = np.unique(points[:, 0], return_index=True)
    found: Points = points[first]
    return found


def _facts(rows: Sequence[Row]) -> dict[JobKey, _Facts]:
    found: dict[JobKey, _Facts] = defaultdict(lambda: _Facts({}, {}))
    for row in rows:
        if (key := job_key(row.labels)) is None:
            continue
        kind = row.labels.get(VALUE_LABEL, "")
        if kind in (history_queries.OBJECTIVE, history_queries.NODE):
            found[key].texts[kind] = row.labels.get(kind, "")
        elif math.isfinite(row.value):
            found[key].numbers[kind] = row.value
    return found


def _objective(reported: str | None, otherwise: Objective) -> Objective:
    known: dict[str, Literal["min", "max"]] = {"min": "min", "max": "max"}
    return known.get(reported or "", otherwise)

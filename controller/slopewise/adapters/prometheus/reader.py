"""Reads all jobs' losses, facts and container usage from Prometheus at one moment.

An Observer joins a `PrometheusReading` with cgroups, processes or pods into a `ClusterSnapshot`. Whatever the number
of jobs, a reading costs two queries, one for each evaluation mapping and, where kubelets are scraped, one for
container usage, all evaluated at the same moment; one more where a policy reads raw points, and one more where no URL
holds both facts and events. It is complete, or ObservationError is raised. Only pods with far too many series are left
out (`series_bound.py`); a namespace that has such a pod costs the same queries again.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Self

import msgspec
from msgspec import structs

from slopewise.adapters.http.config import Endpoint
from slopewise.adapters.prometheus import node_queries, queries, series_bound
from slopewise.adapters.prometheus.client import OnQuery, PrometheusHttp, RangeRow, Row, Target
from slopewise.adapters.prometheus.container_usage import (
    ContainerKey,
    ContainerRow,
    ContainerUse,
    Machine,
    machines_by_node,
    use_by_container,
    use_of_others,
)
from slopewise.adapters.prometheus.evaluations import (
    SCRAPE_LABELS,
    Candidates,
    JobKey,
    candidates_by_job,
    choose,
    evaluation,
    job_key,
    series_text,
    stage_rank,
    with_scrape_labels,
)
from slopewise.adapters.prometheus.mapped_queries import (
    MappedRows,
    Source,
    joined,
    reset_parts,
    response_parts,
    sources_of,
    step_label_parts,
    step_parts,
    without_step_labels,
)
from slopewise.adapters.prometheus.moving_labels import MovingLabels
from slopewise.adapters.prometheus.points import PointsQuery, points_by_job, points_queries
from slopewise.adapters.prometheus.process_facts import Facts, facts_by_job, latest_process
from slopewise.adapters.prometheus.queries import AnyOf
from slopewise.config.metric_mappings import EvaluationMapping, OwnMappings, ResponseMapping
from slopewise.errors import UsageError
from slopewise.estimators.growth import SCRAPES_PER_WINDOW
from slopewise.model import Checkpoint, Evaluation, JobState, RawPoint, Responses

MAX_POINTS_PER_QUERY = 11_000
"""Prometheus refuses a range query with more steps than this."""


class JobSeries(msgspec.Struct, frozen=True, gc=False):
    """The series of one job in Prometheus. None: there is none."""

    evaluation: Evaluation | None = None
    steps_total: float | None = None
    steps_planned: float | None = None
    wait_ratio: float | None = None
    """The part of its steps' time, over five minutes, in which they waited for their batches; None: none reported."""
    waited_seconds_total: float | None = None
    threads: float | None = None
    """The most threads that a library of its latest process has; None: not reported."""
    useful_threads: float | None = None
    """The most with which its steps are faster, where they alone use its CPU; None: not reported."""
    state: JobState | None = None
    study: str = ""  # that it names itself
    responses: Responses | None = None
    """What its latest process has answered since its start; None: it is not a served model."""
    checkpoint: Checkpoint | None = None
    process_started_at_seconds: float | None = None
    first_step_at_seconds: float | None = None
    """When that process ended its first step; None: not reported, or long ago."""
    restarted: bool = False
    """Another process than at the start of the window, or a steps counter that went back."""
    up: bool | None = None
    """The last scrape worked; None when it has no target any more."""
    instances: frozenset[str] = frozenset()
    """The addresses of its targets."""
    warnings: tuple[str, ...] = ()
    points: tuple[RawPoint, ...] = ()
    """The samples of its evaluation since the last reading; only of a reader with `points`."""

    @property
    def reported_state(self) -> JobState:
        """The state that the job reports; a served model reports none: it is `starting` until it exports responses."""
        return self.state or (JobState.STARTING if self.responses is None else JobState.TRAINING)


@dataclass(frozen=True, slots=True)
class PrometheusReading:
    """All jobs at one moment. Empty `jobs` is a valid reading: no job has series."""

    jobs: Mapping[JobKey, JobSeries]
    queries: int
    resources: Mapping[ContainerKey, ContainerUse] = field(default_factory=dict)
    """Empty where kubelets are not queried."""
    left_out: Mapping[JobKey, int] = field(default_factory=dict)
    """The series of each pod that has too many; its job has no series here, and the reason as a warning."""


@dataclass(frozen=True, slots=True)
class Scope:
    """Which pods a reading is about, as far as that spares rows; empty: all that the forced matchers let through."""

    namespaces: tuple[str, ...] = ()
    containers: tuple[str, ...] = ()


EVERYTHING = Scope()
NO_OWN: Mapping[str, OwnMappings] = {}
_NO_FACTS = Facts()

OnLeftOut = Callable[[Mapping[JobKey, int]], None]
"""The pods with too many series, and how many."""


class PrometheusReader:
    """Reads one Prometheus. `matchers` are part of every query."""

    def __init__(
        self,
        endpoint: Endpoint | str,
        matchers: Mapping[str, str | AnyOf],
        scrape_interval_seconds: float,
        evaluations: Sequence[EvaluationMapping],
        window_seconds: float,
        timeout_seconds: float = 5.0,
        resource_matchers: Mapping[str, str] | None = None,
        *,
        responses: Sequence[ResponseMapping] = (ResponseMapping(),),
        own: Mapping[str, OwnMappings] = NO_OWN,
        points_seconds: float | None = None,
        max_series: int = series_bound.MAX_SERIES,
        on_query: OnQuery = lambda *_: None,
        on_left_out: OnLeftOut = lambda _: None,
    ) -> None:
        """A window below four scrapes is widened to four; `timeout_seconds` bounds a whole reading.

        `evaluations` are tried in order: the first with a series for a job speaks for it. `resource_matchers` are
        forced on what is asked of kubelets' series (empty: any kubelet's); None: those are not asked for. UsageError
        for an endpoint, name or value that cannot be used, before anything is sent. `responses` are those of served
        models; `own`: by pod, what takes the place of both. `points_seconds`: how far back raw points are read at most,
        which is one query more for each way of naming pods; None: not at all. `max_series`: of one pod. `on_query`:
        called after each query; `on_left_out`: after each count of series, with the pods that have too many.
        """
        if not matchers:
            raise UsageError("No matchers for Prometheus: name at least one label, such as the namespace.")
        self.scrape_interval_seconds = scrape_interval_seconds
        self.window_seconds = max(window_seconds, SCRAPES_PER_WINDOW * scrape_interval_seconds)
        self._forced = tuple(matchers.items())
        self._evaluations = sources_of(evaluations, {pod: each.evaluation for pod, each in own.items()})
        self._responses = sources_of(responses, {pod: each.responses for pod, each in own.items()})
        self._mapped = MappedRows(self._evaluations, self._responses)
        self._moving = [MovingLabels[JobKey]() for _ in self._evaluations]
        self._of_kubelets = None if resource_matchers is None else tuple(resource_matchers.items())
        self._points_seconds = None if points_seconds is None else max(points_seconds, self.window_seconds)
        self._max_series = max_series
        self._on_left_out = on_left_out
        self._points_read_at_seconds: float | None = None
        self._render(self._forced)
        self._http = PrometheusHttp(endpoint, timeout_seconds, on_query)

    @property
    def shown_url(self) -> str:
        """Where it is, as it may be shown: without a password."""
        return self._http.shown_url

    def read(self, at_seconds: float, scope: Scope = EVERYTHING) -> PrometheusReading:
        """All jobs at one moment; ObservationError when Prometheus cannot be reached or gives half an answer."""
        since_seconds = self._points_since(at_seconds)
        self._http.begin()
        left_out = self._count(scope, at_seconds, max(self.window_seconds, at_seconds - since_seconds))
        # No rows are kept for longer than they are read: those about 5,000 jobs are 30 MB an answer.
        resources = self._resources(scope, at_seconds)
        asked = [self._render((*self._forced, *part)) for part in series_bound.parts(scope.namespaces, left_out)]
        # Levels before facts: samples that are stored between the two then show as a restart too much, never too few.
        levels = [
            self._ask_all(queries_of_one, at_seconds)
            for queries_of_one in zip(*(of.levels for of in asked), strict=True)
        ]
        rows = self._ask_all([query for of in asked for query in of.facts], at_seconds)
        facts_rows, labelled = without_step_labels(rows, len(levels))
        facts = facts_by_job(facts_rows, self._mapped)
        oldest_seconds = at_seconds - self.window_seconds
        by_mapping = [
            self._candidates(source, (*of_losses, *of_labels), oldest_seconds, facts, moving)
            for source, of_losses, of_labels, moving in zip(
                self._evaluations, levels, labelled, self._moving, strict=True
            )
        ]
        jobs = {
            key: self._job(
                facts.get(key, _NO_FACTS), [found[key] for found in by_mapping if key in found], oldest_seconds
            )
            for key in dict.fromkeys(chain(facts, *by_mapping))
        }
        del levels, rows, facts_rows  # about 10,000 jobs these are 60 MB, and the samples are as much again
        points = self._points([each for of in asked for each in of.points], at_seconds, since_seconds, facts, jobs)
        jobs |= {key: structs.replace(jobs[key], points=found) for key, found in points.items() if found}
        jobs |= {key: JobSeries(warnings=(reason,)) for key, reason in self._reasons(left_out, at_seconds).items()}
        self._points_read_at_seconds = at_seconds  # not before: the points of a reading that fails are read again
        return PrometheusReading(jobs, self._http.queries, resources, left_out)

    def machines(self, at_seconds: float) -> dict[str, Machine]:
        """The size of every node whose kubelet is scraped, by the node's name; one query, a reading of its own."""
        self._http.begin()
        return machines_by_node(self._http.ask(node_queries.machines(self._of_kubelets or ()), at_seconds))

    def use_of_others(
        self, at_seconds: float, namespaces: Collection[str], ours: Container[JobKey]
    ) -> dict[str, float]:
        """Cores that all pods but `ours` use, by node name; `namespaces`: of ours. One query, a reading of its own."""
        if self._of_kubelets is None:
            return {}
        self._http.begin()
        query = node_queries.use_by_node(self._of_kubelets, sorted(namespaces))
        return use_of_others(self._http.ask(query, at_seconds), ours)

    def range_curve(
        self, start_seconds: float, end_seconds: float, step_seconds: float
    ) -> dict[str, list[tuple[float, float]]]:
        """Each pod's evaluation over time, as raw gauge values: (Unix seconds, value), finite ones only.

        A pod's curve is one series, its best stage; the processes of a restarted job are joined.
        """
        self._http.begin()
        curves: dict[str, list[tuple[float, float]]] = {}
        for source in self._evaluations:
            one = source.mapping
            query = queries.loss_series(one.metric, self._matchers(source, self._forced))
            rows = [
                row
                for start, end in spans(start_seconds, end_seconds, step_seconds)
                for row in self._http.ask_range(query, start, end, step_seconds)
            ]
            found = {pod: curve for pod, curve in _best_curves(one, rows).items() if source.covers(pod)}
            curves = found | curves
        return curves

    def last_values(self, metric: str, at_seconds: float, window_seconds: float) -> dict[str, float]:
        """Each pod's last value of a metric within the window, e.g. the steps of a run's jobs at its end."""
        self._http.begin()
        rows = self._http.ask(queries.last_values(metric, self._forced, window_seconds), at_seconds)
        return {row.labels.get("pod", ""): row.value for row in rows}

    def metric_names(self, instances: Mapping[JobKey, Collection[str]], at_seconds: float) -> dict[JobKey, set[str]]:
        """What each of a few jobs exports at these addresses; one query, a reading of its own."""
        self._http.begin()
        addresses = sorted({address for of_job in instances.values() for address in of_job})
        query = queries.metric_names(self._forced, addresses, sorted({key.pod for key in instances}))
        found: dict[JobKey, set[str]] = defaultdict(set)
        for row in self._http.ask(query, at_seconds):
            if (key := job_key(row.labels)) is not None:
                found[key].add(row.labels.get("__name__", ""))
        return found

    def targets(self) -> list[Target]:
        """What Prometheus scrapes now; a reading of its own. ObservationError when it cannot be asked for that."""
        self._http.begin()
        return self._http.targets()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _count(self, scope: Scope, at_seconds: float, window_seconds: float) -> dict[JobKey, int]:
        """The pods with too many series in what this reading is about to read, and how many."""
        forced = (*self._forced, *(matcher for part in series_bound.parts(scope.namespaces, ()) for matcher in part))
        query = series_bound.counted(self._evaluations, self._responses, forced, window_seconds, self._max_series)
        pod_labels = {source.mapping.pod_labels for source in self._evaluations}
        pod_labels |= {source.mapping.pod_labels for source in self._responses}
        rows = self._http.ask(query, at_seconds)
        left_out = series_bound.above_bound(rows, (*pod_labels, SCRAPE_LABELS), self._max_series)
        self._on_left_out(left_out)
        return left_out

    def _reasons(self, left_out: Mapping[JobKey, int], at_seconds: float) -> dict[JobKey, str]:
        """Why each pod is left out, also beside others."""
        reasons: dict[JobKey, str] = {}
        if namespaces := series_bound.whole_namespaces(left_out):
            for row in self._http.ask(series_bound.pods_of(namespaces, self._forced), at_seconds):
                if (key := job_key(row.labels)) is not None:
                    pods = sum(each.namespace == key.namespace for each in left_out)
                    reasons[key] = series_bound.message_of_namespace(pods, self._max_series)
        return reasons | {key: series_bound.message(series, self._max_series) for key, series in left_out.items()}

    def _ask_all(self, asked: Sequence[str], at_seconds: float) -> list[Row]:
        return [row for query in asked for row in self._http.ask(query, at_seconds)]

    def _points_since(self, at_seconds: float) -> float:
        """From the last reading on, and one scrape before it, which may have come late."""
        if self._points_seconds is None or self._points_read_at_seconds is None:
            return at_seconds - self.window_seconds
        since_seconds = min(
            at_seconds - self.window_seconds, self._points_read_at_seconds - self.scrape_interval_seconds
        )
        return max(at_seconds - self._points_seconds, since_seconds)

    def _points(
        self,
        asked: Sequence[PointsQuery],
        at_seconds: float,
        since_seconds: float,
        facts: Mapping[JobKey, Facts],
        jobs: Mapping[JobKey, JobSeries],
    ) -> dict[JobKey, tuple[RawPoint, ...]]:
        """The samples since then of the series that was chosen for each job."""
        chosen = {key: job.evaluation.series for key, job in jobs.items() if job.evaluation is not None}
        found: dict[JobKey, tuple[RawPoint, ...]] = {}
        for each in asked:
            rows = self._http.ask_samples(each.query(at_seconds - since_seconds), at_seconds)
            found |= points_by_job(rows, lambda key: facts.get(key, _NO_FACTS).target_labels, chosen, each.sources)
        return found

    def _candidates(
        self,
        source: Source[EvaluationMapping],
        rows: Sequence[Row],
        oldest_seconds: float,
        facts: Mapping[JobKey, Facts],
        moving: MovingLabels[JobKey],
    ) -> dict[JobKey, Candidates]:
        found = candidates_by_job(
            source.mapping, rows, oldest_seconds, lambda key: facts.get(key, _NO_FACTS).target_labels, moving
        )
        return {key: each for key, each in found.items() if source.covers(key.pod)}

    def _matchers(self, source: Source[EvaluationMapping], forced: queries.Matchers) -> queries.Matchers:
        return (*source.matchers(forced), *source.mapping.labels.items())

    def _resources(self, scope: Scope, at_seconds: float) -> dict[ContainerKey, ContainerUse]:
        if self._of_kubelets is None:
            return {}
        query = queries.resources(self._of_kubelets, AnyOf(scope.containers)) + node_queries.GPU_USE
        return use_by_container(self._http.ask_for(ContainerRow, query, at_seconds), scope.namespaces)

    def _render(self, forced: queries.Matchers) -> _Queries:
        window, objectives = self.window_seconds, {source.mapping.objective for source in self._evaluations}
        expected = objectives.pop() if len(objectives) == 1 else None
        events = (*reset_parts(self._evaluations, forced, window), *step_label_parts(self._evaluations, forced))
        facts = (*response_parts(self._responses, forced, window), *step_parts(self._evaluations, forced, window))
        return _Queries(
            levels=[
                queries.levels(
                    source.mapping.metric,
                    self._matchers(source, forced),
                    window,
                    self.scrape_interval_seconds,
                    (source.mapping.pod_labels.namespace, source.mapping.pod_labels.pod),
                )
                for source in self._evaluations
            ],
            facts=joined(
                queries.events(forced, window, events),
                queries.facts(forced, window, expected, facts),
            ),
            points=() if self._points_seconds is None else points_queries(self._evaluations, forced),
        )

    def _job(self, facts: Facts, mappings: Sequence[Candidates], oldest_seconds: float) -> JobSeries:
        processes = facts.working_processes({window.instance for one in mappings for window in one.windows})
        latest_instance, process = latest_process(processes)
        chosen = choose(mappings, latest_instance, self.scrape_interval_seconds)
        return JobSeries(
            evaluation=evaluation(chosen, process.objective, diverged=facts.diverged),
            steps_total=process.numbers.get(queries.STEPS_TOTAL),
            steps_planned=process.numbers.get(queries.STEPS_PLANNED),
            wait_ratio=process.wait_ratio,
            waited_seconds_total=process.numbers.get(queries.WAIT_AND_STEPS[0]) or None,  # 0: no waits are timed
            threads=process.numbers.get(queries.THREADS),
            useful_threads=process.numbers.get(queries.USEFUL_THREADS),
            state=process.state,
            study=process.study,
            responses=process.responses,
            checkpoint=process.checkpoint,
            process_started_at_seconds=None if latest_instance is None else process.started_at_seconds,
            first_step_at_seconds=process.first_step_at_seconds,
            restarted=facts.restarted(processes, oldest_seconds - self.scrape_interval_seconds),
            up=facts.up,
            instances=frozenset(facts.target_labels),
            warnings=chosen.warnings,
        )


@dataclass(frozen=True, slots=True)
class _Queries:
    """What one reading asks of one part of the pods."""

    levels: Sequence[str]
    facts: Sequence[str]
    """With the events."""
    points: Sequence[PointsQuery]


def spans(start_seconds: float, end_seconds: float, step_seconds: float) -> list[tuple[float, float]]:
    """Parts of a range that each stay under the bound, e.g. 0..25,000 at 1 s: three, on one grid of steps."""
    steps = math.floor((end_seconds - start_seconds) / step_seconds + 1e-9) + 1
    firsts = range(0, steps, MAX_POINTS_PER_QUERY)
    return [
        (
            start_seconds + first * step_seconds,
            start_seconds + (min(first + MAX_POINTS_PER_QUERY, steps) - 1) * step_seconds,
        )
        for first in firsts
    ]


def _best_curves(mapping: EvaluationMapping, rows: Sequence[RangeRow]) -> dict[str, list[tuple[float, float]]]:
    by_pod: dict[str, dict[tuple[int, str], dict[float, float]]] = defaultdict(lambda: defaultdict(dict))
    for row in rows:
        labels = with_scrape_labels(row.labels, mapping.pod_labels)
        if (key := job_key(labels)) is not None:
            points = by_pod[key.pod][stage_rank(labels), series_text(mapping.metric, labels)]
            points.update((at, value) for at, value in row.points if math.isfinite(value))
    return {pod: sorted(series[min(series)].items()) for pod, series in by_pod.items()}

"""Raw points of jobs: the samples of losses and steps as they were scraped, in one query for all jobs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from string import Template

from slopewise.adapters.prometheus.client import RangeRow
from slopewise.adapters.prometheus.evaluations import (
    TARGET_LABELS,
    JobKey,
    job_key,
    scrape_labels_if_equal,
    series_text,
    with_scrape_labels,
)
from slopewise.adapters.prometheus.mapped_queries import Source, with_pod_labels
from slopewise.adapters.prometheus.queries import (
    NO_STEP_LABELS,
    STEPS_TOTAL,
    Matchers,
    checked_metric_name,
    duration,
    render_matchers,
)
from slopewise.config.metric_mappings import EvaluationMapping, PodLabels, SeriesName
from slopewise.model import RawPoint
from slopewise.model.reported import is_figure, is_level

MAX_POINTS = 120
"""Of a job in one reading: the newest."""

# The samples of one scrape have the same time, so a loss finds the steps beside it. A job may report several losses:
# all of them come, because the window of levels decides which one counts.
RAW_POINTS = Template("""\
{
    __name__=~"$names",
    $matchers
    $no_step_labels,
    slopewise_value=""
  }[$window]
""")

TargetLabels = Callable[[JobKey], Mapping[str, frozenset[str]]]

Sources = Sequence[Source[EvaluationMapping]]
"""Mappings that name pods by the same labels."""

_OF_ALL = Source(EvaluationMapping())


def raw_points(sources: Sources, forced: Matchers, window_seconds: float) -> str:
    """The query for the samples of these losses and of all steps; UsageError for a name that is none."""
    metrics = (*(one.mapping.metric for one in sources), *(steps.metric for steps, _ in _steps_of(sources)))
    names = "|".join(checked_metric_name(each) for each in dict.fromkeys(metrics))
    matchers = with_pod_labels(forced, sources[0].mapping.pod_labels)
    return RAW_POINTS.substitute(
        names=names,
        matchers=render_matchers(matchers),
        no_step_labels=NO_STEP_LABELS,
        window=duration(window_seconds),
    )


@dataclass(frozen=True, slots=True)
class PointsQuery:
    """The query for raw points, by the seconds to look back, and whose losses it is about."""

    query: Callable[[float], str]
    sources: Sources


def points_queries(sources: Sequence[Source[EvaluationMapping]], forced: Matchers) -> list[PointsQuery]:
    """One query for all mappings that name pods by the same labels."""
    groups: dict[PodLabels, list[Source[EvaluationMapping]]] = defaultdict(list)
    for source in sources:
        groups[source.mapping.pod_labels].append(source)
    return [PointsQuery(partial(raw_points, group, forced), group) for group in groups.values()]


def _steps_of(sources: Sources) -> list[tuple[SeriesName, Source[EvaluationMapping]]]:
    """The steps beside these losses, and whose they are; a later one replaces those before it."""
    named = ((one.mapping.steps_total, one) for one in sources)
    return [(SeriesName(metric=STEPS_TOTAL), _OF_ALL), *((steps, one) for steps, one in named if steps is not None)]


def points_by_job(
    rows: Iterable[RangeRow],
    target_labels: TargetLabels,
    chosen: Mapping[JobKey, str],
    sources: Sources = (_OF_ALL,),
) -> dict[JobKey, tuple[RawPoint, ...]]:
    """The finite losses of each job's chosen series, oldest first, with the steps of the same scrape.

    Those of two processes are joined. `chosen`: the canonical name of the series; half of all rows are of others.
    """
    names = scrape_labels_if_equal(sources[0].mapping.pod_labels)
    by_metric: dict[str, list[tuple[int, SeriesName, Source[EvaluationMapping]]]] = defaultdict(list)
    for rank, (each, source) in enumerate(_steps_of(sources)):
        by_metric[each.metric].append((rank, each, source))
    ranked: dict[tuple[JobKey, str], int] = {}
    steps: dict[tuple[JobKey, str], dict[float, float]] = {}
    losses: dict[JobKey, list[tuple[str, RangeRow]]] = defaultdict(list)
    for row in rows:
        labels = with_scrape_labels(row.labels, names)
        if (key := job_key(labels)) is None or (wanted := chosen.get(key)) is None:
            continue
        instance, metric = labels.get("instance", ""), labels.get("__name__", "")
        if metric in by_metric:
            ranks = [rank for rank, of, whose in by_metric[metric] if whose.covers(key.pod) and _has(labels, of.labels)]
            rank = max(ranks, default=-1)
            if rank >= ranked.get((key, instance), 0):
                # None where a gauge says nothing that can be a count, as NaN before the first step.
                steps[key, instance] = {at: count for at, count in row.points if is_figure(count)}
                ranked[key, instance] = rank
        elif series_text(metric, labels, target_labels(key).get(instance, TARGET_LABELS)) == wanted:
            losses[key].append((instance, row))
    nothing: dict[float, float] = {}
    found = {}
    for key, series in losses.items():
        points: list[RawPoint] = []
        for instance, row in series:
            steps_at = steps.get((key, instance), nothing).get
            newest = row.points[-MAX_POINTS:]
            points += [RawPoint(at, level, steps_at(at)) for at, level in newest if is_level(level)]
        if len(series) > 1:  # one alone is in order
            points = sorted(points, key=attrgetter("at_seconds", "level"))[-MAX_POINTS:]  # steps may be None
        found[key] = tuple(points)
    return found


def _has(labels: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    return not wanted or all(labels.get(name, "") == value for name, value in wanted.items())

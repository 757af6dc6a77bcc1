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
from slopewise.adapters.prometheus.mapped_queries import with_pod_labels
from slopewise.adapters.prometheus.queries import (
    NO_STEP_LABELS,
    STEPS_TOTAL,
    Matchers,
    checked_metric_name,
    duration,
    render_matchers,
)
from slopewise.config.metric_mappings import EvaluationMapping, SeriesName
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


def raw_points(mappings: Sequence[EvaluationMapping], forced: Matchers, window_seconds: float) -> str:
    """The query for the samples of these losses and of all steps; UsageError for a name that is none.

    `mappings` name a job's pod by the same labels.
    """
    metrics = (*(one.metric for one in mappings), *(steps.metric for steps in _steps_of(mappings)))
    names = "|".join(checked_metric_name(each) for each in dict.fromkeys(metrics))
    matchers = with_pod_labels(forced, mappings[0].pod_labels)
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
    mappings: Sequence[EvaluationMapping]


def points_queries(mappings: Sequence[EvaluationMapping], forced: Matchers) -> list[PointsQuery]:
    """One query for all mappings that name pods by the same labels."""
    groups: list[list[EvaluationMapping]] = []
    for mapping in mappings:
        alike = next((group for group in groups if group[0].pod_labels == mapping.pod_labels), None)
        if alike is None:
            groups.append([mapping])
        else:
            alike.append(mapping)
    return [PointsQuery(partial(raw_points, group, forced), group) for group in groups]


def _steps_of(mappings: Sequence[EvaluationMapping]) -> list[SeriesName]:
    """The steps beside these losses; a later one replaces those before it."""
    return [SeriesName(metric=STEPS_TOTAL), *(one.steps_total for one in mappings if one.steps_total is not None)]


def points_by_job(
    rows: Iterable[RangeRow],
    target_labels: TargetLabels,
    chosen: Mapping[JobKey, str],
    mappings: Sequence[EvaluationMapping] = (EvaluationMapping(),),
) -> dict[JobKey, tuple[RawPoint, ...]]:
    """The finite losses of each job's chosen series, oldest first, with the steps of the same scrape.

    Those of two processes are joined. `chosen`: the canonical name of the series; half of all rows are of others.
    """
    names, named = scrape_labels_if_equal(mappings[0].pod_labels), _steps_of(mappings)
    by_metric: dict[str, list[tuple[int, Mapping[str, str]]]] = defaultdict(list)
    for rank, each in enumerate(named):
        by_metric[each.metric].append((rank, each.labels))
    ranked: dict[tuple[JobKey, str], int] = {}
    steps: dict[tuple[JobKey, str], dict[float, float]] = {}
    losses: dict[JobKey, list[tuple[str, RangeRow]]] = defaultdict(list)
    for row in rows:
        labels = with_scrape_labels(row.labels, names)
        if (key := job_key(labels)) is None or (wanted := chosen.get(key)) is None:
            continue
        instance, metric = labels.get("instance", ""), labels.get("__name__", "")
        if metric in by_metric:
            rank = max([rank for rank, of_steps in by_metric[metric] if _has(labels, of_steps)], default=-1)
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

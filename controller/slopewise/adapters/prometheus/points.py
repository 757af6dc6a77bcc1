"""Raw points of jobs: the samples of losses and steps as they were scraped, in one query for all jobs."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from string import Template

from slopewise.adapters.prometheus.client import RangeRow
from slopewise.adapters.prometheus.evaluations import TARGET_LABELS, JobKey, job_key, series_text
from slopewise.adapters.prometheus.queries import Matchers, checked_metric_name, duration, render_matchers
from slopewise.model import RawPoint

STEPS_TOTAL = "training_steps_total"

MAX_SECONDS = 600.0
"""How far back a reading goes at most, after passes without an answer."""

MAX_POINTS = 120
"""Of a job in one reading: the newest."""

# The samples of one scrape have the same time, so a loss finds the steps beside it. A job may report several losses:
# all of them come, because the window of levels decides which one counts.
RAW_POINTS = Template("""\
{
    __name__=~"$names",
    $matchers
    epoch="",
    step="",
    slopewise_value=""
  }[$window]
""")

TargetLabels = Callable[[JobKey], Mapping[str, frozenset[str]]]

PointsBySeries = Mapping[tuple[JobKey, str], tuple[RawPoint, ...]]
"""By job and canonical name of the series, oldest first."""


def raw_points(metrics: Sequence[str], matchers: Matchers, window_seconds: float) -> str:
    """The query for the samples of these losses and of all steps; UsageError for a name that is none."""
    names = "|".join(checked_metric_name(each) for each in dict.fromkeys((*metrics, STEPS_TOTAL)))
    return RAW_POINTS.substitute(names=names, matchers=render_matchers(matchers), window=duration(window_seconds))


def points_by_series(rows: Iterable[RangeRow], target_labels: TargetLabels) -> PointsBySeries:
    """The finite losses of each series, with the steps of the same scrape; those of two processes are joined."""
    steps: dict[tuple[JobKey, str], dict[float, float]] = {}
    losses: dict[tuple[JobKey, str], list[tuple[str, RangeRow]]] = defaultdict(list)
    for row in rows:
        if (key := job_key(row.labels)) is None:
            continue
        instance, metric = row.labels.get("instance", ""), row.labels.get("__name__", "")
        if metric == STEPS_TOTAL:
            steps[key, instance] = dict(row.points)
        else:
            text = series_text(metric, row.labels, target_labels(key).get(instance, TARGET_LABELS))
            losses[key, text].append((instance, row))
    nothing: dict[float, float] = {}
    found = {}
    for (key, text), series in losses.items():
        points = [
            RawPoint(at, level, steps.get((key, instance), nothing).get(at))
            for instance, row in series
            for at, level in islice(row.points, max(0, len(row.points) - MAX_POINTS), None)
            if math.isfinite(level)
        ]
        found[key, text] = tuple(sorted(points)[-MAX_POINTS:])
    return found

"""Metrics of studies: the best level of their trials, the CPU of the best trial and of the others, how many run.

One series a study: a dashboard that joined those of 5,000 jobs would be slow. A trial counts as long as a pass sees it,
so the best so far is that over time, in the direction of the label `objective`.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence

from prometheus_client.core import GaugeMetricFamily, Metric

from slopewise.model import Job, JobMemory, Objective
from slopewise.reports.trials import differing, direction, metric_of, training_of

_LABELS = ("policy", "job_namespace", "study")


class StudyFamilies:
    """The trials of all studies; `add` takes one job, and a job of no study adds nothing."""

    def __init__(self) -> None:
        self._trials: dict[tuple[str, str, str], list[tuple[Job, JobMemory]]] = {}

    def add(self, policy: str, job: Job, known: JobMemory) -> None:
        """`policy`: the TrainingPolicy that the job is under."""
        if job.objectives.study:
            self._trials.setdefault((policy, job.namespace, job.objectives.study), []).append((job, known))

    def __iter__(self) -> Iterator[Metric]:
        running = GaugeMetricFamily("slopewise_study_trials", "Its trials that run.", labels=_LABELS)
        evaluation = GaugeMetricFamily(
            "slopewise_study_best_evaluation", "Best level of its trials.", labels=[*_LABELS, "objective"]
        )
        cores = GaugeMetricFamily(
            "slopewise_study_cpu_cores", "CPU that its best trial uses, and the others.", labels=[*_LABELS, "kind"]
        )
        for labels, trials in self._trials.items():
            going_on = [(training_of(job), known.growth) for job, known in trials if not job.state.ended]
            running.add_metric(labels, len({each for each, _ in going_on}))
            best, level, objective = _best(trials)
            if level is not None:
                evaluation.add_metric([*labels, objective], level)
            used = [(each == best, growth.cpu_cores or 0.0) for each, growth in going_on if growth is not None]
            cores.add_metric([*labels, "best"], math.fsum(cpu for is_best, cpu in used if is_best))
            cores.add_metric([*labels, "others"], math.fsum(cpu for is_best, cpu in used if not is_best))
        yield from (running, evaluation, cores)


def _best(trials: Sequence[tuple[Job, JobMemory]]) -> tuple[Hashable, float | None, Objective]:
    """The trial with the best level so far, and that; twice None: none has one, or their metrics differ."""
    now = [(job.uid, job.evaluation) for job, _ in trials if job.evaluation is not None]
    objective = direction({each.objective for _, each in now}, (had.levels for _, had in trials))
    finite = ((training_of(job), had.levels.best) for job, had in trials if had.levels.finite)
    found = {training: level for training, level in finite if level is not None}
    if not found or differing((uid, metric_of(each.series, each.objective)) for uid, each in now):
        return None, None, objective
    best = sorted(found, key=found.__getitem__, reverse=objective == "max")[0]
    return best, found[best], objective

"""From the rows of FACTS and EVENTS to what each job says of itself, and whether it restarted in the window.

`prometheus.py` asks the queries and joins the result with the evaluations; nothing here talks to anyone.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field

from controller.adapters.prometheus_http import Row
from controller.adapters.prometheus_series import JobKey, job_key
from controller.adapters.queries import (
    CHECKPOINT_DURATION,
    CHECKPOINT_ON_SIGTERM,
    CHECKPOINT_SAVED_AT,
    FIRST_STEP_AT,
    RESPONSES_COUNT,
    RESPONSES_SUM,
    VALUE_LABEL,
)
from controller.model import Checkpoint, JobState, Objective, Responses

_STATES = frozenset(JobState)

_OBJECTIVES: Mapping[str, Objective] = {"min": "min", "max": "max"}


@dataclass(slots=True)
class Life:
    """What one process of a job says of itself. A restart on another port shows two in one window."""

    started_at_seconds: float = -math.inf
    works: bool = False
    """It trains or answers requests; without either it is a sidecar."""
    numbers: dict[str, float] = field(default_factory=dict)
    state: JobState | None = None
    objective: Objective | None = None

    @property
    def responses(self) -> Responses | None:
        """None: it serves nothing, or a sum is NaN."""
        count, seconds = self.numbers.get(RESPONSES_COUNT), self.numbers.get(RESPONSES_SUM)
        if count is None or seconds is None or not math.isfinite(count + seconds):
            return None
        return Responses(count, seconds)

    @property
    def first_step_at_seconds(self) -> float | None:
        """None: it does not say, or that was long ago. One before its own start is another process's, or none."""
        at = self.numbers.get(FIRST_STEP_AT)
        return at if at is not None and at >= self.started_at_seconds else None

    @property
    def checkpoint(self) -> Checkpoint | None:
        """None: it has said nothing of checkpoints, neither that it saved one nor that it would on SIGTERM."""
        saved_at, duration = self.numbers.get(CHECKPOINT_SAVED_AT), self.numbers.get(CHECKPOINT_DURATION)
        on_sigterm = self.numbers.get(CHECKPOINT_ON_SIGTERM)
        if saved_at is None and on_sigterm is None:
            return None
        if duration is not None and duration < 0:
            duration = None
        return Checkpoint(saved_at, duration, on_sigterm=on_sigterm == 1)


Lives = Mapping[str, Life]
"""By the address of each (`instance`)."""


@dataclass(slots=True)
class Facts:
    """All lives of one job by instance, what happened in the window, and whether it is scraped."""

    lives: dict[str, Life] = field(default_factory=lambda: defaultdict(Life))
    restarted_instances: set[str] = field(default_factory=set)
    diverged: bool = False
    up: bool | None = None
    target_labels: dict[str, frozenset[str]] = field(default_factory=dict)
    """The names of the labels that the scrape put on each target, by instance."""

    def working_lives(self, evaluation_instances: Set[str]) -> Lives:
        """Without the job's sidecars, whose restarts do not concern its loss or its pace."""
        return {name: life for name, life in self.lives.items() if life.works or name in evaluation_instances}

    def restarted(self, lives: Lives, since_seconds: float) -> bool:
        """A new start on the same port, or a second life on another one. `lives`: those that work.

        Two lives alone do not tell: the ranks of a job that all report started apart, but long before the window.
        """
        if self.restarted_instances and self.restarted_instances & lives.keys():
            return True
        if len(lives) < 2:
            return False
        starts = {life.started_at_seconds for life in lives.values()} - {-math.inf}
        return len(starts) > 1 and max(starts) >= since_seconds


def latest_life(lives: Lives) -> tuple[str | None, Life]:
    """Where the job's latest process is, and what it says; None and nothing when no start is known."""
    if not lives:
        return None, Life()
    latest = max(lives, key=lambda name: (lives[name].started_at_seconds, name))
    life = lives[latest]
    return (latest if life.started_at_seconds > -math.inf else None), life


def facts_by_job(facts_rows: Iterable[Row], events_rows: Iterable[Row]) -> dict[JobKey, Facts]:
    """Everything but the evaluations, for each job that is named in either answer."""
    jobs: dict[JobKey, Facts] = defaultdict(Facts)
    for row in facts_rows:
        labels = row.labels
        if (key := job_key(labels)) is None:
            continue
        if labels.get(VALUE_LABEL) == "up":
            _tell_target(jobs[key], row)
        else:
            _tell(jobs[key].lives[labels.get("instance", "")], labels, row.sample[1])
    for row in events_rows:
        if (key := job_key(row.labels)) is None:
            continue
        if row.labels.get(VALUE_LABEL) == "nonfinite":
            jobs[key].diverged = True
        else:
            jobs[key].restarted_instances.add(row.labels.get("instance", ""))
    return jobs


def _tell_target(facts: Facts, row: Row) -> None:
    """A target of the job: one that works is enough for the job to be heard of."""
    facts.up = facts.up or row.value > 0
    instance = row.labels.get("instance", "")
    facts.target_labels[instance] = facts.target_labels.get(instance, frozenset()).union(row.labels)


def _tell(life: Life, labels: Mapping[str, str], value: float) -> None:
    """Note one fact. A state or an objective that the contract does not know is left out: reporters are tenants."""
    name = labels.get("__name__", "")
    life.works = life.works or name.startswith(("training_", "inference_"))
    if not math.isfinite(value):
        return
    if name == "process_start_time_seconds":
        life.started_at_seconds = value
    elif name == "training_info":
        life.objective = _OBJECTIVES.get(labels.get("objective", ""), life.objective)
    elif name != "training_state":
        life.numbers[name] = value
    elif value > 0 and labels.get("state") in _STATES:
        life.state = JobState(labels["state"])

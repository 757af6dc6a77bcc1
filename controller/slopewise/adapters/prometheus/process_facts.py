"""Reads each job's state, progress, checkpoints and restarts from the rows of FACTS and EVENTS.

Nothing here does I/O.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from slopewise.adapters.prometheus.client import Row
from slopewise.adapters.prometheus.evaluations import JobKey, job_key
from slopewise.adapters.prometheus.mapped_queries import OF_THE_CONTRACT, STEP_RESET, MappedFact, MappedRows
from slopewise.adapters.prometheus.queries import (
    CHECKPOINT_DURATION,
    CHECKPOINT_ON_SIGTERM,
    CHECKPOINT_SAVED_AT,
    FIRST_STEP_AT,
    REQUESTS_IN_FLIGHT,
    RESPONSES_COUNT,
    RESPONSES_SUM,
    VALUE_LABEL,
    WAIT_RATIO,
)
from slopewise.config.sweeps import as_name
from slopewise.model import Checkpoint, JobState, Objective, Responses
from slopewise.model.reported import is_figure

_STATES = frozenset(JobState)

_RESTARTS = frozenset({"starts", "resets"})
"""What the rows of EVENTS are called that say that a process began again."""

_OBJECTIVES: Mapping[str, Objective] = {"min": "min", "max": "max"}


@dataclass(slots=True)
class ProcessFacts:
    """What one process of a job reports. After a restart on another port a window holds two."""

    started_at_seconds: float = -math.inf
    works: bool = False
    """It trains or answers requests; without either it is a sidecar."""
    numbers: dict[str, float] = field(default_factory=dict)
    failed: dict[str, float] = field(default_factory=dict)
    """Count and seconds of the responses that failed, by the names that `numbers` has for the others."""
    state: JobState | None = None
    objective: Objective | None = None
    study: str = ""  # with the letters of a job's name
    wait_ratio: float | None = None
    """The part of its steps' time in which they waited for their batches; None: not reported, or none."""

    @property
    def responses(self) -> Responses | None:
        """None: it serves nothing, or a sum is NaN. A server of which every response failed has answered none."""
        of, failed = self.numbers, self.failed
        count, seconds = of.get(RESPONSES_COUNT), of.get(RESPONSES_SUM)
        if count is None and seconds is None and failed and failed.keys() >= {RESPONSES_COUNT, RESPONSES_SUM}:
            count, seconds = 0.0, 0.0
        if count is None or seconds is None or not (is_figure(count) and is_figure(seconds)):
            return None
        failures = failed.get(RESPONSES_COUNT, 0.0), failed.get(RESPONSES_SUM, 0.0)
        return Responses(count, seconds, *failures, of.get(REQUESTS_IN_FLIGHT))

    @property
    def first_step_at_seconds(self) -> float | None:
        """None: not reported, or long ago. A time before the process's own start belongs to another process."""
        at = self.numbers.get(FIRST_STEP_AT)
        return at if at is not None and at >= self.started_at_seconds else None

    @property
    def checkpoint(self) -> Checkpoint | None:
        """None: it reports no checkpoints, neither a saved one nor that it saves on SIGTERM."""
        saved_at, duration = self.numbers.get(CHECKPOINT_SAVED_AT), self.numbers.get(CHECKPOINT_DURATION)
        on_sigterm = self.numbers.get(CHECKPOINT_ON_SIGTERM)
        if saved_at is None and on_sigterm is None:
            return None
        if duration is not None and duration < 0:
            duration = None
        return Checkpoint(saved_at, duration, on_sigterm=on_sigterm == 1)


Processes = Mapping[str, ProcessFacts]
"""By the address of each (`instance`)."""


@dataclass(slots=True)
class Facts:
    """All processes of one job by instance, the events of the window, and whether it is scraped."""

    processes: dict[str, ProcessFacts] = field(default_factory=lambda: defaultdict(ProcessFacts))
    restarted_instances: set[str] = field(default_factory=set)
    diverged: bool = False
    up: bool | None = None
    target_labels: dict[str, frozenset[str]] = field(default_factory=dict)
    """The names of the labels that the scrape put on each target, by instance."""

    def working_processes(self, evaluation_instances: AbstractSet[str]) -> Processes:
        """Without the job's sidecars, whose restarts do not concern its loss or its pace."""
        return {
            name: process for name, process in self.processes.items() if process.works or name in evaluation_instances
        }

    def restarted(self, processes: Processes, since_seconds: float) -> bool:
        """True for a new start on the same port, or a second process on another one. `processes`: those that work.

        Two processes are not enough: the ranks of a job that all report also started at different times, before the
        window.
        """
        if self.restarted_instances and self.restarted_instances & processes.keys():
            return True
        if len(processes) < 2:
            return False
        starts = {process.started_at_seconds for process in processes.values()} - {-math.inf}
        return len(starts) > 1 and max(starts) >= since_seconds


def latest_process(processes: Processes) -> tuple[str | None, ProcessFacts]:
    """The address and the facts of the job's latest process; None and no facts when no start is known."""
    if not processes:
        return None, ProcessFacts()
    latest = next(iter(processes))
    if len(processes) > 1:
        latest = max(processes, key=lambda name: (processes[name].started_at_seconds, name))
    process = processes[latest]
    return (latest if process.started_at_seconds > -math.inf else None), process


def facts_by_job(rows: Iterable[Row], mapped: MappedRows = OF_THE_CONTRACT) -> dict[JobKey, Facts]:
    """Everything but the evaluations, for each job that is named in the rows."""
    jobs: dict[JobKey, Facts] = defaultdict(Facts)
    found: list[MappedFact] = []
    for row in rows:
        labels = row.labels
        kind = labels.get(VALUE_LABEL)
        if kind is not None and mapped.is_mapped(labels):
            found += mapped.read(row)
        elif (key := job_key(labels)) is None:
            continue
        elif kind is None:  # as nearly all
            _add(jobs[key].processes[labels.get("instance", "")], labels, row.sample[1])
        elif kind == "up":
            _report_target(jobs[key], row)
        elif kind == "nonfinite":
            jobs[key].diverged = True
        elif kind in _RESTARTS:
            jobs[key].restarted_instances.add(labels.get("instance", ""))
        else:
            _add(jobs[key].processes[labels.get("instance", "")], labels, row.sample[1])
    _add_mapped(jobs, found)
    return jobs


def _add_mapped(jobs: dict[JobKey, Facts], found: Iterable[MappedFact]) -> None:
    """Add what mappings name. Gauges of one name add up; a mapping of steps replaces what the job has of its own."""
    sums: dict[tuple[JobKey, str, str, bool], float] = defaultdict(float)
    for fact in found:
        if fact.name == STEP_RESET:
            jobs[fact.key].restarted_instances.add(fact.instance)
            continue
        sums[fact.key, fact.instance, fact.name, fact.failed] += fact.value
    for (key, instance, name, failed), value in sums.items():
        process = jobs[key].processes[instance]
        process.works = True
        if is_figure(value):
            (process.failed if failed else process.numbers)[name] = value


def _report_target(facts: Facts, row: Row) -> None:
    """Record a target of the job; one that is up is enough."""
    facts.up = facts.up or row.value > 0
    instance = row.labels.get("instance", "")
    facts.target_labels[instance] = facts.target_labels.get(instance, frozenset()).union(row.labels)


def _add(process: ProcessFacts, labels: Mapping[str, str], value: float) -> None:
    """Add one fact.

    What is outside the contract is ignored, and so is a figure that cannot be one, because reporters are
    untrusted tenants.
    """
    name = labels.get("__name__", "")
    process.works = process.works or name.startswith(("training_", "inference_"))
    if not is_figure(value):
        return
    if name == "process_start_time_seconds":
        process.started_at_seconds = value
    elif name == "training_info":
        process.objective = _OBJECTIVES.get(labels.get("objective", ""), process.objective)
    elif name == "training_study":
        process.study = as_name(labels.get("study", ""))
    elif labels.get(VALUE_LABEL) == WAIT_RATIO:
        process.wait_ratio = min(1.0, value)
    elif name != "training_state":
        process.numbers[name] = max(value, process.numbers.get(name, value))  # a row for each `study` label of its own
    elif value > 0 and labels.get("state") in _STATES:
        process.state = JobState(labels["state"])

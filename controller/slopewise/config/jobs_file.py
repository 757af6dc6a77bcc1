"""Reads jobs files: the commands that a run on this machine starts, one `JobSpec` a job.

`demo/trainings/catalogue.py` makes specs of its own; `adapters/local/supervisor.py` starts each as a process.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from slopewise.config.job_entry import JobEntry
from slopewise.config.metric_mappings import NO_OWN_MAPPINGS, OwnMappings
from slopewise.config.sweeps import as_name, trials_of, with_lists
from slopewise.config.validation import load_yaml, parse_yaml, validate
from slopewise.errors import UsageError
from slopewise.model import NO_OBJECTIVES, Objectives
from slopewise_exporter.environment import STUDY_VARIABLE

_EXAMPLE = "- {name: mine, command: python train.py, arriveSeconds: 0}"

STANDARD_INPUT = Path("-")
"""Instead of a file: the jobs are read from standard input."""


@dataclass(frozen=True, slots=True)
class Queueing:
    """When a job is started, and how often."""

    after: tuple[str, ...] = ()
    """Jobs or studies that must have finished before."""
    restarts: int = 0
    """Starts after failures, at most."""
    memory_bytes: int | None = None
    """What must be free; None: what jobs of its class have used."""
    study: str = ""
    max_running: int | None = None
    """Jobs of its study that run at once; None: any number."""
    submission: int = 0
    """Which job of this name: a service numbers what it was given."""
    attempt: int = 0
    """How often it was started again."""


@dataclass(frozen=True)
class JobSpec:
    """One job: `command` is started, without a shell, `arrive_seconds` after the run's start.

    `max_useful_cpu_millicores`: more CPU than this does not make it faster; None: not known. `port`: where the
    program serves its own metrics; None: `slopewise_exporter` takes a free port.

    `migratable`: on SIGTERM it saves a checkpoint, from which it resumes when started again; others are never moved.

    `objectives` has what does not depend on the arrival; `deadline_seconds` counts from it (`objectives_at`).

    `mappings`: which series are its loss, steps and response times, where the policy's are others.

    `environment` is added to ours, or is all there is (`whole_environment`); `working_directory`: where the command
    runs; None: where we run.
    `loss_pattern` finds the loss in its output; None: the common formats are looked for.

    `planned_steps`: of the whole training, where it reports no plan. `workload_class`: jobs that are alike.
    `arguments`: of a trial of a sweep, by name.
    """

    name: str
    command: list[str]
    arrive_seconds: float
    max_useful_cpu_millicores: int | None = None
    port: int | None = None
    objectives: Objectives = NO_OBJECTIVES
    deadline_seconds: float | None = None
    migratable: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)
    working_directory: Path | None = None
    loss_pattern: str | None = None
    mappings: OwnMappings = NO_OWN_MAPPINGS
    queueing: Queueing = Queueing()
    planned_steps: int | None = None
    workload_class: str = ""
    arguments: Mapping[str, str] = field(default_factory=dict)
    whole_environment: bool = False

    @property
    def log_name(self) -> str:
        """Of the file with its output; a service uses names again."""
        number = self.queueing.submission
        return f"{self.name}.{number}.log" if number else f"{self.name}.log"

    @property
    def is_read(self) -> bool:
        """A user's command is started so that its output is searched for a loss."""
        return self.port is None or self.loss_pattern is not None

    def objectives_at(self, arrived_at_seconds: float) -> Objectives:
        """The objectives of the job that arrived then (Unix seconds)."""
        if self.deadline_seconds is None:
            return self.objectives
        return replace(self.objectives, deadline_at_seconds=arrived_at_seconds + self.deadline_seconds)


def load_jobs(path: Path) -> list[JobSpec]:
    """Read the user's jobs, in the file's order; UsageError names the first mistake.

    `-` is standard input. Relative folders are those beside the file, or below the current one.
    """
    where, document, folder = read_document(path)
    return read_jobs(document, where, folder, {})


def read_jobs(document: object, where: str, folder: Path, others: Mapping[str, Queueing] | None) -> list[JobSpec]:
    """The jobs of a document that was read from `where`; relative folders are below `folder`.

    `others`: jobs that there are already, which `after` may name, those that wait with their own; None: `after` is not
    checked.
    """
    jobs = [_read_job(each, place, folder) for place, each in expanded(document, where)]
    for name in _repeated(job.name for job in jobs):
        raise UsageError(f"{where}: more than one job is named {name!r}; give each a name of its own.")
    for port in _repeated(job.port for job in jobs if job.port is not None):
        raise UsageError(f"{where}: more than one job has port {port}; give each a port of its own.")
    if others is not None:
        _check_order(jobs, where, others)
    return jobs


def expanded(document: object, where: str) -> list[tuple[str, Any]]:
    """The entries of a document, those of matrices and sweeps written out, each with its place."""
    if not isinstance(document, list) or not document:
        raise UsageError(f"{where}: must be a list of at least one job; write for example `{_EXAMPLE}`.")
    return [
        each for number, entry in enumerate(document, start=1) for each in trials_of(entry, f"{where}: job {number}")
    ]


def _check_order(jobs: Sequence[JobSpec], where: str, others: Mapping[str, Queueing]) -> None:
    """UsageError when a job comes after one that there is not, or after itself."""
    left = {**others, **{job.name: job.queueing for job in jobs}}
    known = {*left, *(each.study for each in (*others.values(), *left.values()))} - {""}
    for job in jobs:
        for other in job.queueing.after:
            if other not in known:
                raise UsageError(f"{where}: {job.name}: after: there is no job or study {other!r}; correct its name.")
    while left:
        waited_for = {*left, *(each.study for each in left.values())}
        free = [name for name, each in left.items() if waited_for.isdisjoint(each.after)]
        if not free:
            raise UsageError(f"{where}: {', '.join(left)} come after one another; remove one `after`.")
        for name in free:
            del left[name]


def identity_of(path: Path, jobs: Sequence[JobSpec]) -> str:
    """What two commands about the same jobs have in common: the file, or what came on standard input."""
    if path != STANDARD_INPUT:
        return str(path.absolute())
    return f"standard input {hashlib.sha256(repr(jobs).encode()).hexdigest()}"


def shown(path: Path) -> str:
    """What messages call the source of the jobs."""
    return "standard input" if path == STANDARD_INPUT else str(path)


def read_document(path: Path) -> tuple[str, object, Path]:
    """What messages call the source, what it and the CSV files of its sweeps hold, and its paths' folder."""
    where = shown(path)
    if path != STANDARD_INPUT:
        folder = path.absolute().parent
        return where, with_lists(load_yaml(path), where, folder), folder
    try:
        text = sys.stdin.read()
    except UnicodeDecodeError as error:
        raise UsageError(f"{where}: cannot be read (not UTF-8 text); give a readable YAML document.") from error
    return where, with_lists(parse_yaml(text, where=where), where, Path.cwd()), Path.cwd()


def _read_job(entry: object, where: str, folder: Path) -> JobSpec:
    job = validate(JobEntry, entry, where=where)
    study = job.study or as_name(job.env.get(STUDY_VARIABLE, ""))
    return JobSpec(
        job.name,
        job.command,
        job.arrive_seconds,
        job.max_useful_cpu,
        job.port,
        Objectives(
            qoe_seconds=job.qoe_seconds,
            target_level=job.target_loss,
            deliverable_level=job.deliverable_loss,
            weight=job.weight,
            stops_at_target=job.at_target == "stop",
            study=study,
            favours_best=job.favour == "best",
        ),
        job.deadline_seconds,
        job.migratable,
        job.env,
        folder / (job.working_directory or "."),
        job.loss_pattern,
        OwnMappings(job.evaluation, job.responses),
        Queueing(job.after, job.restart.on_failure, job.memory, study, job.sweep.max_running),
        job.planned_steps,
        job.class_ or study,
        job.sweep.arguments,
    )


def _repeated(values: Iterable[Hashable]) -> Iterator[Hashable]:
    """Each value that was there before."""
    seen: set[Hashable] = set()
    for value in values:
        if value in seen:
            yield value
        seen.add(value)

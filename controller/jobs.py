"""What is to be run on this machine: one `JobSpec` a job, from the demo's catalogue or the user's own YAML list.

`demo/trainings/catalogue.py` (`demo_jobs`) and `--jobs FILE` (`load_jobs`) make the specs, `adapters/supervisor.py`
starts each as a process when its time has come.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel

from controller.errors import UsageError
from controller.model import NO_PROMISES, Promises
from controller.settings import CpuMillicores, load_yaml, validate

_EXAMPLE = "- {name: mine, command: python train.py, arriveSeconds: 0}"
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")

MOST_WEIGHT = 10.0
"""Of one job against another: what a namespace may ask for on a cluster, too."""

LONGEST_PROMISE_SECONDS = 366 * 86_400.0
"""A year: more is a mistyped unit."""


@dataclass(frozen=True)
class JobSpec:
    """One job: `command` is started, without a shell, `arrive_seconds` after the run's start.

    `max_useful_cpu_millicores`: more CPU than this does not make it faster; None: not known. `port`: where the
    program serves its own metrics; None: `slopewise_exporter` takes a free port and tells it.

    `migratable`: told to end (SIGTERM) it saves a checkpoint, and started again it goes on from there; without that it
    is never moved to another node.

    `promises` holds what does not depend on when the job arrives; `deadline_seconds` counts from its arrival, and
    becomes `promises.deadline_at_seconds` then (`promises_at`).
    """

    name: str
    command: list[str]
    arrive_seconds: float
    max_useful_cpu_millicores: int | None = None
    port: int | None = None
    promises: Promises = NO_PROMISES
    deadline_seconds: float | None = None
    migratable: bool = False

    def promises_at(self, arrived_at_seconds: float) -> Promises:
        """What is asked for the job, now that it is known when it arrived (Unix seconds)."""
        if self.deadline_seconds is None:
            return self.promises
        return replace(self.promises, deadline_at_seconds=arrived_at_seconds + self.deadline_seconds)


def load_jobs(path: Path) -> list[JobSpec]:
    """Read the user's jobs, in the file's order; UsageError tells the first mistake in one sentence."""
    document = load_yaml(path)
    if not isinstance(document, list) or not document:
        raise UsageError(f"{path}: must be a list of at least one job; write for example `{_EXAMPLE}`.")
    jobs = [_read_job(entry, f"{path}: job {number}") for number, entry in enumerate(document, start=1)]
    for name in _repeated(job.name for job in jobs):
        raise UsageError(f"{path}: more than one job is named {name!r}; give each a name of its own.")
    for port in _repeated(job.port for job in jobs if job.port is not None):
        raise UsageError(f"{path}: more than one job has port {port}; give each a port of its own.")
    return jobs


def _job_name(value: object) -> object:
    if isinstance(value, str) and not _NAME.fullmatch(value):
        raise ValueError(
            f"{value!r} cannot be a job's name; use up to 63 lower-case letters, digits and -, "
            "with a letter or digit at both ends"
        )
    return value


JobName = Annotated[str, BeforeValidator(_job_name)]


def _words(value: object) -> object:
    """A command as its words: a text is split as a shell would, a list is taken as it is."""
    words = _split(value) if isinstance(value, str) else value
    if isinstance(words, list) and (not words or words[0] == ""):
        raise ValueError("is empty; write the program to start and its arguments, for example `python train.py`")
    return words


def _split(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError as error:
        raise ValueError(f"{command!r} cannot be split into words ({error}); close its quotes") from error


class _JobEntry(BaseModel):
    """One entry of the user's file."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel)

    name: JobName
    command: Annotated[list[str], BeforeValidator(_words)]
    arrive_seconds: float = Field(0.0, ge=0.0, allow_inf_nan=False)
    max_useful_cpu: CpuMillicores | None = None
    port: int | None = Field(None, ge=1, le=65_535)
    deadline_seconds: float | None = Field(None, gt=0.0, le=LONGEST_PROMISE_SECONDS)
    qoe_seconds: float | None = Field(None, gt=0.0, le=LONGEST_PROMISE_SECONDS)
    target_loss: float | None = Field(None, allow_inf_nan=False)
    deliverable_loss: float | None = Field(None, allow_inf_nan=False)
    weight: float = Field(1.0, gt=0.0, le=MOST_WEIGHT)
    migratable: bool = False


def _read_job(entry: object, where: str) -> JobSpec:
    job = validate(_JobEntry, entry, where=where)
    promises = Promises(
        qoe_seconds=job.qoe_seconds,
        target_level=job.target_loss,
        deliverable_level=job.deliverable_loss,
        weight=job.weight,
    )
    return JobSpec(
        job.name,
        job.command,
        job.arrive_seconds,
        job.max_useful_cpu,
        job.port,
        promises,
        job.deadline_seconds,
        job.migratable,
    )


def _repeated(values: Iterable[Hashable]) -> Iterator[Hashable]:
    """Each value that was there before."""
    seen: set[Hashable] = set()
    for value in values:
        if value in seen:
            yield value
        seen.add(value)

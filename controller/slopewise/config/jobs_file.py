"""Reads jobs files: the commands that a run on this machine starts, one `JobSpec` a job.

`demo/trainings/catalogue.py` makes specs of its own; `adapters/local/supervisor.py` starts each as a process.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator

from slopewise.config.metric_mappings import NO_OWN_MAPPINGS, EvaluationMapping, OwnMappings, ResponseMapping
from slopewise.config.quantities import CpuMillicores
from slopewise.config.shell_words import shell_mistake, split
from slopewise.config.validation import Document, load_yaml, parse_yaml, validate
from slopewise.errors import UsageError
from slopewise.model import NO_OBJECTIVES, Objectives
from slopewise_exporter.logs import LineParser

_EXAMPLE = "- {name: mine, command: python train.py, arriveSeconds: 0}"
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

STANDARD_INPUT = Path("-")
"""Instead of a file: the jobs are read from standard input."""

OWN_VARIABLES = frozenset(
    {"SLOPEWISE_EXPORTER_PORT", "SLOPEWISE_EXPORTER_ADDRESS", "SLOPEWISE_RUN_ID", "SLOPEWISE_GROUP"}
)
"""What every command is started with (`local/job_processes.py`, `local/cleanup.py`); a user's value would be lost."""

MAX_WEIGHT = 10.0
"""Of one job against another: what a namespace may ask for on a cluster, too."""

AtTarget = Literal["stop", "keep"]

STOP_WITHOUT_TARGET = "atTarget: stop needs a target; state targetLoss, or leave atTarget out"

MAX_OBJECTIVE_SECONDS = 366 * 86_400.0
"""A year: more is a mistyped unit."""


@dataclass(frozen=True)
class JobSpec:
    """One job: `command` is started, without a shell, `arrive_seconds` after the run's start.

    `max_useful_cpu_millicores`: more CPU than this does not make it faster; None: not known. `port`: where the
    program serves its own metrics; None: `slopewise_exporter` takes a free port.

    `migratable`: on SIGTERM it saves a checkpoint, from which it resumes when started again; others are never moved.

    `objectives` has what does not depend on the arrival; `deadline_seconds` counts from it (`objectives_at`).

    `mappings`: which series are its loss, steps and response times, where the policy's are others.

    `environment` is added to ours; `working_directory`: where the command runs; None: where we run.

    `loss_pattern` finds the loss in its output; None: the common formats are looked for.
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
    where, document, folder = _read_document(path)
    if not isinstance(document, list) or not document:
        raise UsageError(f"{where}: must be a list of at least one job; write for example `{_EXAMPLE}`.")
    jobs = [_read_job(entry, f"{where}: job {number}", folder) for number, entry in enumerate(document, start=1)]
    for name in _repeated(job.name for job in jobs):
        raise UsageError(f"{where}: more than one job is named {name!r}; give each a name of its own.")
    for port in _repeated(job.port for job in jobs if job.port is not None):
        raise UsageError(f"{where}: more than one job has port {port}; give each a port of its own.")
    return jobs


def identity_of(path: Path, jobs: Sequence[JobSpec]) -> str:
    """What two commands about the same jobs have in common: the file, or what came on standard input."""
    if path != STANDARD_INPUT:
        return str(path.absolute())
    return f"standard input {hashlib.sha256(repr(jobs).encode()).hexdigest()}"


def shown(path: Path) -> str:
    """What messages call the source of the jobs."""
    return "standard input" if path == STANDARD_INPUT else str(path)


def _read_document(path: Path) -> tuple[str, object, Path]:
    """What messages call the source, what it holds, and the folder that its paths are relative to."""
    if path != STANDARD_INPUT:
        return str(path), load_yaml(path), path.absolute().parent
    where = shown(path)
    try:
        text = sys.stdin.read()
    except UnicodeDecodeError as error:
        raise UsageError(f"{where}: cannot be read (not UTF-8 text); give a readable YAML document.") from error
    return where, parse_yaml(text, where=where), Path.cwd()


def _job_name(value: object) -> object:
    if isinstance(value, str) and not _NAME.fullmatch(value):
        raise ValueError(
            f"{value!r} cannot be a job's name; use up to 63 lower-case letters, digits and -, "
            "with a letter or digit at both ends"
        )
    return value


JobName = Annotated[str, BeforeValidator(_job_name)]


def _arguments(value: object) -> object:
    """A command as its words: a text is split as a shell would, a list is taken as it is."""
    words = _split(value) if isinstance(value, str) else value
    if isinstance(words, list) and (not words or words[0] == ""):
        raise ValueError("is empty; write the program to start and its arguments, for example `python train.py`")
    return words


def _split(command: str) -> list[str]:
    if mistake := shell_mistake(command):
        raise ValueError(mistake)
    try:
        return split(command)
    except ValueError as error:
        raise ValueError(f"{command!r} cannot be split into words ({error}); close its quotes") from error


def _environment(value: object) -> object:
    """Variables as texts. YAML keeps no more of `0.10` than 0.1, so that of numbers only whole ones are taken."""
    if not isinstance(value, Mapping):
        raise ValueError('must be a mapping of names to texts, such as {SEED: "1"}')  # noqa: TRY004
    return {_variable(name): _text(str(name), text) for name, text in value.items()}


def _variable(name: object) -> str:
    if not isinstance(name, str) or not _VARIABLE.fullmatch(name):
        raise ValueError(f"{name!r} cannot be the name of a variable; use letters, digits and _, no digit first")
    if name in OWN_VARIABLES:
        raise ValueError(f"{name} is set by slopewise; remove it, and write `port` to choose the port")
    return name


def _text(name: str, value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str):
        written = "" if value is None else json.dumps(value, default=str).strip('"')
        raise ValueError(f"{name} is no text; write it in quotes, as in {name}: {written!r}")  # noqa: TRY004
    if "\0" in value:
        raise ValueError(f"{name} holds a zero byte, which no variable can; remove it")
    return value


def _directory(value: object) -> object:
    if value == "":
        raise ValueError("is empty; write a folder, absolute or relative to this file")
    return value


def _pattern(value: object) -> object:
    if isinstance(value, str):
        LineParser([value])  # PatternError, a ValueError, says what is wrong
    return value


_COMMAND_SCHEMA = {"type": "array", "items": {"type": "string"}, "format": "command"}


class JobEntry(Document):
    """One entry of the user's file: a command that is started on this machine."""

    model_config = ConfigDict(populate_by_name=False)

    name: JobName = Field(
        description="up to 63 lower-case letters, digits and -; names the job in every table, and its log file"
    )
    command: Annotated[list[str], BeforeValidator(_arguments), WithJsonSchema(_COMMAND_SCHEMA)] = Field(
        description="the program and its arguments: one text, split as a shell would, or a list, taken word for word; "
        "it is started without a shell"
    )
    env: Annotated[dict[str, str], BeforeValidator(_environment)] = Field(
        default_factory=dict, description="environment variables, added to those that slopewise itself has"
    )
    working_directory: Annotated[str | None, BeforeValidator(_directory)] = Field(
        None, description="where the command runs; a relative one is beside this file; else the folder of this file"
    )
    arrive_seconds: float = Field(
        0.0, ge=0.0, allow_inf_nan=False, description="s after the start of the run at which the command is started"
    )
    max_useful_cpu: CpuMillicores | None = Field(
        None, description="CPU beyond which it gets no faster, such as `1` for one thread; else any amount is of use"
    )
    port: int | None = Field(
        None, ge=1, le=65_535, description="where the program serves metrics of its own; else slopewise chooses a port"
    )
    loss_pattern: Annotated[str | None, BeforeValidator(_pattern)] = Field(
        None,
        description="regular expression that finds the loss in its output: with one group, or one named `loss`, or "
        "with two, a name and its value; else the common formats are found",
    )
    migratable: bool = Field(
        False, description="it saves a checkpoint on SIGTERM and resumes from it, so that it may be moved between nodes"
    )
    weight: float = Field(1.0, gt=0.0, le=MAX_WEIGHT, description="of this job against the others; for `dqoes`")
    qoe_seconds: float | None = Field(
        None,
        gt=0.0,
        le=MAX_OBJECTIVE_SECONDS,
        description="objective in s: a response of a served model, or a step of a training; for `dqoes`",
    )
    deadline_seconds: float | None = Field(
        None,
        gt=0.0,
        le=MAX_OBJECTIVE_SECONDS,
        description="s from its arrival until it must have ended; for `deadline`",
    )
    target_loss: float | None = Field(
        None, allow_inf_nan=False, description="evaluation at which it is done; for `tradl`"
    )
    deliverable_loss: float | None = Field(
        None, allow_inf_nan=False, description="evaluation from which its model is of use; for `tradl`"
    )
    at_target: AtTarget = Field(
        "keep",
        description="`stop`: at `targetLoss` it is signalled to save and to end, and is not started again, under "
        "every policy; `keep`: it trains on",
    )
    evaluation: EvaluationMapping | None = Field(
        None, description="where its loss and steps have other names than `spec.evaluation` of the policy has"
    )
    responses: ResponseMapping | None = Field(
        None, description="where its response times have other names than `spec.responses` of the policy has"
    )

    @model_validator(mode="after")
    def _has_a_target(self) -> JobEntry:
        if self.at_target == "stop" and self.target_loss is None:
            raise ValueError(STOP_WITHOUT_TARGET)
        return self


def _read_job(entry: object, where: str, folder: Path) -> JobSpec:
    job = validate(JobEntry, entry, where=where)
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
        ),
        job.deadline_seconds,
        job.migratable,
        job.env,
        folder / (job.working_directory or "."),
        job.loss_pattern,
        OwnMappings(job.evaluation, job.responses),
    )


def _repeated(values: Iterable[Hashable]) -> Iterator[Hashable]:
    """Each value that was there before."""
    seen: set[Hashable] = set()
    for value in values:
        if value in seen:
            yield value
        seen.add(value)

"""The keys of one entry of a jobs file, and how each is validated."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator

from slopewise.config.metric_mappings import EvaluationMapping, ResponseMapping
from slopewise.config.quantities import CpuMillicores
from slopewise.config.shell_words import words_of
from slopewise.config.sweeps import SweepEntry
from slopewise.config.validation import Document
from slopewise_exporter.logs import LineParser

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MEMORY = re.compile(r"(?P<number>\d+(\.\d+)?)(?P<unit>Mi|Gi)")

OWN_VARIABLES = frozenset(
    {f"SLOPEWISE_{name}" for name in ("EXPORTER_PORT", "EXPORTER_ADDRESS", "EXPORTER_END_FILE", "RUN_ID", "GROUP")}
)
"""What every command is started with (`local/job_processes.py`, `local/cleanup.py`); a user's value would be lost."""

MAX_WEIGHT = 10.0
"""Of one job against another: what a namespace may ask for on a cluster, too."""

AtTarget = Literal["stop", "keep"]

STOP_WITHOUT_TARGET = "atTarget: stop needs a target; state targetLoss, or leave atTarget out"

MAX_OBJECTIVE_SECONDS = 366 * 86_400.0
"""A year: more is a mistyped unit."""

MAX_RESTARTS = 100
"""More is a job that cannot work."""


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
    words = words_of(value) if isinstance(value, str) else value
    if isinstance(words, list) and (not words or words[0] == ""):
        raise ValueError("is empty; write the program to start and its arguments, for example `python train.py`")
    if isinstance(words, list) and any(isinstance(word, str) and "\0" in word for word in words):
        raise ValueError("holds a zero byte, which no argument can; remove it")
    return words


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


def _memory(value: object) -> object:
    match = _MEMORY.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError(f"{value!r} is no amount of memory; write it like 512Mi or 4Gi")
    return round(float(match["number"]) * (2**20 if match["unit"] == "Mi" else 2**30))


_COMMAND_SCHEMA = {"type": "array", "items": {"type": "string"}, "format": "command"}


class RestartEntry(Document):
    """When a job is started again."""

    on_failure: int = Field(0, ge=0, le=MAX_RESTARTS, description="times that it is started again after a failure")


class JobEntry(Document):
    """One entry of the user's file: a command that is started on this machine."""

    model_config = ConfigDict(populate_by_name=False)

    name: JobName = Field(description="up to 63 lower-case letters, digits and -; of the job and its log file")
    command: Annotated[list[str], BeforeValidator(_arguments), WithJsonSchema(_COMMAND_SCHEMA)] = Field(
        description="the program and its arguments: one text, split as a shell would, or a list, taken word for word"
    )
    env: Annotated[dict[str, str], BeforeValidator(_environment)] = Field(
        default_factory=dict, description="environment variables, added to those that slopewise itself has"
    )
    working_directory: Annotated[str | None, BeforeValidator(_directory)] = Field(
        None, description="where the command runs; a relative one is beside this file; else the file's folder"
    )
    arrive_seconds: float = Field(0.0, ge=0.0, allow_inf_nan=False, description="s after the start of the run")
    after: Annotated[tuple[str, ...], BeforeValidator(lambda each: (each,) if isinstance(each, str) else each)] = Field(
        (), description="names of jobs or studies that must have finished before it starts; one or a list"
    )
    restart: Annotated[RestartEntry, WithJsonSchema({"type": "object"})] = Field(
        RestartEntry(), description="`{onFailure: 3}` starts it again up to three times after a failure"
    )
    matrix: dict[str, list[str]] = Field(
        default_factory=dict,
        description="one job for each combination of the values, named `name-1`, `name-2` …; `{lr}` in the command, "
        "the name and `env` is the value of `lr`, `{{lr}}` is `{lr}`",
    )
    sweep: Annotated[SweepEntry, WithJsonSchema({"type": "object"})] = Field(
        SweepEntry(),
        description="as `matrix`, named after arguments: `grid` is a matrix, `list` has mappings, `csv` is a file "
        "beside this one; `maxRunning` at once",
    )
    favour: Literal["best"] | None = Field(
        None, description="`best`: the [best trial](sweeps.md) of its study comes first"
    )
    study: JobName = Field(
        "", description="jobs that belong together; of a `matrix` or `sweep` its name, else `OPTUNA_STUDY` of `env`"
    )
    class_: JobName = Field("", alias="class", description="jobs that are alike learn from one another; else `study`")
    planned_steps: int | None = Field(None, ge=1, description="steps of the whole training, where it reports no plan")
    memory: Annotated[int | None, BeforeValidator(_memory), WithJsonSchema({"type": "string"})] = Field(
        None, description="what it needs, such as `4Gi`; it starts once that is free"
    )
    max_useful_cpu: CpuMillicores | None = Field(
        None, description="CPU beyond which it gets no faster, such as `1` for one thread"
    )
    port: int | None = Field(
        None, ge=1, le=65_535, description="where the program serves metrics of its own; else slopewise chooses a port"
    )
    loss_pattern: Annotated[str | None, BeforeValidator(_pattern)] = Field(
        None,
        description="regular expression that finds the loss in its output: with one group, or one named `loss`, or "
        "with two, a name and its value",
    )
    migratable: bool = Field(
        False, description="it saves a checkpoint on SIGTERM, resumes from it, and may be moved between nodes"
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
        "every policy",
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

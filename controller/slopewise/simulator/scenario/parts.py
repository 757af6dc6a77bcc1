"""Validates the lists of a scenario: nodes, explicit jobs, policies. `scenario.py` checks them against one another."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from slopewise.composition import composed_name
from slopewise.config.job_entry import MAX_OBJECTIVE_SECONDS, MAX_WEIGHT, STOP_WITHOUT_TARGET, AtTarget, JobName
from slopewise.config.metric_mappings import EvaluationMapping
from slopewise.config.quantities import CpuMillicores
from slopewise.config.training_policy import EvaluationSettings, PlacementChoice, PolicyChoice, PolicyName
from slopewise.config.validation import Document
from slopewise.model import AcceleratorControl, CpuControl
from slopewise.simulator.scenario import csv_tables
from slopewise.simulator.scenario.builtin_models import SERVED, CpuSeconds, Seconds
from slopewise.simulator.world.accelerators import Accelerator
from slopewise.simulator.world.model import SchedulerRule
from slopewise.simulator.world.threads import Penalty, ThreadBehaviour, Threads
from slopewise.text import unknown_name

MAX_NODES = 10_000

Text = Annotated[str, Field(min_length=1, max_length=100)]
"""Free text that ends up in tables and pages, where it is escaped."""


def by_name(value: object) -> object:
    """A policy's name alone stands for that policy with its defaults."""
    return {"name": value} if isinstance(value, str) else value


def _of_a_simulated_job(value: EvaluationSettings) -> EvaluationSettings:
    default = EvaluationSettings()
    for name, field in EvaluationMapping.model_fields.items():
        if getattr(value, name) != getattr(default, name):
            raise ValueError(
                f"{field.alias or name} chooses among the series of real jobs, and a simulated job has one loss; "
                "drop it"
            )
    return value


SimulatedEvaluation = Annotated[EvaluationSettings, AfterValidator(_of_a_simulated_job)]
"""How growth is measured, as in a TrainingPolicy; which series is read means nothing here."""


def libraries() -> list[str]:
    """The libraries whose threads beyond the CPU in effect were measured, in `thread_penalties.csv`."""
    return sorted({library for library, _ in _penalties()})


def threads_of(number: int, behaviour: ThreadBehaviour, library: str) -> Threads:
    """The threads of a job. Those that follow wait without spinning, as under the exporter."""
    return Threads(number, behaviour, _penalties()[library, "spin" if behaviour == "spin" else "wait"])


@cache
def _penalties() -> dict[tuple[str, str], tuple[Penalty, ...]]:
    """By library and behaviour."""
    found: dict[tuple[str, str], list[Penalty]] = {}
    text = (files("slopewise.simulator") / "thread_penalties.csv").read_text(encoding="utf-8")
    for row in csv_tables.entries("thread_penalties.csv", ("library", "behaviour"), text):
        library, behaviour = str(row.pop("library")), str(row.pop("behaviour"))
        found.setdefault((library, behaviour), []).append(Penalty(**row))  # type: ignore[arg-type]
    return {key: tuple(sorted(penalties)) for key, penalties in found.items()}


def _measured(library: str) -> str:
    if library not in libraries():
        raise ValueError(unknown_name("measured library", library, libraries()).removesuffix("."))
    return library


ThreadCount = Annotated[int, Field(ge=1, le=1024)]
"""Of a training, as its library counts them at its start."""

ThreadLibrary = Annotated[str, AfterValidator(_measured)]
"""Whose threads they are: what they cost is measured by library."""


class NodeSettings(Document):
    """A machine, or `count` machines that are alike: `name: w, count: 2` are w-1 and w-2."""

    name: Text
    cpu: CpuMillicores = Field(description="cores that jobs can share; the papers' whole node is 1")
    memory_gib: float = Field(64.0, alias="memoryGiB", gt=0.0, le=65_536.0)
    speed: float = Field(1.0, gt=0.0, le=1000.0, description="core-seconds of work a second, of each core")
    count: int = Field(1, ge=1, le=MAX_NODES)
    requests_max: CpuMillicores | None = Field(None, description="what requests may add up to; none: no such bound")
    accelerators: int = Field(0, ge=0, le=1024, description="devices, each of one job at a time")

    @property
    def names(self) -> list[str]:
        """The names of the machines."""
        return [self.name] if self.count == 1 else [f"{self.name}-{number}" for number in range(1, self.count + 1)]


class JobSettings(Document):
    """One explicit job. Missing keys come from its model."""

    name: JobName
    model: Text = Field(SERVED, description="may be left out of a job with requestCpuSeconds")
    arrive_seconds: Seconds = (0.0, 0.0)
    work_cpu_seconds: CpuSeconds | None = None
    request_cpu_seconds: CpuSeconds | None = None
    parallelism: float | None = Field(None, gt=0.0, le=1024.0)
    threads: ThreadCount | None = Field(None, description="default: the scenario's, and so are the next two")
    thread_behaviour: ThreadBehaviour | None = None
    thread_library: ThreadLibrary | None = None
    accelerator: Accelerator | None = Field(None, description="default: the model's")
    memory_gib: float | None = Field(None, alias="memoryGiB", gt=0.0, le=65_536.0)
    request: CpuMillicores | None = Field(None, description="default: a core, or the smallest node if that is less")
    steps: int | None = Field(None, ge=1, le=10**12)
    qoe_seconds: float | None = Field(None, gt=0.0, le=MAX_OBJECTIVE_SECONDS)
    deadline_seconds: float | None = Field(None, gt=0.0, le=MAX_OBJECTIVE_SECONDS, description="from its arrival")
    target_loss: float | None = Field(None, gt=0.0, lt=1.0, description="1 at the start, 0 at the best")
    deliverable_loss: float | None = Field(None, gt=0.0, lt=1.0, description="the same scale")
    at_target: AtTarget = Field("keep", description="stop: it ends when it counts as having reached targetLoss")
    weight: float = Field(1.0, gt=0.0, le=MAX_WEIGHT)
    reports: bool = Field(True, description="false: it exports nothing, neither loss nor steps nor responses")
    migratable: bool = True
    checkpoint_seconds: float = Field(2.5, ge=0.0, le=86_400.0)
    restart_seconds: float = Field(2.5, ge=0.0, le=86_400.0)
    crashes_at_done_ratio: list[Annotated[float, Field(gt=0.0, lt=1.0)]] = Field(default_factory=list)

    @model_validator(mode="after")
    def _consistent(self) -> JobSettings:
        if "model" not in self.model_fields_set and self.request_cpu_seconds is None:
            raise ValueError("model is missing; name one, or give requestCpuSeconds for a job that is served")
        if self.target_loss and self.deliverable_loss and self.deliverable_loss <= self.target_loss:
            raise ValueError(
                f"deliverableLoss {self.deliverable_loss:g} is reached no sooner than targetLoss {self.target_loss:g}; "
                "raise the first"
            )
        if self.at_target == "stop" and self.target_loss is None:
            raise ValueError(STOP_WITHOUT_TARGET)
        if self.steps and self.qoe_seconds and self.deadline_seconds:
            takes = self.steps * self.qoe_seconds
            if takes > self.deadline_seconds:
                raise ValueError(
                    f"{self.steps} steps of qoeSeconds {self.qoe_seconds:g} take {takes:.4g} s, and deadlineSeconds is "
                    f"{self.deadline_seconds:g}; lower the first or raise the second"
                )
        return self


class PolicyEntry(PolicyChoice):
    """A policy to run; its name alone stands for its defaults."""

    name: PolicyName
    label: Text | None = Field(None, description="its name in every table; default: the policy's, or the two names")
    interval_seconds: float | None = Field(None, ge=1.0, le=86_400.0)
    control: CpuControl | None = None
    accelerators: AcceleratorControl | None = Field(None, description="default: the scenario's")
    default_scheduler: SchedulerRule | None = Field(None, description="default: the scenario's")
    placement: Annotated[PlacementChoice, BeforeValidator(by_name)] | None = Field(
        None, description="a second policy, which chooses nodes"
    )
    evaluation: SimulatedEvaluation | None = Field(None, description="its keys go before the scenario's")

    @property
    def shown(self) -> str:
        """The label."""
        return self.label or composed_name(self.name, None if self.placement is None else self.placement.name)

    def evaluation_over(self, of_scenario: EvaluationSettings) -> EvaluationSettings:
        """The scenario's evaluation with the keys that this entry gives."""
        if self.evaluation is None:
            return of_scenario
        return of_scenario.model_copy(
            update={key: getattr(self.evaluation, key) for key in self.evaluation.model_fields_set}
        )

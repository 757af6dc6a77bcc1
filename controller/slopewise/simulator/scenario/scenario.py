"""Loads and validates scenario files: nodes, jobs, physics, and the policies to compare.

A scenario is a YAML file, or one that is shipped in `scenarios/`. Unknown keys are refused by name, and every mistake
is reported in one sentence, as for any settings (`controller/slopewise/config/training_policy.py`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import as_file, files
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, field_validator, model_validator

from slopewise.composition import composed_name
from slopewise.config.training_policy import (
    Behaviour,
    CpuBounds,
    EvaluationSettings,
    Migration,
    PlacementChoice,
    named_policy,
    placement_parameters,
    policy_parameters,
)
from slopewise.config.validation import ApiVersion, Document, load_yaml, validate
from slopewise.errors import UsageError
from slopewise.model import AcceleratorControl, CpuControl
from slopewise.own_policies import catalogue
from slopewise.simulator.scenario import csv_tables
from slopewise.simulator.scenario.builtin_models import BUILT_IN, SERVED, EndsAt, ModelSettings, PlanRatio, built_in
from slopewise.simulator.scenario.generate_settings import Generate
from slopewise.simulator.scenario.parts import (
    JobSettings,
    NodeSettings,
    PolicyEntry,
    SimulatedEvaluation,
    Text,
    ThreadCount,
    ThreadLibrary,
    by_name,
)
from slopewise.simulator.world.model import Physics, PolicyRun, SchedulerRule
from slopewise.simulator.world.threads import ThreadBehaviour
from slopewise.text import unknown_name

BASELINE = "fair"
"""Runs first in every scenario: all ratios are to it."""

Stage = Literal["train", "train_ema"]
"""Of the losses that the shipped recordings have."""

_PHYSICS = Physics()
_SHIPPED = files("slopewise.simulator") / "scenarios"


def _act_at_once(value: object) -> object:
    """The defaults of a simulated controller's guards: no cooldown and wide steps, as in the demo."""
    if not isinstance(value, Mapping):
        return value
    if "intervalSeconds" in value:
        raise ValueError("intervalSeconds stands beside behaviour, not in it; move it there")
    return {"cooldownSeconds": 0, "maxStepRatio": 100, "minChangeRatio": 0.05, **value}


def _low_floor(value: object) -> object:
    return {"min": "20m", **value} if isinstance(value, Mapping) else value


def _quota_speeds(value: tuple[tuple[float, float], ...]) -> tuple[tuple[float, float], ...]:
    if len(value) < 2 or value[0] != (0.0, 0.0):
        raise ValueError("must begin with [0, 0] and hold at least one more [quota in cores, speed in cores]")
    if not all(math.isfinite(number) for point in value for number in point):
        raise ValueError("a quota or a speed is not finite; write the points that were measured")
    if any(right[0] <= left[0] or right[1] < left[1] for left, right in pairwise(value)):
        raise ValueError("quotas must increase and speeds must not fall; sort the points and drop repeated ones")
    return value


class ScenarioSpec(Document):
    """Nodes, jobs, how the world behaves, and which policies run."""

    nodes: list[NodeSettings]
    jobs: list[JobSettings] = Field(default_factory=list, description="or the path of a CSV file with such columns")
    generate: Generate | None = None
    models: dict[Text, ModelSettings] = Field(default_factory=dict, description="added to the built-in ones")

    scrape_seconds: float = Field(_PHYSICS.scrape_seconds, gt=0.0, le=3600.0)
    scrape_delay_seconds: float = Field(_PHYSICS.scrape_delay_seconds, ge=0.0, le=3600.0)
    missing_ratio: float = Field(_PHYSICS.missing_ratio, ge=0.0, lt=1.0, description="scrapes that fail")
    contention_ratio: float = Field(
        _PHYSICS.contention_ratio, ge=0.0, lt=1.0, description="work lost per further running job on a node"
    )
    resize_seconds: float = Field(_PHYSICS.resize_seconds, ge=0.0, le=3600.0)
    quota_speeds: Annotated[tuple[tuple[float, float], ...], AfterValidator(_quota_speeds)] = Field(
        _PHYSICS.quota_speeds, description="[quota in cores, speed in cores]"
    )
    threads: ThreadCount = Field(1, description="of every training; above 1 they are the cores that it can use")
    thread_behaviour: ThreadBehaviour = Field(
        "spin", description="follow: they sleep, and their number follows the CPU"
    )
    thread_library: ThreadLibrary = Field("hist-gradient-boosting", description="whose threads they are")
    variation: float = Field(0.3, ge=0.0, lt=1.0, description="of built-in works, as a fraction, uniformly")
    noise: float | None = Field(None, ge=0.0, le=1.0, description="of every job, whatever its model says")
    recorded_losses: Stage | None = Field(
        None, description="the stage of the recorded losses that built-in models have instead of their curves"
    )
    ends_at: EndsAt | None = Field(None, description="of every job, whatever its model says")
    steps_per_cpu_second: float | None = Field(10.0, gt=0.0, le=1e6, description="null: jobs have no plan")
    plan_ratio: PlanRatio = Field((1.0, 1.0), description="steps that jobs say they plan, over those that they take")
    workload_classes: bool = Field(True, description="false: jobs do not say which others they are like")
    history_jobs: int = Field(0, ge=0, le=100, description="jobs of each model that ended before the run")
    duration_seconds: float | None = Field(None, gt=0.0, le=1e9)
    default_scheduler: SchedulerRule = Field("fewest-jobs", description="places the jobs that a policy does not")

    control: CpuControl = "requests"
    accelerators: AcceleratorControl = Field("Ignore", description="of every policy but the baseline")
    interval_seconds: float = Field(20.0, ge=1.0, le=86_400.0)
    evaluation: SimulatedEvaluation = EvaluationSettings()
    behaviour: Annotated[Behaviour, BeforeValidator(_act_at_once)] = Field({}, validate_default=True)
    cpu: Annotated[CpuBounds, BeforeValidator(_low_floor)] = Field({}, validate_default=True)
    migration: Migration | None = Field(None, description="null: moves are not bounded, as in the papers")
    policies: list[Annotated[PolicyEntry, BeforeValidator(by_name)]] = Field(default_factory=list)
    seeds: int = Field(12, ge=1, le=100_000)
    tuning: bool = Field(False, description="policies were tuned on it: no evidence for them")

    @field_validator("jobs", mode="before")
    @classmethod
    def _of_file(cls, value: object, info: ValidationInfo) -> object:
        """The rows of a file, where its path is given."""
        if isinstance(value, str) and info.context:
            return csv_tables.entries(str(info.context / value), ("name", "model"))
        return value

    @model_validator(mode="after")
    def _consistent(self) -> ScenarioSpec:
        self._check_nodes()
        self._check_jobs()
        self._check_models()
        self._check_served()
        self._check_sizes()
        self._check_labels()
        return self

    def _check_nodes(self) -> None:
        if not self.nodes:
            raise ValueError("nodes is empty; add at least one, for example {name: n1, cpu: 2}")
        names = [name for node in self.nodes for name in node.names]
        for name in _repeated(names):
            raise ValueError(f"more than one node is named {name!r}; give each a name of its own")

    def _check_jobs(self) -> None:
        if not self.jobs and self.generate is None:
            raise ValueError("there are no jobs; list them under jobs, or have them drawn with generate")
        generated = self.generate.names if self.generate else []
        for name in _repeated([*(job.name for job in self.jobs), *generated]):
            raise ValueError(f"more than one job is named {name!r}; give each a name of its own")

    def _check_models(self) -> None:
        drawn = [] if self.generate is None or self.generate.qoe else list(self.generate.mix)
        for model in [*(job.model for job in self.jobs), *drawn]:
            if model not in self.models and model not in BUILT_IN:
                known = sorted({*BUILT_IN, *self.models})
                more = ", or describe it under models"
                raise ValueError(unknown_name("model", model, known, more).removesuffix("."))
        if any(self.model(model).served for model in drawn):
            raise ValueError("generate.models holds a served model; draw those with generate.qoe")

    def _check_served(self) -> None:
        if not self.model(SERVED).served:
            raise ValueError(f"the model {SERVED!r} is what generate.qoe draws; give yours another name")
        for job in self.jobs:
            served = self.model(job.model).served
            if (job.work_cpu_seconds if served else job.request_cpu_seconds) is not None:
                kind, right = ("served", "requestCpuSeconds") if served else ("trained", "workCpuSeconds")
                raise ValueError(f"job {job.name!r} has a model that is {kind}; give it {right} instead")
            if served and (job.threads or job.thread_behaviour or job.thread_library):
                raise ValueError(f"job {job.name!r} is served, and threads are of trainings; drop them")
            if served and job.accelerator:
                raise ValueError(f"job {job.name!r} is served, and accelerators are of trainings; drop it")
        serves = any(self.model(job.model).served for job in self.jobs) or (self.generate and self.generate.qoe)
        if serves and self.duration_seconds is None:
            raise ValueError("served models run until the run ends; say when with durationSeconds")

    def _check_sizes(self) -> None:
        memory = max(node.memory_gib for node in self.nodes)
        cpu = max(node.cpu for node in self.nodes)
        devices = max(node.accelerators for node in self.nodes)
        asked = [(f"job {job.name!r}", self.model(job.model), job.memory_gib, job.accelerator) for job in self.jobs]
        drawn = self.generate.mix if self.generate else ()
        asked += [(f"model {name!r}", self.model(name), None, None) for name in drawn]
        for who, model, memory_gib, accelerator in asked:
            needs = memory_gib or model.memory_gib or 0.0
            if needs > memory:
                raise ValueError(f"{who} needs {needs:g} GiB and the largest node has {memory:g}; {_FIT}")
            wanted = accelerator or model.accelerator
            if wanted is not None and wanted.count > devices:
                raise ValueError(f"{who} wants {wanted.count} accelerators and the largest node has {devices}; {_FIT}")
        for job in self.jobs:
            if job.request is not None and job.request > cpu:
                raise ValueError(f"job {job.name!r} requests {job.request}m and the largest node has {cpu}m; {_FIT}")

    def _check_labels(self) -> None:
        for label in _repeated(entry.shown for entry in self.policies):
            raise ValueError(f"more than one policy is labelled {label!r}; give each a label of its own")
        if any(entry.shown == BASELINE != entry.name for entry in self.policies):
            raise ValueError(f"the label {BASELINE!r} belongs to the baseline; use another")

    def model(self, name: str) -> ModelSettings:
        """The scenario's own model of that name, or the built-in one."""
        return self.models[name] if name in self.models else built_in(name, self.recorded_losses)


_FIT = "ask for less or add a larger node"


class ScenarioMetadata(Document):
    """The name under which results are reported, and one line on where the scenario is from."""

    name: Text
    description: str = Field("", max_length=300)


class Scenario(Document):
    """A scenario file: `slopewise.dev/v1alpha1`, kind `Scenario`."""

    api_version: ApiVersion
    kind: Literal["Scenario"]
    metadata: ScenarioMetadata
    spec: ScenarioSpec


def shipped() -> list[str]:
    """The names of the scenarios that come with Slopewise."""
    return sorted(each.name.removesuffix(".yaml") for each in _SHIPPED.iterdir() if each.name.endswith(".yaml"))


def load_scenario(source: str, overrides: Mapping[str, object] | None = None) -> Scenario:
    """Read and validate a scenario file, or a shipped one by its name (without slash and suffix).

    `overrides`: keys of `spec`, written as in a file, whose values replace the file's. UsageError names the first
    mistake.
    """
    if "/" in source or Path(source).suffix:
        return _read(Path(source), source, overrides or {})
    if source not in shipped():
        raise UsageError(unknown_name("shipped scenario", source, shipped(), ", or a path such as ./my.yaml"))
    with as_file(_SHIPPED / f"{source}.yaml") as path:
        return _read(path, f"{source}.yaml", overrides or {})


def _read(path: Path, where: str, overrides: Mapping[str, object]) -> Scenario:
    document = load_yaml(path)
    if isinstance(document, Mapping) and isinstance(spec := document.get("spec"), Mapping):
        document = {**document, "spec": {**spec, **overrides}}
    scenario = validate(Scenario, document, where=where, folder=path.parent)
    places = ((f"{where}: spec.policies.{number}", entry) for number, entry in enumerate(scenario.spec.policies))
    spec = scenario.spec.model_copy(update={"policies": [_found(entry, path.parent, place) for place, entry in places]})
    return scenario.model_copy(update={"spec": spec})


def _found(entry: PolicyEntry, folder: Path, where: str) -> PolicyEntry:
    """The entry with its policies by their names; UsageError for one that there is not, or a wrong parameter."""
    entry = named_policy(entry, beside=folder, where=where)
    policy_parameters(entry, where=where)
    if entry.placement is None:
        return entry
    placement = named_policy(entry.placement, beside=folder, where=f"{where}.placement")
    placement_parameters(entry, placement, where=where)
    return entry.model_copy(update={"placement": placement})


def policy_runs(
    scenario: Scenario, names_override: Sequence[str] = (), placement: str | None = None
) -> list[PolicyRun]:
    """The policies to run over a scenario, the baseline first.

    `names_override` (`--policy`) replaces the scenario's list: each is a label of it, or a policy by its name or its
    file, which then runs with its default parameters. With `placement`, also a name or a file, each of the chosen
    policies that decides CPU runs once more, beside that one. UsageError names the policies there are.
    """
    entries = {entry.shown: entry for entry in scenario.spec.policies}
    labels = [catalogue.name_of(name) for name in names_override] or list(entries)
    chosen = {label: entries.get(label) or PolicyEntry(name=label) for label in (BASELINE, *labels)}
    if placement is not None:
        cpu = [chosen[label] for label in labels if not catalogue.find(chosen[label].name).only_chooses_nodes]
        composed = [_beside(entry, placement) for entry in cpu]
        chosen |= {entry.shown: entry for entry in composed}
    return [_run_of(entry, label, scenario.spec) for label, entry in chosen.items()]


def _beside(entry: PolicyEntry, placement: str) -> PolicyEntry:
    """The entry with that placement instead of its own; UsageError where one of the two cannot have its part."""
    choice = PlacementChoice(name=catalogue.name_of(placement))
    placement_parameters(entry, choice, where="spec")
    return entry.model_copy(
        update={"placement": choice, "label": composed_name(entry.label or entry.name, choice.name)}
    )


def _run_of(entry: PolicyEntry, label: str, spec: ScenarioSpec) -> PolicyRun:
    interval, choices = entry.interval_seconds or spec.interval_seconds, (entry, entry.placement)
    return PolicyRun(
        label=label,
        name=entry.name,
        parameters=entry.parameters,
        interval_seconds=interval,
        control=entry.control or spec.control,
        accelerators="Ignore" if label == BASELINE else entry.accelerators or spec.accelerators,
        evaluation=entry.evaluation_over(spec.evaluation),
        behaviour=spec.behaviour.model_copy(update={"interval_seconds": interval}),
        cpu=spec.cpu,
        migration=spec.migration,
        default_scheduler=entry.default_scheduler,
        placement=entry.placement,
        files=tuple(file for each in choices if each is not None and (file := catalogue.find(each.name).file)),
    )


def _repeated(names: Iterable[str]) -> list[str]:
    return [name for name, times in Counter(names).items() if times > 1]

"""The `TrainingPolicy` document: one schema for the custom resource and for `--policy-file`.

Keys are camelCase, units are in the names, unknown keys are refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field, WithJsonSchema, model_validator

from slopewise.composition import composed_name
from slopewise.config.metric_mappings import EvaluationMapping, ResponseMapping
from slopewise.config.quantities import CpuMillicores, cpu_quantity
from slopewise.config.validation import API_VERSION, ApiVersion, Document, load_yaml, validate
from slopewise.errors import UsageError
from slopewise.model import AcceleratorControl, CpuControl, MemoryControl, StudyControl
from slopewise.own_policies import catalogue
from slopewise.own_policies.loading import FAILURES, described
from slopewise.policies import PolicyParameters


class LabelRequirement(Document):
    """One `matchExpressions` entry of a Kubernetes label selector."""

    key: str = Field(max_length=317)
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    values: tuple[Annotated[str, Field(max_length=63)], ...] = Field((), max_length=64)

    @model_validator(mode="after")
    def _values_fit_operator(self) -> LabelRequirement:
        if (self.operator in ("In", "NotIn")) != bool(self.values):
            remedy = "needs values" if self.operator in ("In", "NotIn") else "takes no values"
            raise ValueError(f"operator {self.operator} {remedy}")
        return self


class LabelSelector(Document):
    """A Kubernetes label selector; an empty one selects everything."""

    match_labels: dict[str, str] = Field(default_factory=dict, max_length=64)
    match_expressions: tuple[LabelRequirement, ...] = Field((), max_length=16)

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether an object with these labels is selected; all parts must agree."""
        return all(labels.get(key) == value for key, value in self.match_labels.items()) and all(
            _meets(requirement, labels) for requirement in self.match_expressions
        )


def _meets(requirement: LabelRequirement, labels: Mapping[str, str]) -> bool:
    if requirement.operator == "Exists":
        return requirement.key in labels
    if requirement.operator == "DoesNotExist":
        return requirement.key not in labels
    return (labels.get(requirement.key) in requirement.values) == (requirement.operator == "In")


class Selection(Document):
    """Which pods of a cluster are managed: all parts must agree, and the pod must carry `slopewise.dev/managed`."""

    namespaces: LabelSelector = Field(LabelSelector(), description="by the labels of the namespace; empty: all")
    pods: LabelSelector = Field(LabelSelector(), description="by the labels of the pod; empty: all")
    nodes: LabelSelector = Field(LabelSelector(), description="by the labels of the node; empty: all")
    container: str | None = Field(
        None,
        max_length=63,
        description="the trainer's container; else the pod's annotation slopewise.dev/container, or its only one",
    )


PolicyName = Annotated[str, Field(max_length=4096), WithJsonSchema({"type": "string", "maxLength": 63})]
"""In a file of this machine it may be a path, which is read as one before anything else (`named_policy`)."""


class PolicyChoice(Document):
    """Which policy decides, and its own parameters (`slopewise policies NAME` lists them)."""

    name: PolicyName = Field("marginal", description="`slopewise policies` lists them")
    parameters: dict[str, Any] = Field(default_factory=dict, description="the policy's own; each has a default")


class PlacementChoice(PolicyChoice):
    """Which policy chooses nodes, beside the one that decides CPU."""

    name: PolicyName = Field(description="one that places or migrates; `slopewise policies NAME` says what it may do")
    interval_seconds: float | None = Field(
        None, ge=1.0, le=86_400, description="s between two of its evaluations; default: that of spec.behaviour"
    )


class EvaluationSettings(EvaluationMapping):
    """Which series is the evaluation of a job, and how its progress is measured."""

    normaliser: Literal["range", "first", "none"] = Field(
        "range",
        description="what a change is divided by: |first - best|, at least half of |first|; or |first|; or nothing",
    )
    progress: Literal["signed", "absolute"] = Field(
        "signed", description="absolute counts a rising loss as progress, as the papers print it"
    )
    target_hits: int = Field(
        3, ge=1, le=1000, description="how many measurements in a row must reach a target loss, or miss it again"
    )


FORGOTTEN_UNIT_CORES = 100
"""From so many cores on a floor that is above its ceiling was meant as millicores."""


class CpuBounds(Document):
    """The least and the most CPU a job may be given; with `requests`, by its weight while every job wants CPU."""

    min: CpuMillicores = Field(100, description="floor")
    max: CpuMillicores = Field(64_000, description="ceiling")

    @model_validator(mode="after")
    def _ordered(self) -> CpuBounds:
        if self.min > self.max:
            above = f"min {cpu_quantity(self.min)} is above max {cpu_quantity(self.max)}"
            raise ValueError(f"{above}; {self._meant()}")
        return self

    def _meant(self) -> str:
        """A floor of a hundred cores or more: the unit was left out. `crds/rules.py` asks the same."""
        cores = self.min // 1000
        left_out = not self.min % 1000 and FORGOTTEN_UNIT_CORES <= cores <= self.max
        return f"did you mean {cores}m?" if left_out else "swap them"


class ResourceSettings(Document):
    """Which resource is changed, how, and within which bounds."""

    control: CpuControl = Field("requests", description="requests are shares, work-conserving; limits are hard")
    cpu: CpuBounds = CpuBounds()
    lower_requests: bool = Field(
        False, description="lower a request with its limit; without it a limit never goes below its request"
    )
    add_limits: bool = Field(
        False, description="give a limit to containers that have none; a limit once added cannot be removed"
    )
    memory: MemoryControl = Field(
        "Ignore",
        description="Ignore changes none; Requests lowers the requests of CL and released jobs to 1.2 times "
        "their peak; Limits also raises a limit before it kills",
    )
    accelerators: AcceleratorControl = Field(
        "Ignore",
        description="Ignore changes no job with GPUs; Raise gives idle CPU to GPUs that wait for it; Share also lends "
        "what GPU-bound jobs cannot use",
    )


class Behaviour(Document):
    """How fast and how far the controller may move."""

    interval_seconds: float | None = Field(
        None, ge=1.0, le=86_400, description="s between two evaluations of a node; empty: four scrapes, at least 20 s"
    )
    cooldown_seconds: float = Field(10.0, ge=0.0, le=86_400, description="s in which a job is not resized again")
    max_step_ratio: float = Field(20.0, gt=1.0, le=1000.0, description="largest factor of one change")
    min_change_ratio: float = Field(0.1, ge=0.0, lt=1.0, description="smaller changes are not worth a call")
    deferred_deadline_seconds: float = Field(
        120.0, ge=1.0, le=86_400, description="s after which a resize that waits for room is cancelled"
    )
    backoff_seconds: float = Field(
        600.0, ge=0.0, le=604_800, description="s for which a job that regressed after a change is not changed"
    )
    canary_ratio: float = Field(0.1, gt=0.0, le=1.0, description="share of the jobs that mode Canary changes")

    @property
    def evaluation_seconds(self) -> float:
        """The interval of a document that `pass_settings.with_interval` has completed."""
        if self.interval_seconds is None:
            raise ValueError("this document's interval is not known: complete it by with_interval")
        return self.interval_seconds

    @model_validator(mode="after")
    def _can_move(self) -> Behaviour:
        largest_decrease = 1 - 1 / self.max_step_ratio
        if largest_decrease <= self.min_change_ratio:
            raise ValueError(
                f"maxStepRatio {self.max_step_ratio:g} allows decreases of {largest_decrease:.0%} at most, and "
                f"minChangeRatio {self.min_change_ratio:g} forbids them; raise the first or lower the second"
            )
        return self


class Migration(Document):
    """Whether running jobs may be moved, and how often at most; arriving jobs are placed by their own gate."""

    enabled: bool = Field(False, description="move running jobs that say they are migratable")
    max_per_node_per_hour: int = Field(12, ge=1, le=1000, description="moves away from one node within an hour")
    max_concurrent: int = Field(1, ge=1, le=1000, description="moves under way at the same time")
    min_stay_seconds: float = Field(
        60.0, ge=0.0, le=604_800, description="s that a job stays on a node before it is moved (again)"
    )
    max_checkpoint_age_seconds: float = Field(
        300.0, ge=1.0, le=604_800, description="s of work that a move may cost a job that does not save on SIGTERM"
    )
    horizon_seconds: float = Field(
        600.0, ge=1.0, le=604_800, description="s within which a move must gain more than it costs"
    )


Mode = Literal["Observe", "Recommend", "Canary", "Auto"]
"""How much the controller may do; `spec.mode` says what each means."""


class Tenancy(Document):
    """What a job may ask for; reporters and annotations are tenants'."""

    max_weight: float = Field(10.0, gt=0.0, le=1000.0, description="largest weight that an annotation may ask for")


class TrainingPolicySpec(Document):
    """The part of the document that says what to do."""

    mode: Mode = Field(
        "Recommend",
        description="Observe measures, Recommend decides and changes nothing, Canary acts on a share, Auto on all",
    )
    selector: Selection = Selection()
    policy: PolicyChoice = PolicyChoice()
    placement: PlacementChoice | None = Field(
        None, description="a second policy, which chooses nodes; spec.policy then decides CPU alone"
    )
    evaluation: EvaluationSettings = EvaluationSettings()
    responses: ResponseMapping = ResponseMapping()
    resources: ResourceSettings = ResourceSettings()
    behaviour: Behaviour = Behaviour()
    migration: Migration = Migration()
    tenancy: Tenancy = Tenancy()
    studies: StudyControl = Field(
        "Fair", description="Fair: trials of a study are jobs like others; Best: the one that may be best comes first"
    )

    @property
    def policy_name(self) -> str:
        """The name under which its decisions are reported: `flowcon`, or `flowcon+specon` with a placement."""
        return composed_name(self.policy.name, None if self.placement is None else self.placement.name)


class Metadata(Document):
    """The name under which the policy is reported."""

    name: str = Field("default", description="in every log line, metric and table")


class TrainingPolicy(Document):
    """The platform engineer's document: `slopewise.dev/v1alpha1`, kind `TrainingPolicy`."""

    api_version: ApiVersion = Field(API_VERSION, description="of this document")
    kind: Literal["TrainingPolicy"] = Field("TrainingPolicy", description="of this document")
    metadata: Metadata = Metadata()
    spec: TrainingPolicySpec = TrainingPolicySpec()


def load_training_policy(path: Path) -> TrainingPolicy:
    """Read and validate a policy file, down to its policy's own parameters; UsageError with one sentence.

    A policy that it names by its path, relative to the file, has its name in what is returned.
    """
    document = validate(TrainingPolicy, load_yaml(path), where=str(path))
    spec, where = document.spec, f"{path}: spec"
    policy = named_policy(spec.policy, beside=path.parent, where=f"{where}.policy")
    policy_parameters(policy, where=f"{where}.policy")
    placement = spec.placement
    if placement is not None:
        placement = named_policy(placement, beside=path.parent, where=f"{where}.placement")
        placement_parameters(policy, placement, where=where)
    return document.model_copy(update={"spec": spec.model_copy(update={"policy": policy, "placement": placement})})


def as_json(document: TrainingPolicy) -> dict[str, object]:
    """The document as JSON, which `validate` reads as the same document."""
    return document.model_dump(mode="json", by_alias=True, exclude_none=True)


Choice = TypeVar("Choice", bound=PolicyChoice)


def named_policy(choice: Choice, *, beside: Path, where: str) -> Choice:
    """The same choice, by the policy's name where it gave the path of its file; UsageError says where a mistake is.

    Only for what this machine's user wrote: see `own_policies/catalogue.py`.
    """
    try:
        return choice.model_copy(update={"name": catalogue.name_of(choice.name, beside)})
    except UsageError as error:
        raise UsageError(f"{where}.name: {error}") from error


def policy_parameters(choice: PolicyChoice, *, where: str) -> PolicyParameters:
    """The typed parameters of the policy that was chosen; UsageError says where a mistake is."""
    try:
        policy = catalogue.find(choice.name)
    except UsageError as error:
        raise UsageError(f"{where}.name: {error}") from error
    try:
        return validate(policy.parameters, choice.parameters, where=where, under="parameters")
    except UsageError:
        raise
    except FAILURES as error:  # a validator in a file of the user's
        raise UsageError(f"{where}.parameters: {described(error, policy.origin)}.") from error


def placement_parameters(policy: PolicyChoice, placement: PolicyChoice, *, where: str) -> PolicyParameters:
    """The typed parameters of a placement; UsageError where one of the two policies cannot have its part.

    `where` is the place that both `policy` and `placement` are in.
    """
    parameters = policy_parameters(placement, where=f"{where}.placement")
    if not catalogue.find(placement.name).chooses_nodes:
        shipped = [catalogue.find(name) for name in catalogue.shipped()]
        able = ", ".join(each.name for each in shipped if each.chooses_nodes and not each.simulator_only)
        raise UsageError(
            f"{where}.placement.name: policy {placement.name} chooses no nodes; use one that does: {able}, or one of "
            "yours whose ACTIONS name it."
        )
    if catalogue.find(policy.name).only_chooses_nodes:
        raise UsageError(
            f"{where}.policy.name: policy {policy.name} only chooses nodes, which the placement {placement.name} does "
            "here; name one that decides CPU, or fair, which changes none."
        )
    return parameters
